#include "executor/kernels/cpu/simd/loops.h"

#include <cmath>
#include <utility>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")

namespace bindery::cpu {
namespace {

constexpr int kLanes = 16;
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& Avx512Loops() {
  static constexpr Loops kLoops = TableOf("avx512");
  return kLoops;
}

}  // namespace bindery::cpu

#pragma GCC pop_options
