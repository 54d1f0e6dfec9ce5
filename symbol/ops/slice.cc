// Slice and Pad: the one takes elements out of a tensor along some axes, the other puts them into a larger one. Each is
// the other's gradient.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// The attributes of both: entry i of each list is of axis axes[i], or of axis i.
struct Cut {
  rule::ExtentList begin, end;
  const std::vector<int64_t>&step, &axes;
  int64_t Step(size_t i) const { return step.empty() ? 1 : step[i]; }
  int Following() const {  // the first entry that follows the batch, or -1
    return end.FirstFollowing() >= 0 ? end.FirstFollowing() : begin.FirstFollowing();
  }
};
template <class Attrs>
Cut CutOf(const Attrs& a) {
  return {{a.begin, a.begin_batches}, {a.end, a.end_batches}, a.step, a.axes};
}

void CheckCut(const Cut& cut) {
  const size_t count = cut.begin.size();
  const auto expect = [&](const char* field, const std::vector<int64_t>& list, bool may_be_empty) {
    if (list.size() == count || (may_be_empty && list.empty())) return;
    Throw<ModelError>("{} must have as many entries as begin, {}, got {}", field, count, rule::ToString(list));
  };
  if (count > Shape::kMaxRank) {
    Throw<ModelError>("begin has {} entries, more than the {} axes a shape can have", count, Shape::kMaxRank);
  }
  expect("end", cut.end.fixed, false);
  expect("step", cut.step, true);
  expect("axes", cut.axes, true);
  rule::CheckAxesAttr("axes", cut.axes);
  cut.begin.CheckLength("begin_batches");
  cut.end.CheckLength("end_batches");
}

// Throws ShapeError if one is named twice or is not there.
std::vector<int> AxesIn(const Shape& shape, const Cut& cut) { return rule::AxesIn(shape, cut.axes, cut.begin.size()); }
std::vector<int> AxesIn(const Extents& shape, const Cut& cut) {
  return AxesIn(rule::Unknown(static_cast<int>(shape.size())), cut);
}

// Along the axes that are cut, `cut_extent(i, extent)` tells the output's extent from the data's, or nothing yet; the
// others are alike.
template <class CutExtent>
void InferCut(InferContext& c, const Cut& cut, const CutExtent& cut_extent) {
  const Value data = c.in(0), output = c.out(0);
  rule::SameDType({data, output});
  if (!rule::SameRank(data, output)) return;
  const std::vector<int> axes = AxesIn(*data.shape(), cut);
  Shape out = *data.shape();
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t extent = out[axes[i]];
    out.Set(axes[i], extent == kUnknownDim ? extent : cut_extent(i, extent).value_or(kUnknownDim));
  }
  output.Set(out);
  Shape back = *output.shape();
  for (int axis : axes) back.Set(axis, kUnknownDim);
  data.Set(back);

  // A part of the samples is not the batch; all of them in their order are, and so is what follows the batch: what
  // joins several of them, and the gradient of that.
  const auto* batch = c.batch_of_input();
  if (batch == nullptr) return;
  const auto keeps = [&](int axis) {
    const auto found = std::ranges::find(axes, axis);
    return found == axes.end() ||
           ((*output.shape())[axis] == (*data.shape())[axis] && cut.Step(found - axes.begin()) > 0);
  };
  if (batch->axis >= 0 && keeps(batch->axis)) return data.Carry(output);
  if (cut.Following() >= 0) c.PlaceBatch(0, axes[cut.Following()]);
}

// --- Slice

