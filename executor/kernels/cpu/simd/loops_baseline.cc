#include "executor/kernels/cpu/simd/loops.h"

#include <cmath>
#include <utility>

namespace bindery::cpu {
namespace {

constexpr int kLanes = 4;
#include "executor/kernels/cpu/simd/loops_body.h"

}  // namespace

const Loops& BaselineLoops() {
  static constexpr Loops kLoops = TableOf("baseline");
  return kLoops;
}

}  // namespace bindery::cpu
