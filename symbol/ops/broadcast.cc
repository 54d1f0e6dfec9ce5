#include "symbol/ops/broadcast.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/ops/common.h"

namespace bindery::rule {
namespace {

constexpr int64_t kAbsent = -2;  // an operand of lower rank has no such axis

// One axis: the operands' extents and the output's, as far as known. Fills in what follows.
struct AxisExtents {
  int64_t a, b, output;

  void Infer(bool assume, const Shape& left, const Shape& right) {
    const bool a_known = a != kUnknownDim, b_known = b != kUnknownDim;
    if (a_known && b_known) {
      const int64_t extent_a = a == kAbsent ? 1 : a, extent_b = b == kAbsent ? 1 : b;
      if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
        Throw<ShapeError>("shapes {} and {} do not broadcast: extents must be equal or 1", left, right);
      }
      output = extent_a == 1 ? extent_b : extent_a;
    } else if (a_known) {
      InferOther(a, b, assume);
    } else if (b_known) {
      InferOther(b, a, assume);
    } else if (output != kUnknownDim && (assume || output == 1)) {
      a = b = output;
    }
  }

 private:
  // The output's extent and the unknown operand's, from the known operand's.
  void InferOther(int64_t known, int64_t& unknown, bool assume) {
    if (known == 1 || known == kAbsent) {
      if (output != kUnknownDim) unknown = output;  // nothing but the unknown one can have stretched it
      return;
    }
    output = known;  // the unknown one is 1 or the same
    if (assume) unknown = known;
  }
};

}  // namespace

void InferBroadcast(InferContext& c) {
  const Value a = Value::In(c, 0), b = Value::In(c, 1), out = Value::Out(c, 0);
  if (!a.shape() || !b.shape()) {
    if (!c.may_assume()) return;
    const Value &known = a.shape() ? a : b, &unknown = a.shape() ? b : a;
    if (out.shape()) {
      unknown.Set(*out.shape());
      if (!known.shape()) known.Set(*out.shape());
    } else if (known.shape()) {
      unknown.Set(*known.shape());
    }
    return;
  }
  Shape left = *a.shape(), right = *b.shape();
  const int rank = std::max(left.rank(), right.rank());
  Shape output = Unknown(rank);
  if (out.shape()) {
    if (out.shape()->rank() != rank) out.Set(output);  // a contradiction: complains
    output = *out.shape();
  }
  for (int axis = 0; axis < rank; ++axis) {
    const int in_left = axis - (rank - left.rank()), in_right = axis - (rank - right.rank());
    AxisExtents extents{in_left < 0 ? kAbsent : left[in_left], in_right < 0 ? kAbsent : right[in_right], output[axis]};
    extents.Infer(c.may_assume(), left, right);
    if (in_left >= 0) left.Set(in_left, extents.a);
    if (in_right >= 0) right.Set(in_right, extents.b);
    output.Set(axis, extents.output);
  }
  a.Set(left);
  b.Set(right);
  out.Set(output);
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
  const Extents shape = g.shape(operand);
  return shape == g.output_shape(0) ? gradient : SumTo(gradient, shape);
}

}  // namespace bindery::rule
