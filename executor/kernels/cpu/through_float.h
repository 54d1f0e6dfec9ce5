// 16-bit floats by the kernels of float32.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// The kernel that `make` makes for float32 in the place of every bfloat16 and float16, between conversions of these
// in scratch memory. nullopt if there is none of these, or it declines that, too.
MaybeKernel ThroughFloat(const KernelSpec& spec, KernelMaker make);

}  // namespace bindery::cpu
