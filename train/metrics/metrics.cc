#include "train/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/exact_sum.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"
#include "train/metrics/pairs.h"

namespace bindery {
namespace {

// (right, counted), of positions where `right` says so; those with the label to ignore do not count.
MetricGraph CountRight(const Scores& s, const ClassMetricOptions& options, const Symbol& wanted, const Symbol& right) {
  if (!options.ignore_label) {
    return {.partial = Join({CountOf(right), Doubles({static_cast<double>(s.positions)})})};
  }
  const Symbol counted = NotEqual(wanted, *options.ignore_label);
  return {.partial = Join({CountOf(And(right, counted)), CountOf(counted)})};
}

}  // namespace

NamedValues ShareMetric::Values(std::span<const double> total) const { return {{name(), Ratio(total[0], total[1])}}; }

NamedValues MeanMetric::Values(std::span<const double> total) const {
  return {{name(), Ratio(ExactSum::Total(total.data()), total[ExactSum::kSize])}};
}

Accuracy::Accuracy(ClassMetricOptions options) : options_(Checked("accuracy", std::move(options))) {}

MetricGraph Accuracy::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), options_.target, share, [&](const MetricArray& output, const MetricArray& label) {
    const Scores s = MakeScores(name(), options_, output, label);
    if (s.positions == 0) return MetricGraph{.partial = Doubles({0, 0})};
    const Symbol wanted = s.Wanted(label.dtype);
    if (s.classes > 1) return CountRight(s, options_, wanted, Less(RankOf(s.scores, wanted), 1.0));
    const Symbol predicted = Round(Double(Flat(s.scores)));
    return CountRight(s, options_, Flat(wanted), Equal(predicted, Flat(wanted)));
  });
}

TopKAccuracy::TopKAccuracy(int k, ClassMetricOptions options)
    : k_(k), options_(CheckedScores("top-k", std::move(options))) {
  if (k < 1) Throw("metric \"top-k\": k must be >= 1, got {}", k);
}

std::string TopKAccuracy::name() const { return fmt::format("top-{}", k_); }

MetricGraph TopKAccuracy::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), options_.target, share, [&](const MetricArray& output, const MetricArray& label) {
    const Scores s = MakeScores(name(), options_, output, label);
    if (k_ > s.classes) {
      Throw<ShapeError>("metric \"{}\": output \"{}\" of shape {} has {} classes only: k must be at most that", name(),
                        output.name, output.shape, s.classes);
    }
    if (s.positions == 0) return MetricGraph{.partial = Doubles({0, 0})};
    const Symbol wanted = s.Wanted(label.dtype);
    return CountRight(s, options_, wanted, Less(RankOf(s.scores, wanted), static_cast<double>(k_)));
  });
}

LikelihoodMetric::LikelihoodMetric(std::string name, double least, bool adds, ClassMetricOptions options)
    : name_(std::move(name)), least_(least), adds_(adds), options_(CheckedScores(name_.c_str(), std::move(options))) {
  if (!(least >= 0 && least < 1)) Throw("metric \"{}\": eps must be in [0, 1), got {}", name_, least);
}

MetricGraph LikelihoodMetric::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), options_.target, share, [&](const MetricArray& output, const MetricArray& label) {
    const Scores s = MakeScores(name(), options_, output, label);
    if (s.positions == 0) return MetricGraph{.partial = Doubles({0, 0, 0, 0})};
    const Symbol count = Doubles({static_cast<double>(s.positions)});
    const auto loss = [&](const Symbol& scores) {
      const Symbol probability = Double(scores);
      return -Log(adds_ ? probability + least_ : Maximum(probability, Scalar(least_)));
    };
    if (s.distributions) {
      const Symbol weight = Double(s.label);
      const Symbol losses = Where(NotEqual(weight, 0.0), weight * loss(s.scores), 0.0);
      return MetricGraph{.partial = Join({SumExactly(losses), count})};
    }
    MetricGraph graph{
        .checks = {ClassesOnly(name(), share, "label", label, s.label, s.classes, options_.ignore_label)}};
    const Symbol losses = loss(Pick(s.scores, s.label));
    if (options_.ignore_label) {
      const Symbol counted = NotEqual(Double(s.label), *options_.ignore_label);
      graph.partial = Join({SumExactly(Where(counted, losses, 0.0)), CountOf(counted)});
    } else {
      graph.partial = Join({SumExactly(losses), count});
    }
    return graph;
  });
}

NamedValues Perplexity::Values(std::span<const double> total) const {
  NamedValues values = MeanMetric::Values(total);
  values[0].second = std::exp(values[0].second);
  return values;
}

RegressionMetric::RegressionMetric(RegressionKind kind, MetricTarget target)
    : kind_(kind), target_(std::move(target)) {}

std::string RegressionMetric::name() const {
  switch (kind_) {
    case RegressionKind::kMse: return "mse";
    case RegressionKind::kRmse: return "rmse";
    case RegressionKind::kMae: return "mae";
  }
  return "";
}

