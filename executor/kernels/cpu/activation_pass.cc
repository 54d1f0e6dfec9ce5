#include "executor/kernels/cpu/activation_pass.h"

namespace bindery::cpu {

ActivationPass::ActivationPass(ActivationType type) {
  if (type != ActivationType::kNone) loop = BestLoops().activation[static_cast<size_t>(type) - 1];
}

}  // namespace bindery::cpu
