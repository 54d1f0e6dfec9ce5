// Operators that keep the elements in their order: Identity, Flatten, Reshape; and Transpose, which does not.
#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// The gradient of all that only rename positions: dx = dy with x's shape.
std::vector<Symbol> BackToShape(const GradientContext& g) { return {rule::ReshapeTo(g.output_grad(0), g.shape(0))}; }

void ReshapedBatchAxis(BatchAxisContext& c) {
  if (&c.any_attrs.type() == &AttrsOf<ReshapeAttrs>()) {
    const auto& [shape, batches] = c.attrs<ReshapeAttrs>();
    const int following = rule::FollowingAxis(batches);
    // Where the batch's extent is kept, it is still the batch's; else what takes the rest grows with it.
    const size_t axis = static_cast<size_t>(c.input_axes[0]);
    const bool kept = axis < shape.size() && shape[axis] == 0;
    const auto rest = static_cast<int>(std::ranges::find(shape, -1) - shape.begin());
    rule::BatchAfterReshape(c, {following, kept ? c.input_axes[0] : -1, rest});
    if (c.output_axes[0] < 0) c.output_axes[0] = following;
    return;
  }
  rule::BatchAfterReshape(c);
}

// data (N, ...), output (N, K) with K the other extents' product.
void InferFlatten(InferContext& c) {
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  output.Set(rule::Unknown(2));
  if (!data.shape()) return;
  const int rank = data.shape()->rank();
  if (rank < 1) throw ShapeError("expected 1 or more axes (N, ...), got ()");
  output.Set({(*data.shape())[0], rule::ProductFrom(*data.shape(), 1)});
  const Shape out = *output.shape();
  data.Set(rule::Unknown(rank).With(0, out[0]));
  if (out[1] != kUnknownDim) data.Set(rule::FillFromProduct(*data.shape(), 1, out[1]));
}

void CheckReshape(const AnyAttrs& any) {
  const auto& [shape, batches] = any.get<ReshapeAttrs>();
  if (shape.size() > Shape::kMaxRank) {
    Throw<ModelError>("shape has {} entries, more than the {} axes a shape can have", shape.size(), Shape::kMaxRank);
  }
  rule::CheckBatches("batches", batches, shape);
  int rests = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!batches.empty() && batches[i] != 0) continue;
    if (shape[i] < -1) Throw<ModelError>("shape must have extents, 0 and -1 only, got {}", rule::ToString(shape));
    rests += shape[i] == -1;
  }
  if (rests > 1) Throw<ModelError>("shape may have one -1, got {}", rule::ToString(shape));
}

// Extents that are kept (0) are in both shapes and cancel; the product of all others must be the same on both sides:
// `from` are the data's others, `to` the attribute's, with the -1 unknown. So a batch that is empty or not known yet
// does no harm.
void InferReshape(InferContext& c) {
  const auto& attrs = c.attrs<ReshapeAttrs>();
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  const int rank = static_cast<int>(attrs.shape.size());
  constexpr int64_t kGiven = 1;  // an extent, perhaps not known yet
  std::vector<int64_t> wanted = attrs.shape;
  Shape out = rule::Unknown(rank);
  for (int i = 0; i < rank; ++i) {
    const bool follows = !attrs.batches.empty() && attrs.batches[i] != 0;
    if (follows || wanted[i] > 0) out.Set(i, rule::ExtentAt(attrs.shape, attrs.batches, i, c.batch()));
    if (follows) wanted[i] = kGiven;
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
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  if (!attrs.axes.empty()) {
    const int rank = static_cast<int>(attrs.axes.size());
    if (data.shape()) rule::ExpectRank(*data.shape(), rank, "to permute");
    data.Set(rule::Unknown(rank));
  }
  if (!data.shape()) {
    if (!output.shape()) return;
    data.Set(rule::Unknown(output.shape()->rank()));
  }
  const int rank = data.shape()->rank();
  Shape out = rule::Unknown(rank), in = out;
  for (int i = 0; i < rank; ++i) out.Set(i, (*data.shape())[SourceAxis(attrs, rank, i)]);
  output.Set(out);
  for (int i = 0; i < rank; ++i) in.Set(SourceAxis(attrs, rank, i), (*output.shape())[i]);
  data.Set(in);
}

}  // namespace

Symbol Identity(const Symbol& data, const std::string& name) { return Apply(IdentityOp(), {}, {data}, name); }
Symbol Flatten(const Symbol& data, const std::string& name) { return Apply(FlattenOp(), {}, {data}, name); }
Symbol Reshape(const Symbol& data, const ReshapeAttrs& attrs, const std::string& name) {
  return Apply(ReshapeOp(), attrs, {data}, name);
}
Symbol Transpose(const Symbol& data, const TransposeAttrs& attrs, const std::string& name) {
  return Apply(TransposeOp(), attrs, {data}, name);
}

const OpDef& IdentityOp() {
  static const OpDef op = {
      .name = "Identity",
      .doc = "y = x.",
      .infer_shape = rule::AllAlike,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> { return {g.output_grad(0)}; },  // dx = dy
      .inplace = {{0, 0}},
      .is_view = rule::AlwaysView,
      .is_identity = [](const AnyAttrs&, const std::vector<Entry>&) { return true; },
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& FlattenOp() {
  static const OpDef op = {
      .name = "Flatten",
      .doc = "(N, ...) seen as (N, K).",
      .infer_shape = InferFlatten,
      .batch_axis = ReshapedBatchAxis,
      .gradient = BackToShape,
      .inplace = {{0, 0}},
      .is_view = rule::AlwaysView,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& ReshapeOp() {
  static const OpDef op = {
      .name = "Reshape",
      .doc = "The elements in their order with another shape: 0 keeps an extent, -1 takes what remains.",
      .attrs_type = &AttrsOf<ReshapeAttrs>(),
      .infer_shape = InferReshape,
      .batch_axis = ReshapedBatchAxis,
      .check = CheckReshape,
      .gradient = BackToShape,
      .inplace = {{0, 0}},
      .is_view = rule::AlwaysView,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& TransposeOp() {
  static const OpDef op = {
      .name = "Transpose",
      .doc = "Output axis i is input axis axes[i]; the axes reversed by default.",
      .attrs_type = &AttrsOf<TransposeAttrs>(),
      .infer_shape = InferTranspose,
      .batch_axis =
          [](BatchAxisContext& c) {
            const auto& attrs = c.attrs<TransposeAttrs>();
            const int rank = c.input_shapes[0].rank();
            for (int i = 0; i < rank; ++i) {
              if (c.input_axes[0] >= 0 && SourceAxis(attrs, rank, i) == c.input_axes[0]) c.output_axes[0] = i;
            }
          },
      .check = CheckTranspose,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy with the inverse permutation; reversing is its own inverse.
        const auto& axes = g.attrs<TransposeAttrs>().axes;
        TransposeAttrs inverse{std::vector<int64_t>(axes.size())};
        for (size_t i = 0; i < axes.size(); ++i) inverse.axes[axes[i]] = static_cast<int64_t>(i);
        return {Transpose(g.output_grad(0), inverse)};
      },
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
