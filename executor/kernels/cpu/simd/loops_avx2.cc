#include "executor/kernels/cpu/simd/loops.h"

#include <cmath>
#include <utility>

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace bindery::cpu {
namespace {

constexpr int kLanes = 8;
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& Avx2Loops() {
  static constexpr Loops kLoops = TableOf("avx2");
  return kLoops;
}

}  // namespace bindery::cpu

#pragma GCC pop_options
