// Shapes of operands that stretch as in NumPy. Private to symbol/ops.
#pragma once

#include "symbol/ops/rules.h"

namespace bindery::rule {

// Of all inputs and output 0, and where the batch goes. Backward, an operand whose extent is not known is taken to be
// as the output's, not stretched.
void BroadcastShapes(InferContext& c);

// The samples of both are the same, along axes that are aligned at the last.
void CarryAligned(Value operand, Value output);

// Can `small` be stretched to `large`? Unknown extents fit everything.
bool StretchesTo(const Shape& small, const Shape& large);

// Of an operand that may have been stretched, its gradient from that of output 0's shape.
Symbol OperandGradient(const GradientContext& g, int operand, const Symbol& gradient);

}  // namespace bindery::rule
