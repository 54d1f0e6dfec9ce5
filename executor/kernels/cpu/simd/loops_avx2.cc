#include <immintrin.h>

#include <cmath>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace bindery::cpu {
namespace {

constexpr int kLanes = 8;
inline __m256 SquareRoot(__m256 x) { return _mm256_sqrt_ps(x); }
inline __m256 MultiplyAdd(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
using Register = __m256i;
inline Register MultiplyLow32(Register a, Register b) { return _mm256_mul_epu32(a, b); }
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& Avx2Loops() {
  static constexpr Loops kLoops = TableOf("avx2");
  return kLoops;
}

}  // namespace bindery::cpu

#pragma GCC pop_options
