#include "symbol/ops/quantize.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

bool IsNarrow(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kUInt8 || dtype == DType::kInt16 || dtype == DType::kUInt16;
}

bool IsOne(const Shape& scale) { return scale.rank() == 0 || (scale.rank() == 1 && scale[0] == 1); }

void InferShapes(int64_t axis, Value data, Value scale, Value zero_point, Value output) {
  rule::SameShape({data, output});
  rule::SameShape({scale, zero_point});
  data.Carry(output);
  if (!scale.shape() || IsOne(*scale.shape()) || !data.shape()) return;
  if (scale.shape()->rank() != 1) Throw<ShapeError>("expected one scale or one axis of them, got {}", *scale.shape());
  const int64_t extent = (*data.shape())[rule::Axis(axis, *data.shape())], scales = (*scale.shape())[0];
  if (extent != kUnknownDim && scales != kUnknownDim && extent != scales) {
    Throw<ShapeError>("{} scales do not fit axis {} of {}", scales, axis, *data.shape());
  }
}

void InferQuantize(InferContext& c) {
  const auto& attrs = c.attrs<QuantizeAttrs>();
  const Value data = c.in(0), scale = c.in(1), zero_point = c.in(2), output = c.out(0);
  rule::SameDType({data, scale});
  rule::SameDType({zero_point, output});
  output.SetDType(attrs.dtype);
  rule::ExpectFloat(data);
  InferShapes(attrs.axis, data, scale, zero_point, output);
}

void InferDequantize(InferContext& c) {
  const Value data = c.in(0), scale = c.in(1), zero_point = c.in(2), output = c.out(0);
  rule::SameDType({data, zero_point});
  rule::SameDType({scale, output});
  if (data.dtype() && !IsNarrow(*data.dtype()) && *data.dtype() != DType::kInt32) {
    Throw<ShapeError>("takes int8, uint8, int16, uint16 or int32, got {}", *data.dtype());
  }
  if (scale.dtype() && !IsFloat(*scale.dtype())) {
    Throw<ShapeError>("expected scales of a floating point type, got {}", *scale.dtype());
  }
  InferShapes(c.attrs<DequantizeAttrs>().axis, data, scale, zero_point, output);
}

// dscale = the sum of dy (quantized - zero point), in a type that can hold the terms
std::vector<Symbol> DequantizeGradient(const GradientContext& g) {
  std::vector<Symbol> gradients(static_cast<size_t>(g.num_inputs()));
  if (!g.wants(1)) return gradients;
  const auto& [axis, no_zero_point] = g.attrs<DequantizeAttrs>();
  const Extents data = g.shape(0), scale = g.shape(1);
  const bool one = scale.empty() || scale[0] == Extent{1, 0};
  const DType exact = rule::StatisticsDType(g.dtype(1));
  Symbol number = Cast(g.input(0), {exact});
  if (!no_zero_point) {
    Extents along(data.size(), {1, 0});
    if (!one) along[rule::Axis(axis, rule::Unknown(static_cast<int>(data.size())))] = scale[0];
    number = number - rule::ReshapeTo(Cast(g.input(2), {exact}), along);
  }
  const Symbol terms = Cast(g.output_grad(0), {exact}) * number;
  const Symbol sum = one ? rule::ReshapeTo(Sum(terms), scale) : Sum(terms, {.axes = {axis}, .exclude = true});
  gradients[1] = Cast(sum, {g.dtype(1)});
  return gradients;
}

}  // namespace

QuantizedView ChannelsOf(int64_t axis, const Shape& data, const Shape& scale) {
  if (IsOne(scale)) return {1, 1, data.Elements()};
  const int at = rule::Axis(axis, data);
  return {data.CountTo(at), data[at], data.CountFrom(at + 1)};
}

const OpDef& QuantizeLinearOp() {
  static const OpDef op = {
      .name = "QuantizeLinear",
      .doc = "data / scale + zero_point as whole numbers within the type's bounds.",
      .attrs_type = &AttrsOf<QuantizeAttrs>(),
      .inputs = {"data", "scale", Optional("zero_point", Unless(&QuantizeAttrs::no_zero_point))},
      .infer = InferQuantize,
      .check =
          [](const AnyAttrs& any) {
            const auto& attrs = any.get<QuantizeAttrs>();
            rule::CheckAxisAttr("axis", attrs.axis);
            if (!IsNarrow(attrs.dtype)) {
              Throw<ModelError>("dtype must be int8, uint8, int16 or uint16, got {}", attrs.dtype);
            }
          },
      .gradient = rule::NoGradient,  // constant but for jumps
  };
  return op;
}

const OpDef& DequantizeLinearOp() {
  static const OpDef op = {
      .name = "DequantizeLinear",
      .doc = "(quantized - zero_point) scale.",
      .attrs_type = &AttrsOf<DequantizeAttrs>(),
      .inputs = {"quantized", "scale", Optional("zero_point", Unless(&DequantizeAttrs::no_zero_point))},
      .infer = InferDequantize,
      .check = rule::CheckAxis<DequantizeAttrs>,
      .gradient = DequantizeGradient,
  };
  return op;
}

}  // namespace bindery
