#include "train/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"
#include "train/call_text.h"

namespace bindery {
namespace {

double Ratio(double sum, double count) { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); }

Symbol Double(const Symbol& x) { return Cast(x, {.dtype = DType::kFloat64}); }
Symbol Flat(const Symbol& x) { return Reshape(x, {.shape = {-1}}); }
Symbol Doubles(std::initializer_list<double> numbers) {
  HostTensor values(DType::kFloat64, {static_cast<int64_t>(numbers.size())});
  int64_t i = 0;
  for (const double number : numbers) values.Set(i++, number);
  return Constant(std::move(values));
}
Symbol Join(std::initializer_list<Symbol> parts) { return Concat(parts, {.axis = 0}); }
Symbol CountOf(const Symbol& truth) { return Flat(Sum(Double(truth))); }

const MetricArray& FindByName(const std::string& metric, const char* role, const std::vector<MetricArray>& list,
                              const std::string& name) {
  std::vector<std::string> names;
  for (const MetricArray& array : list) {
    if (array.name == name) return array;
    names.push_back(array.name);
  }
  Throw("metric \"{}\": no {} is named \"{}\"{}", metric, role, name, NameHint(name, names));
}

// The sum of measure(output, label) over the pairs that the metric is about.
template <class Measure>
MetricGraph OverPairs(const std::string& metric, const MetricTarget& target, const MetricArrays& share,
                      const Measure& measure) {
  const auto choose = [&](const char* role, const std::vector<MetricArray>& all, const std::string& name) {
    return name.empty() ? std::span(all) : std::span(&FindByName(metric, role, all, name), 1);
  };
  const std::span<const MetricArray> outputs = choose("output", share.outputs, target.output);
  const std::span<const MetricArray> labels = choose("label", share.labels, target.label);
  if (outputs.size() != labels.size() || outputs.empty()) {
    Throw("metric \"{}\": {} outputs cannot be paired with {} labels; say which by output= and label=", metric,
          outputs.size(), labels.size());
  }
  MetricGraph all = measure(outputs[0], labels[0]);
  for (size_t i = 1; i < outputs.size(); ++i) {
    MetricGraph one = measure(outputs[i], labels[i]);
    all.partial = all.partial + one.partial;
    for (MetricGraph::Check& check : one.checks) all.checks.push_back(std::move(check));
  }
  return all;
}

[[noreturn]] void FailShapes(const std::string& metric, const MetricArray& output, const MetricArray& label,
                             const std::string& expected) {
  Throw<ShapeError>("metric \"{}\": label \"{}\" of shape {} does not fit output \"{}\" of shape {}; expected {}",
                    metric, label.name, label.shape, output.name, output.shape, expected);
}

// The elements of both must come in one order: time first, or samples first.
void CheckOrder(const std::string& metric, const MetricArray& output, const MetricArray& label) {
  if (output.outer > 0 && output.outer == label.outer) return;
  Throw<ShapeError>(
      "metric \"{}\": the samples of label \"{}\" of shape {} are not in the order of output \"{}\" of shape {}",
      metric, label.name, label.shape, output.name, output.shape);
}

// An output as scores, and what a label says of each position.
struct Scores {
  int64_t positions = 0, classes = 1;
  Symbol scores;               // (a, classes, b)
  Symbol label;                // (a, b), or of the scores' shape
  bool distributions = false;  // the latter

