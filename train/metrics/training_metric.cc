#include "train/metrics/training_metric.h"

#include "base/error.h"
#include "engine/kernels/flat.h"
#include "symbol/op_def.h"

namespace bindery {

TrainingMetric::TrainingMetric(std::unique_ptr<Metric> metric, const Symbol& symbol) : metric_(std::move(metric)) {
  for (const Entry& head : symbol.entries()) {
    watched_.push_back(!head.node->is_variable() && !head.node->op().blocks_gradient);
  }
}

void TrainingMetric::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  for (size_t i = 0; i < inputs.outputs.size(); ++i) {
    const auto& [name, output] = inputs.outputs[i];
    if (!watched_[i] || flat::AllFinite(output.dtype, output.data, output.shape.Elements())) continue;
    throw NumericError(fmt::format("output \"{}\" is not finite", name));
  }
  metric_->Accumulate(inputs, partial);
}

std::vector<std::pair<std::string, double>> TrainingMetric::Values(std::span<const double> total) const {
  return metric_->Values(total);
}

}  // namespace bindery
