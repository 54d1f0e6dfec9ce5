#include "symbol/ops/reduce.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& attrs) { rule::CheckAxesAttr("axes", attrs.get<ReduceAttrs>().axes); }

// Axis `axis` of the data, seen in the output; -1 if it is reduced. A reduction over the batch axis mixes samples.
int KeptAxis(uint32_t reduced, bool keepdims, int axis) {
  if (reduced >> axis & 1) return -1;
  return keepdims ? axis : axis - __builtin_popcount(reduced & ((1u << axis) - 1));
}

// data -> output, and the kept extents back.
void InferReduce(const ReduceAttrs& attrs, Value data, Value output) {
  if (!data.shape()) {
    if (attrs.axes.empty() && !attrs.keepdims) output.Set({});
    if (!attrs.keepdims || !rule::SameRank(data, output)) return;
  }
  Shape in = *data.shape();
  const uint32_t reduced = ReducedAxes(attrs, in);
  const int dropped = attrs.keepdims ? 0 : __builtin_popcount(reduced);
  Shape out(std::vector<int64_t>(in.rank() - dropped, 1));
  for (int axis = 0; axis < in.rank(); ++axis) {
    const int kept = KeptAxis(reduced, attrs.keepdims, axis);
    if (kept >= 0) out.Set(kept, in[axis]);
  }
  output.Set(out);
  out = *output.shape();
  for (int axis = 0; axis < in.rank(); ++axis) {
    const int kept = KeptAxis(reduced, attrs.keepdims, axis);
    if (kept >= 0) in.Set(axis, out[kept]);
  }
  data.Set(in);
  data.Carry(output, [&](int axis) { return KeptAxis(reduced, attrs.keepdims, axis); });
}

void InferReduceOp(InferContext& c) {
  rule::SameDTypes(c);
  InferReduce(c.attrs<ReduceAttrs>(), c.in(0), c.out(0));
}

void InferMax(InferContext& c) {
  InferReduceOp(c);
  const Value data = c.in(0), output = c.out(0);
  if (data.Known() && data.shape()->Elements() == 0 && output.shape()->Elements() != 0) {
    Throw<ShapeError>("the maximum of no elements: {} is reduced to {}", *data.shape(), *output.shape());
  }
}

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef Reduction(std::string name, std::string doc, void (*infer)(InferContext&), GradientRule gradient) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .infer = infer,
      .check = CheckAttrs,
      .gradient = gradient,
      .zero_to_zero = true,
  };
}

// A value of the output's shape as one of the data's axes: those that were dropped have extent 1.
Symbol WithAllAxes(const GradientContext& g, const Symbol& value) {
  Extents kept = g.shape(0);
  const uint32_t reduced = ReducedAxes(g.attrs<ReduceAttrs>(), rule::Unknown(static_cast<int>(kept.size())));
  if (reduced == 0 || g.attrs<ReduceAttrs>().keepdims) return value;
  for (size_t axis = 0; axis < kept.size(); ++axis) {
    if (reduced >> axis & 1) kept[axis] = {1, 0};
  }
  return rule::ReshapeTo(value, kept);
}

// dx = dy, stretched back over the reduced axes.
Symbol Stretched(const GradientContext& g, const Symbol& dy) {
  return rule::BroadcastTo(WithAllAxes(g, dy), g.shape(0));
}

// dy / n, n = reduced elements per element of the output. What of n follows the batch is counted when the graph runs.
Symbol DividedByCount(const GradientContext& g) {
  const Extents data = g.shape(0);
  const uint32_t reduced = ReducedAxes(g.attrs<ReduceAttrs>(), rule::Unknown(static_cast<int>(data.size())));
  Symbol dy = g.output_grad(0);
  double count = 1;
  for (size_t axis = 0; axis < data.size(); ++axis) {
    if ((reduced >> axis & 1) == 0) continue;
    if (data[axis].batches == 0) {
      count *= static_cast<double>(data[axis].fixed);
    } else {
      const Symbol one = Constant(HostTensor::Full(g.output_dtype(0), {}, 1));
      dy = dy / Sum(rule::BroadcastTo(one, {data[axis]}));
    }
  }
  return count == 0 || count == 1 ? dy : dy / count;  // where the count is 0 there is no element to divide for
}

// dx = dy [x = y] / (number of elements equal to y): equal maxima share alike. They are counted in a type that can.
std::vector<Symbol> MaxGradient(const GradientContext& g) {
  const DType exact = rule::StatisticsDType(g.dtype(0));
  ReduceAttrs all_axes = g.attrs<ReduceAttrs>();
  all_axes.keepdims = true;
  const Symbol won = Equal(g.input(0), WithAllAxes(g, g.output(0)));
  const Symbol share = Cast(WithAllAxes(g, g.output_grad(0)), {exact}) / Sum(Cast(won, {exact}), all_axes);
  return {Where(won, Cast(share, {g.dtype(0)}), 0.0)};
}

}  // namespace

uint32_t ReducedAxes(const ReduceAttrs& attrs, const Shape& data) {
  const uint32_t all = (1u << data.rank()) - 1;
  if (attrs.axes.empty()) return all;
  uint32_t named = 0;
  for (int64_t axis : attrs.axes) {
    const uint32_t bit = 1u << rule::Axis(axis, data);
    if (named & bit) Throw<ShapeError>("axis {} of {} is named twice", axis, data);
    named |= bit;
  }
  return attrs.exclude ? all & ~named : named;
}

const OpDef& SumOp() {
  static const OpDef op = Reduction("Sum", "The sum over axes.", InferReduceOp, [](const GradientContext& g) {
    return std::vector{Stretched(g, g.output_grad(0))};
  });
  return op;
}

const OpDef& MeanOp() {
  static const OpDef op = Reduction("Mean", "The mean over axes.", InferReduceOp, [](const GradientContext& g) {
    return std::vector{Stretched(g, DividedByCount(g))};
  });
  return op;
}

const OpDef& MaxOp() {
  static const OpDef op = Reduction("Max", "The maximum over axes.", InferMax, MaxGradient);
  return op;
}

}  // namespace bindery