  // The classes (a, b) in double; -1 where there is none.
  Symbol Wanted(DType dtype) const {
    if (!distributions) return Double(label);
    const Symbol place = ArgMax(label);
    return IsFloat(dtype) ? Where(IsNaN(Pick(label, place)), -1.0, Double(place)) : Double(place);
  }
};

// The axis of the classes where nobody says it.
int FindClasses(const std::string& metric, const MetricArray& output, const MetricArray& label) {
  const Shape& shape = output.shape;
  const int last = shape.rank() - 1;
  if (last <= 1 || shape == label.shape) return 1;
  if (output.outer > 1 && output.outer == shape[0]) return last;  // (T, N, K): 1 is the samples'
  const auto fit = [&](int axis) {
    if (label.shape == shape.Erase(axis)) return 2;
    return label.shape.Elements() == shape.CountTo(axis) * shape.CountFrom(axis + 1) ? 1 : 0;
  };
  if (fit(1) == fit(last) && fit(1) > 0 && shape[1] > 1 && shape.Elements() > 0) {
    Throw<ShapeError>(
        "metric \"{}\": the classes of output \"{}\" of shape {} may be along axis 1 or {}: say which by axis=", metric,
        output.name, shape, last);
  }
  return fit(last) > fit(1) ? last : 1;
}

Scores MakeScores(const std::string& metric, const ClassMetricOptions& options, const MetricArray& output,
                  const MetricArray& label) {
  const Shape& shape = output.shape;
  Scores s;
  s.positions = shape.Elements();
  int64_t inner = 1;
  int axis = -1;
  const bool same = shape == label.shape;
  if (!(same && shape.rank() <= options.axis.value_or(1))) {  // else the output is a class itself
    axis = shape.Axis(options.axis ? *options.axis : FindClasses(metric, output, label));
    s.classes = shape[axis];
    inner = shape.CountFrom(axis + 1);
    s.positions = shape.CountTo(axis) * inner;
    s.distributions = same && s.classes > 1;
  }
  const bool fits = s.distributions || label.shape.Elements() == s.positions;
  if (!fits || s.classes == 0) {
    std::string expected = ToString(shape);
    if (axis >= 0) {
      const bool may_be_last = !options.axis && shape.rank() > 2 && axis == 1;
      const std::string last = may_be_last ? fmt::format(", {}", shape.Erase(shape.rank() - 1)) : "";
      expected = fmt::format("{}{} or {}", shape.Erase(axis), last, expected);
    }
    FailShapes(metric, output, label, expected);
  }
  CheckOrder(metric, output, label);
  if (s.positions == 0) return s;
  s.scores = Reshape(output.symbol, {.shape = {-1, s.classes, inner}});
  s.label = Reshape(label.symbol, {.shape = s.distributions ? std::vector<int64_t>{-1, s.classes, inner}
                                                            : std::vector<int64_t>{-1, inner}});
  return s;
}

// (right, counted), of positions where `right` says so; those with the label to ignore do not count.
MetricGraph CountRight(const Scores& s, const ClassMetricOptions& options, const Symbol& wanted, const Symbol& right) {
  if (!options.ignore_label) {
    return {.partial = Join({CountOf(right), Doubles({static_cast<double>(s.positions)})})};
  }
  const Symbol counted = NotEqual(wanted, *options.ignore_label);
  return {.partial = Join({CountOf(And(right, counted)), CountOf(counted)})};
}

ClassMetricOptions Checked(const char* metric, ClassMetricOptions options) {
  if (options.axis && *options.axis < 1) {
    Throw("metric \"{}\": axis must be >= 1, as 0 is the samples', got {}", metric, *options.axis);
  }
  return options;
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

TopKAccuracy::TopKAccuracy(int k, ClassMetricOptions options) : k_(k), options_(Checked("top-k", std::move(options))) {
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

CrossEntropy::CrossEntropy(double eps, ClassMetricOptions options)
    : eps_(eps), options_(Checked("cross-entropy", std::move(options))) {
  if (!(eps >= 0 && eps < 1)) Throw("metric \"cross-entropy\": eps must be in [0, 1), got {}", eps);
}

MetricGraph CrossEntropy::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), options_.target, share, [&](const MetricArray& output, const MetricArray& label) {
    const Scores s = MakeScores(name(), options_, output, label);
    if (s.positions == 0) return MetricGraph{.partial = Doubles({0, 0, 0, 0})};
    const Symbol count = Doubles({static_cast<double>(s.positions)});
    const auto loss = [&](const Symbol& probability) { return -Log(Double(probability) + eps_); };
    if (s.distributions) {
      const Symbol weight = Double(s.label);
      const Symbol losses = Where(NotEqual(weight, 0.0), weight * loss(s.scores), 0.0);
      return MetricGraph{.partial = Join({SumExactly(losses), count})};
    }
    const FirstOutsideAttrs classes{.low = 0,
                                    .high = static_cast<double>(s.classes - 1),
                                    .whole = true,
                                    .use_ignore = options_.ignore_label.has_value(),
                                    .ignore = options_.ignore_label.value_or(-1)};
    const auto fail = [metric = name(), share = MetricArrays{.samples = share.samples, .first = share.first}, label,
                       last = s.classes - 1](int64_t place, double value) {
      Throw<DataError>("metric \"{}\": label \"{}\", sample {}, element {}: expected a class 0..{}, got {}", metric,
                       label.name, share.SampleOf(label, place), place, last, value);
    };
    MetricGraph graph{.checks = {{FirstOutside(s.label, classes), fail}}};
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
  for (const MetricArray& output : share.outputs) {
    if (!output_.empty() && &output != &FindByName(name(), "output", share.outputs, output_)) continue;
    const double times = output.outer > 0 ? 1 : static_cast<double>(share.samples);
    const Symbol sum = SumExactly(times == 1 ? output.symbol : Double(output.symbol) * times);
    const Symbol one = Join({sum, Doubles({static_cast<double>(output.shape.Elements()) * times})});
    graph.partial = graph.partial.empty() ? one : graph.partial + one;
  }
  return graph;
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

NamedValues CompositeMetric::Values(std::span<const double> total) const {
  NamedValues result;
  size_t begin = 0;
  for (const auto& metric : metrics_) {
    const size_t size = static_cast<size_t>(metric->partial_size());
    for (auto& value : metric->Values(total.subspan(begin, size))) result.push_back(std::move(value));
    begin += size;
  }
  return result;
}

}  // namespace bindery
