// Types by the kernels of others.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// The kernel that `make` makes for float32 in the place of every bfloat16 and float16, between conversions of these in
// scratch memory; or else for floats in the place of integers, too: float64, or float32 where other values are (the
// functions that nobody made for integers round anyway). nullopt if it declines that, too.
MaybeKernel ThroughFloat(const KernelSpec& spec, KernelMaker make);

}  // namespace bindery::cpu
