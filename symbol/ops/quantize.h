// Integers that stand for real numbers, as ONNX has them: x = (q - zero_point) scale. Scale and zero point are one
// number, () or (1), or one for each position along `axis`.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct QuantizeAttrs {
  int64_t axis = 1;
  bool no_zero_point = false;  // it is 0
  DType dtype = DType::kUInt8;
  static FieldList Fields() {
    using A = QuantizeAttrs;
    return {{"axis", &A::axis, "axis of scales, if they are several"},
            {"no_zero_point", &A::no_zero_point, "the zero point is 0"},
            {"dtype", &A::dtype, "int8, uint8, int16 or uint16"}};
  }
};
// (data, scale, zero_point) -> q = the nearest whole number to data / scale, of two the even one, + zero_point, within
// the type's bounds. The quotient is rounded to float32 first, of float64 data to float64. No gradient passes.
const OpDef& QuantizeLinearOp();
inline constexpr OpFunction<QuantizeAttrs, 3> QuantizeLinear{QuantizeLinearOp};

struct DequantizeAttrs {
  int64_t axis = 1;
  bool no_zero_point = false;
  static FieldList Fields() {
    using A = DequantizeAttrs;
    return {{"axis", &A::axis, "axis of scales, if they are several"},
            {"no_zero_point", &A::no_zero_point, "the zero point is 0"}};
  }
};
// (quantized, of int8, uint8, int16, uint16 or int32, scale, zero_point) -> (quantized - zero_point) scale, of the
// scale's type
const OpDef& DequantizeLinearOp();
inline constexpr OpFunction<DequantizeAttrs, 3> DequantizeLinear{DequantizeLinearOp};

// data as (outer, channels, inner), a scale for each channel; one channel if there is one scale. Throws ShapeError.
struct QuantizedView {
  int64_t outer, channels, inner;
};
QuantizedView ChannelsOf(int64_t axis, const Shape& data, const Shape& scale);

}  // namespace bindery
