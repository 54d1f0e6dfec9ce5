#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<SliceAttrs>();
  rule::CheckCut(attrs.begin, attrs.end, attrs.step, attrs.axes);
  rule::CheckBatches("begin_batches", attrs.begin_batches, attrs.begin);
  rule::CheckBatches("end_batches", attrs.end_batches, attrs.end);
  if (std::ranges::find(attrs.step, 0) != attrs.step.end()) {
    Throw<ModelError>("step must not be 0, got {}", rule::ToString(attrs.step));
  }
}

// Index i of a list; nullopt if it follows the batch, which is not known.
std::optional<int64_t> IndexAt(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, size_t i,
                               std::optional<int64_t> batch) {
  if (batches.empty() || batches[i] == 0) return fixed[i];
  if (!batch) return std::nullopt;
  return CheckedAdd(fixed[i], CheckedMul(batches[i], *batch, "an index"), "an index");
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

std::optional<SliceRange> RangeAt(const SliceAttrs& attrs, size_t i, int64_t extent, std::optional<int64_t> batch) {
  const auto begin = IndexAt(attrs.begin, attrs.begin_batches, i, batch);
  const auto end = IndexAt(attrs.end, attrs.end_batches, i, batch);
  if (!begin || !end) return std::nullopt;
  return RangeOf(*begin, *end, attrs.step.empty() ? 1 : attrs.step[i], extent);
}

// data -> output; the axes that are not cut back.
void InferSlice(InferContext& c) {
  const auto& attrs = c.attrs<SliceAttrs>();
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  if (!data.shape()) {
    if (!output.shape()) return;
    data.Set(rule::Unknown(output.shape()->rank()));
  }
  const Shape in = *data.shape();
  const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), in);
  Shape out = in;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t extent = in[axes[i]];
    out.Set(axes[i], kUnknownDim);
    if (extent == kUnknownDim) continue;
    if (const auto range = RangeAt(attrs, i, extent, c.batch())) out.Set(axes[i], range->count);
  }
  output.Set(out);
  Shape back = *output.shape();
  for (int axis : axes) back.Set(axis, kUnknownDim);
  data.Set(back);
}

// dx = dy at the indices taken, 0 elsewhere: along an axis of n elements, of which those of index first, first + step,
// ... were taken, first zeros come before and n - 1 - (the last index) after. Going backward dy comes in reverse.
std::vector<Symbol> SliceGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<SliceAttrs>();
  const Extents shape = g.shape(0), taken = g.output_shape(0);
  const std::vector<int> axes =
      rule::CutAxes(attrs.axes, attrs.begin.size(), rule::Unknown(static_cast<int>(shape.size())));
  Extents begins, ends;
  PadAttrs pad{.axes = {axes.begin(), axes.end()}};
  SliceAttrs reverse;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Extent extent = shape[axes[i]], count = taken[axes[i]];
    const int64_t step = attrs.step.empty() ? 1 : attrs.step[i];
    const bool follows = extent.batches != 0 || count.batches != 0 || rule::FollowingAxis(attrs.begin_batches) >= 0 ||
                         rule::FollowingAxis(attrs.end_batches) >= 0;
    Extent first;
    if (!follows) {
      const SliceRange range = RangeOf(attrs.begin[i], attrs.end[i], step, extent.fixed);
      first = {range.begin, 0};
      pad.step.push_back(range.step < 0 ? -range.step : range.step);
    } else {
      first = {attrs.begin[i], attrs.begin_batches.empty() ? 0 : attrs.begin_batches[i]};
      if (attrs.begin[i] < 0 && first.batches == 0) first = first + extent;
      if (step < 0 && attrs.begin[i] > 0) first = extent - Extent{1, 0};  // "from the end on"
      pad.step.push_back(step < 0 ? -step : step);
    }
    const Extent reach = (count - Extent{1, 0}) * pad.step.back();
    if (step < 0) {
      first = first - reach;
      reverse.axes.push_back(axes[i]);
      reverse.begin.push_back(kSliceEnd);
      reverse.end.push_back(-kSliceEnd);
      reverse.step.push_back(-1);
    }
    if (count == Extent{0, 0}) {  // nothing was taken
      begins.push_back({0, 0});
      ends.push_back(extent);
      continue;
    }
    begins.push_back(first);
    ends.push_back(extent - first - reach - Extent{1, 0});
  }
  pad.begin = rule::FixedParts(begins);
  pad.begin_batches = rule::BatchParts(begins);
  pad.end = rule::FixedParts(ends);
  pad.end_batches = rule::BatchParts(ends);
  const Symbol dy = reverse.axes.empty() ? g.output_grad(0) : Slice(g.output_grad(0), reverse);
  return {Pad(dy, pad)};
}

}  // namespace

std::vector<SliceRange> SliceRanges(const SliceAttrs& attrs, const Shape& data, std::optional<int64_t> batch) {
  if (!data.IsKnown()) Throw<ShapeError>("the extents of {} are not known yet", data);
  std::vector<SliceRange> ranges;
  for (int64_t extent : data) ranges.push_back({0, 1, extent});
  const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), data);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto range = RangeAt(attrs, i, data[axes[i]], batch);
    if (!range) throw ShapeError("the batch is not known");
    ranges[axes[i]] = *range;
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
      .infer_shape = InferSlice,
      .batch_axis =
          [](BatchAxisContext& c) {
            // A part of the samples is not the batch; all of them in their order are, and so is a part that follows the
            // batch: the gradient of what joined several.
            const auto& attrs = c.attrs<SliceAttrs>();
            const int axis = c.input_axes[0], follows = rule::FollowingAxis(attrs.end_batches);
            const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), c.input_shapes[0]);
            const auto cut = std::ranges::find(axes, axis);
            if (axis >= 0 && cut == axes.end()) {
              c.output_axes[0] = axis;
            } else if (follows >= 0) {
              c.output_axes[0] = axes[follows];
            } else if (axis >= 0) {
              const int64_t extent = c.input_shapes[0][axis];
              const auto range = RangeAt(attrs, cut - axes.begin(), extent, std::nullopt);
              if (range && range->begin == 0 && range->step == 1 && range->count == extent) c.output_axes[0] = axis;
            }
          },
      .check = CheckAttrs,
      .gradient = SliceGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
