// GroupMetric: a metric's graph, compiled for the outputs of one binding and run beside its programs, where the outputs
// are: one part of a step for each device with samples, which leaves its few numbers where the host can read them, and
// one that ends it. That one makes the metric's checks, so that whatever waits for it hears of a bad label.
#pragma once

#include <memory>
#include <vector>

#include "base/host_tensor.h"
#include "executor/batch.h"
#include "executor/group/step.h"
#include "executor/metric.h"

namespace bindery {

struct GroupSpec;

// What one measuring of one step gives: a partial per device with samples. To be used again when these are there.
struct Measurement {
  struct Place;  // where devices leave their numbers for the host: its own until it is used again
  mutable std::vector<std::vector<double>> partials = {};
  mutable std::shared_ptr<Place> place = nullptr;
};

using LabelLists = std::vector<std::vector<HostTensor>>;  // per device with samples, in order of descriptions

class GroupMetric {
 public:
  // The values of labels are those that the last batch brought to the devices; or, where lists are given, those that
  // Measure is given, of the same types. `ranges`: per device of the group. Of `options` counts what is not of the
  // graph's own. Throws what the metric does for outputs and labels that do not fit.
  GroupMetric(std::shared_ptr<Engine> engine, const Metric& metric,
              const std::vector<GroupStep::Participant>& participants, const GroupSpec& spec, const LabelLists* lists,
              const std::vector<SampleRange>& ranges, const CompileOptions& options);

  bool IsFor(const Metric& metric, const LabelLists* lists) const;
  // Beside these labels, now: a partial per device with samples, until it is called again.
  const std::vector<std::vector<double>>& Measure(const LabelLists& lists);
  // `done` is written when all partials are there, and carries the first error. `status`, where there is one: the
  // StepStatus of the only device with samples, which becomes bad if the metric refuses; if measuring fails, it fails.
  void Push(const std::shared_ptr<Measurement>& measurement, const VarPtr& done, const Tensor& status = {});

 private:
  struct Share;
  std::shared_ptr<Measurement::Place> TakePlace(const VarPtr& done, const Tensor& status);
  std::shared_ptr<Measurement::Place> MakePlace(const VarPtr& done, const Tensor& status) const;

  std::shared_ptr<Engine> engine_;
  uint64_t metric_;
  size_t partial_size_;
  bool labels_of_batch_;
  std::vector<std::vector<Tensor>> labels_;  // per share; set by Measure unless they are the batch's
  std::vector<std::shared_ptr<Share>> shares_;
  StepParts parts_;  // per share
  std::vector<std::shared_ptr<Measurement::Place>> places_;
  const std::shared_ptr<Measurement> measured_ = std::make_shared<Measurement>();  // of Measure
  const VarPtr measure_done_;
};

}  // namespace bindery
