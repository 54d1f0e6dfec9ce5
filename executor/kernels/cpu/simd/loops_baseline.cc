#include <immintrin.h>

#include <cmath>
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

}  // namespace

const LoopSet& BaselineLoops() {
  static constexpr LoopSet kLoops = {floats::TableOf("baseline"), doubles::TableOf("baseline")};
  return kLoops;
}

}  // namespace bindery::cpu
