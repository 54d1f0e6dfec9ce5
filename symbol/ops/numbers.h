// How operators compute the numbers that shapes follow from (OpDef::numbers). Private to symbol/ops.
#pragma once

#include <functional>
#include <string_view>

#include "symbol/op_def.h"

namespace bindery::rule {

using NumbersRule = std::function<void(InferContext&)>;

void ConstantNumbers(InferContext& c);      // of Constant
void ScalarNumbers(InferContext& c);        // of Scalar
void SameNumbers(InferContext& c);          // every output has input 0's elements in their order
void CastNumbers(InferContext& c);          // of Cast
void BroadcastNumbers(InferContext& c);     // input 0 stretched to the output
void TransposeNumbers(InferContext& c);     // of Transpose
void SliceNumbers(InferContext& c);         // of Slice
void PadNumbers(InferContext& c);           // of Pad
void ConcatNumbers(InferContext& c);        // of Concat
void SliceChannelNumbers(InferContext& c);  // of SliceChannel
void WhereNumbers(InferContext& c);         // (condition, a, b) -> output
void TakeNumbers(InferContext& c,
                 int64_t axis);  // (data, indices) -> data at the indices along the axis, negative ones from its end
// Of a function of one number or of two by its name in the table of elementwise.cc; empty if none is known.
NumbersRule ElementwiseNumbers(std::string_view name);
double Rounded(DType dtype, double number);  // as the type holds it; what is behind the point of integers is cut
// Of a reduction of all elements to one, by its operator's name; empty if none is known.
NumbersRule ReducedNumbers(std::string_view name);

}  // namespace bindery::rule
