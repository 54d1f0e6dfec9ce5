#include "executor/kernels/cpu/simd/bfloat16_gradients.h"

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma,prefer-vector-width=512")
#endif

namespace bindery::cpu {
namespace {

constexpr int64_t kBlock = BFloat16Gradients::kBlock, kAtOnce = 8, kColumns = 3;

inline __m256i Place(const bfloat16* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
inline void StorePairs(__m256i first, __m256i second, uint32_t* words) {
  constexpr __mmask16 kAll = 0xffff;  // the forms without a mask read what is undefined, of which g++ 12 warns
  const __m512i low = _mm512_maskz_cvtepu16_epi32(kAll, first), high = _mm512_maskz_cvtepu16_epi32(kAll, second);
  _mm512_storeu_si512(words, _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, high, 16)));
}
inline __m512bh Words(const uint32_t* words) { return (__m512bh)_mm512_loadu_si512(words); }

}  // namespace

void BFloat16Gradients::PackX(const bfloat16* x, uint32_t* words) const {
  const __m256i none = _mm256_setzero_si256();
  for (int64_t i = -1; i <= x_columns; ++i, words += kBlock) {
    const int64_t next = i + stride;
    StorePairs(i >= 0 && i < x_columns ? Place(x + i * kBlock) : none,
               next < x_columns ? Place(x + next * kBlock) : none, words);
  }
}

void BFloat16Gradients::PackY(const bfloat16* dy, uint32_t* words) const {
  const __m256i none = _mm256_setzero_si256();
  StorePairs(none, Place(dy + kBlock), words);
  for (int64_t i = 0; i < y_columns; i += 2) {
    words += kBlock;
    StorePairs(Place(dy + i * kBlock), Place(dy + (i + 1) * kBlock), words);
  }
  const int64_t last = y_columns - 1;
  const bool is_there = last * stride + 1 < x_columns;
  StorePairs(Place(dy + (last - 1) * kBlock), is_there ? Place(dy + last * kBlock) : none, words + kBlock);
}

void BFloat16Gradients::Add(const uint32_t* x, const uint32_t* dy, int64_t rows, int64_t channels, float* sums) const {
  for (int64_t first = 0; first < kBlock; first += kAtOnce) {
    __m512 s[kColumns][kAtOnce];
    for (int j = 0; j < kColumns; ++j) {
      for (int c = 0; c < kAtOnce; ++c) s[j][c] = _mm512_loadu_ps(sums + (j * channels + first + c) * kBlock);
    }
    const int64_t pairs = y_columns / 2, step = 2 * stride * kBlock;
    const auto add = [&s](const uint32_t* at, __m512bh left, __m512bh middle, __m512bh right)
        __attribute__((always_inline)) {
      const __m512bh g[kColumns] = {left, middle, right};
      for (int j = 0; j < kColumns; ++j) {
        for (int c = 0; c < kAtOnce; ++c) {
          const auto factor = (__m512bh)_mm512_set1_epi32(static_cast<int>(at[j * kBlock + c]));
          s[j][c] = _mm512_dpbf16_ps(s[j][c], factor, g[j]);
        }
      }
    };
    for (int64_t row = 0; row < rows; ++row) {
      const uint32_t* at = x + row * stride * x_row() * kBlock + first;
      const uint32_t* g = dy + row * y_row() * kBlock;
      const __m512bh begin = Words(g + kBlock), end = Words(g + pairs * kBlock);
      add(at, Words(g), begin, begin);
      for (int64_t p = 1; p < pairs - 1; ++p) {
        const __m512bh pair = Words(g + (p + 1) * kBlock);
        add(at + p * step, pair, pair, pair);
      }
      add(at + (pairs - 1) * step, end, end, Words(g + (pairs + 1) * kBlock));
    }
    for (int j = 0; j < kColumns; ++j) {
      for (int c = 0; c < kAtOnce; ++c) _mm512_storeu_ps(sums + (j * channels + first + c) * kBlock, s[j][c]);
    }
  }
}

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
