// What metrics are made of: outputs paired with labels, and seen as scores. Private to train/metrics.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "executor/metric.h"
#include "symbol/ops/elementwise.h"
#include "train/metrics/metrics.h"

namespace bindery {

double Ratio(double sum, double count);  // NaN of none

Symbol Double(const Symbol& x);
Symbol Flat(const Symbol& x);
Symbol Doubles(std::initializer_list<double> numbers);
Symbol Join(std::initializer_list<Symbol> parts);
Symbol CountOf(const Symbol& truth);

// Throws Error if there is none of this name.
const MetricArray& FindByName(const std::string& metric, const char* role, const std::vector<MetricArray>& list,
                              const std::string& name);

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

// Throws ShapeError.
[[noreturn]] void FailShapes(const std::string& metric, const MetricArray& output, const MetricArray& label,
                             const std::string& expected);
// The elements of both must come in one order: time first, or samples first. Throws ShapeError.
void CheckOrder(const std::string& metric, const MetricArray& output, const MetricArray& label);

// An output as scores, and what a label says of each position.
struct Scores {
  int64_t positions = 0, classes = 1;
  Symbol scores;               // (a, classes, b)
  Symbol label;                // (a, b), or of the scores' shape
  bool distributions = false;  // the latter

  // The classes (a, b) in double; -1 where there is none.
  Symbol Wanted(DType dtype) const;
};
// Throws ShapeError for a label that does not fit.
Scores MakeScores(const std::string& metric, const ClassMetricOptions& options, const MetricArray& output,
                  const MetricArray& label);

// Refuses (DataError) elements of `classes`, the output's or the label's, that are no class of so many.
MetricGraph::Check ClassesOnly(const std::string& metric, const MetricArrays& share, const char* role,
                               const MetricArray& array, const Symbol& classes, int64_t count,
                               std::optional<double> ignore);

// Throws Error for axis 0 and others below -1; and, of what reads the scores of all classes, for kNoAxis.
ClassMetricOptions Checked(const char* metric, ClassMetricOptions options);
ClassMetricOptions CheckedScores(const char* metric, ClassMetricOptions options);

}  // namespace bindery
