// What devices combine between segments, and how running statistics move. On host-addressable memory; all sums in
// device order, so that results do not depend on timing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "executor/plan.h"

namespace bindery {

// Runs the exchange named `op` ("SumOverDevices", "MergeStatistics"): inputs of all devices -> every output.
void RunExchange(const std::string& op, const ValueType& type, std::span<const void* const> inputs,
                 std::span<void* const> outputs);

// One device's batch statistics of a channel axis: per channel mean and biased variance over `count` elements.
struct ChannelStatistics {
  int64_t count = 0;
  const void* mean = nullptr;
  const void* variance = nullptr;
};
// The running statistics of one layer: what moves them, and where they are on every device.
struct RunningStatistics {
  DType dtype = DType::kFloat32;
  int64_t channels = 0;
  double momentum = 0;
  std::vector<ChannelStatistics> sources = {};
  std::vector<void*> means = {}, variances = {};
};
// For each layer merges the sources (Chan, Golub, LeVeque 1979): n = sum n_d, mean = sum n_d mean_d / n,
// M2 = sum n_d var_d + sum n_d (mean_d - mean)^2, var = M2 / n, and moves the running values of every device:
// running = momentum * running + (1 - momentum) * merged. Devices' running values are equal before and after.
// If one of the new values is not finite, all layers keep theirs: a step that diverged leaves no trace in a model.
void MoveRunningStatistics(std::span<const RunningStatistics> layers);

}  // namespace bindery
