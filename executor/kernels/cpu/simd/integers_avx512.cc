#include <immintrin.h>

#include <cstring>
#include <utility>

#include "executor/kernels/cpu/simd/integers.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")
#endif

namespace bindery::cpu {
namespace {

using Sums = __m512i;
constexpr int64_t kSums = 16;
constexpr int kMostRows = 12;
inline Sums Zero() { return _mm512_setzero_si512(); }
inline void Store(Sums sums, int32_t* p) { _mm512_storeu_si512(p, sums); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b)); }
inline Sums Pairs(const int8_t* w) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
}
inline int32_t Two(const int16_t* x) {
  int32_t two;
  std::memcpy(&two, x, sizeof two);
  return two;
}
inline Sums Pair(const int16_t* x) { return _mm512_set1_epi32(Two(x)); }

#include "executor/kernels/cpu/simd/integers_body.h"

}  // namespace

const IntegerLoops& Avx512Integers() { return kTable; }

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
