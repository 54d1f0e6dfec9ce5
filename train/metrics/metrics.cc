#include "train/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "train/call_text.h"

namespace bindery {
namespace {

using Named = std::pair<std::string, ConstView>;

double Ratio(double sum, double count) { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); }

// Reads element `index` as double, whatever the type.
using Reader = double (*)(const void* data, int64_t index);
Reader ReaderOf(DType dtype) {
  return Dispatch(dtype, []<class T>() -> Reader {
    return [](const void* data, int64_t index) { return LoadDouble(static_cast<const T*>(data)[index]); };
  });
}

const Named& FindByName(const std::string& metric, const char* role, const std::vector<Named>& list,
                        const std::string& name) {
  for (const Named& entry : list) {
    if (entry.first == name) return entry;
  }
  std::vector<std::string> names;
  for (const Named& entry : list) names.push_back(entry.first);
  Throw("metric \"{}\": no {} is named \"{}\"{}", metric, role, name, NameHint(name, names));
}

// Calls visit(output, label) for the pairs that the metric is about.
template <class Visit>
void ForPairs(const std::string& metric, const MetricTarget& target, const MetricInputs& inputs, const Visit& visit) {
  const auto choose = [&](const char* role, const std::vector<Named>& all, const std::string& name) {
    return name.empty() ? std::span(all) : std::span(&FindByName(metric, role, all, name), 1);
  };
  const std::span<const Named> outputs = choose("output", inputs.outputs, target.output);
  const std::span<const Named> labels = choose("label", inputs.labels, target.label);
  if (outputs.size() != labels.size() || outputs.empty()) {
    Throw("metric \"{}\": {} outputs cannot be paired with {} labels; say which by output= and label=", metric,
          outputs.size(), labels.size());
  }
  for (size_t i = 0; i < outputs.size(); ++i) visit(outputs[i], labels[i]);
}

[[noreturn]] void FailShapes(const std::string& metric, const Named& output, const Named& label,
                             const std::string& expected) {
  Throw<ShapeError>("metric \"{}\": label \"{}\" of shape {} does not fit output \"{}\" of shape {}; expected {}",
                    metric, label.first, label.second.shape, output.first, output.second.shape, expected);
}

// An output as scores (positions, classes) and a label as the class of each position.
struct Scores {
  int64_t positions = 0;
  int64_t classes = 1;
  int64_t inner = 1;           // distance between two classes of one position, in elements
  bool distributions = false;  // the label has scores too

  int64_t First(int64_t position) const { return position / inner * classes * inner + position % inner; }
};

// The elements of both must come in one order: time first, or samples first.
void CheckOrder(const std::string& metric, const Named& output, const Named& label) {
  if (output.second.outer > 0 && output.second.outer == label.second.outer) return;
  Throw<ShapeError>(
      "metric \"{}\": the samples of label \"{}\" of shape {} are not in the order of output \"{}\" of shape {}",
      metric, label.first, label.second.shape, output.first, output.second.shape);
}

Scores MakeScores(const std::string& metric, const ClassMetricOptions& options, const Named& output,
                  const Named& label) {
  const Shape &shape = output.second.shape, &label_shape = label.second.shape;
  Scores scores;
  scores.positions = shape.Elements();
  int axis = -1;
  const bool same = shape == label_shape;
  if (!(same && shape.rank() <= options.axis)) {  // else the output is a class itself
    axis = shape.Axis(options.axis);
    scores.classes = shape[axis];
    scores.inner = shape.CountFrom(axis + 1);
    scores.positions = shape.CountTo(axis) * scores.inner;
    scores.distributions = same && scores.classes > 1;
  }
  const bool fits = scores.distributions || label_shape.Elements() == scores.positions;
  if (!fits || scores.classes == 0) {
    FailShapes(metric, output, label, axis < 0 ? ToString(shape) : fmt::format("{} or {}", shape.Erase(axis), shape));
  }
  CheckOrder(metric, output, label);
  return scores;
}

// The first of the largest; -1 if one is NaN.
template <class T>
int64_t ArgMax(const T* first, int64_t count, int64_t stride) {
  int64_t best = 0;
  double largest = LoadDouble(first[0]);
  bool nan = std::isnan(largest);
  for (int64_t k = 1; k < count; ++k) {
    const double value = LoadDouble(first[k * stride]);
    nan |= std::isnan(value);
    if (value > largest) {
      largest = value;
      best = k;
    }
  }
  return nan ? -1 : best;
}

int64_t ArgMaxOf(const ConstView& view, const Scores& scores, int64_t position) {
  return Dispatch(view.dtype, [&]<class T>() {
    return ArgMax(static_cast<const T*>(view.data) + scores.First(position), scores.classes, scores.inner);
  });
}

// How many of the others are larger than that of class `k`, or equal and before it; no end if one is NaN.
template <class T>
int64_t Rank(const T* first, int64_t count, int64_t stride, int64_t k) {
  const double own = LoadDouble(first[k * stride]);
  int64_t rank = 0;
  for (int64_t other = 0; other < count; ++other) {
    const double value = LoadDouble(first[other * stride]);
    if (std::isnan(value)) return std::numeric_limits<int64_t>::max();
    rank += value > own || (value == own && other < k);
  }
  return rank;
}

bool IsClass(double label, int64_t classes) {
  return label >= 0 && label < static_cast<double>(classes) && label == std::floor(label);
}

ClassMetricOptions Checked(const char* metric, ClassMetricOptions options) {
  if (options.axis < 1) Throw("metric \"{}\": axis must be >= 1, as 0 is the samples', got {}", metric, options.axis);
  return options;
}

}  // namespace

