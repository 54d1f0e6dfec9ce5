#include "symbol/ops/broadcast.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/ops/common.h"

namespace bindery::rule {

void InferBroadcast(InferContext& c) {
  const int count = c.num_inputs();
  std::optional<Shape> known = c.output(0);  // an operand's that nothing is known of, if one may assume
  int rank = 0;
  bool all = true;
  for (int i = 0; i < count; ++i) {
    all = all && c.input(i);
    if (!c.input(i)) continue;
    rank = std::max(rank, c.input(i)->rank());
    if (!c.output(0) && (!known || known->rank() < rank)) known = c.input(i);
  }
  if (!all) {
    for (int i = 0; i < count && known && (count == 1 || c.may_assume()); ++i) {
      if (!c.input(i)) c.SetInput(i, *known);
    }
    return;
  }
  if (c.output(0) && c.output(0)->rank() != rank) c.SetOutput(0, Unknown(rank));  // a contradiction: complains
  Shape output = c.output(0).value_or(Unknown(rank));
  for (int axis = 1; axis <= rank; ++axis) {  // from the last one
    int64_t extent = 1;                       // what the operands say of the output's
    int widest = -1, unknown = 0;
    for (int i = 0; i < count; ++i) {
      const Shape& shape = *c.input(i);
      const int64_t own = axis > shape.rank() ? 1 : shape[-axis];
      unknown += own == kUnknownDim;
      if (own == kUnknownDim || own == 1 || own == extent) continue;
      if (extent != 1) {
        Throw<ShapeError>("shapes {} and {} do not broadcast: extents must be equal or 1", *c.input(widest), shape);
      }
      extent = own;
      widest = i;
    }
    if (extent != 1 || unknown == 0) output.Set(-axis, extent);
    const int64_t target = output[-axis];
    if (unknown == 0 || target == kUnknownDim) continue;
    // Only one operand can have stretched the others, or nothing was stretched.
    if (!(unknown == 1 && extent == 1) && target != 1 && !c.may_assume()) continue;
    for (int i = 0; i < count; ++i) {
      const Shape shape = *c.input(i);
      if (axis > shape.rank() || shape[-axis] != kUnknownDim) continue;
      c.SetInput(i, shape.With(-axis, target));
    }
  }
  c.SetOutput(0, output);
}

bool StretchesTo(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  for (int axis = 1; axis <= small.rank(); ++axis) {
    const int64_t extent = small[-axis], target = large[-axis];
    if (extent != 1 && extent != target && extent != kUnknownDim && target != kUnknownDim) return false;
  }
  return true;
}

Symbol OperandGradient(const GradientContext& g, int operand, const Symbol& gradient) {
  bool others_are_numbers = true;  // which stretch nothing, so shapes need not be known
  for (int i = 0; i < g.num_inputs(); ++i) others_are_numbers = others_are_numbers && (i == operand || g.is_number(i));
  if (others_are_numbers) return gradient;
  const Extents shape = g.shape(operand);
  return shape == g.output_shape(0) ? gradient : SumTo(gradient, shape);
}

}  // namespace bindery::rule
