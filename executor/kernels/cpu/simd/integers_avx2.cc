#include <immintrin.h>

#include <cstring>
#include <utility>

#include "executor/kernels/cpu/simd/integers.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace bindery::cpu {
namespace {

using Sums = __m256i;
constexpr int64_t kSums = 8;
constexpr int kMostRows = 6;
inline Sums Zero() { return _mm256_setzero_si256(); }
inline void Store(Sums sums, int32_t* p) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), sums); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)); }
inline Sums Pairs(const int8_t* w) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
inline int32_t Two(const int16_t* x) {
  int32_t two;
  std::memcpy(&two, x, sizeof two);
  return two;
}
inline Sums Pair(const int16_t* x) { return _mm256_set1_epi32(Two(x)); }

#include "executor/kernels/cpu/simd/integers_body.h"

}  // namespace

const IntegerLoops& Avx2Integers() { return kTable; }

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
