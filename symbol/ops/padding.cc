// PadWith and CenterCropPad; and tensors of given numbers: Full, FullLike, Eye, EyeLike.
#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_of.h"

namespace bindery {
namespace {

using Outputs = std::vector<Symbol>;

std::vector<int> AxesOf(const std::vector<int64_t>& axes, size_t if_empty, const ComposeContext& c) {
  return rule::AxesIn(rule::Unknown(static_cast<int>(c.shapes[0].size())), axes, if_empty);
}

// --- Padding

// Elements taken away where the numbers are negative, put there where they are positive; empty lists: axes 0, 1, ...
Symbol Padded(const ComposeContext& c, const std::vector<int>& axes, const std::vector<int64_t>& begin,
              const std::vector<int64_t>& end, double value) {
  SliceAttrs slice;
  PadAttrs pad{.value = value};
  for (size_t i = 0; i < axes.size(); ++i) {
    slice.axes.push_back(axes[i]);
    slice.begin.push_back(begin[i] < 0 ? -begin[i] : 0);
    slice.end.push_back(end[i] < 0 ? end[i] : kSliceEnd);
    pad.axes.push_back(axes[i]);
    pad.begin.push_back(std::max<int64_t>(begin[i], 0));
    pad.end.push_back(std::max<int64_t>(end[i], 0));
  }
  const auto is_negative = [](int64_t count) { return count < 0; };
  const bool cuts = std::ranges::any_of(begin, is_negative) || std::ranges::any_of(end, is_negative);
  return Pad(cuts ? Slice(c.inputs[0], slice) : c.inputs[0], pad, c.name);
}

// Element i of what stands for -1, 0, 1, ... of an axis, which may be before the first and after the last.
int64_t Reflected(PadMode mode, int64_t i, int64_t extent) {
  if (mode == PadMode::kEdge || extent == 1) return std::clamp<int64_t>(i, 0, extent - 1);
  const int64_t period = mode == PadMode::kWrap ? extent : 2 * (extent - 1);
  const int64_t place = ((i % period) + period) % period;
  return place < extent ? place : period - place;
}

void CheckPadWith(const AnyAttrs& any) {
  const auto& attrs = any.get<PadWithAttrs>();
  rule::CheckAxesAttr("axes", attrs.axes);
  const size_t count = attrs.axes.empty() ? attrs.begin.size() : attrs.axes.size();
  if (count > Shape::kMaxRank || attrs.begin.size() != count || attrs.end.size() != count) {
    Throw<ModelError>("begin, end and axes must have as many entries, got {}, {} and {}", attrs.begin.size(),
                      attrs.end.size(), attrs.axes.size());
  }
  for (const auto* list : {&attrs.begin, &attrs.end}) {
    for (const int64_t number : *list) {
      if (number < -INT32_MAX || number > INT32_MAX) Throw<ModelError>("a padding of {} is too much", number);
    }
  }
}

Outputs ComposePadWith(const ComposeContext& c) {
  const auto& attrs = c.attrs<PadWithAttrs>();
  const std::vector<int> axes = AxesOf(attrs.axes, attrs.begin.size(), c);
  if (axes.empty()) return {Identity(c.inputs[0], c.name)};
  if (attrs.mode == PadMode::kConstant) return {Padded(c, axes, attrs.begin, attrs.end, attrs.value)};
  Symbol padded = c.inputs[0];
  for (size_t i = 0; i < axes.size(); ++i) {
    if (attrs.begin[i] == 0 && attrs.end[i] == 0) continue;
    const Extent& whole = c.shapes[0][axes[i]];
    if (whole.batches != 0 && c.of_every_batch) return {};
    const int64_t extent = At(whole, c.batch);
    const int64_t count = CheckedAdd(extent, attrs.begin[i] + attrs.end[i], "the padded extent");
    if (extent < 1 || count < 0) Throw<ShapeError>("an extent of {} cannot be padded so", extent);
    ResampleAttrs places{.axis = axes[i], .extent = extent, .starts = {0}};
    CheckTerms(count);
    for (int64_t k = 0; k < count; ++k) {
      places.indices.push_back(Reflected(attrs.mode, k - attrs.begin[i], extent));
      places.starts.push_back(k + 1);
    }
    padded = Resample(padded, places);
  }
  return {Identity(padded, c.name)};
}

Outputs ComposeCenterCropPad(const ComposeContext& c) {
  const auto& attrs = c.attrs<CenterCropPadAttrs>();
  const std::vector<int> axes = AxesOf(attrs.axes, c.shapes[0].size(), c);
  if (axes.size() != attrs.shape.size()) {
    Throw<ShapeError>("shape has {} entries for {} axes", attrs.shape.size(), axes.size());
  }
  std::vector<int64_t> begin, end;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (c.shapes[0][axes[i]].batches != 0 && c.of_every_batch) return {};
    const int64_t extent = At(c.shapes[0][axes[i]], c.batch);
    const int64_t more = CheckedAdd(attrs.shape[i], -extent, "the padding");
    if (attrs.shape[i] < 0) Throw<ShapeError>("an extent of {} cannot be", attrs.shape[i]);
    begin.push_back(more / 2);  // towards zero: of an odd number one less is before
    end.push_back(more - begin.back());
  }
  return {Padded(c, axes, begin, end, 0)};
}

// --- Numbers

Outputs ComposeFullLike(const ComposeContext& c) {
  const double value = c.attrs<FullLikeAttrs>().value;
  const Symbol number = c.dtypes[0] ? Constant(HostTensor::Full(*c.dtypes[0], {}, value)) : Scalar(value);
  return {rule::BroadcastTo(number, c.shapes[0], c.name)};
}

Outputs ComposeEyeLike(const ComposeContext& c) {
  if (c.shapes[0].size() != 2) Throw<ShapeError>("expected 2 axes (rows, columns), got {}", c.shapes[0].size());
  if (c.of_every_batch && (c.shapes[0][0].batches != 0 || c.shapes[0][1].batches != 0)) return {};
  return {Eye(At(c.shapes[0][0], c.batch), At(c.shapes[0][1], c.batch), c.attrs<EyeLikeAttrs>().diagonal,
              c.dtypes[0].value_or(DType::kFloat32), c.name)};
}

}  // namespace

