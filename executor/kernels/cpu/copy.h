// Moving bytes: copies, and views' kernels.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// Copies `bytes`, by the whole team if they are many; does nothing where source and target are the same.
void ParallelCopy(void* target, const void* source, int64_t bytes);
Kernel CopyKernel(int64_t bytes, const Format& from, const Format& to, int threads);
// Output 0 = input 0, same elements in the same order; in any format if the shape stays.
MaybeKernel ViewKernel(const KernelSpec& spec);

}  // namespace bindery::cpu
