#include <algorithm>

#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<SliceAttrs>();
  const auto expect = [&](const char* field, const std::vector<int64_t>& list, bool may_be_empty) {
    if (list.size() == attrs.begin.size() || (may_be_empty && list.empty())) return;
    Throw<ModelError>("{} must have as many entries as begin, {}, got {}", field, attrs.begin.size(),
                      rule::ToString(list));
  };
  if (attrs.begin.size() > Shape::kMaxRank) {
    Throw<ModelError>("begin has {} entries, more than the {} axes a shape can have", attrs.begin.size(),
                      Shape::kMaxRank);
  }
  expect("end", attrs.end, false);
  expect("step", attrs.step, true);
  expect("axes", attrs.axes, true);
  rule::CheckAxesAttr("axes", attrs.axes);
  if (std::ranges::find(attrs.step, 0) != attrs.step.end()) {
    Throw<ModelError>("step must not be 0, got {}", rule::ToString(attrs.step));
  }
}

// The axes that are cut, in the order of the attributes; throws ShapeError if one is named twice or is not there.
std::vector<int> CutAxes(const SliceAttrs& attrs, const Shape& data) {
  std::vector<int> axes;
  for (size_t i = 0; i < attrs.begin.size(); ++i) {
    const int axis = rule::Axis(attrs.axes.empty() ? static_cast<int64_t>(i) : attrs.axes[i], data);
    if (std::ranges::find(axes, axis) != axes.end()) Throw<ShapeError>("axis {} of {} is named twice", axis, data);
    axes.push_back(axis);
  }
  return axes;
}

// Python's rule. No sum overflows: an extent is added to negative numbers only.
SliceRange RangeOf(int64_t begin, int64_t end, int64_t step, int64_t extent) {
  const auto from_end = [&](int64_t index) { return index < 0 ? index + extent : index; };
  if (step > 0) {
    const int64_t first = std::clamp(from_end(begin), int64_t{0}, extent),
                  last = std::clamp(from_end(end), int64_t{0}, extent);
    const int64_t count = last > first ? (last - first - 1) / step + 1 : 0;
    return {first, count > 1 ? step : 1, count};
  }
  const int64_t first = std::clamp(from_end(begin), int64_t{-1}, extent - 1);
  const int64_t last = end == kSliceEnd ? -1 : std::clamp(from_end(end), int64_t{-1}, extent - 1);
  // -step may not exist as int64.
  const uint64_t stride = uint64_t{0} - static_cast<uint64_t>(step);
  const int64_t count = first > last ? static_cast<int64_t>(static_cast<uint64_t>(first - last - 1) / stride) + 1 : 0;
  return {std::max<int64_t>(first, 0), count > 1 ? step : 1, count};
}

// data -> output; the axes that are not cut back.
void InferRange(const SliceAttrs& attrs, Value data, Value output) {
  if (!data.shape()) {
    if (!output.shape()) return;
    data.Set(rule::Unknown(output.shape()->rank()));
  }
  const Shape in = *data.shape();
  const std::vector<int> axes = CutAxes(attrs, in);
  Shape out = in;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t extent = in[axes[i]];
    if (extent == kUnknownDim) continue;
    out.Set(axes[i], RangeOf(attrs.begin[i], attrs.end[i], attrs.step.empty() ? 1 : attrs.step[i], extent).count);
  }
  output.Set(out);
  Shape back = *output.shape();
  for (int axis : axes) back.Set(axis, kUnknownDim);
  data.Set(back);
}

// (output gradient, data) -> data gradient
void InferSliceGrad(InferContext& c) {
  const Value data = Value::In(c, 1), grad = Value::Out(c, 0);
  rule::Alike({data, grad});
  InferRange(c.attrs<SliceAttrs>(), data, Value::In(c, 0));
  rule::Alike({data, grad});
}

}  // namespace

std::vector<SliceRange> SliceRanges(const SliceAttrs& attrs, const Shape& data) {
  if (!data.IsKnown()) Throw<ShapeError>("the extents of {} are not known yet", data);
  std::vector<SliceRange> ranges;
  for (int64_t extent : data) ranges.push_back({0, 1, extent});
  const std::vector<int> axes = CutAxes(attrs, data);
  for (size_t i = 0; i < axes.size(); ++i) {
    ranges[axes[i]] = RangeOf(attrs.begin[i], attrs.end[i], attrs.step.empty() ? 1 : attrs.step[i], data[axes[i]]);
  }
  return ranges;
}

Symbol Slice(const Symbol& data, const SliceAttrs& attrs, const std::string& name) {
  return Apply(SliceOp(), attrs, {data}, name);
}

const OpDef& SliceOp() {
  static const OpDef op = {
      .name = "Slice",
      .doc = "Per axis the indices begin, begin + step, ... before end; negative ones count from the end.",
      .attrs_type = &AttrsOf<SliceAttrs>(),
      .infer_shape = [](InferContext& c) { InferRange(c.attrs<SliceAttrs>(), Value::In(c, 0), Value::Out(c, 0)); },
      .batch_axis =
          [](BatchAxisContext& c) {
            // A part of the samples is not the batch; all of them in their order are.
            const int axis = c.input_axes[0];
            if (axis < 0) return;
            const SliceRange range = SliceRanges(c.attrs<SliceAttrs>(), c.input_shapes[0])[axis];
            const bool all = range.begin == 0 && range.step == 1 && range.count == c.input_shapes[0][axis];
            c.output_axes[0] = all ? axis : -1;
          },
      .check = CheckAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy at the indices taken, 0 elsewhere.
        return {Apply(SliceGradOp(), g.attrs<SliceAttrs>(), {g.output_grad(0), g.input(0)}, g.NameFor("data"))};
      },
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& SliceGradOp() {
  static const OpDef op = {
      .name = "SliceGrad",
      .doc = "The output gradient at the indices taken, 0 elsewhere.",
      .attrs_type = &AttrsOf<SliceAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data"}),
      .shape_only = {1},
      .infer_shape = InferSliceGrad,
      .batch_axis = rule::BatchedAs(1),
      .check = CheckAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // The transpose of writing into zeros is taking out.
        return {Slice(g.output_grad(0), g.attrs<SliceAttrs>(), g.NameFor("output_grad")), {}};
      },
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
