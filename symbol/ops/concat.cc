// Concat and SliceChannel.
#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"
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

std::vector<Value> Inputs(InferContext& c) {
  std::vector<Value> values;
  for (int i = 0; i < c.num_inputs(); ++i) values.push_back(Value::In(c, i));
  return values;
}

// Joined along the batch axis the samples of the inputs stand one behind the other: a share of the batch is no share of
// the result.
void ConcatBatchAxis(BatchAxisContext& c) {
  rule::BatchAligned(c);
  int& axis = c.output_axes[0];
  if (axis >= 0 && axis == rule::Axis(c.attrs<ConcatAttrs>().axis, c.output_shapes[0])) axis = -1;
}

void CheckConcat(const AnyAttrs& any) { rule::CheckAxisAttr("axis", any.get<ConcatAttrs>().axis); }

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

std::vector<std::string> PartNames(const AnyAttrs& attrs, const char* stem) {
  CheckSliceChannel(attrs);
  std::vector<std::string> names;
  for (int64_t i = 0; i < attrs.get<SliceChannelAttrs>().num_outputs; ++i) names.push_back(stem + std::to_string(i));
  return names;
}

// `parts` are equal parts of `whole`, without the axis if it is squeezed.
void InferParts(const SliceChannelAttrs& attrs, Value whole, std::span<const Value> parts) {
  rule::Alike(parts);
  if (!whole.shape()) {
    if (!parts[0].shape()) return;
    const int rank = parts[0].shape()->rank() + (attrs.squeeze_axis ? 1 : 0);
    if (rank > Shape::kMaxRank) Throw<ShapeError>("{} with one more axis has too many", *parts[0].shape());
    whole.Set(rule::Unknown(rank));
  }
  const int axis = rule::Axis(attrs.axis, *whole.shape());
  const int64_t extent = (*whole.shape())[axis], count = attrs.num_outputs;
  if (extent != kUnknownDim && (attrs.squeeze_axis ? extent != count : extent % count != 0)) {
    Throw<ShapeError>("data {} has {} along axis {}: expected {} {}", *whole.shape(), extent, axis,
                      attrs.squeeze_axis ? "exactly" : "a multiple of", count);
  }
  const int64_t part_extent = extent == kUnknownDim ? kUnknownDim : extent / count;
  for (const Value& part : parts) {
    part.Set(attrs.squeeze_axis ? whole.shape()->Erase(axis) : whole.shape()->With(axis, part_extent));
  }
  Shape back = *parts[0].shape();
  if (attrs.squeeze_axis) {
    back = back.Insert(axis, count);
  } else if (back[axis] != kUnknownDim) {
    back.Set(axis, CheckedMul(back[axis], count, "the extent before the cut"));
  }
  whole.Set(back);
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
Symbol SliceChannel(const Symbol& data, const SliceChannelAttrs& attrs, const std::string& name) {
  return Apply(SliceChannelOp(), attrs, {data}, name);
}

const OpDef& ConcatOp() {
  static const OpDef op = {
      .name = "Concat",
      .doc = "The inputs joined along an axis.",
      .attrs_type = &AttrsOf<ConcatAttrs>(),
      .inputs = rule::AnyNumberOfInputs,
      .infer_shape = [](InferContext& c) { InferConcat(c.attrs<ConcatAttrs>().axis, Inputs(c), Value::Out(c, 0)); },
      .batch_axis = ConcatBatchAxis,
      .check = CheckConcat,
      .gradient = ConcatGradient,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& SliceChannelOp() {
  static const OpDef op = {
      .name = "SliceChannel",
      .doc = "data cut into equal parts along an axis, which may then be dropped.",
      .attrs_type = &AttrsOf<SliceChannelAttrs>(),
      .outputs = [](const AnyAttrs& attrs) { return PartNames(attrs, "output"); },
      .num_outputs = [](const AnyAttrs& attrs) { return static_cast<int>(attrs.get<SliceChannelAttrs>().num_outputs); },
      .infer_shape =
          [](InferContext& c) {
            std::vector<Value> parts;
            for (int i = 0; i < c.num_outputs(); ++i) parts.push_back(Value::Out(c, i));
            InferParts(c.attrs<SliceChannelAttrs>(), Value::In(c, 0), parts);
          },
      .batch_axis =
          [](BatchAxisContext& c) {
            const auto& attrs = c.attrs<SliceChannelAttrs>();
            const int axis = c.input_axes[0], cut = rule::Axis(attrs.axis, c.input_shapes[0]);
            const int result = axis == cut ? -1 : attrs.squeeze_axis && axis > cut ? axis - 1 : axis;
            c.output_axes.assign(c.output_axes.size(), result);
          },
      .check = CheckSliceChannel,
      .gradient = SliceChannelGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
