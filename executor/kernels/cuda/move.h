// Moves of elements from strides to strides, for whoever needs one beside its own work.
#pragma once

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/layout_args.h"

namespace bindery::cuda {

// Elements of `size` bytes, by the largest units that the places allow, or by tiles. Nothing if `out` is null.
void AddMove(Launches& launches, const void* in, void* out, int64_t size, MoveArgs args);

}  // namespace bindery::cuda
