// Metric: how good outputs are, as partial sums that add up exactly, so that the value does not depend on the number of
// devices. Each device's share of a batch gives a partial; the partials of a batch are added up in device order, in
// double, and their sum goes into the total.
//
// A metric describes itself as a graph, which is compiled and run beside the program whose outputs it reads, on its
// device: only partials come to the host. One in host code (HostMetric) gets copies of everything.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/symbol.h"

namespace bindery {

using NamedValues = std::vector<std::pair<std::string, double>>;  // metric name, value

// An output or a label of one device's share, as a graph reads it.
struct MetricArray {
  std::string name = {};
  Symbol symbol = {};
  DType dtype = DType::kFloat32;
  Shape shape = {};
  // Whatever the axes are, (T, N) or (N T, C), the elements are (outer, samples, inner); 0: there are no samples in it,
  // as in a loss of the whole batch.
  int64_t outer = 1;
  // Without samples, of heads merged by "sum", it is this share's part of a mean (IsMean) over so many samples of a
  // batch, or of a sum over all samples of a step, which may be several batches.
  int64_t part_of = 0;
  bool is_sum = false;
};

// What a metric sees of one device's share: its samples, without padding.
struct MetricArrays {
  std::vector<MetricArray> outputs = {}, labels = {};  // in order of heads and of label descriptions
  int64_t samples = 0;
  int64_t first = 0;  // of these samples, its number in the batch
  // The number in the batch of the sample that an element is of, who is to blame; -1: the array has no samples.
  int64_t SampleOf(const MetricArray& array, int64_t element) const {
    if (array.outer == 0 || samples == 0) return -1;
    return first + element / (array.shape.Elements() / (array.outer * samples)) % samples;
  }
};

// A metric of one share.
struct MetricGraph {
  // What must not be: a symbol as FirstOutside gives it, and what throws when there is such an element.
  struct Check {
    Symbol first;
    std::function<void(int64_t place, double value)> fail;
  };
  Symbol partial = {};  // (partial_size), float64
  std::vector<Check> checks = {};
};

class Metric {
 public:
  Metric();
  virtual ~Metric() = default;
  virtual std::string name() const = 0;  // "accuracy"
  virtual int partial_size() const = 0;  // doubles in a partial
  // Pure. Throws ShapeError or Error for outputs and labels that do not fit the metric.
  virtual MetricGraph AsGraph(const MetricArrays& share) const = 0;
  // name and value from the total, which is the sum of all partials; NaN before any sample.
  virtual NamedValues Values(std::span<const double> total) const = 0;
  // Where a total is something else, as a mean of what batches give alone: its doubles, and how a batch comes into it,
  // given the sum of its shares' partials.
  virtual int total_size() const { return partial_size(); }
  virtual void AddBatch(std::span<const double> batch, std::span<double> total) const;

  // The running total; not thread safe. A batch: the partials of its shares, or their sum.
  void Merge(std::span<const std::vector<double>> partials);
  void Merge(std::span<const double> batch);
  void Reset();
  NamedValues Get() const;
  std::span<const double> total() const { return total_; }
  void SetTotal(std::vector<double> total);  // from a checkpoint; throws Error if its size is not total_size() or 0

  uint64_t id() const { return id_; }  // in the process: no other has it, but for copies

 private:
  void CheckPartial(std::span<const double> partial) const;

  std::vector<double> total_, batch_;
  uint64_t id_;
};

// The same on the host, for metrics that are more easily said in C++.
struct MetricInputs {
  std::vector<std::pair<std::string, HostTensor>> outputs = {}, labels = {};  // by name
  int64_t samples = 0;
};

class HostMetric : public Metric {
 public:
  // Adds this share to `partial`. Throws ShapeError/DataError on outputs and labels that do not fit the metric.
  virtual void Accumulate(const MetricInputs& share, std::span<double> partial) const = 0;
  MetricGraph AsGraph(const MetricArrays& share) const final;  // throws Error: there is none
};

}  // namespace bindery
