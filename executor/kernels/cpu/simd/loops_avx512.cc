#include <immintrin.h>

#include <cmath>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")

namespace bindery::cpu {
namespace {

constexpr int kLanes = 16;
// The forms with a mask: those without one rely on an undefined value, of which g++ 12 warns.
inline __m512 SquareRoot(__m512 x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
inline __m512 MultiplyAdd(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
using Register = __m512i;
inline Register MultiplyLow32(Register a, Register b) { return _mm512_maskz_mul_epu32(0xff, a, b); }
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& Avx512Loops() {
  static constexpr Loops kLoops = TableOf("avx512");
  return kLoops;
}

}  // namespace bindery::cpu

#pragma GCC pop_options
