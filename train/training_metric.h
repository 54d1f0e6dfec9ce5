// TrainingMetric: a metric that also looks whether the outputs are finite, in the same pass. Private to
// train/trainer*.cc.
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
  int partial_size() const override;  // the metric's, then one per head: how many shares were not finite
  void Accumulate(const MetricInputs& inputs, std::span<double> partial) const override;
  std::vector<std::pair<std::string, double>> Values(std::span<const double> total) const override;

  // The metric's own part of the total; empty: nothing yet.
  int own_size() const { return metric_->partial_size(); }
  std::vector<double> OwnTotal() const;
  void SetOwnTotal(std::vector<double> total);
  // The first output that was not finite since Reset; "" if none.
  std::string NotFinite() const;

 private:
  std::unique_ptr<Metric> metric_;
  std::vector<std::string> outputs_;
  std::vector<bool> watched_;
};

}  // namespace bindery
