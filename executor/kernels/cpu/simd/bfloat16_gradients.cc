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

// s[column][channel] += the products of a pair of places of x at `at` and of one of dy, which each column has for itself.
// Nothing is kept as __m512bh: clang 16 spoils such variables.
[[gnu::always_inline]] inline void AddPair(const uint32_t* at, const uint32_t* left, const uint32_t* middle,
                                           const uint32_t* right, __m512 (&s)[kColumns][kAtOnce]) {
  const __m512i g[kColumns] = {_mm512_loadu_si512(left), _mm512_loadu_si512(middle), _mm512_loadu_si512(right)};
  for (int j = 0; j < kColumns; ++j) {
    for (int c = 0; c < kAtOnce; ++c) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(at[j * kBlock + c]));
      s[j][c] = _mm512_dpbf16_ps(s[j][c], (__m512bh)factor, (__m512bh)g[j]);
    }
  }
}

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
    for (int64_t row = 0; row < rows; ++row) {
      const uint32_t* at = x + row * stride * x_row() * kBlock + first;
      const uint32_t* g = dy + row * y_row() * kBlock;
      AddPair(at, g, g + kBlock, g + kBlock, s);
      for (int64_t p = 1; p < pairs - 1; ++p) {
        const uint32_t* const pair = g + (p + 1) * kBlock;
        AddPair(at + p * step, pair, pair, pair, s);
      }
      const uint32_t* const last = g + pairs * kBlock;
      AddPair(at + (pairs - 1) * step, last, last, last + kBlock, s);
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
