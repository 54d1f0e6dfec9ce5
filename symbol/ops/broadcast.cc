#include "symbol/ops/broadcast.h"

#include <algorithm>

#include "base/error.h"

namespace bindery::rule {
namespace {

// (N, 1) and (N) would give (N, N), each sample with all others, only because shapes are aligned at the last axis. Who
// gives both operands as many axes means it.
void CheckSamplesMeet(InferContext& c) {
  int first = -1;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const InferContext::BatchPlace* place = c.batch_of_input(i);
    if (place == nullptr || place->axis < 0 || (*c.in(i).shape())[place->axis] < 2) continue;
    if (first < 0) {
      first = i;
      continue;
    }
    const bool is_longer = c.in(i).shape()->rank() > c.in(first).shape()->rank();
    const int high = is_longer ? i : first, low = is_longer ? first : i;
    const Shape large = *c.in(high).shape(), small = *c.in(low).shape();
    const int missing = large.rank() - small.rank(), axis = c.batch_of_input(high)->axis;
    if (missing == 0 || axis == c.batch_of_input(low)->axis + missing) continue;
    Shape aligned = small;
    for (int k = 0; k < missing; ++k) aligned = aligned.Insert(0, 1);
    Throw<ShapeError>(
        "the samples of {} are along axis {}, those of {} would be along axis {}, each beside all others; Reshape the "
        "latter so that they are along axis {}, or, if all pairs are meant, to {}",
        large, axis, small, c.batch_of_input(low)->axis + missing, axis, aligned);
  }
}

// A factor or a shift of one element, from whose shape nothing is to be assumed for what it is combined with; in a
// batch of 1 it may be the sample.
bool IsNumber(const Shape& shape, std::optional<int64_t> batch) {
  return shape.rank() == 0 || (batch != 1 && std::ranges::all_of(shape, [](int64_t extent) { return extent == 1; }));
}

}  // namespace

void BroadcastShapes(InferContext& c) {
  const int count = c.num_inputs();
  const Value output = c.out(0);
  std::optional<Shape> known = output.shape();  // an operand's that nothing is known of, if one may assume
  int rank = 0;
  bool all = true;
  for (int i = 0; i < count; ++i) {
    const std::optional<Shape>& shape = c.in(i).shape();
    all = all && shape;
    if (!shape) continue;
    rank = std::max(rank, shape->rank());
    if (!output.shape() && !IsNumber(*shape, c.batch()) && (!known || known->rank() < shape->rank())) known = shape;
  }
  if (!all) {
    for (int i = 0; i < count && known && (count == 1 || c.may_assume()); ++i) {
      if (!c.in(i).shape()) c.in(i).Set(*known);
    }
    return;
  }
  if (output.shape() && output.shape()->rank() != rank) output.Set(Unknown(rank));  // a contradiction: complains
  Shape out = output.shape().value_or(Unknown(rank));
  for (int axis = 1; axis <= rank; ++axis) {  // from the last one
    int64_t extent = 1;                       // what the operands say of the output's
    int widest = -1, unknown = 0;
    for (int i = 0; i < count; ++i) {
      const Shape& shape = *c.in(i).shape();
      const int64_t own = axis > shape.rank() ? 1 : shape[-axis];
      unknown += own == kUnknownDim;
      if (own == kUnknownDim || own == 1 || own == extent) continue;
      if (extent != 1) {
        Throw<ShapeError>("shapes {} and {} do not broadcast: extents must be equal or 1", *c.in(widest).shape(),
                          shape);
      }
      extent = own;
      widest = i;
    }
    if (extent != 1 || unknown == 0) out.Set(-axis, extent);
    const int64_t target = out[-axis];
    if (unknown == 0 || target == kUnknownDim) continue;
    // Only one operand can have stretched the others, or nothing was stretched.
    if (!(unknown == 1 && extent == 1) && target != 1 && !c.may_assume()) continue;
    for (int i = 0; i < count; ++i) {
      const Shape& shape = *c.in(i).shape();
      if (axis <= shape.rank() && shape[-axis] == kUnknownDim) c.in(i).Set(shape.With(-axis, target));
    }
  }
  output.Set(out);
  CheckSamplesMeet(c);
  for (int i = 0; i < count; ++i) CarryAligned(c.in(i), output);
}

void CarryAligned(Value operand, Value output) {
  operand.Carry(output,
                [&](int axis) { return std::max(axis + output.shape()->rank() - operand.shape()->rank(), -1); });
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
