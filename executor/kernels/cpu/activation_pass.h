// An activation as a pass over what was just computed and is still in cache. (The epilogues of oneDNN lose NaN.)
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/team.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

// Of float, double, or bfloat16, which is computed in float, a part after another.
template <class T = float>
struct ActivationPass {
  using Computed = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;
  typename LoopsOf<Computed>::UnaryLoop loop = nullptr;  // null: nothing to do

  explicit ActivationPass(ActivationType type) {
    if (type != ActivationType::kNone) loop = BestLoops<Computed>().activation[static_cast<size_t>(type) - 1];
  }
  void operator()(T* y, int64_t n) const {
    if (!loop) return;
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) { Serial(y + begin, end - begin); });
  }
  void Serial(T* y, int64_t n) const {
    if constexpr (std::is_same_v<T, Computed>) {
      loop(y, y, n);
    } else {
      constexpr int64_t kPart = 256;
      alignas(64) Computed part[kPart];
      for (int64_t at = 0; at < n; at += kPart) {
        const int64_t count = std::min(kPart, n - at);
        BestLoops().conversions.widen(y + at, part, count);
        loop(part, part, count);
        BestLoops().conversions.narrow(part, y + at, count);
      }
    }
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

// The same by the type of output 0: float32 or bfloat16.
inline Kernel WithActivation(Kernel kernel, const KernelSpec& spec, ActivationType type, int64_t n) {
  if (spec.outputs[0].dtype == DType::kBFloat16) return ActivationPass<bfloat16>(type).After(std::move(kernel), n);
  return ActivationPass(type).After(std::move(kernel), n);
}

}  // namespace bindery::cpu
