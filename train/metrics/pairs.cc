#include "train/metrics/pairs.h"

#include <algorithm>
#include <limits>

#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {

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

void FailShapes(const std::string& metric, const MetricArray& output, const MetricArray& label,
                const std::string& expected) {
  Throw<ShapeError>("metric \"{}\": label \"{}\" of shape {} does not fit output \"{}\" of shape {}; expected {}",
                    metric, label.name, label.shape, output.name, output.shape, expected);
}

void CheckOrder(const std::string& metric, const MetricArray& output, const MetricArray& label) {
  if (output.outer > 0 && output.outer == label.outer) return;
  Throw<ShapeError>(
      "metric \"{}\": the samples of label \"{}\" of shape {} are not in the order of output \"{}\" of shape {}",
      metric, label.name, label.shape, output.name, output.shape);
}

Symbol Scores::Wanted(DType dtype) const {
  if (!distributions) return Double(label);
  const Symbol place = ArgMax(label);
  return IsFloat(dtype) ? Where(IsNaN(Pick(label, place)), -1.0, Double(place)) : Double(place);
}

namespace {

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

}  // namespace

Scores MakeScores(const std::string& metric, const ClassMetricOptions& options, const MetricArray& output,
                  const MetricArray& label) {
  const Shape& shape = output.shape;
  Scores s;
  s.positions = shape.Elements();
  int64_t inner = 1;
  int axis = -1;
  const bool same = shape == label.shape;
  // Axis 0 is the samples', also where it is the last.
  const int said = options.axis == -1 ? std::max(1, shape.rank() - 1) : options.axis.value_or(1);
  const bool is_class = said == kNoAxis || (same && shape.rank() <= said);  // each element
  if (!is_class) {
    axis = shape.Axis(options.axis ? said : FindClasses(metric, output, label));
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

MetricGraph::Check ClassesOnly(const std::string& metric, const MetricArrays& share, const char* role,
                               const MetricArray& array, const Symbol& classes, int64_t count,
                               std::optional<double> ignore) {
  const FirstOutsideAttrs attrs{.low = 0,
                                .high = static_cast<double>(count - 1),
                                .whole = true,
                                .use_ignore = ignore.has_value(),
                                .ignore = ignore.value_or(-1)};
  const auto fail = [metric, share = MetricArrays{.samples = share.samples, .first = share.first}, role, array,
                     last = count - 1](int64_t place, double value) {
    Throw<DataError>("metric \"{}\": {} \"{}\", sample {}, element {}: expected a class 0..{}, got {}", metric, role,
                     array.name, share.SampleOf(array, place), place, last, value);
  };
  return {FirstOutside(classes, attrs), fail};
}

ClassMetricOptions CheckedScores(const char* metric, ClassMetricOptions options) {
  if (options.axis == kNoAxis) Throw("metric \"{}\": it is of scores, and so there is an axis of classes", metric);
  return Checked(metric, std::move(options));
}

ClassMetricOptions Checked(const char* metric, ClassMetricOptions options) {
  if (options.axis && *options.axis < 1 && *options.axis != -1) {
    Throw("metric \"{}\": axis must be >= 1, as 0 is the samples', or -1, the last one; got {}", metric, *options.axis);
  }
  return options;
}

}  // namespace bindery
