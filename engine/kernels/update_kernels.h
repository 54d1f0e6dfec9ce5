// The kernels of the built-in update rules for host memory. Here for all that want them: they take long to compile.
#pragma once

#include <span>

#include "engine/kernels/update.h"

namespace bindery {

std::span<const UpdateKernel> UpdateKernels();  // in the order of update_rules::All (engine/kernels/update_rules.h)

}  // namespace bindery
