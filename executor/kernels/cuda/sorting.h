// Sorting, for whoever needs it beside its own work.
#pragma once

#include "executor/kernels/cuda/launch.h"

namespace bindery::cuda {

// What the order of n numbers takes; 0: they are too many.
int64_t SortBytes(int64_t n);
// order[0..n-1]: where the numbers are, the smallest first, of equal ones the first.
void AddSort(Launches& launches, const Source& values, int64_t n, int32_t* order);

}  // namespace bindery::cuda
