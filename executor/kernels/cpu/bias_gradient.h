// The gradient of a bias by itself, where nobody asks for that of the weight.
#pragma once

#include <optional>

#include "executor/kernel.h"

namespace bindery::cpu {

// (dy, ...) -> nothing, db: dy summed over all axes but `axis`. nullopt if output 1 is not there or not used.
std::optional<Kernel> MakeBiasGradient(const KernelSpec& spec, int axis);

}  // namespace bindery::cpu
