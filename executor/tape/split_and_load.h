// Arrays of several devices: a batch shared out among them, and what they have summed over all of them. What the group
// and the trainer do by themselves, for programs that do it by hand.
#pragma once

#include <vector>

#include "executor/tape/ndarray.h"

namespace bindery {

struct SplitOptions {
  // Rows that the devices do not divide: an error, unless this says no. Then the first devices get one more.
  bool even = true;
};
// Rows 0 .. m - 1 on the first device, m .. 2m - 1 on the second, and so on: copies, also on the device where the whole
// lies. Throws ShapeError: no rows to split, fewer of them than devices, or no multiple of the devices; Error without
// devices.
std::vector<NDArray> SplitAndLoad(const HostTensor& batch, const std::vector<Device>& devices,
                                  const SplitOptions& options = {});
std::vector<NDArray> SplitAndLoad(const NDArray& batch, const std::vector<Device>& devices,
                                  const SplitOptions& options = {});

// Every array becomes the sum of all, in place: ((a[0] + a[1]) + a[2]) + ..., in this order, wherever they lie.
// Asynchronous; the arrays may be views, but not of one memory. Throws Error or ShapeError: arrays that are empty, of
// different shapes, element types or engines, or that the tape records.
void AllReduce(const std::vector<NDArray>& arrays);

}  // namespace bindery
