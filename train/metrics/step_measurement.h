// StepMeasurement: what a metric gives on one step, of one batch or of several micro-batches, which count as one batch.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executor/executor_group.h"

namespace bindery {

class StepMeasurement {
 public:
  void Begin() { parts_ = 0; }  // of a step; what is there is used again
  // Measures the outputs of the batch that the group was just given (ExecutorGroup::PushMetric).
  void Push(const ExecutorGroup& group, const Metric& metric, const VarPtr& done, const Tensor& status = {});

  // When what was pushed is over. All shares of all micro-batches, or those of one replica, as one batch; nothing if
  // there are none.
  void MergeInto(Metric* metric, std::optional<size_t> replica = std::nullopt) const;
  int64_t Samples(std::optional<size_t> replica = std::nullopt) const;

 private:
  struct Part {  // of a micro-batch
    std::shared_ptr<Measurement> measurement = std::make_shared<Measurement>();
    std::vector<std::pair<size_t, int64_t>> shares = {};  // replicas with samples, and how many
  };
  std::vector<Part> all_;  // the first `parts_` are of this step
  size_t parts_ = 0;
};

}  // namespace bindery
