// Operators that keep the elements in their order: Identity, Flatten, Reshape; and Transpose, which does not.
#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// The gradient of all that only rename positions: dx = dy with x's shape.
std::vector<Symbol> BackToShape(const GradientContext& g) { return {rule::ReshapeTo(g.output_grad(0), g.shape(0))}; }

// Input 0's elements in their order, other extents: the output's axis in which all samples lie whole, with what is
// folded into it; none where one axis would have a part of a sample next to another's. Seen as (before, N, after), the
// samples of both are the same if an axis of the output holds `outer` of before's elements, N and `inner` of after's,
// where the axes in front hold the others of before, and those behind of after. `likely` axes are tried first: extents
// alone may leave several, and every share of a batch must have the same.
bool CarryReshaped(InferContext& c, std::initializer_list<int> likely = {}) {
  if (c.batch_of_input() == nullptr || c.batch_of_input()->axis < 0) return false;
  const auto& [axis, fold] = *c.batch_of_input();
  const Shape &from = *c.in(0).shape(), &to = *c.out(0).shape();
  const int64_t before = CheckedMul(from.CountTo(axis), fold.outer, "what is before the samples");
  const int64_t after = CheckedMul(fold.inner, from.CountFrom(axis + 1), "what is after them");
  const int64_t batch = from[axis] / std::max<int64_t>(fold.outer * fold.inner, 1);
  const auto take = [&](int i, bool may_fold) {
    if (i < 0 || i >= to.rank()) return false;
    const int64_t in_front = to.CountTo(i), behind = to.CountFrom(i + 1);
    if (in_front == 0 || behind == 0 || before % in_front != 0 || after % behind != 0) return false;
    const BatchFold result{before / in_front, after / behind};
    if (to[i] != result.outer * batch * result.inner || (!may_fold && result != BatchFold{})) return false;
    c.PlaceBatch(0, i, result);
    return true;
  };
  for (const int i : likely) {
    if (take(i, true)) return true;
  }
  for (const bool may_fold : {false, true}) {
    if (take(axis, may_fold)) return true;
    for (int i = 0; i < to.rank(); ++i) {
      if (take(i, may_fold)) return true;
    }
  }
  return false;
}

void CheckReshape(const AnyAttrs& any) {
  const auto& [shape, batches, allow_zero] = any.get<ReshapeAttrs>();
  rule::CheckShapeAttr({shape, batches});
  int rests = 0, zeros = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (rule::ExtentList{shape, batches}.Follows(i)) continue;
    if (shape[i] < -1) Throw<ModelError>("shape must have extents, 0 and -1 only, got {}", rule::ToString(shape));
    rests += shape[i] == -1;
    zeros += shape[i] == 0;
  }
  if (rests > 1) Throw<ModelError>("shape may have one -1, got {}", rule::ToString(shape));
  if (rests > 0 && zeros > 0 && allow_zero) {
    Throw<ModelError>("shape {} has an extent of 0, so what takes the rest could be any", rule::ToString(shape));
  }
}

// Extents that are kept (0) are in both shapes and cancel; the product of all others must be the same on both sides:
// `from` are the data's others, `to` the attribute's, with the -1 unknown. So a batch that is empty or not known yet
// does no harm.
void InferReshaped(InferContext& c, const ReshapeAttrs& attrs) {
  const rule::ExtentList list{attrs.shape, attrs.batches};
  const Value data = c.in(0), output = c.out(0);
  rule::SameDType({data, output});
  const int rank = static_cast<int>(attrs.shape.size());
  constexpr int64_t kGiven = 1;  // an extent, perhaps not known yet
  std::vector<int64_t> wanted = attrs.shape;
  Shape out = rule::Unknown(rank);
  for (int i = 0; i < rank; ++i) {
    const bool given = list.Follows(i) || wanted[i] > 0 || (wanted[i] == 0 && attrs.allow_zero);
    if (given) out.Set(i, rule::ExtentAt(list, i, c.batch()));
    if (given) wanted[i] = kGiven;
  }
  output.Set(out);
  out = *output.shape();
  if (!data.shape()) return;
  Shape in = *data.shape(), from = in;  // `from`, `to`: with 1 for the kept extents
  Shape to = out;
  for (int i = 0; i < rank; ++i) {
    if (wanted[i] != 0) continue;
    if (i >= in.rank())
      Throw<ShapeError>("shape {} keeps axis {}, which data {} does not have", rule::ToString(attrs.shape), i, in);
    if (in[i] == kUnknownDim) in.Set(i, out[i]);
    out.Set(i, in[i]);
    from.Set(i, 1);
    to.Set(i, 1);
  }
  const int64_t from_product = rule::ProductFrom(from, 0), to_product = rule::ProductFrom(to, 0);
  if (from_product != kUnknownDim && to_product != kUnknownDim) {
    if (from_product != to_product) Throw<ShapeError>("the elements of {} do not fit into {}", in, out);
  } else if (from_product != kUnknownDim) {
    const auto rest = std::ranges::find(wanted, -1);  // the only unknown extent of `to`, but for the batch's
    if (rest == wanted.end()) return;
    const int axis = static_cast<int>(rest - wanted.begin());
    const int64_t others = rule::ProductFrom(to.With(axis, 1), 0);
    if (others == kUnknownDim) return;
    if (others == 0 || from_product % others != 0) {
      Throw<ShapeError>("data {} does not divide into {}", in, rule::ToString(attrs.shape));
    }
    out.Set(axis, from_product / others);
  } else if (to_product != kUnknownDim) {
    const Shape filled = rule::FillFromProduct(from, 0, to_product);
    for (int i = 0; i < in.rank(); ++i) {
      if (i >= rank || wanted[i] != 0) in.Set(i, filled[i]);
    }
  }
  data.Set(in);
  output.Set(out);

  // Where the batch's extent is kept, it is still the batch's; else what takes the rest grows with it.
  const int axis = c.batch_of_input() == nullptr ? -1 : c.batch_of_input()->axis, following = list.FirstFollowing();
  const bool kept = axis >= 0 && axis < rank && wanted[axis] == 0;
  const auto rest = static_cast<int>(std::ranges::find(attrs.shape, -1) - attrs.shape.begin());
  if (!CarryReshaped(c, {following, kept ? axis : -1, rest})) c.PlaceBatch(0, following);
}