void CheckSlice(const AnyAttrs& any) {
  const auto& step = any.get<SliceAttrs>().step;
  CheckCut(CutOf(any.get<SliceAttrs>()));
  if (std::ranges::find(step, 0) != step.end()) Throw<ModelError>("step must not be 0, got {}", rule::ToString(step));
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

// No value where an index follows the batch, which is not known.
std::optional<SliceRange> RangeAt(const Cut& cut, size_t i, int64_t extent, std::optional<int64_t> batch) {
  const auto begin = cut.begin.At(i, batch, "an index"), end = cut.end.At(i, batch, "an index");
  if (!begin || !end) return std::nullopt;
  return RangeOf(*begin, *end, cut.Step(i), extent);
}

void InferSlice(InferContext& c) {
  const Cut cut = CutOf(c.attrs<SliceAttrs>());
  InferCut(c, cut, [&](size_t i, int64_t extent) -> std::optional<int64_t> {
    const auto range = RangeAt(cut, i, extent, c.batch());
    return range ? std::optional(range->count) : std::nullopt;
  });
}

// The first index taken of an axis, and the step, one that can be negated.
std::pair<Extent, int64_t> FirstAndStep(const Cut& cut, size_t i, const Extent& extent, const Extent& count) {
  const Extent begin = cut.begin[i], end = cut.end[i];
  if (begin.batches == 0 && end.batches == 0) {
    // As the count does, it grows evenly with a batch that the axis follows: two batches tell how.
    const auto range = [&](int64_t batch) {
      return RangeOf(begin.fixed, end.fixed, cut.Step(i), (extent + Extent{extent.batches, 0} * batch).fixed);
    };
    const SliceRange at = range(kManySamples), next = range(kManySamples + 1);
    const int64_t more = next.begin - at.begin;
    return {Extent{at.begin, 0} - Extent{kManySamples, -1} * more, at.step};
  }
  const int64_t step = count == Extent{1, 0} ? 1 : std::max(cut.Step(i), -INT64_MAX);
  return {begin.fixed < 0 && begin.batches == 0 ? begin + extent : begin, step};
}

// dx = dy at the indices taken, 0 elsewhere: along an axis of n elements, of which those of index first, first + step,
// ... were taken, first zeros come before and n - 1 - (the last index) after. Going backward dy comes in reverse.
std::vector<Symbol> SliceGradient(const GradientContext& g) {
  const Cut cut = CutOf(g.attrs<SliceAttrs>());
  const Extents shape = g.shape(0), taken = g.output_shape(0);
  const std::vector<int> axes = AxesIn(shape, cut);
  Extents begins, ends;
  PadAttrs pad{.axes = {axes.begin(), axes.end()}};
  SliceAttrs reverse;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Extent extent = shape[axes[i]], count = taken[axes[i]];
    const auto [first_taken, step] = FirstAndStep(cut, i, extent, count);
    Extent first = first_taken;
    pad.step.push_back(step < 0 ? -step : step);
    const Extent reach = (count - Extent{1, 0}) * pad.step.back();
    if (cut.Step(i) < 0) {
      first = first - reach;
      reverse.axes.push_back(axes[i]);
      reverse.begin.push_back(kSliceEnd);
      reverse.end.push_back(-kSliceEnd);
      reverse.step.push_back(-1);
    }
    const bool none = count == Extent{0, 0};  // was taken
    begins.push_back(none ? count : first);
    ends.push_back(none ? extent : extent - first - reach - Extent{1, 0});
  }
  pad.begin = rule::FixedParts(begins);
  pad.begin_batches = rule::BatchParts(begins);
  pad.end = rule::FixedParts(ends);
  pad.end_batches = rule::BatchParts(ends);
  return {Pad(reverse.axes.empty() ? g.output_grad(0) : Slice(g.output_grad(0), reverse), pad)};
}

// --- Pad

void CheckPad(const AnyAttrs& any) {
  const auto& attrs = any.get<PadAttrs>();
  const Cut cut = CutOf(attrs);
  CheckCut(cut);
  if (std::isnan(attrs.value)) throw ModelError("value must be a number, got nan");
  const auto check = [](const char* field, const rule::ExtentList& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list.fixed[i] >= 0 || list.Follows(i)) continue;
      Throw<ModelError>("{} must be 0 or more everywhere, got {}; Slice takes elements away", field,
                        rule::ToString(list.fixed));
    }
  };
  check("begin", cut.begin);
  check("end", cut.end);
  for (int64_t step : attrs.step) rule::CheckAtLeast("step", step, 1);
}

std::optional<int64_t> Padding(const rule::ExtentList& list, size_t i, std::optional<int64_t> batch) {
  const auto count = list.At(i, batch, "the padding");
  return count ? std::optional(std::max<int64_t>(*count, 0)) : std::nullopt;
}

