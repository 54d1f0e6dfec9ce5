#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace bindery::cpu {
namespace {

using Register = __m256i;
inline Register MultiplyLow32(Register a, Register b) { return _mm256_mul_epu32(a, b); }

namespace floats {
using Real = float;
constexpr int kLanes = 8;
inline __m256 SquareRoot(__m256 x) { return _mm256_sqrt_ps(x); }
inline __m256 LoadPart(const float* p, int64_t n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lanes));
}
inline __m256 MultiplyAdd(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
constexpr bool kFused = true;
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_float.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace floats

namespace doubles {
using Real = double;
constexpr int kLanes = 4;
inline __m256d SquareRoot(__m256d x) { return _mm256_sqrt_pd(x); }
inline __m256d LoadPart(const double* p, int64_t n) {
  return _mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)));
}
inline __m256d MultiplyAdd(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_double.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace doubles

namespace integers {
using Element = int16_t;
using Sums = __m256i;
constexpr int64_t kSums = 8;
constexpr int kMostRows = 6;
inline Sums Everywhere(int32_t bits) { return _mm256_set1_epi32(bits); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)); }
inline Sums Groups(const int8_t* w) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
#include "executor/kernels/cpu/simd/integers_body.h"
}  // namespace integers

}  // namespace

const LoopSet& Avx2Loops() {
  static constexpr LoopSet kLoops = {floats::TableOf("avx2"), doubles::TableOf("avx2"), integers::Table()};
  return kLoops;
}

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
