// TrainingMetric: a metric that refuses outputs which are not finite, in the same pass. Private to train/trainer*.cc.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/metric.h"
#include "symbol/symbol.h"

namespace bindery {

class TrainingMetric final : public Metric {
 public:
  // Heads that nothing is trained by (BlockGrad, variables) may hold what they like.
  TrainingMetric(std::unique_ptr<Metric> metric, const Symbol& symbol);

  std::string name() const override { return metric_->name(); }
  int partial_size() const override { return metric_->partial_size(); }
  // Throws NumericError naming the first output that is not finite.
  void Accumulate(const MetricInputs& inputs, std::span<double> partial) const override;
  std::vector<std::pair<std::string, double>> Values(std::span<const double> total) const override;

 private:
  std::unique_ptr<Metric> metric_;
  std::vector<bool> watched_;
};

}  // namespace bindery
