#include <immintrin.h>

#include <cmath>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {
namespace {

constexpr int kLanes = 4;
inline __m128 SquareRoot(__m128 x) { return _mm_sqrt_ps(x); }
inline __m128 MultiplyAdd(__m128 a, __m128 b, __m128 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
using Register = __m128i;
inline Register MultiplyLow32(Register a, Register b) { return _mm_mul_epu32(a, b); }
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& BaselineLoops() {
  static constexpr Loops kLoops = TableOf("baseline");
  return kLoops;
}

}  // namespace bindery::cpu
