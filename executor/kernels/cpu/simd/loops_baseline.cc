#include <immintrin.h>

#include <cmath>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {
namespace {

constexpr int kLanes = 4;
inline __m128 SquareRoot(__m128 x) { return _mm_sqrt_ps(x); }
using Register = __m128i;
inline Register MultiplyLow32(Register a, Register b) { return _mm_mul_epu32(a, b); }
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& BaselineLoops() {
  static constexpr Loops kLoops = TableOf("baseline");
  return kLoops;
}

}  // namespace bindery::cpu
