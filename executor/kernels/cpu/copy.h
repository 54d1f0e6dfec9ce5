// Moving bytes: copies, and views' kernels.
#pragma once

#include "executor/kernel.h"

namespace bindery::cpu {

// Copies `bytes`, by the whole team if they are many; does nothing where source and target are the same.
void ParallelCopy(void* target, const void* source, int64_t bytes);
Kernel CopyKernel(int64_t bytes, const Format& from, const Format& to, int threads);
// Output 0 = input 0, same elements in the same order; in any format if the shape stays.
MaybeKernel ViewKernel(const KernelSpec& spec);
// Output 0 = the part of input 0 that begins at an index of one axis, in the format in which the input comes.
Kernel PartKernel(const KernelSpec& spec, int axis, int64_t begin);  // concat.cc

}  // namespace bindery::cpu
