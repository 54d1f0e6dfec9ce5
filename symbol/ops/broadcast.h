// Shapes of operands that stretch as in NumPy. Private to symbol/ops.
#pragma once

#include <string>

#include "symbol/op_def.h"

namespace bindery::rule {

// Inputs 0 and 1, output 0. Backward, an operand whose extent is not known is taken to be as the other's, not
// stretched.
void InferBroadcast(InferContext& c);

// Can `small` be stretched to `large`? Unknown extents fit everything.
bool StretchesTo(const Shape& small, const Shape& large);

// The gradient of an operand that was stretched: summed to the operand's shape.
Symbol SumTo(const Symbol& gradient, const Symbol& operand, const std::string& name);

}  // namespace bindery::rule
