#include "executor/kernels/cpu/activation_pass.h"

namespace bindery::cpu {

ActivationPass::ActivationPass(ActivationType type) {
  const auto of = [](Unary function) { return BestLoops().unary[static_cast<size_t>(function)]; };
  switch (type) {
    case ActivationType::kNone: break;
    case ActivationType::kRelu: loop = of(Unary::kRelu); break;
    case ActivationType::kSigmoid: loop = of(Unary::kSigmoid); break;
    case ActivationType::kTanh: loop = of(Unary::kTanh); break;
    case ActivationType::kSoftRelu: loop = of(Unary::kSoftRelu); break;
    case ActivationType::kSoftSign: loop = of(Unary::kSoftSign); break;
  }
}

}  // namespace bindery::cpu
