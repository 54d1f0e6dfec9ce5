// GroupMetric: a metric's partial sums over the outputs of one binding, computed where the outputs are, as prepared
// operations: one a device with samples, then one that ends it.
#pragma once

#include <memory>
#include <vector>

#include "base/host_tensor.h"
#include "executor/batch.h"
#include "executor/group/split_batch.h"
#include "executor/group/step.h"
#include "executor/metric.h"

namespace bindery {

// One measuring of one step. The labels are whole, or cut beforehand: one list per device with samples.
struct Measurement {
  const Metric* metric = nullptr;
  const std::vector<HostTensor>* labels = nullptr;
  const std::vector<std::vector<HostTensor>>* cut_labels = nullptr;
  BatchPtr batch = nullptr;  // keeps the labels alive, if they are its own
  // Per device with samples: the result. Each operation has one to itself.
  mutable std::vector<std::vector<double>> partials = {};
};

class GroupMetric {
 public:
  // `labels`: descriptions; `ranges`: per device of the group.
  GroupMetric(std::shared_ptr<Engine> engine, const std::vector<GroupStep::Participant>& participants,
              const std::vector<DataDesc>& labels, const std::vector<SampleRange>& ranges);

  // `done` is written when all partials are there, and carries the first error.
  void Push(const std::shared_ptr<Measurement>& measurement, const VarPtr& done);

 private:
  // One device's share: what its metric operation reads, made once but for the labels.
  struct Share {
    MetricInputs inputs;
    SampleRange range;
    std::vector<int> label_axes;                  // -1: not batched
    std::vector<HostTensor> slices;               // per label, of one that is batched along another axis than 0
    std::vector<std::shared_ptr<Chunk>> fetched;  // outputs of a device that the host cannot address
  };
  static void Accumulate(Share* share, size_t index, const Measurement& measurement);

  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<Share>> shares_;
  std::vector<PreparedPtr> operations_;
  std::vector<VarPtr> measured_;  // per share
  VarPtr done_;                   // that the last operation was prepared for
  PreparedPtr end_;
};

}  // namespace bindery
