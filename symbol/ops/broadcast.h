// Shapes of operands that stretch as in NumPy. Private to symbol/ops.
#pragma once

#include "symbol/op_def.h"

namespace bindery::rule {

// All inputs, output 0. Backward, an operand whose extent is not known is taken to be as the output's, not stretched.
void InferBroadcast(InferContext& c);

// Can `small` be stretched to `large`? Unknown extents fit everything.
bool StretchesTo(const Shape& small, const Shape& large);

// Of an operand that may have been stretched, its gradient from that of output 0's shape.
Symbol OperandGradient(const GradientContext& g, int operand, const Symbol& gradient);

}  // namespace bindery::rule
