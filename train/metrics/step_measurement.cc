#include "train/metrics/step_measurement.h"

namespace bindery {

void StepMeasurement::Push(const ExecutorGroup& group, const Metric& metric, const VarPtr& done, const Tensor& status) {
  if (parts_ == all_.size()) all_.emplace_back();
  Part& part = all_[parts_];
  group.PushMetric(metric, part.measurement, done, status);
  const std::vector<SampleRange>& slices = group.slices();
  part.shares.clear();
  for (size_t r = 0; r < slices.size(); ++r) {
    if (slices[r].size() > 0) part.shares.emplace_back(r, slices[r].size());
  }
  ++parts_;
}

void StepMeasurement::MergeInto(Metric* metric, std::optional<size_t> replica) const {
  if (parts_ == 1 && !replica) return metric->Merge(all_[0].measurement->partials);
  std::vector<std::vector<double>> partials;
  for (size_t p = 0; p < parts_; ++p) {
    const Part& part = all_[p];
    for (size_t i = 0; i < part.shares.size(); ++i) {
      if (!replica || part.shares[i].first == *replica) partials.push_back(part.measurement->partials[i]);
    }
  }
  if (!partials.empty()) metric->Merge(partials);
}

int64_t StepMeasurement::Samples(std::optional<size_t> replica) const {
  int64_t samples = 0;
  for (size_t p = 0; p < parts_; ++p) {
    for (const auto& [owner, count] : all_[p].shares) samples += !replica || owner == *replica ? count : 0;
  }
  return samples;
}

}  // namespace bindery
