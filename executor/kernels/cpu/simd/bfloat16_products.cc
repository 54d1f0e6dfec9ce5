#include "executor/kernels/cpu/simd/bfloat16_products.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "executor/kernels/cpu/dnnl_util.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma,prefer-vector-width=512")
#endif

namespace bindery::cpu {
namespace {

constexpr int64_t kTile = Loops::kTile, kLanes = 16, kPairs = kTile / 2;

// A word is two neighbours in depth, the first of them its lower half: what an instruction multiplies at once.
struct alignas(64) Words {
  uint32_t at[kTile * kPairs];
};

inline __mmask16 First(int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffff : (1u << std::max<int64_t>(n, 0)) - 1);
}
inline __m512 LoadFirst(const float* x, int64_t n) { return _mm512_maskz_loadu_ps(First(n), x); }
inline __m512i Rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// Of `depth` numbers that lie one after another, kPairs words.
inline void PackAlong(const float* x, int64_t depth, uint32_t* words) {
  for (int64_t i = 0; i < kTile; i += 2 * kLanes) {
    const __m512 low = LoadFirst(x + i, depth - i), high = LoadFirst(x + i + kLanes, depth - i - kLanes);
    _mm512_store_si512(words + i / 2, Rounded(low, high));
  }
}
// Of `columns` numbers and those of the next row, null if there is none.
inline void PackAcross(const float* x, const float* next, int64_t columns, uint32_t* words) {
  const __m512i kInTurns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (int64_t i = 0; i < columns; i += kLanes) {
    const __m512 low = LoadFirst(x + i, columns - i);
    const __m512 high = next ? LoadFirst(next + i, columns - i) : _mm512_setzero_ps();
    _mm512_store_si512(words + i, _mm512_permutexvar_epi16(kInTurns, Rounded(low, high)));
  }
}

// Where a row's words lie in `a`, and how many pairs there are.
struct Packed {
  int64_t row, pair, pairs;
};

// Two vectors of kRows rows.
template <int kRows>
inline void AddStrip(const Packed& p, const uint32_t* a, const uint32_t* b, float* y) {
  __m512 sums[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) sums[r][v] = _mm512_loadu_ps(y + r * kTile + v * kLanes);
  }
  for (int64_t k = 0; k < p.pairs; ++k, a += p.pair, b += kTile) {
    const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(a[r * p.row]));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], (__m512bh)factor, (__m512bh)b0);  // clang 16 spoils such variables
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], (__m512bh)factor, (__m512bh)b1);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(y + r * kTile + v * kLanes, sums[r][v]);
  }
}

// Of at most kTile in depth, by parts of so many rows.
void AddPart(const Loops::Product& p) {
  Words a, b;
  for (int64_t k = 0; k < p.depth; k += 2) {
    const float* const row = p.b + k * kTile;
    PackAcross(row, k + 1 < p.depth ? row + kTile : nullptr, kTile, b.at + k / 2 * kTile);
  }
  const bool along = p.a_column == 1;
  const Packed packed{along ? kPairs : 1, along ? 1 : kTile, (p.depth + 1) / 2};
  for (int64_t first = 0; first < p.rows; first += kTile) {
    const int64_t rows = std::min(kTile, p.rows - first);
    const float* const x = p.a + first * p.a_row;
    for (int64_t r = 0; r < rows && along; ++r) PackAlong(x + r * p.a_row, p.depth, a.at + r * kPairs);
    for (int64_t k = 0; k < p.depth && !along; k += 2) {
      const float* const column = x + k * p.a_column;
      PackAcross(column, k + 1 < p.depth ? column + p.a_column : nullptr, rows, a.at + k / 2 * kTile);
    }
    for (int64_t j = 0; j < p.columns; j += 2 * kLanes) {
      const auto add = [&]<int kRows>(int64_t i) __attribute__((always_inline)) {
        AddStrip<kRows>(packed, a.at + i * packed.row, b.at + j, p.y + (first + i) * kTile + j);
      };
      int64_t i = 0;
      for (; i + 8 <= rows; i += 8) add.template operator()<8>(i);
      for (; i < rows; ++i) add.template operator()<1>(i);
    }
  }
}

void AddRoundedProducts(const Loops::Product& p) {
  Loops::Product part = p;
  for (int64_t k = 0; k < p.depth; k += kTile) {
    part.a = p.a + k * p.a_column;
    part.b = p.b + k * kTile;
    part.depth = std::min(kTile, p.depth - k);
    AddPart(part);
  }
}

}  // namespace
}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

// Outside, for it runs on every processor.
bindery::cpu::RoundedProducts bindery::cpu::BestRoundedProducts() {
  return Allows(dnnl::cpu_isa::avx512_core_bf16) ? AddRoundedProducts : nullptr;
}