MetricGraph RegressionMetric::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), target_, share, [&](const MetricArray& output, const MetricArray& label) {
    const int64_t count = output.shape.Elements();
    if (label.shape.Elements() != count) FailShapes(name(), output, label, ToString(output.shape));
    CheckOrder(name(), output, label);
    const Symbol difference = Double(Flat(output.symbol)) - Double(Flat(label.symbol));
    const Symbol sum = SumExactly(kind_ == RegressionKind::kMae ? Abs(difference) : Square(difference));
    return MetricGraph{.partial = Join({sum, Doubles({static_cast<double>(count)})})};
  });
}

NamedValues RegressionMetric::Values(std::span<const double> total) const {
  NamedValues values = MeanMetric::Values(total);
  if (kind_ == RegressionKind::kRmse) values[0].second = std::sqrt(values[0].second);
  return values;
}

Loss::Loss(std::string output) : output_(std::move(output)) {}

MetricGraph Loss::AsGraph(const MetricArrays& share) const {
  MetricGraph graph;
  const Symbol none = Doubles({0, 0, 0});
  for (const MetricArray& output : share.outputs) {
    if (!output_.empty() && &output != &FindByName(name(), "output", share.outputs, output_)) continue;
    const double counts = output.outer > 0 ? 1 : static_cast<double>(share.samples);
    const double times = output.part_of > 0 ? static_cast<double>(output.part_of) : output.is_sum ? 1 : counts;
    const Symbol sum = SumExactly(times == 1 ? output.symbol : Double(output.symbol) * times);
    const Symbol count = Doubles({static_cast<double>(output.shape.Elements()) * counts});
    const Symbol one = output.is_sum ? Join({none, count, sum}) : Join({sum, count, none});
    graph.partial = graph.partial.empty() ? one : graph.partial + one;
  }
  graph.partial = Join({graph.partial, Doubles({static_cast<double>(share.samples)})});
  return graph;
}

void Loss::AddBatch(std::span<const double> batch, std::span<double> total) const {
  Metric::AddBatch(batch.first(kTotal), total);
  const double samples = batch.back();
  if (samples > 0) ExactSum::Add(ExactSum::Total(&batch[kTotal]) * samples, total.data());
}

namespace {

class FormulaMetric final : public MeanMetric {
 public:
  FormulaMetric(std::string name, MetricFormula formula, MetricTarget target)
      : name_(std::move(name)), formula_(std::move(formula)), target_(std::move(target)) {}
  std::string name() const override { return name_; }
  MetricGraph AsGraph(const MetricArrays& share) const override {
    return OverPairs(name_, target_, share, [&](const MetricArray& output, const MetricArray& label) {
      const Symbol values = formula_(output.symbol, label.symbol);
      const Symbol count = CountOf(Or(Equal(values, values), NotEqual(values, values)));  // of all, NaN included
      return MetricGraph{.partial = Join({SumExactly(Double(values)), count})};
    });
  }

 private:
  std::string name_;
  MetricFormula formula_;
  MetricTarget target_;
};

}  // namespace

std::shared_ptr<const Metric> MeanOf(const std::string& name, MetricFormula formula, MetricTarget target) {
  return std::make_shared<FormulaMetric>(name, std::move(formula), std::move(target));
}

CompositeMetric::CompositeMetric(std::vector<std::shared_ptr<const Metric>> metrics) : metrics_(std::move(metrics)) {
  if (metrics_.empty()) Throw("a list of metrics needs at least one");
}

std::string CompositeMetric::name() const {
  std::string result;
  for (const auto& metric : metrics_) result += (result.empty() ? "" : ",") + metric->name();
  return result;
}

int CompositeMetric::partial_size() const {
  int size = 0;
  for (const auto& metric : metrics_) size += metric->partial_size();
  return size;
}

MetricGraph CompositeMetric::AsGraph(const MetricArrays& share) const {
  MetricGraph all;
  std::vector<Symbol> partials;
  for (const auto& metric : metrics_) {
    MetricGraph one = metric->AsGraph(share);
    partials.push_back(one.partial);
    for (MetricGraph::Check& check : one.checks) all.checks.push_back(std::move(check));
  }
  all.partial = Concat(partials, {.axis = 0});
  return all;
}

int CompositeMetric::total_size() const {
  int size = 0;
  for (const auto& metric : metrics_) size += metric->total_size();
  return size;
}

void CompositeMetric::AddBatch(std::span<const double> batch, std::span<double> total) const {
  for (const auto& metric : metrics_) {
    const size_t partial = static_cast<size_t>(metric->partial_size()),
                 size = static_cast<size_t>(metric->total_size());
    metric->AddBatch(batch.first(partial), total.first(size));
    batch = batch.subspan(partial);
    total = total.subspan(size);
  }
}

NamedValues CompositeMetric::Values(std::span<const double> total) const {
  NamedValues result;
  size_t begin = 0;
  for (const auto& metric : metrics_) {
    const size_t size = static_cast<size_t>(metric->total_size());
    for (auto& [name, value] : metric->Values(total.subspan(begin, size))) {
      const auto is_there = [&](const std::string& one) {
        return std::ranges::find(result, one, &NamedValues::value_type::first) != result.end();
      };
      std::string own = name;
      for (int i = 2; is_there(own); ++i) own = fmt::format("{}_{}", name, i);
      result.emplace_back(std::move(own), value);
    }
    begin += size;
  }
  return result;
}

}  // namespace bindery
