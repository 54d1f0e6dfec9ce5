// Predictions and scores of batches that are computed in pieces, where training is. Private to train/.
#pragma once

#include <vector>

#include "base/host_tensor.h"
#include "executor/executor_group.h"
#include "train/metrics/training_metric.h"
#include "train/updater/micro_batches.h"

namespace bindery {

// Whole outputs of a batch, without padding. In pieces if all outputs have a batch axis.
std::vector<HostTensor> PredictBatch(ExecutorGroup* group, const MicroBatches& cut, const BatchPtr& batch);

// Adds the batch to the metric: once, whatever it is computed in. Waits. Throws what the metric does for outputs and
// labels, and DataError if labels are missing.
void ScoreBatch(ExecutorGroup* group, const MicroBatches& cut, const BatchPtr& batch, TrainingMetric* metric);

// Outputs of several batches as one, along their batch axis, in their order. One batch: its own.
HostTensor Joined(std::vector<HostTensor> parts, ValueType type);

}  // namespace bindery
