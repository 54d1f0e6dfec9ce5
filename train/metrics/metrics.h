// Metrics: accuracy, top-k, cross-entropy, nll, perplexity, mse, rmse, mae, loss, those of train/metrics/agreement.h,
// and lists of them, made by name:
//
//   auto metric = MakeMetric("accuracy,cross-entropy");
//
// All are graphs (executor/metric.h) that count in integers or add in ExactSum, so a value has the same bits for any
// split of the data into batches and devices. Outputs and labels are paired in order, unless a metric is told which
// ones it is about. Outputs of any float type and labels of any type are read; sums are in double.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/exact_sum.h"
#include "executor/metric.h"

namespace bindery {

// The output and the label that a metric is about, by name. Empty: all, output i with label i.
struct MetricTarget {
  std::string output = {}, label = {};
};

inline constexpr int kNoAxis = std::numeric_limits<int>::max();

struct ClassMetricOptions {
  MetricTarget target = {};
  // Of the classes, not 0; -1: the last. kNoAxis: there is none, each element is a class itself, as of several truths a
  // sample. Left out: 1, as in (N, K, T), or, where only that fits the label, the last, as in (N, T, K). If both would,
  // (N, K, K) with (N, K), it must be said: ShapeError.
  std::optional<int> axis = {};
  std::optional<double> ignore_label = {};  // positions with this label do not count
};

// Their partials are (how many are right, how many count): the value is the share.
class ShareMetric : public Metric {
 public:
  int partial_size() const final { return 2; }
  NamedValues Values(std::span<const double> total) const final;
};

// Their totals are a sum and how many were added, and so are partials: the value is the mean.
class MeanMetric : public Metric {
 public:
  int partial_size() const override { return kTotal; }
  int total_size() const final { return kTotal; }
  NamedValues Values(std::span<const double> total) const override;

 protected:
  static constexpr int kTotal = ExactSum::kSize + 1;
};

// The share of positions whose largest score is the label's. Output (N, K, ...) or (N, ..., K), see `axis`; label
// (N, ...) of class numbers, or of the output's shape: then its largest element is the class, and without `axis` the
// classes are along axis 1. An output of the label's shape without such an axis, or with `axis` kNoAxis, is a class
// itself, rounded. A position with a NaN is wrong.
class Accuracy final : public ShareMetric {
 public:
  explicit Accuracy(ClassMetricOptions options = {});
  std::string name() const override { return "accuracy"; }
  MetricGraph AsGraph(const MetricArrays& share) const override;

 private:
  ClassMetricOptions options_;
};

// The share of positions whose label's score is among the k largest; of equal ones the first are larger. A position
// with a NaN is wrong.
class TopKAccuracy final : public ShareMetric {
 public:
  explicit TopKAccuracy(int k, ClassMetricOptions options = {});  // k >= 1
  std::string name() const override;                              // "top-5"
  MetricGraph AsGraph(const MetricArrays& share) const override;

 private:
  int k_;
  ClassMetricOptions options_;
};

// Means over positions of -log of the label's probability; with labels of the output's shape, which are probabilities,
// of -sum label * log(p). A label that is no class is refused (DataError).
class LikelihoodMetric : public MeanMetric {
 public:
  std::string name() const final { return name_; }
  MetricGraph AsGraph(const MetricArrays& share) const final;

 protected:
  // log(p + least) if it adds, else log(max(p, least)). Throws Error unless 0 <= least < 1.
  LikelihoodMetric(std::string name, double least, bool adds, ClassMetricOptions options);

 private:
  std::string name_;
  double least_;
  bool adds_;
  ClassMetricOptions options_;
};
class CrossEntropy final : public LikelihoodMetric {  // -log(p + eps)
 public:
  explicit CrossEntropy(double eps = 1e-12, ClassMetricOptions options = {})
      : LikelihoodMetric("cross-entropy", eps, true, std::move(options)) {}
};
// The same under the name that others know for classes.
class NegativeLogLikelihoodMetric final : public LikelihoodMetric {
 public:
  explicit NegativeLogLikelihoodMetric(double eps = 1e-12, ClassMetricOptions options = {})
      : LikelihoodMetric("nll", eps, true, std::move(options)) {}
};
class Perplexity final : public LikelihoodMetric {  // e^mean of -log(max(p, 1e-10))
 public:
  explicit Perplexity(ClassMetricOptions options = {})
      : LikelihoodMetric("perplexity", 1e-10, false, std::move(options)) {}
  NamedValues Values(std::span<const double> total) const override;
};

// Over all elements: the mean of (output - label)^2, its root, or the mean of |output - label|. The label has as many
// elements as the output.
enum class RegressionKind { kMse, kRmse, kMae };
class RegressionMetric final : public MeanMetric {
 public:
  explicit RegressionMetric(RegressionKind kind, MetricTarget target = {});
  std::string name() const override;
  MetricGraph AsGraph(const MetricArrays& share) const override;
  NamedValues Values(std::span<const double> total) const override;

 private:
  RegressionKind kind_;
  MetricTarget target_;
};

// The mean of all elements of an output (empty name: of all outputs). An output without a row for each sample, such as
// a scalar, counts as often as there are samples. If it is merged by "sum" it is the sum of the devices' parts, and of
// those of all micro-batches, unless these are means.
class Loss final : public MeanMetric {
 public:
  explicit Loss(std::string output = {});
  std::string name() const override { return "loss"; }
  // As of other means, without what is part of a sum over the step; then the sum of such parts; then the samples.
  int partial_size() const override { return kTotal + ExactSum::kSize + 1; }
  MetricGraph AsGraph(const MetricArrays& share) const override;
  void AddBatch(std::span<const double> batch, std::span<double> total) const override;

 private:
  std::string output_;
};

// The mean of what a formula of your own gives for an output and its label, numbers or truths of any shape. It is symbols:
//
//   MeanOf("near", [](const Symbol& output, const Symbol& label) { return LessEqual(Abs(output - label), 0.5); })
//
// Both are as one device has them, (N, ...), N being its samples; compare and reshape them as you like.
using MetricFormula = std::function<Symbol(const Symbol& output, const Symbol& label)>;
std::shared_ptr<const Metric> MeanOf(const std::string& name, MetricFormula formula, MetricTarget target = {});

// Several at once. Where two have one name, the second value is called "accuracy_2", and so on.
class CompositeMetric final : public Metric {
 public:
  explicit CompositeMetric(std::vector<std::shared_ptr<const Metric>> metrics);
  std::string name() const override;  // "accuracy,mse"
  int partial_size() const override;
  MetricGraph AsGraph(const MetricArrays& share) const override;
  NamedValues Values(std::span<const double> total) const override;
  int total_size() const override;
  void AddBatch(std::span<const double> batch, std::span<double> total) const override;

 private:
  std::vector<std::shared_ptr<const Metric>> metrics_;
};

// One, or several with commas between: "accuracy(axis=1, ignore=-1, output=softmax_output, label=softmax_label)",
// "top-k(5)", "cross-entropy(eps=1e-12)", "nll(eps=1e-12)", "perplexity", "mse", "rmse", "mae", "loss(output=...)",
// "f1(average=micro)", "mcc(average=macro)", "pcc(classes=3)", "pearson(average=micro)". `axis` may be none (kNoAxis);
// without it see ClassMetricOptions. Names with , ( ) in them stand in quotes (train/call_text.h). Throws Error.
std::unique_ptr<Metric> MakeMetric(std::string_view text);

}  // namespace bindery
