// Reductions, for whoever needs one beside its own work.
#pragma once

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/reduce_args.h"

namespace bindery::cuda {

void SplitRows(ReduceArgs* args);  // into PartsOf, where blocks take them
int64_t ScratchOf(const ReduceArgs& args);
void AddReduction(Launches& launches, ReduceArgs args, void* scratch);

}  // namespace bindery::cuda
