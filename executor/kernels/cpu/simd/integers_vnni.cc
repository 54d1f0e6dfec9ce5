#include <immintrin.h>

#include <cstring>
#include <utility>

#include "executor/kernels/cpu/simd/loops.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma,prefer-vector-width=512")
#endif

namespace bindery::cpu {
namespace {

using Element = uint8_t;
using Sums = __m512i;
constexpr int64_t kSums = 16;
constexpr int kMostRows = 12;
inline Sums Everywhere(int32_t bits) { return _mm512_set1_epi32(bits); }
inline Sums AddProducts(Sums sums, Sums data, Sums weights) { return _mm512_dpbusd_epi32(sums, data, weights); }
inline Sums Groups(const int8_t* w) { return _mm512_loadu_si512(w); }
#include "executor/kernels/cpu/simd/integers_body.h"

}  // namespace

const IntegerLoops& VnniIntegers() {
  static constexpr IntegerLoops kLoops = Table();
  return kLoops;
}

}  // namespace bindery::cpu

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