Accuracy::Accuracy(ClassMetricOptions options) : options_(Checked("accuracy", std::move(options))) {}

void Accuracy::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  ForPairs(name(), options_.target, inputs, [&](const Named& output, const Named& label) {
    const Scores scores = MakeScores(name(), options_, output, label);
    const Reader read_output = ReaderOf(output.second.dtype), read_label = ReaderOf(label.second.dtype);
    for (int64_t i = 0; i < scores.positions; ++i) {
      double predicted, wanted;
      if (scores.distributions) {
        wanted = static_cast<double>(ArgMaxOf(label.second, scores, i));
      } else {
        wanted = read_label(label.second.data, i);
      }
      if (options_.ignore_label && wanted == *options_.ignore_label) continue;
      if (scores.classes > 1) {
        predicted = static_cast<double>(ArgMaxOf(output.second, scores, i));
      } else {
        predicted = std::nearbyint(read_output(output.second.data, i));
      }
      partial[0] += predicted == wanted && !(scores.classes > 1 && predicted < 0);
      partial[1] += 1;
    }
  });
}

std::vector<std::pair<std::string, double>> Accuracy::Values(std::span<const double> total) const {
  return {{name(), Ratio(total[0], total[1])}};
}

TopKAccuracy::TopKAccuracy(int k, ClassMetricOptions options) : k_(k), options_(Checked("top-k", std::move(options))) {
  if (k < 1) Throw("metric \"top-k\": k must be >= 1, got {}", k);
}

std::string TopKAccuracy::name() const { return fmt::format("top-{}", k_); }

void TopKAccuracy::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  ForPairs(name(), options_.target, inputs, [&](const Named& output, const Named& label) {
    const Scores scores = MakeScores(name(), options_, output, label);
    if (k_ > scores.classes) {
      Throw<ShapeError>("metric \"{}\": output \"{}\" of shape {} has {} classes only: k must be at most that", name(),
                        output.first, output.second.shape, scores.classes);
    }
    const Reader read_label = ReaderOf(label.second.dtype);
    for (int64_t i = 0; i < scores.positions; ++i) {
      const double wanted = scores.distributions ? static_cast<double>(ArgMaxOf(label.second, scores, i))
                                                 : read_label(label.second.data, i);
      if (options_.ignore_label && wanted == *options_.ignore_label) continue;
      partial[1] += 1;
      if (!IsClass(wanted, scores.classes)) continue;
      partial[0] += Dispatch(output.second.dtype, [&]<class T>() {
        const T* first = static_cast<const T*>(output.second.data) + scores.First(i);
        return Rank(first, scores.classes, scores.inner, static_cast<int64_t>(wanted)) < k_;
      });
    }
  });
}

std::vector<std::pair<std::string, double>> TopKAccuracy::Values(std::span<const double> total) const {
  return {{name(), Ratio(total[0], total[1])}};
}

CrossEntropy::CrossEntropy(double eps, ClassMetricOptions options)
    : eps_(eps), options_(Checked("cross-entropy", std::move(options))) {
  if (!(eps >= 0 && eps < 1)) Throw("metric \"cross-entropy\": eps must be in [0, 1), got {}", eps);
}

