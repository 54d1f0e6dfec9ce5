// Metric: how good outputs are, as partial sums that add up exactly, so that the value does not depend on the number of
// devices. Each device's share of a batch gives a partial, computed where its outputs are; partials are merged once per
// batch in device order, in double.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace bindery {

// A plain tensor in host-addressable memory, for reading.
struct ConstView {
  DType dtype = DType::kFloat32;
  Shape shape = {};
  const void* data = nullptr;
  // Whatever the axes are, (T, N) or (N T, C), the elements are (outer, samples, inner); 0: there are no samples in it,
  // as in a loss of the whole batch.
  int64_t outer = 1;
};

// What a metric sees of one device's share: its samples, without padding.
struct MetricInputs {
  std::vector<std::pair<std::string, ConstView>> outputs = {},
                                                 labels = {};  // by name, in order of heads and of label descriptions
  int64_t samples = 0;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual std::string name() const = 0;  // "accuracy"
  virtual int partial_size() const = 0;  // doubles in a partial
  // Adds this share to `partial` (zeros at first). Pure; called by device workers. Throws ShapeError/DataError on
  // outputs and labels that do not fit the metric.
  virtual void Accumulate(const MetricInputs& inputs, std::span<double> partial) const = 0;
  // name and value from the sum of all partials; NaN before any sample.
  virtual std::vector<std::pair<std::string, double>> Values(std::span<const double> total) const = 0;

  // The running total; not thread safe.
  void Merge(std::span<const double> partial);
  void Reset();
  std::vector<std::pair<std::string, double>> Get() const;
  std::span<const double> total() const { return total_; }
  void SetTotal(std::vector<double> total);  // from a checkpoint; throws Error if its size is not partial_size() or 0

 private:
  std::vector<double> total_;
};

}  // namespace bindery
