// Concat and SliceChannel.
#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// An attribute must not make us write millions of names.
constexpr int64_t kMaxParts = 1 << 16;

// `parts` joined along an axis give `whole`, in every direction.
void InferConcat(int64_t axis_attr, std::span<const Value> parts, Value whole) {
  std::optional<Shape> any = whole.shape();
  for (const Value& part : parts) any = any ? any : part.shape();
  if (!any) return;
  const int axis = rule::Axis(axis_attr, *any);

  // All but the joined axis are alike.
  Shape common = any->With(axis, kUnknownDim);
  const auto merge = [&](Value value) {
    value.Set(common);
    common = value.shape()->With(axis, kUnknownDim);
  };
  for (const Value& part : parts) merge(part);
  merge(whole);
  for (const Value& part : parts) part.Set(common);

  int64_t sum = 0;
  const Value* unknown = nullptr;
  int unknowns = 0;
  for (const Value& part : parts) {
    const int64_t extent = (*part.shape())[axis];
    if (extent == kUnknownDim) {
      unknown = &part;
      ++unknowns;
    } else {
      sum = CheckedAdd(sum, extent, "the joined extent");
    }
  }
  const int64_t total = (*whole.shape())[axis];
  if (unknowns == 0) {
    whole.Set(common.With(axis, sum));
  } else if (total != kUnknownDim && sum > total) {
    Throw<ShapeError>("the parts have {} along axis {}, more than the whole's {}", sum, axis, total);
  } else if (total != kUnknownDim && unknowns == 1) {
    unknown->Set(common.With(axis, total - sum));
  }
}

// Joined along the batch axis the samples of the inputs stand one behind the other: a share of the batch is no share of
// the result.
void InferConcatOp(InferContext& c) {
  const int64_t axis = c.attrs<ConcatAttrs>().axis;
  std::vector<Value> parts;
  for (int i = 0; i < c.num_inputs(); ++i) parts.push_back(c.in(i));
  rule::SameDTypes(c);
  InferConcat(axis, parts, c.out(0));
  for (const Value& part : parts) {
    part.Carry(c.out(0), [&](int own) { return own == rule::Axis(axis, *c.out(0).shape()) ? -1 : own; });
  }
}

// Each gets its part of dy.
std::vector<Symbol> ConcatGradient(const GradientContext& g) {
  std::vector<Symbol> result;
  Extent at;
  for (int i = 0; i < g.num_inputs(); ++i) {
    const Extents shape = g.shape(i);
    const int axis = rule::Axis(g.attrs<ConcatAttrs>().axis, rule::Unknown(static_cast<int>(shape.size())));
    const Extent end = at + shape[axis];
    result.push_back(!g.wants(i) ? Symbol()
                                 : Slice(g.output_grad(0), {.begin = {at.fixed},
                                                            .end = {end.fixed},
                                                            .axes = {axis},
                                                            .begin_batches = rule::BatchParts({at}),
                                                            .end_batches = rule::BatchParts({end})}));
    at = end;
  }
  return result;
}

void CheckSliceChannel(const AnyAttrs& any) {
  const auto& attrs = any.get<SliceChannelAttrs>();
  rule::CheckAxisAttr("axis", attrs.axis);
  rule::CheckAtLeast("num_outputs", attrs.num_outputs, 1);
  if (attrs.num_outputs > kMaxParts)
    Throw<ModelError>("num_outputs must be at most {}, got {}", kMaxParts, attrs.num_outputs);
}

