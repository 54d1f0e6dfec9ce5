// Reductions over axes: Sum, Mean, Max, Min, Prod, norms, LogSumExp.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct ReduceAttrs {
  std::vector<int64_t> axes = {};     // empty: all
  bool keepdims = false;              // keep reduced axes with extent 1
  bool exclude = false;               // reduce all axes but the given
  bool noop_with_empty_axes = false;  // with no axes given: reduce none instead of all
  static FieldList Fields() {
    using A = ReduceAttrs;
    return {{"axes", &A::axes, "axes to reduce; empty: all"},
            {"keepdims", &A::keepdims, "keep them with extent 1"},
            {"exclude", &A::exclude, "reduce all others"},
            {"noop_with_empty_axes", &A::noop_with_empty_axes, "without axes: none, instead of all"}};
  }
};
// No axes left gives shape (), a scalar. As ONNX has it, of nothing the mean is NaN, the product 1, the maximum
// (minimum) the least (greatest) that the type holds, LogSumExp -infinity, and the others 0. Sums of integers wrap.
const OpDef& SumOp();
inline constexpr OpFunction<ReduceAttrs> Sum{SumOp};
const OpDef& MeanOp();
inline constexpr OpFunction<ReduceAttrs> Mean{MeanOp};
const OpDef& MaxOp();
inline constexpr OpFunction<ReduceAttrs> Max{MaxOp};
const OpDef& MinOp();
inline constexpr OpFunction<ReduceAttrs> Min{MinOp};
const OpDef& ProdOp();
inline constexpr OpFunction<ReduceAttrs> Prod{ProdOp};
const OpDef& L1NormOp();  // the sum of |x|
inline constexpr OpFunction<ReduceAttrs> L1Norm{L1NormOp};
const OpDef& L2NormOp();  // the root of the sum of x^2; its gradient at 0 is 0
inline constexpr OpFunction<ReduceAttrs> L2Norm{L2NormOp};
const OpDef& SumSquareOp();
inline constexpr OpFunction<ReduceAttrs> SumSquare{SumSquareOp};
const OpDef& LogSumExpOp();  // log of the sum of e^x, of floats, without overflow: max + log sum e^(x - max)
inline constexpr OpFunction<ReduceAttrs> LogSumExp{LogSumExpOp};
Symbol LogSum(const Symbol& data, const ReduceAttrs& attrs = {}, const std::string& name = {});  // Log(Sum(data))
// Which axes of a data shape are reduced, as a bit mask; throws ShapeError.
uint32_t ReducedAxes(const ReduceAttrs& attrs, const Shape& data);

}  // namespace bindery
