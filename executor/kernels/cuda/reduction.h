// Reductions, for whoever needs one beside its own work.
#pragma once

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/reduce_args.h"

namespace bindery::cuda {

// Sets parts, where there are too few rows for a GPU and they are long: as the shape has it, so that the same sums are
// taken everywhere.
void SplitRows(ReduceArgs* args);
int64_t ScratchOf(const ReduceArgs& args);
void AddReduction(Launches& launches, ReduceArgs args, void* scratch);

}  // namespace bindery::cuda
