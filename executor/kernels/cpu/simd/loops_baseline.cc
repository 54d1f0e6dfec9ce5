#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {
namespace {

using Register = __m128i;
inline Register MultiplyLow32(Register a, Register b) { return _mm_mul_epu32(a, b); }

namespace floats {
using Real = float;
constexpr int kLanes = 4;
inline __m128 SquareRoot(__m128 x) { return _mm_sqrt_ps(x); }
inline __m128 LoadPart(const float* p, int64_t n) { return _mm_setr_ps(p[0], n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, 0); }
inline __m128 MultiplyAdd(__m128 a, __m128 b, __m128 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
constexpr bool kFused = false;
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_float.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace floats

namespace doubles {
using Real = double;
constexpr int kLanes = 2;
inline __m128d SquareRoot(__m128d x) { return _mm_sqrt_pd(x); }
inline __m128d LoadPart(const double* p, int64_t) { return _mm_load_sd(p); }
inline __m128d MultiplyAdd(__m128d a, __m128d b, __m128d c) { return _mm_add_pd(_mm_mul_pd(a, b), c); }
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_double.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace doubles

namespace integers {
using Element = int16_t;
using Sums = __m128i;
constexpr int64_t kSums = 4;
constexpr int kMostRows = 2;
inline Sums Everywhere(int32_t bits) { return _mm_set1_epi32(bits); }
inline Sums AddProducts(Sums sums, Sums a, Sums b) { return _mm_add_epi32(sums, _mm_madd_epi16(a, b)); }
inline Sums Groups(const int8_t* w) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w));
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
#include "executor/kernels/cpu/simd/integers_body.h"
}  // namespace integers

}  // namespace

const LoopSet& BaselineLoops() {
  static constexpr LoopSet kLoops = {floats::TableOf("baseline"), doubles::TableOf("baseline"), integers::Table()};
  return kLoops;
}

}  // namespace bindery::cpu
