// TrainingMetric: a metric that refuses outputs which are not finite. Private to train/trainer*.cc.
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
  MetricGraph AsGraph(const MetricArrays& share) const override;  // its checks throw NumericError naming the output
  NamedValues Values(std::span<const double> total) const override;
  int total_size() const override { return metric_->total_size(); }
  void AddBatch(std::span<const double> batch, std::span<double> total) const override {
    metric_->AddBatch(batch, total);
  }

 private:
  std::unique_ptr<Metric> metric_;
  std::vector<bool> watched_;
};

}  // namespace bindery
