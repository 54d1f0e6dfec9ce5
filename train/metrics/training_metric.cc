#include "train/metrics/training_metric.h"

#include "base/error.h"
#include "symbol/op_def.h"
#include "symbol/ops/measure.h"

namespace bindery {

TrainingMetric::TrainingMetric(std::unique_ptr<Metric> metric, const Symbol& symbol) : metric_(std::move(metric)) {
  for (const Entry& head : symbol.entries()) {
    watched_.push_back(!head.node->is_variable() && !head.node->op().blocks_gradient);
  }
}

MetricGraph TrainingMetric::AsGraph(const MetricArrays& share) const {
  MetricGraph graph = metric_->AsGraph(share);
  std::vector<MetricGraph::Check> checks;
  for (size_t i = 0; i < share.outputs.size(); ++i) {
    const MetricArray& output = share.outputs[i];
    if (!watched_[i] || !IsFloat(output.dtype)) continue;
    const auto fail = [name = output.name](int64_t, double) {
      throw NumericError(fmt::format("output \"{}\" is not finite", name));
    };
    checks.push_back({FirstOutside(output.symbol), fail});
  }
  graph.checks.insert(graph.checks.begin(), checks.begin(), checks.end());
  return graph;
}

NamedValues TrainingMetric::Values(std::span<const double> total) const { return metric_->Values(total); }

}  // namespace bindery
