// The gradient of a bias: dy summed over all axes but one.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// (dy, ...) -> nothing, db, where nobody asks for the gradient of the weight. nullopt if output 1 is not there or not
// used, and for 16-bit floats.
MaybeKernel MakeBiasGradient(const KernelSpec& spec, int axis);
// A kernel of plain values that gives output 0, with output 1 as above if it is used.
MaybeKernel WithBiasGradient(MaybeKernel weight, const KernelSpec& spec, int axis);

}  // namespace bindery::cpu