void CrossEntropy::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  ForPairs(name(), options_.target, inputs, [&](const Named& output, const Named& label) {
    const Scores scores = MakeScores(name(), options_, output, label);
    const Reader read_output = ReaderOf(output.second.dtype), read_label = ReaderOf(label.second.dtype);
    for (int64_t i = 0; i < scores.positions; ++i) {
      const int64_t first = scores.First(i);
      double loss = 0;
      if (scores.distributions) {
        for (int64_t k = 0; k < scores.classes; ++k) {
          const double weight = read_label(label.second.data, first + k * scores.inner);
          if (weight != 0) loss -= weight * std::log(read_output(output.second.data, first + k * scores.inner) + eps_);
        }
      } else {
        const double wanted = read_label(label.second.data, i);
        if (options_.ignore_label && wanted == *options_.ignore_label) continue;
        if (!IsClass(wanted, scores.classes)) {
          Throw<DataError>("metric \"{}\": label \"{}\", element {}: expected a class 0..{}, got {}", name(),
                           label.first, i, scores.classes - 1, wanted);
        }
        loss = -std::log(read_output(output.second.data, first + static_cast<int64_t>(wanted) * scores.inner) + eps_);
      }
      ExactSum::Add(loss, partial.data());
      partial[ExactSum::kSize] += 1;
    }
  });
}

std::vector<std::pair<std::string, double>> CrossEntropy::Values(std::span<const double> total) const {
  return {{name(), Ratio(ExactSum::Total(total.data()), total[ExactSum::kSize])}};
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

void RegressionMetric::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  ForPairs(name(), target_, inputs, [&](const Named& output, const Named& label) {
    const int64_t count = output.second.shape.Elements();
    if (label.second.shape.Elements() != count) FailShapes(name(), output, label, ToString(output.second.shape));
    CheckOrder(name(), output, label);
    const Reader read_output = ReaderOf(output.second.dtype), read_label = ReaderOf(label.second.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const double difference = read_output(output.second.data, i) - read_label(label.second.data, i);
      ExactSum::Add(kind_ == RegressionKind::kMae ? std::abs(difference) : difference * difference, partial.data());
    }
    partial[ExactSum::kSize] += static_cast<double>(count);
  });
}

std::vector<std::pair<std::string, double>> RegressionMetric::Values(std::span<const double> total) const {
  const double mean = Ratio(ExactSum::Total(total.data()), total[ExactSum::kSize]);
  return {{name(), kind_ == RegressionKind::kRmse ? std::sqrt(mean) : mean}};
}

Loss::Loss(std::string output) : output_(std::move(output)) {}

void Loss::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  const auto add = [&](const Named& output) {
    const ConstView& view = output.second;
    const Reader read = ReaderOf(view.dtype);
    const double times = view.outer > 0 ? 1 : static_cast<double>(inputs.samples);
    const int64_t count = view.shape.Elements();
    for (int64_t i = 0; i < count; ++i) ExactSum::Add(read(view.data, i) * times, partial.data());
    partial[ExactSum::kSize] += static_cast<double>(count) * times;
  };
  if (!output_.empty()) {
    add(FindByName(name(), "output", inputs.outputs, output_));
  } else {
    for (const Named& output : inputs.outputs) add(output);
  }
}

std::vector<std::pair<std::string, double>> Loss::Values(std::span<const double> total) const {
  return {{name(), Ratio(ExactSum::Total(total.data()), total[ExactSum::kSize])}};
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

void CompositeMetric::Accumulate(const MetricInputs& inputs, std::span<double> partial) const {
  size_t begin = 0;
  for (const auto& metric : metrics_) {
    const size_t size = static_cast<size_t>(metric->partial_size());
    metric->Accumulate(inputs, partial.subspan(begin, size));
    begin += size;
  }
}

std::vector<std::pair<std::string, double>> CompositeMetric::Values(std::span<const double> total) const {
  std::vector<std::pair<std::string, double>> result;
  size_t begin = 0;
  for (const auto& metric : metrics_) {
    const size_t size = static_cast<size_t>(metric->partial_size());
    for (auto& value : metric->Values(total.subspan(begin, size))) result.push_back(std::move(value));
    begin += size;
  }
  return result;
}

}  // namespace bindery
