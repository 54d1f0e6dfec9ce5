#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")
#endif

namespace bindery::cpu {
namespace {

// The forms with a mask: those without one rely on an undefined value, of which g++ 12 warns.
using Register = __m512i;
inline Register MultiplyLow32(Register a, Register b) { return _mm512_maskz_mul_epu32(0xff, a, b); }

namespace floats {
using Real = float;
constexpr int kLanes = 16;
inline __m512 SquareRoot(__m512 x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
inline __m512 LoadPart(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
inline __m512 MultiplyAdd(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
constexpr bool kFused = true;
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_float.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace floats

namespace doubles {
using Real = double;
constexpr int kLanes = 8;
inline __m512d SquareRoot(__m512d x) { return _mm512_maskz_sqrt_pd(0xff, x); }
inline __m512d LoadPart(const double* p, int64_t n) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
}
inline __m512d MultiplyAdd(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_double.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace doubles

namespace integers {
using Element = int16_t;
using Sums = __m512i;
constexpr int64_t kSums = 16;
constexpr int kMostRows = 12;
inline Sums Everywhere(int32_t bits) { return _mm512_set1_epi32(bits); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b)); }
inline Sums Groups(const int8_t* w) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
}
#include "executor/kernels/cpu/simd/integers_body.h"
}  // namespace integers

}  // namespace

const LoopSet& Avx512Loops() {
  static constexpr LoopSet kLoops = {floats::TableOf("avx512"), doubles::TableOf("avx512"), integers::Table()};
  return kLoops;
}

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
