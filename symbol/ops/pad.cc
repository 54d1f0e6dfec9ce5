#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<PadAttrs>();
  rule::CheckCut(attrs.begin, attrs.end, attrs.step, attrs.axes);
  rule::CheckBatches("begin_batches", attrs.begin_batches, attrs.begin);
  rule::CheckBatches("end_batches", attrs.end_batches, attrs.end);
  rule::CheckFinite("value", attrs.value);
  const auto check = [](const char* field, const std::vector<int64_t>& list, const std::vector<int64_t>& batches) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] >= 0 || (!batches.empty() && batches[i] != 0)) continue;
      Throw<ModelError>("{} must be 0 or more everywhere, got {}; Slice takes elements away", field,
                        rule::ToString(list));
    }
  };
  check("begin", attrs.begin, attrs.begin_batches);
  check("end", attrs.end, attrs.end_batches);
  for (int64_t step : attrs.step) rule::CheckAtLeast("step", step, 1);
}

int64_t Number(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, size_t i,
               std::optional<int64_t> batch) {
  if (batches.empty() || batches[i] == 0) return fixed[i];
  if (!batch) return kUnknownDim;
  return std::max<int64_t>(CheckedAdd(fixed[i], CheckedMul(batches[i], *batch, "the padding"), "the padding"), 0);
}

// From the first element to the last, both included.
int64_t Reach(int64_t count, int64_t step) {
  return count == 0 ? 0 : CheckedAdd(CheckedMul(count - 1, step, "the padded extent"), 1, "the padded extent");
}

void InferPad(InferContext& c) {
  const auto& attrs = c.attrs<PadAttrs>();
  const Value data = Value::In(c, 0), output = Value::Out(c, 0);
  if (!data.shape()) {
    if (!output.shape()) return;
    data.Set(rule::Unknown(output.shape()->rank()));
  }
  const Shape in = *data.shape();
  const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), in);
  Shape out = in;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t begin = Number(attrs.begin, attrs.begin_batches, i, c.batch());
    const int64_t end = Number(attrs.end, attrs.end_batches, i, c.batch());
    const int64_t count = in[axes[i]];
    out.Set(axes[i], kUnknownDim);
    if (begin == kUnknownDim || end == kUnknownDim || count == kUnknownDim) continue;
    const int64_t step = attrs.step.empty() ? 1 : attrs.step[i];
    out.Set(axes[i], CheckedAdd(CheckedAdd(begin, Reach(count, step), "the padded extent"), end, "the padded extent"));
  }
  output.Set(out);
  Shape back = *output.shape();
  for (int axis : axes) back.Set(axis, kUnknownDim);
  data.Set(back);
}

// dx = dy at the places of x's elements.
std::vector<Symbol> PadGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<PadAttrs>();
  const Extents shape = g.shape(0);
  const std::vector<int> axes =
      rule::CutAxes(attrs.axes, attrs.begin.size(), rule::Unknown(static_cast<int>(shape.size())));
  Extents begins, ends;
  SliceAttrs slice{.step = attrs.step, .axes = {axes.begin(), axes.end()}};
  for (size_t i = 0; i < axes.size(); ++i) {
    const Extent begin{attrs.begin[i], attrs.begin_batches.empty() ? 0 : attrs.begin_batches[i]};
    const Extent count = shape[axes[i]];
    const int64_t step = attrs.step.empty() ? 1 : attrs.step[i];
    const Extent reach = count == Extent{0, 0} ? count : (count - Extent{1, 0}) * step + Extent{1, 0};
    begins.push_back(begin);
    ends.push_back(begin + reach);
  }
  slice.begin = rule::FixedParts(begins);
  slice.begin_batches = rule::BatchParts(begins);
  slice.end = rule::FixedParts(ends);
  slice.end_batches = rule::BatchParts(ends);
  return {Slice(g.output_grad(0), slice)};
}

}  // namespace

std::vector<SliceRange> PadRanges(const PadAttrs& attrs, const Shape& data, std::optional<int64_t> batch) {
  std::vector<SliceRange> ranges;
  for (int64_t extent : data) ranges.push_back({0, 1, extent});
  const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), data);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t begin = Number(attrs.begin, attrs.begin_batches, i, batch);
    if (begin == kUnknownDim) throw ShapeError("the batch is not known");
    SliceRange& range = ranges[axes[i]];
    range.begin = begin;
    range.step = attrs.step.empty() || range.count <= 1 ? 1 : attrs.step[i];
  }
  return ranges;
}

Symbol Pad(const Symbol& data, const PadAttrs& attrs, const std::string& name) {
  return Apply(PadOp(), attrs, {data}, name);
}

const OpDef& PadOp() {
  static const OpDef op = {
      .name = "Pad",
      .doc = "data with a value put before, after and between its elements along some axes.",
      .attrs_type = &AttrsOf<PadAttrs>(),
      .infer_shape = InferPad,
      .batch_axis =
          [](BatchAxisContext& c) {
            // More than the samples is not the batch, unless the attributes follow it: the gradient of a slice.
            const auto& attrs = c.attrs<PadAttrs>();
            const int axis = c.input_axes[0];
            const bool whole = axis >= 0 && c.output_shapes[0][axis] == c.input_shapes[0][axis];
            if (whole) c.output_axes[0] = axis;
            const std::vector<int> axes = rule::CutAxes(attrs.axes, attrs.begin.size(), c.input_shapes[0]);
            for (const auto* batches : {&attrs.begin_batches, &attrs.end_batches}) {
              const int follows = rule::FollowingAxis(*batches);
              if (follows >= 0 && !whole) c.output_axes[0] = axes[follows];
            }
          },
      .check = CheckAttrs,
      .gradient = PadGradient,
  };
  return op;
}

}  // namespace bindery
