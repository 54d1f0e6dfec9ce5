#include "train/training_metric.h"

#include "engine/kernels/flat.h"
#include "symbol/ops/loss.h"

namespace bindery {

TrainingMetric::TrainingMetric(std::unique_ptr<Metric> metric, const Symbol& symbol)
    : metric_(std::move(metric)), outputs_(symbol.ListOutputs()) {
  for (const Entry& head : symbol.entries()) {
    watched_.push_back(!head.node->is_variable() && &head.node->op() != &BlockGradOp());
  }
}

int TrainingMetric::partial_size() const { return own_size() + static_cast<int>(outputs_.size()); }

void TrainingMetric::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  const size_t own = static_cast<size_t>(own_size());
  for (size_t i = 0; i < inputs.outputs.size(); ++i) {
    const ConstView& output = inputs.outputs[i].second;
    if (!watched_[i] || !IsFloat(output.dtype)) continue;
    partial[own + i] += !flat::AllFinite(output.dtype, output.data, output.shape.Elements());
  }
  metric_->Accumulate(inputs, partial.first(own));
}

std::vector<std::pair<std::string, double>> TrainingMetric::Values(std::span<const double> total) const {
  return metric_->Values(total.first(static_cast<size_t>(own_size())));
}

std::vector<double> TrainingMetric::OwnTotal() const {
  if (total().empty()) return {};
  return {total().begin(), total().begin() + own_size()};
}

void TrainingMetric::SetOwnTotal(std::vector<double> total) {
  if (!total.empty()) total.resize(total.size() + outputs_.size(), 0.0);
  SetTotal(std::move(total));
}

std::string TrainingMetric::NotFinite() const {
  for (size_t i = 0; i < outputs_.size() && !total().empty(); ++i) {
    if (total()[static_cast<size_t>(own_size()) + i] > 0) return outputs_[i];
  }
  return "";
}

}  // namespace bindery
