#include "train/metrics/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/exact_sum.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/matmul.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/shape_ops.h"
#include "train/metrics/pairs.h"

namespace bindery {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kMaxClasses = 1024;

// Of two classes, by label and prediction.
struct Binary {
  explicit Binary(std::span<const double> counts) : tn(counts[0]), fp(counts[1]), fn(counts[2]), tp(counts[3]) {}
  double tn, fp, fn, tp;
};

Symbol Zeros(int64_t n) { return Constant(HostTensor(DType::kFloat64, {n})); }

}  // namespace

int AgreementMetric::total_size() const { return average_ == Average::kMacro ? 2 : partial_size(); }

void AgreementMetric::AddBatch(std::span<const double> batch, std::span<double> total) const {
  if (average_ == Average::kMicro) return Metric::AddBatch(batch, total);
  if (std::ranges::all_of(batch, [](double count) { return count == 0; })) return;
  total[0] += Of(batch);
  total[1] += 1;
}

NamedValues AgreementMetric::Values(std::span<const double> total) const {
  return {{name(), average_ == Average::kMacro ? Ratio(total[0], total[1]) : Of(total)}};
}

TableMetric::TableMetric(int classes, Average average, ClassMetricOptions options)
    : AgreementMetric(average), classes_(classes), options_(std::move(options)) {}

MetricGraph TableMetric::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), options_.target, share, [&](const MetricArray& output, const MetricArray& label) {
    const Scores s = MakeScores(name(), options_, output, label);
    if (s.classes != 1 && s.classes != classes_) {
      Throw<ShapeError>("metric \"{}\": output \"{}\" of shape {} has {} classes; expected {}", name(), output.name,
                        output.shape, s.classes, classes_);
    }
    MetricGraph graph{.partial = Zeros(partial_size())};
    if (s.positions == 0) return graph;
    const Symbol predicted = s.classes > 1 ? Double(ArgMax(s.scores)) : Round(Double(Flat(s.scores)));
    if (s.classes == 1) {
      graph.checks.push_back(ClassesOnly(name(), share, "output", output, predicted, classes_, {}));
    }
    if (!s.distributions) {
      graph.checks.push_back(ClassesOnly(name(), share, "label", label, s.label, classes_, options_.ignore_label));
    }
    HostTensor numbers(DType::kFloat64, {1, classes_});
    for (int i = 0; i < classes_; ++i) numbers.Set(i, i);
    const Symbol all = Constant(std::move(numbers));
    const auto members = [&](const Symbol& classes) {
      return Double(Equal(Reshape(classes, {.shape = {-1, 1}}), all));
    };
    const Symbol wanted = members(s.Wanted(label.dtype));  // a label to ignore is in no class
    graph.partial = Flat(MatMul(wanted, members(predicted), {.transpose_a = true}));
    return graph;
  });
}

F1::F1(Average average, ClassMetricOptions options) : TableMetric(2, average, Checked("f1", std::move(options))) {}

double F1::Of(std::span<const double> counts) const {
  const auto [tn, fp, fn, tp] = Binary(counts);
  if (tn + fp + fn + tp == 0) return kNaN;
  return tp > 0 ? 2 * tp / (2 * tp + fp + fn) : 0;
}

Mcc::Mcc(Average average, ClassMetricOptions options) : TableMetric(2, average, Checked("mcc", std::move(options))) {}

double Mcc::Of(std::span<const double> counts) const {
  const auto [tn, fp, fn, tp] = Binary(counts);
  if (tn + fp + fn + tp == 0) return kNaN;
  const double squared = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn);
  return squared > 0 ? (tp * tn - fp * fn) / std::sqrt(squared) : 0;
}

Pcc::Pcc(int classes, ClassMetricOptions options)
    : TableMetric(classes, Average::kMicro, Checked("pcc", std::move(options))), classes_(classes) {
  if (classes < 2 || classes > kMaxClasses) {
    Throw("metric \"pcc\": classes must be in 2..{}, got {}", kMaxClasses, classes);
  }
}

double Pcc::Of(std::span<const double> counts) const {
  const size_t k = static_cast<size_t>(classes_);
  std::vector<double> labels(k), predictions(k);
  double n = 0, right = 0;
  for (size_t i = 0; i < k * k; ++i) {
    n += counts[i];
    labels[i / k] += counts[i];
    predictions[i % k] += counts[i];
    if (i / k == i % k) right += counts[i];
  }
  double both = n * right, label = 0, prediction = 0;
  for (size_t i = 0; i < k; ++i) {
    both -= labels[i] * predictions[i];
    label += labels[i] * (n - labels[i]);
    prediction += predictions[i] * (n - predictions[i]);
  }
  return label > 0 && prediction > 0 ? both / (std::sqrt(label) * std::sqrt(prediction)) : kNaN;
}

Pearson::Pearson(Average average, MetricTarget target) : AgreementMetric(average), target_(std::move(target)) {}

int Pearson::partial_size() const { return 5 * ExactSum::kSize + 1; }

MetricGraph Pearson::AsGraph(const MetricArrays& share) const {
  return OverPairs(name(), target_, share, [&](const MetricArray& output, const MetricArray& label) {
    const int64_t count = output.shape.Elements();
    if (label.shape.Elements() != count) FailShapes(name(), output, label, ToString(output.shape));
    CheckOrder(name(), output, label);
    if (count == 0) return MetricGraph{.partial = Zeros(partial_size())};
    const Symbol x = Double(Flat(output.symbol)), y = Double(Flat(label.symbol));
    return MetricGraph{.partial = Join({SumExactly(x), SumExactly(y), SumExactly(Square(x)), SumExactly(Square(y)),
                                        SumExactly(x * y), Doubles({static_cast<double>(count)})})};
  });
}

double Pearson::Of(std::span<const double> counts) const {
  const auto sum = [&](int i) { return static_cast<long double>(ExactSum::Total(&counts[i * ExactSum::kSize])); };
  const long double n = counts[5 * ExactSum::kSize];
  const long double x = n * sum(2) - sum(0) * sum(0), y = n * sum(3) - sum(1) * sum(1);
  const long double both = n * sum(4) - sum(0) * sum(1);
  return x > 0 && y > 0 ? static_cast<double>(both / std::sqrt(x) / std::sqrt(y)) : kNaN;
}

}  // namespace bindery
