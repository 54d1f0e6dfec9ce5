// An activation as a pass over what was just computed and is still in cache. (The epilogues of oneDNN lose NaN.)
#pragma once

#include "engine/team.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

struct ActivationPass {
  Loops::UnaryLoop loop = nullptr;  // null: nothing to do

  explicit ActivationPass(ActivationType type);
  void operator()(float* y, int64_t n) const {
    if (!loop) return;
    ParallelFor(n, kGrain, kSerialElements,
                [&](int64_t begin, int64_t end, int) { loop(y + begin, y + begin, end - begin); });
  }
};

}  // namespace bindery::cpu