void InferPad(InferContext& c) {
  const Cut cut = CutOf(c.attrs<PadAttrs>());
  const double value = c.attrs<PadAttrs>().value;
  const auto dtype = c.out(0).dtype();
  if (dtype && !IsFloat(*dtype) && std::isinf(value)) Throw<ShapeError>("{} is no {} to pad with", value, *dtype);
  InferCut(c, cut, [&](size_t i, int64_t count) -> std::optional<int64_t> {
    const auto begin = Padding(cut.begin, i, c.batch()), end = Padding(cut.end, i, c.batch());
    if (!begin || !end) return std::nullopt;
    constexpr const char* kWhat = "the padded extent";
    // From the first element to the last, both included.
    const int64_t reach = count == 0 ? 0 : CheckedAdd(CheckedMul(count - 1, cut.Step(i), kWhat), 1, kWhat);
    return CheckedAdd(CheckedAdd(*begin, reach, kWhat), *end, kWhat);
  });
}

// dx = dy at the places of x's elements.
std::vector<Symbol> PadGradient(const GradientContext& g) {
  const Cut cut = CutOf(g.attrs<PadAttrs>());
  const Extents shape = g.shape(0);
  const std::vector<int> axes = AxesIn(shape, cut);
  Extents begins, ends;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Extent count = shape[axes[i]];
    const Extent reach = count == Extent{0, 0} ? count : (count - Extent{1, 0}) * cut.Step(i) + Extent{1, 0};
    begins.push_back(cut.begin[i]);
    ends.push_back(cut.begin[i] + reach);
  }
  return {Slice(g.output_grad(0), {.begin = rule::FixedParts(begins),
                                   .end = rule::FixedParts(ends),
                                   .step = cut.step,
                                   .axes = {axes.begin(), axes.end()},
                                   .begin_batches = rule::BatchParts(begins),
                                   .end_batches = rule::BatchParts(ends)})};
}

// Per axis of data, `range(i, extent)` of those that are cut.
template <class RangeOfCut>
std::vector<SliceRange> Ranges(const Cut& cut, const Shape& data, const RangeOfCut& range) {
  if (!data.IsKnown()) Throw<ShapeError>("the extents of {} are not known yet", data);
  std::vector<SliceRange> ranges;
  for (int64_t extent : data) ranges.push_back({0, 1, extent});
  const std::vector<int> axes = AxesIn(data, cut);
  for (size_t i = 0; i < axes.size(); ++i) {
    const std::optional<SliceRange> found = range(i, data[axes[i]]);
    if (!found) throw ShapeError("the batch is not known");
    ranges[axes[i]] = *found;
  }
  return ranges;
}

}  // namespace

std::vector<SliceRange> SliceRanges(const SliceAttrs& attrs, const Shape& data, std::optional<int64_t> batch) {
  const Cut cut = CutOf(attrs);
  return Ranges(cut, data, [&](size_t i, int64_t extent) { return RangeAt(cut, i, extent, batch); });
}

std::vector<SliceRange> PadRanges(const PadAttrs& attrs, const Shape& data, std::optional<int64_t> batch) {
  const Cut cut = CutOf(attrs);
  return Ranges(cut, data, [&](size_t i, int64_t extent) -> std::optional<SliceRange> {
    const auto begin = Padding(cut.begin, i, batch);
    if (!begin) return std::nullopt;
    return SliceRange{*begin, extent <= 1 ? 1 : cut.Step(i), extent};
  });
}

const OpDef& SliceOp() {
  static const OpDef op = {
      .name = "Slice",
      .doc = "Per axis the indices begin, begin + step, ... before end; negative ones count from the end.",
      .attrs_type = &AttrsOf<SliceAttrs>(),
      .infer = InferSlice,
      .check = CheckSlice,
      .gradient = SliceGradient,
      .numbers = rule::SliceNumbers,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& PadOp() {
  static const OpDef op = {
      .name = "Pad",
      .doc = "data with a value put before, after and between its elements along some axes.",
      .attrs_type = &AttrsOf<PadAttrs>(),
      .infer = InferPad,
      .check = CheckPad,
      .gradient = PadGradient,
      .numbers = rule::PadNumbers,
  };
  return op;
}

}  // namespace bindery
