#include "symbol/ops/reduce.h"

#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"

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

// (output gradient, data, ...) -> data gradient
void InferReduceGrad(InferContext& c) {
  const Value data = Value::In(c, 1), grad = Value::Out(c, 0);
  rule::Alike({data, grad});
  InferReduce(c.attrs<ReduceAttrs>(), data, Value::In(c, 0));
  if (c.num_inputs() == 3) rule::Alike({Value::In(c, 0), Value::In(c, 2)});
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

OpDef ReductionGrad(std::string name, std::string doc, GradientRule gradient) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data"}),
      .shape_only = {1},
      .infer_shape = InferReduceGrad,
      .batch_axis = rule::BatchedAs(1),
      .check = CheckAttrs,
      .gradient = gradient,
      .zero_to_zero = true,
  };
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

const OpDef& SumOp() {
  static const OpDef op = Reduction("Sum", "The sum over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
    // dx = dy, stretched back.
    return {Apply(SumGradOp(), g.attrs<ReduceAttrs>(), {g.output_grad(0), g.input(0)}, g.NameFor("data"))};
  });
  return op;
}

const OpDef& MeanOp() {
  static const OpDef op = Reduction("Mean", "The mean over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
    // dx = dy / n, stretched back, n = reduced elements per element of the output.
    return {Apply(MeanGradOp(), g.attrs<ReduceAttrs>(), {g.output_grad(0), g.input(0)}, g.NameFor("data"))};
  });
  return op;
}

const OpDef& MaxOp() {
  static const OpDef op = [] {
    OpDef def = Reduction("Max", "The maximum over axes.", [](const GradientContext& g) -> std::vector<Symbol> {
      // dx = dy [x = y] / (number of elements equal to y)
      return {
          Apply(MaxGradOp(), g.attrs<ReduceAttrs>(), {g.output_grad(0), g.input(0), g.output(0)}, g.NameFor("data"))};
    });
    def.infer_shape = InferMax;
    return def;
  }();
  return op;
}

const OpDef& SumGradOp() {
  static const OpDef op = ReductionGrad(
      "SumGrad", "dx = dy, stretched over the reduced axes.", [](const GradientContext& g) -> std::vector<Symbol> {
        // Stretching is linear: its transpose is the sum.
        return {Sum(g.output_grad(0), g.attrs<ReduceAttrs>(), g.NameFor("output_grad")), {}};
      });
  return op;
}

const OpDef& MeanGradOp() {
  static const OpDef op = ReductionGrad(
      "MeanGrad", "dx = dy / n, stretched over the reduced axes, n = reduced elements per element of the output.",
      [](const GradientContext& g) -> std::vector<Symbol> {
        return {Mean(g.output_grad(0), g.attrs<ReduceAttrs>(), g.NameFor("output_grad")), {}};
      });
  return op;
}

const OpDef& MaxGradOp() {
  static const OpDef op = {
      .name = "MaxGrad",
      .doc = "dx = dy [x = y] / (number of elements equal to y): equal maxima share alike.",
      .attrs_type = &AttrsOf<ReduceAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data", "output"}),
      .infer_shape = InferReduceGrad,
      .batch_axis = rule::BatchedAs(1),
      .check = CheckAttrs,
      .not_differentiable = "the second derivative of a maximum is not provided",
      // zero_to_zero would be right by dy, but the count of maxima must not see padding.
  };
  return op;
}

}  // namespace bindery