// Equal parts of the whole, without the axis if it is squeezed.
void InferParts(InferContext& c) {
  const auto& attrs = c.attrs<SliceChannelAttrs>();
  const Value whole = c.in(0), part = c.out(0);
  const int count = c.num_outputs();
  rule::SameDTypes(c);
  for (int i = 1; i < count; ++i) rule::SameShape({part, c.out(i)});
  if (!whole.shape()) {
    if (!part.shape()) return;
    const int rank = part.shape()->rank() + (attrs.squeeze_axis ? 1 : 0);
    if (rank > Shape::kMaxRank) Throw<ShapeError>("{} with one more axis has too many", *part.shape());
    whole.Set(rule::Unknown(rank));
  }
  const int axis = rule::Axis(attrs.axis, *whole.shape());
  const int64_t extent = (*whole.shape())[axis];
  if (extent != kUnknownDim && (attrs.squeeze_axis ? extent != count : extent % count != 0)) {
    Throw<ShapeError>("data {} has {} along axis {}: expected {} {}", *whole.shape(), extent, axis,
                      attrs.squeeze_axis ? "exactly" : "a multiple of", count);
  }
  const Shape cut = attrs.squeeze_axis      ? whole.shape()->Erase(axis)
                    : extent == kUnknownDim ? *whole.shape()
                                            : whole.shape()->With(axis, extent / count);
  for (int i = 0; i < count; ++i) c.out(i).Set(cut);
  Shape back = *part.shape();
  if (attrs.squeeze_axis) {
    back = back.Insert(axis, count);
  } else if (back[axis] != kUnknownDim) {
    back.Set(axis, CheckedMul(back[axis], count, "the extent before the cut"));
  }
  whole.Set(back);
  for (int i = 0; i < count; ++i) {
    whole.Carry(c.out(i), [&](int own) { return own == axis ? -1 : attrs.squeeze_axis && own > axis ? own - 1 : own; });
  }
}

// The parts' gradients joined, with the axis made anew if it was dropped; parts into which nothing flows are zero.
std::vector<Symbol> SliceChannelGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<SliceChannelAttrs>();
  Extents part = g.output_shape(0);
  const int rank = static_cast<int>(part.size()) + (attrs.squeeze_axis ? 1 : 0);
  const int axis = rule::Axis(attrs.axis, rule::Unknown(rank));
  if (attrs.squeeze_axis) part.insert(part.begin() + axis, Extent{1, 0});
  std::vector<Symbol> parts;
  for (int i = 0; i < attrs.num_outputs; ++i) {
    const Symbol& dy = g.output_grad(i);
    if (dy.empty()) {
      parts.push_back(rule::Zeros(part, g.output_dtype(i)));
    } else {
      parts.push_back(attrs.squeeze_axis ? rule::ReshapeTo(dy, part) : dy);
    }
  }
  return {Concat(parts, {.axis = axis})};
}

}  // namespace

Symbol Concat(std::span<const Symbol> inputs, const ConcatAttrs& attrs, const std::string& name) {
  if (inputs.empty()) throw ModelError("Concat: expected 1 or more inputs, got none");
  return Apply(ConcatOp(), attrs, {inputs.begin(), inputs.end()}, name);
}
Symbol Concat(std::initializer_list<Symbol> inputs, const ConcatAttrs& attrs, const std::string& name) {
  return Concat(std::span(inputs.begin(), inputs.size()), attrs, name);
}
const OpDef& ConcatOp() {
  static const OpDef op = {
      .name = "Concat",
      .doc = "The inputs joined along an axis.",
      .attrs_type = &AttrsOf<ConcatAttrs>(),
      .inputs = {Variadic("arg")},
      .infer = InferConcatOp,
      .check = rule::CheckAxis<ConcatAttrs>,
      .gradient = ConcatGradient,
      .numbers = rule::ConcatNumbers,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& SliceChannelOp() {
  static const OpDef op = {
      .name = "SliceChannel",
      .doc = "data cut into equal parts along an axis, which may then be dropped.",
      .attrs_type = &AttrsOf<SliceChannelAttrs>(),
      .outputs = {Variadic("output", [](const AnyAttrs& any) { return any.get<SliceChannelAttrs>().num_outputs; })},
      .infer = InferParts,
      .check = CheckSliceChannel,
      .gradient = SliceChannelGradient,
      .numbers = rule::SliceChannelNumbers,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
