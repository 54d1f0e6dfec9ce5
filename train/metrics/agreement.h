// Metrics of how well outputs and labels agree: F1, Matthews' correlation of two classes (mcc) and of several (pcc),
// and Pearson's. They are no means over samples, so there are two ways to make one value of several batches. Both are
// the same for any devices: what counts as a batch is what all of them got.
#pragma once

#include <span>
#include <string>

#include "executor/metric.h"
#include "train/metrics/metrics.h"

namespace bindery {

enum class Average {
  kMicro,  // from the counts of all batches: does not depend on the batch size
  kMacro,  // the mean of the batches' values, as MXNet's default; batches of which nothing counts are left out
};

class AgreementMetric : public Metric {
 public:
  int total_size() const final;
  void AddBatch(std::span<const double> batch, std::span<double> total) const final;
  NamedValues Values(std::span<const double> total) const final;

 protected:
  explicit AgreementMetric(Average average) : average_(average) {}
  // Of what was counted, by the partials; NaN of nothing.
  virtual double Of(std::span<const double> counts) const = 0;

 private:
  Average average_;
};

// Those by a table of counts, by the label's class and the predicted one, the class of the largest score, or, where the
// output is a class itself, that, rounded. Scores are of just so many classes (ShapeError); other classes are refused
// (DataError).
class TableMetric : public AgreementMetric {
 public:
  int partial_size() const final { return classes_ * classes_; }
  MetricGraph AsGraph(const MetricArrays& share) const final;

 protected:
  TableMetric(int classes, Average average, ClassMetricOptions options);

 private:
  int classes_;
  ClassMetricOptions options_;
};

// Of class 1: 2 tp / (2 tp + fp + fn), 0 without a positive.
class F1 final : public TableMetric {
 public:
  explicit F1(Average average = Average::kMicro, ClassMetricOptions options = {});
  std::string name() const override { return "f1"; }

 protected:
  double Of(std::span<const double> counts) const override;
};

// Matthews: (tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn)), 0 where a factor is 0.
class Mcc final : public TableMetric {
 public:
  explicit Mcc(Average average = Average::kMicro, ClassMetricOptions options = {});
  std::string name() const override { return "mcc"; }

 protected:
  double Of(std::span<const double> counts) const override;
};

// The same of any number of classes (Gorodkin 2004), as MXNet's PCC; NaN where all labels, or all predictions, are of
// one class.
class Pcc final : public TableMetric {
 public:
  explicit Pcc(int classes = 2, ClassMetricOptions options = {});  // 2..1024; throws Error
  std::string name() const override { return "pcc"; }

 protected:
  double Of(std::span<const double> counts) const override;

 private:
  int classes_;
};

// Pearson's correlation of outputs and labels, element by element; NaN where one of them is constant. The label has as
// many elements as the output. From sums of squares in double: of float32 values far from 0, whose deviation is a part
// d of them, about 1e-16 / d^2 is lost.
class Pearson final : public AgreementMetric {
 public:
  explicit Pearson(Average average = Average::kMicro, MetricTarget target = {});
  std::string name() const override { return "pearson"; }
  int partial_size() const override;
  MetricGraph AsGraph(const MetricArrays& share) const override;

 protected:
  double Of(std::span<const double> counts) const override;

 private:
  MetricTarget target_;
};

}  // namespace bindery