Symbol Full(const Shape& shape, double value, DType dtype, const std::string& name) {
  return BroadcastTo(Constant(HostTensor::Full(dtype, {}, value)), {.shape = {shape.begin(), shape.end()}}, name);
}

Symbol Eye(int64_t rows, int64_t columns, int64_t diagonal, DType dtype, const std::string& name) {
  const auto count = [](int64_t from, int64_t n) {
    return Range({.begin = static_cast<double>(from),
                  .end = static_cast<double>(from) + static_cast<double>(n),
                  .dtype = DType::kInt64});
  };
  const Symbol down = Reshape(count(diagonal, rows), {.shape = {rows, 1}, .allow_zero = true});
  return Cast(Equal(down, count(0, columns)), {.dtype = dtype}, name);
}

const OpDef& CenterCropPadOp() {
  static const OpDef op = Composed("CenterCropPad", "data cut or padded with zeros on both sides of its middle.",
                                   &AttrsOf<CenterCropPadAttrs>(), ComposeCenterCropPad);
  return op;
}
const OpDef& PadWithOp() {
  static const OpDef op = Composed("PadWith", "data with a value, its reflection, its edges or itself around it.",
                                   &AttrsOf<PadWithAttrs>(), ComposePadWith, CheckPadWith);
  return op;
}
const OpDef& FullLikeOp() {
  static const OpDef op =
      Composed("FullLike", "A number everywhere, in data's shape.", &AttrsOf<FullLikeAttrs>(), ComposeFullLike);
  return op;
}
const OpDef& EyeLikeOp() {
  static const OpDef op =
      Composed("EyeLike", "Ones along a diagonal, in data's shape.", &AttrsOf<EyeLikeAttrs>(), ComposeEyeLike);
  return op;
}

}  // namespace bindery
