// An activation as a pass over what was just computed and is still in cache. (The epilogues of oneDNN lose NaN.)
#pragma once

#include "engine/team.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

template <class T = float>
struct ActivationPass {
  typename LoopsOf<T>::UnaryLoop loop = nullptr;  // null: nothing to do

  explicit ActivationPass(ActivationType type) {
    if (type != ActivationType::kNone) loop = BestLoops<T>().activation[static_cast<size_t>(type) - 1];
  }
  void operator()(T* y, int64_t n) const {
    if (!loop) return;
    ParallelFor(n, kGrain, kSerialElements,
                [&](int64_t begin, int64_t end, int) { loop(y + begin, y + begin, end - begin); });
  }
  // Of output 0, which has n elements, after what `kernel` does.
  Kernel After(Kernel kernel, int64_t n) const {
    if (!loop) return kernel;
    kernel.bind = [pass = *this, n, bind = kernel.bind](const KernelArgs& args) -> Call {
      return [pass, n, run = bind(args), y = static_cast<T*>(args.outputs[0])] {
        run();
        pass(y, n);
      };
    };
    return kernel;
  }
};

}  // namespace bindery::cpu