void CheckTranspose(const AnyAttrs& any) {
  const auto& axes = any.get<TransposeAttrs>().axes;
  rule::CheckAxesAttr("axes", axes);
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(axes.size())) {
      Throw<ModelError>("axes must be a permutation of 0 to {}, got {}", axes.size() - 1, rule::ToString(axes));
    }
  }
}

// The input axis that becomes output axis i.
int SourceAxis(const TransposeAttrs& attrs, int rank, int i) {
  return attrs.axes.empty() ? rank - 1 - i : static_cast<int>(attrs.axes[i]);
}

void InferTranspose(InferContext& c) {
  const auto& attrs = c.attrs<TransposeAttrs>();
  const Value data = c.in(0), output = c.out(0);
  rule::SameDType({data, output});
  if (!attrs.axes.empty()) {
    const int rank = static_cast<int>(attrs.axes.size());
    if (data.shape()) rule::ExpectRank(*data.shape(), rank, "to permute");
    data.Set(rule::Unknown(rank));
  }
  if (!rule::SameRank(data, output)) return;
  const int rank = data.shape()->rank();
  Shape out = rule::Unknown(rank), in = out;
  for (int i = 0; i < rank; ++i) out.Set(i, (*data.shape())[SourceAxis(attrs, rank, i)]);
  output.Set(out);
  for (int i = 0; i < rank; ++i) in.Set(SourceAxis(attrs, rank, i), (*output.shape())[i]);
  data.Set(in);
  data.Carry(output, [&](int axis) {
    int i = 0;
    while (SourceAxis(attrs, rank, i) != axis) ++i;
    return i;
  });
}

}  // namespace

const OpDef& IdentityOp() {
  static const OpDef op = rule::View({
      .name = "Identity",
      .doc = "y = x.",
      .infer = rule::Like(0),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> { return {g.output_grad(0)}; },  // dx = dy
      .numbers = rule::SameNumbers,
      .is_identity = [](const AnyAttrs&, const std::vector<Entry>&) { return true; },
  });
  return op;
}

const OpDef& FlattenOp() {
  static const OpDef op = rule::View({
      .name = "Flatten",
      .doc = "(N, ...) seen as (N, K).",
      .infer =
          [](InferContext& c) {
            if (c.in(0).shape() && c.in(0).shape()->rank() == 0)
              throw ShapeError("expected 1 or more axes (N, ...), got ()");
            static const ReshapeAttrs joined{.shape = {0, -1}};
            InferReshaped(c, joined);
          },
      .gradient = BackToShape,
      .numbers = rule::SameNumbers,
  });
  return op;
}

const OpDef& ReshapeOp() {
  static const OpDef op = rule::View({
      .name = "Reshape",
      .doc = "The elements in their order with another shape: 0 keeps an extent, -1 takes what remains.",
      .attrs_type = &AttrsOf<ReshapeAttrs>(),
      .infer = [](InferContext& c) { InferReshaped(c, c.attrs<ReshapeAttrs>()); },
      .check = CheckReshape,
      .gradient = BackToShape,
      .numbers = rule::SameNumbers,
  });
  return op;
}

const OpDef& TransposeOp() {
  static const OpDef op = {
      .name = "Transpose",
      .doc = "Output axis i is input axis axes[i]; the axes reversed by default.",
      .attrs_type = &AttrsOf<TransposeAttrs>(),
      .infer = InferTranspose,
      .check = CheckTranspose,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy with the inverse permutation; reversing is its own inverse.
        const auto& axes = g.attrs<TransposeAttrs>().axes;
        TransposeAttrs inverse{std::vector<int64_t>(axes.size())};
        for (size_t i = 0; i < axes.size(); ++i) inverse.axes[axes[i]] = static_cast<int64_t>(i);
        return {Transpose(g.output_grad(0), inverse)};
      },
      .numbers = rule::TransposeNumbers,
      .is_identity =
          [](const AnyAttrs& attrs, const std::vector<Entry>&) {
            const auto& axes = attrs.get<TransposeAttrs>().axes;  // empty: reversed
            return !axes.empty() && std::ranges::is_sorted(axes);
          },
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
