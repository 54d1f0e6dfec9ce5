#include "symbol/ops/reduce.h"

#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& attrs) { rule::CheckAxesAttr("axes", attrs.get<ReduceAttrs>().axes); }

// The output's shape for a data shape; extents may be unknown.
Shape ReducedShape(const ReduceAttrs& attrs, const Shape& data) {
  const uint32_t reduced = ReducedAxes(attrs, data);
  std::vector<int64_t> dims;
  for (int axis = 0; axis < data.rank(); ++axis) {
    if ((reduced >> axis & 1) == 0)
      dims.push_back(data[axis]);
    else if (attrs.keepdims)
      dims.push_back(1);
  }
  return Shape(std::span<const int64_t>(dims));
}

// data -> output, and the kept extents back.
void InferReduce(const ReduceAttrs& attrs, Value data, Value output) {
  if (!data.shape()) {
    if (attrs.axes.empty() && !attrs.keepdims) output.Set({});
    if (!attrs.keepdims || !output.shape()) return;
    data.Set(rule::Unknown(output.shape()->rank()));
  }
  output.Set(ReducedShape(attrs, *data.shape()));
  const uint32_t reduced = ReducedAxes(attrs, *data.shape());
  Shape back = *data.shape();
  int from = 0;
  for (int axis = 0; axis < back.rank(); ++axis) {
    const bool kept = (reduced >> axis & 1) == 0;
    if (kept) back.Set(axis, (*output.shape())[from]);
    if (kept || attrs.keepdims) ++from;
  }
  data.Set(back);
}

void InferReduceOp(InferContext& c) { InferReduce(c.attrs<ReduceAttrs>(), Value::In(c, 0), Value::Out(c, 0)); }

void InferMax(InferContext& c) {
  InferReduceOp(c);
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  if (data.Known() && data.shape()->Elements() == 0 && output.shape()->Elements() != 0) {
    Throw<ShapeError>("the maximum of no elements: {} is reduced to {}", *data.shape(), *output.shape());
  }
}

// (output gradient, data, output) -> data gradient
void InferMaxGrad(InferContext& c) {
  const Value data = Value::In(c, 1), grad = Value::Out(c, 0);
  rule::Alike({data, grad});
  InferReduce(c.attrs<ReduceAttrs>(), data, Value::In(c, 0));
  rule::Alike({Value::In(c, 0), Value::In(c, 2)});
  rule::Alike({data, grad});
}

// A reduction over the batch axis mixes samples; otherwise the axis moves by the axes dropped before it.
void ReduceBatchAxis(BatchAxisContext& c) {
  rule::NotBatched(c);
  const int axis = c.input_axes[0];
  if (axis < 0) return;
  const auto& attrs = c.attrs<ReduceAttrs>();
  const uint32_t reduced = ReducedAxes(attrs, c.input_shapes[0]);
  if (reduced >> axis & 1) return;
  const int dropped = __builtin_popcount(reduced & ((1u << axis) - 1));
  c.output_axes[0] = attrs.keepdims ? axis : axis - dropped;
}

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef Reduction(std::string name, std::string doc, GradientRule gradient) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .infer_shape = InferReduceOp,
      .batch_axis = ReduceBatchAxis,
      .check = CheckAttrs,
      .gradient = gradient,
      .zero_to_zero = true,
  };
}

// dx = dy, stretched back over the reduced axes.
Symbol Stretched(const GradientContext& g, const Symbol& dy) {
  const Extents data = g.shape(0);
  const uint32_t reduced = ReducedAxes(g.attrs<ReduceAttrs>(), rule::Unknown(static_cast<int>(data.size())));
  Extents kept = data;
  for (size_t axis = 0; axis < kept.size(); ++axis) {
    if (reduced >> axis & 1) kept[axis] = {1, 0};
  }
  const bool drops_axes = reduced != 0 && !g.attrs<ReduceAttrs>().keepdims;
  return rule::BroadcastTo(drops_axes ? rule::ReshapeTo(dy, kept) : dy, data);
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

Symbol Sum(const Symbol& data, const ReduceAttrs& attrs, const std::string& name) {
  return Apply(SumOp(), attrs, {data}, name);
}
Symbol Mean(const Symbol& data, const ReduceAttrs& attrs, const std::string& name) {
  return Apply(MeanOp(), attrs, {data}, name);
}
Symbol Max(const Symbol& data, const ReduceAttrs& attrs, const std::string& name) {
  return Apply(MaxOp(), attrs, {data}, name);
}

Symbol MaxGrad(const Symbol& output_grad, const Symbol& data, const Symbol& output, const ReduceAttrs& attrs,
               const std::string& name) {
  return Apply(MaxGradOp(), attrs, {output_grad, data, output}, name);
}

const OpDef& SumOp() {
  static const OpDef op = Reduction("Sum", "The sum over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
    return {Stretched(g, g.output_grad(0))};
  });
  return op;
}

const OpDef& MeanOp() {
  static const OpDef op = Reduction("Mean", "The mean over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
    return {Stretched(g, DividedByCount(g))};
  });
  return op;
}

const OpDef& MaxOp() {
  static const OpDef op = [] {
    OpDef def = Reduction("Max", "The maximum over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
      // dx = dy [x = y] / (number of elements equal to y)
      return {MaxGrad(g.output_grad(0), g.input(0), g.output(0), g.attrs<ReduceAttrs>())};
    });
    def.infer_shape = InferMax;
    return def;
  }();
  return op;
}

const OpDef& MaxGradOp() {
  static const OpDef op = {
      .name = "MaxGrad",
      .doc = "dx = dy [x = y] / (number of elements equal to y): equal maxima share alike.",
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data", "output"}),
      .infer_shape = InferMaxGrad,
      .batch_axis = rule::BatchedAs(1),
      .check = CheckAttrs,
      .not_differentiable = "the second derivative of a maximum is not provided",
      // zero_to_zero would be right by dy, but the count of maxima must not see padding.
  };
  return op;
}

}  // namespace bindery
