#include "symbol/ops/reduce.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/order.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckReduceAttrs(const AnyAttrs& attrs) { rule::CheckAxesAttr("axes", attrs.get<ReduceAttrs>().axes); }

// Axis `axis` of the data, seen in the output; -1 if it is reduced. A reduction over the batch axis mixes samples.
int KeptAxis(uint32_t reduced, bool keepdims, int axis) {
  if (reduced >> axis & 1) return -1;
  return keepdims ? axis : axis - __builtin_popcount(reduced & ((1u << axis) - 1));
}

// data -> output, and the kept extents back.
void InferReduce(const ReduceAttrs& attrs, Value data, Value output) {
  if (!data.shape()) {
    if (attrs.axes.empty() && !attrs.keepdims && !attrs.noop_with_empty_axes) output.Set({});
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

void InferReduceOfFloats(InferContext& c) {
  InferReduceOp(c);
  rule::ExpectFloat(c.in(0));
}

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef Reduction(std::string name, std::string doc, void (*infer)(InferContext&), GradientRule gradient) {
  rule::NumbersRule numbers = rule::ReducedNumbers(name);
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .infer = infer,
      .check = CheckReduceAttrs,
      .gradient = gradient,
      .numbers = std::move(numbers),
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
// In a type that holds n: float16 ends at 65504.
Symbol DividedByCount(const GradientContext& g) {
  const Extents data = g.shape(0);
  const DType dtype = g.output_dtype(0), exact = rule::StatisticsDType(dtype);
  const uint32_t reduced = ReducedAxes(g.attrs<ReduceAttrs>(), rule::Unknown(static_cast<int>(data.size())));
  const auto as = [&](const Symbol& x, DType type) { return dtype == exact ? x : Cast(x, {type}); };
  Symbol dy = as(g.output_grad(0), exact);
  double count = 1;
  for (size_t axis = 0; axis < data.size(); ++axis) {
    if ((reduced >> axis & 1) == 0) continue;
    if (data[axis].batches == 0) {
      count *= static_cast<double>(data[axis].fixed);
    } else {
      const Symbol one = Constant(HostTensor::Full(exact, {}, 1));
      dy = dy / Sum(rule::BroadcastTo(one, {data[axis]}));
    }
  }
  return as(count == 0 || count == 1 ? dy : dy / count, dtype);  // where the count is 0 there is nothing to divide
}

// The same reduction with all axes kept.
ReduceAttrs KeepingAxes(const GradientContext& g) {
  ReduceAttrs attrs = g.attrs<ReduceAttrs>();
  attrs.keepdims = true;
  return attrs;
}

// dx = dy [x = y] / (number of elements equal to y): equal extremes share alike. They are counted in a type that can.
std::vector<Symbol> ExtremeGradient(const GradientContext& g) {
  const DType exact = rule::StatisticsDType(g.dtype(0));
  const Symbol won = Equal(g.input(0), WithAllAxes(g, g.output(0)));
  const Symbol share = Cast(WithAllAxes(g, g.output_grad(0)), {exact}) / Sum(Cast(won, {exact}), KeepingAxes(g));
  return {Where(won, Cast(share, {g.dtype(0)}), 0.0)};
}

// dx = dy e^(x - y), with an exponent that must not be rounded to 16 bits: for such types y is made anew.
std::vector<Symbol> LogSumExpGradient(const GradientContext& g) {
  const DType dtype = g.dtype(0), exact = rule::StatisticsDType(dtype);
  const Symbol x = Cast(g.input(0), {exact}), dy = Cast(WithAllAxes(g, g.output_grad(0)), {exact});
  const Symbol y = dtype == exact ? WithAllAxes(g, g.output(0)) : LogSumExp(x, KeepingAxes(g));
  return {Cast(dy * Exp(x - y), {dtype})};
}

// dx = dy (product of the others), which is that of those before times that of those behind: y / x is none where a
// factor is 0, nor has it the slope of one. Reduced axes are one, the last, for that.
std::vector<Symbol> ProdGradient(const GradientContext& g) {
  const Extents shape = g.shape(0);
  const int rank = static_cast<int>(shape.size());
  const uint32_t reduced = ReducedAxes(g.attrs<ReduceAttrs>(), rule::Unknown(rank));
  if (reduced == 0) return {g.output_grad(0)};
  TransposeAttrs order, back{std::vector<int64_t>(shape.size())};
  Extents turned, rows;
  Extent factors{1, 0};
  for (const bool is_reduced : {false, true}) {
    for (int axis = 0; axis < rank; ++axis) {
      if ((reduced >> axis & 1) != is_reduced) continue;
      back.axes[axis] = std::ssize(order.axes);
      order.axes.push_back(axis);
      turned.push_back(shape[axis]);
      if (is_reduced) {
        factors = factors * shape[axis];
      } else {
        rows.push_back(shape[axis]);
      }
    }
  }
  rows.push_back(factors);
  const Symbol x = rule::ReshapeTo(Transpose(g.input(0), order), rows);
  const auto beside = [&](bool reverse) { return CumProd(x, {.axis = -1, .exclusive = true, .reverse = reverse}); };
  const Symbol others = Transpose(rule::ReshapeTo(beside(false) * beside(true), turned), back);
  return {WithAllAxes(g, g.output_grad(0)) * others};
}

}  // namespace

uint32_t ReducedAxes(const ReduceAttrs& attrs, const Shape& data) {
  const uint32_t all = (1u << data.rank()) - 1;
  if (attrs.axes.empty()) return attrs.noop_with_empty_axes ? 0 : all;
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
  static const OpDef op = Reduction("Max", "The maximum over axes.", InferReduceOp, ExtremeGradient);
  return op;
}

const OpDef& MinOp() {
  static const OpDef op = Reduction("Min", "The minimum over axes.", InferReduceOp, ExtremeGradient);
  return op;
}

const OpDef& ProdOp() {
  static const OpDef op = Reduction("Prod", "The product over axes.", InferReduceOp, ProdGradient);
  return op;
}

const OpDef& L1NormOp() {
  static const OpDef op = Reduction("L1Norm", "The sum of |x| over axes.", InferReduceOp, [](const GradientContext& g) {
    return std::vector{WithAllAxes(g, g.output_grad(0)) * Sign(g.input(0))};
  });
  return op;
}

const OpDef& L2NormOp() {
  static const OpDef op =
      Reduction("L2Norm", "The root of the sum of x^2 over axes.", InferReduceOp, [](const GradientContext& g) {
        // dx = dy x / y, and 0 where y is 0, of which nothing is divided: its own gradient would be 0 times infinity
        const Symbol &y = g.output(0), is_zero = Equal(y, 0.0);
        const Symbol each = Where(is_zero, 0.0, g.output_grad(0) / Where(is_zero, 1.0, y));
        return std::vector{WithAllAxes(g, each) * g.input(0)};
      });
  return op;
}

const OpDef& SumSquareOp() {
  static const OpDef op = Reduction(
      "SumSquare", "The sum of x^2 over axes.", InferReduceOp,
      [](const GradientContext& g) { return std::vector{WithAllAxes(g, g.output_grad(0) * 2.0) * g.input(0)}; });
  return op;
}

const OpDef& LogSumExpOp() {
  static const OpDef op = [] {
    OpDef def = Reduction("LogSumExp", "log of the sum of e^x over axes: max + log sum e^(x - max).",
                          InferReduceOfFloats, LogSumExpGradient);
    def.zero_to_zero = false;
    return def;
  }();
  return op;
}

Symbol LogSum(const Symbol& data, const ReduceAttrs& attrs, const std::string& name) {
  return Log(Sum(data, attrs), name);
}

}  // namespace bindery
