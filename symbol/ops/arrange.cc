#include "symbol/ops/arrange.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/open_shapes.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_of.h"

namespace bindery {
namespace {

using Outputs = std::vector<Symbol>;
constexpr Extent kOne{1, 0};

int RankOf(const Extents& shape) { return static_cast<int>(shape.size()); }
int AxisIn(int64_t axis, int rank) { return rule::Axis(axis, rule::Unknown(rank)); }

// Which axes of this rank a list names, each at most once.
std::vector<bool> Named(const std::vector<int64_t>& axes, int rank) {
  std::vector<bool> named(rank, false);
  for (const int axis : rule::AxesIn(rule::Unknown(rank), axes)) named[axis] = true;
  return named;
}

Extent Product(const Extents& shape, int begin, int end) {
  Extent product = kOne;
  for (int axis = begin; axis < end; ++axis) product = product * shape[axis];
  return product;
}

// --- Axes

Outputs ComposeExpandDims(const ComposeContext& c) {
  const auto& axes = c.attrs<AxesAttrs>().axes;
  const int rank = RankOf(c.shapes[0]) + static_cast<int>(axes.size());
  if (rank > Shape::kMaxRank) Throw<ShapeError>("{} axes are more than a shape can have", rank);
  const std::vector<bool> is_new = Named(axes, rank);
  Extents shape;
  auto next = c.shapes[0].begin();
  for (int axis = 0; axis < rank; ++axis) shape.push_back(is_new[axis] ? kOne : *next++);
  return {rule::ReshapeTo(c.inputs[0], shape, c.name)};
}

Outputs ComposeSqueeze(const ComposeContext& c) {
  const auto& axes = c.attrs<AxesAttrs>().axes;
  const std::vector<bool> named = Named(axes, RankOf(c.shapes[0]));
  Extents shape;
  for (size_t axis = 0; axis < named.size(); ++axis) {
    const Extent& extent = c.shapes[0][axis];
    if (named[axis] && At(extent, c.batch) != 1) {
      Throw<ShapeError>("axis {} has the extent {}, not 1", axis, At(extent, c.batch));
    }
    if (!(axes.empty() ? At(extent, c.batch) == 1 : named[axis])) shape.push_back(extent);
  }
  return {rule::ReshapeTo(c.inputs[0], shape, c.name)};
}

Outputs ComposeSwapAxes(const ComposeContext& c) {
  const auto& [a, b] = c.attrs<SwapAxesAttrs>();
  const int rank = RankOf(c.shapes[0]);
  TransposeAttrs order;
  for (int axis = 0; axis < rank; ++axis) order.axes.push_back(axis);
  std::swap(order.axes[AxisIn(a, rank)], order.axes[AxisIn(b, rank)]);
  return {Transpose(c.inputs[0], order, c.name)};
}

// --- Copies

// data seen as (before, behind), the latter `count` times: (before, count, behind), as a tensor of `shape`.
Symbol Copies(const Symbol& data, const Extent& before, int64_t count, const Extent& behind, const Extents& shape,
              const std::string& name) {
  const Symbol rows = rule::ReshapeTo(data, {before, kOne, behind});
  return rule::ReshapeTo(rule::BroadcastTo(rows, {before, {count, 0}, behind}), shape, name);
}

Outputs ComposeTile(const ComposeContext& c) {
  std::vector<int64_t> repeats = c.attrs<TileAttrs>().repeats;
  Extents shape = c.shapes[0];
  const size_t rank = std::max(repeats.size(), shape.size());
  shape.insert(shape.begin(), rank - shape.size(), kOne);
  repeats.insert(repeats.begin(), rank - repeats.size(), 1);
  const auto last = std::ranges::find_if(repeats, [](int64_t count) { return count != 1; }) - repeats.begin();
  Symbol tiled = rule::ReshapeTo(c.inputs[0], shape, last == std::ssize(repeats) ? c.name : "");
  for (int axis = static_cast<int>(rank) - 1; axis >= 0; --axis) {  // what is copied most stays in one piece
    if (repeats[axis] == 1) continue;
    const Extent before = Product(shape, 0, axis), behind = Product(shape, axis, static_cast<int>(rank));
    shape[axis] = shape[axis] * repeats[axis];
    tiled = Copies(tiled, before, repeats[axis], behind, shape, axis == last ? c.name : "");
  }
  return {tiled};
}

void CheckTile(const AnyAttrs& any) {
  const auto& repeats = any.get<TileAttrs>().repeats;
  if (repeats.size() > Shape::kMaxRank) Throw<ModelError>("repeats has {} entries", repeats.size());
  for (const int64_t count : repeats) rule::CheckAtLeast("repeats", count, 0);
}

Outputs ComposeRepeat(const ComposeContext& c) {
  const auto& [repeats, axis_attr, flatten] = c.attrs<RepeatAttrs>();
  Extents shape = c.shapes[0];
  if (flatten) shape = {Product(shape, 0, RankOf(shape))};
  const int rank = RankOf(shape), axis = flatten ? 0 : AxisIn(axis_attr, rank);
  const Extent before = Product(shape, 0, axis + 1), behind = Product(shape, axis + 1, rank);
  shape[axis] = shape[axis] * repeats;
  return {Copies(c.inputs[0], before, repeats, behind, shape, c.name)};
}

Outputs ComposeExpand(const ComposeContext& c) {
  const auto& attrs = c.attrs<ToShapeAttrs>();
  const rule::ExtentList list{attrs.shape, attrs.batches};
  const Extents& own = c.shapes[0];
  const size_t rank = std::max(own.size(), list.size());
  Extents shape;
  for (size_t i = 0; i < rank; ++i) {
    const Extent mine = i + own.size() < rank ? kOne : own[i + own.size() - rank];
    const Extent asked = i + list.size() < rank ? kOne : list[i + list.size() - rank];
    const int64_t extent = At(mine, c.batch), wanted = At(asked, c.batch);
    if (extent != wanted && extent != 1 && wanted != 1) {
      Throw<ShapeError>("an extent of {} cannot be stretched to {}", extent, wanted);
    }
    shape.push_back(extent == wanted ? (mine.batches != 0 ? mine : asked) : extent == 1 ? asked : mine);
  }
  return {rule::BroadcastTo(c.inputs[0], shape, c.name)};
}

// --- Parts

Symbol Part(const Symbol& data, int axis, const Extent& begin, const Extent& end, const std::string& name = {}) {
  return Slice(data,
               {.begin = {begin.fixed},
                .end = {end.fixed},
                .axes = {axis},
                .begin_batches = rule::BatchParts({begin}),
                .end_batches = rule::BatchParts({end})},
               name);
}

int64_t NumParts(const AnyAttrs& any) {
  const auto& attrs = any.get<SplitAttrs>();
  return attrs.sizes.empty() ? attrs.num_outputs : std::ssize(attrs.sizes);
}

void CheckSplit(const AnyAttrs& any) {
  const auto& attrs = any.get<SplitAttrs>();
  rule::CheckAxisAttr("axis", attrs.axis);
  rule::CheckAtLeast("num_outputs", attrs.num_outputs, 1);
  for (const int64_t size : attrs.sizes) rule::CheckAtLeast("sizes", size, 0);
  constexpr int64_t kMaxParts = 1 << 12;
  if (NumParts(any) > kMaxParts) Throw<ModelError>("{} parts are more than {}", NumParts(any), kMaxParts);
}

Outputs ComposeSplit(const ComposeContext& c) {
  const auto& attrs = c.attrs<SplitAttrs>();
  const int axis = AxisIn(attrs.axis, RankOf(c.shapes[0]));
  const Extent& whole = c.shapes[0][axis];
  const int64_t extent = At(whole, c.batch), count = NumParts(c.any_attrs);
  std::vector<int64_t> sizes = attrs.sizes;
  for (int64_t i = 0, left = extent; i < count && attrs.sizes.empty(); ++i) {
    sizes.push_back(std::min(left, CeilDiv(extent, count)));
    left -= sizes.back();
  }
  int64_t sum = 0;
  for (const int64_t size : sizes) sum = CheckedAdd(sum, size, "the sum of the sizes");
  if (sum != extent) Throw<ShapeError>("parts of {} are {} in all, not {}", rule::ToString(sizes), sum, extent);
  if (extent > 0 && std::ranges::count(sizes, sizes[0]) == count) {
    const SliceChannelAttrs parts{.num_outputs = count, .axis = axis};
    return ApplyAll(SliceChannelOp(), parts, {c.inputs[0]}, c.name);
  }
  if (whole.batches != 0 && c.of_every_batch) return {};
  Outputs outputs;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    outputs.push_back(Part(c.inputs[0], axis, {begin, 0}, {begin + size, 0}));
    begin += size;
  }
  return outputs;
}

Outputs ComposeCrop(const ComposeContext& c) {
  const auto& [shape, offset, center] = c.attrs<CropAttrs>();
  const int rank = RankOf(c.shapes[0]), first = rank - static_cast<int>(shape.size());
  if (first < 0) Throw<ShapeError>("data of {} axes has no {} to crop", rank, shape.size());
  if (!offset.empty() && offset.size() != shape.size()) Throw<ShapeError>("offset and shape have other lengths");
  SliceAttrs slice;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Extent& whole = c.shapes[0][first + i];
    if (center && whole.batches != 0 && c.of_every_batch) return {};
    const int64_t extent = At(whole, c.batch);
    const int64_t least = offset.empty() ? 0 : offset[i];
    const int64_t begin = center && shape[i] >= 0 ? (extent - shape[i]) / 2 : least;
    if (shape[i] < 0 || begin < 0 || begin > extent || shape[i] > extent - begin) {
      Throw<ShapeError>("{} elements from {} on are not all within {}", shape[i], begin, extent);
    }
    slice.begin.push_back(begin);
    slice.end.push_back(begin + shape[i]);
    slice.axes.push_back(first + static_cast<int64_t>(i));
  }
  return {Slice(c.inputs[0], slice, c.name)};
}

// --- Blocks

Outputs Blocks(const ComposeContext& c, bool to_space) {
  const auto& [b, mode] = c.attrs<DepthAttrs>();
  const Extents& in = c.shapes[0];
  if (in.size() != 4) Throw<ShapeError>("expected 4 axes (N, C, H, W), got {}", in.size());
  const Extent block{b, 0};
  const bool dcr = mode == DepthMode::kDCR;
  if (to_space) {
    const Extent channels = in[1] / CheckedMul(b, b, "a block");
    const Symbol parts = dcr ? rule::ReshapeTo(c.inputs[0], {in[0], block, block, channels, in[2], in[3]})
                             : rule::ReshapeTo(c.inputs[0], {in[0], channels, block, block, in[2], in[3]});
    const Symbol turned = Transpose(
        parts, {.axes = dcr ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3}});
    return {rule::ReshapeTo(turned, {in[0], channels, in[2] * b, in[3] * b}, c.name)};
  }
  const Extent height = in[2] / b, width = in[3] / b;
  const Symbol parts = rule::ReshapeTo(c.inputs[0], {in[0], in[1], height, block, width, block});
  const Symbol turned =
      Transpose(parts, {.axes = dcr ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4}});
  return {rule::ReshapeTo(turned, {in[0], in[1] * CheckedMul(b, b, "a block"), height, width}, c.name)};
}

// What is known of the outputs before all of data's shape is: each has `shape(c, data)`.
template <class F>
OpDef Knowing(OpDef op, const F& shape) {
  op.infer = [infer = std::move(op.infer), shape](InferContext& c) {
    if (c.in(0).shape() && !c.in(0).Known()) {
      const rule::OpenShape known = shape(c, *c.in(0).shape());
      for (int o = 0; o < c.num_outputs() && known; ++o) c.out(o).Set(*known);
    }
    infer(c);
  };
  return op;
}

void CheckBlock(const AnyAttrs& any) { rule::CheckAtLeast("block", any.get<DepthAttrs>().block, 1); }

}  // namespace

Symbol Flip(const Symbol& data, const AxesAttrs& attrs, const std::string& name) {
  const size_t count = attrs.axes.size();
  return Slice(data,
               {.begin = std::vector<int64_t>(count, kSliceEnd),
                .end = std::vector<int64_t>(count, -kSliceEnd),
                .step = std::vector<int64_t>(count, -1),
                .axes = attrs.axes},
               name);
}

Symbol Stack(std::span<const Symbol> inputs, int64_t axis, const std::string& name) {
  std::vector<Symbol> parts;
  for (const Symbol& input : inputs) parts.push_back(ExpandDims(input, {.axes = {axis}}));
  return Concat(parts, {.axis = axis}, name);
}

const OpDef& ExpandDimsOp() {
  static const OpDef op =
      Knowing(Composed("ExpandDims", "data with new axes of extent 1.", &AttrsOf<AxesAttrs>(), ComposeExpandDims,
                       [](const AnyAttrs& attrs) { rule::CheckAxesAttr("axes", attrs.get<AxesAttrs>().axes); }),
              [](InferContext& c, const Shape& data) {
                return rule::OpenExpandDims(data, rule::Known(c.attrs<AxesAttrs>().axes));
              });
  return op;
}
const OpDef& SqueezeOp() {
  static const OpDef op =
      Knowing(Composed("Squeeze", "data without axes of extent 1.", &AttrsOf<AxesAttrs>(), ComposeSqueeze,
                       [](const AnyAttrs& attrs) { rule::CheckAxesAttr("axes", attrs.get<AxesAttrs>().axes); }),
              [](InferContext& c, const Shape& data) {
                return rule::OpenSqueeze(data, rule::Known(c.attrs<AxesAttrs>().axes));
              });
  return op;
}
const OpDef& SwapAxesOp() {
  static const OpDef op =
      Knowing(Composed("SwapAxes", "data with two axes swapped.", &AttrsOf<SwapAxesAttrs>(), ComposeSwapAxes),
              [](InferContext& c, const Shape& data) {
                const auto& [a, b] = c.attrs<SwapAxesAttrs>();
                const int first = rule::Axis(a, data), second = rule::Axis(b, data);
                return data.With(first, data[second]).With(second, data[first]);
              });
  return op;
}
const OpDef& ExpandOp() {
  static const OpDef op = Knowing(Composed("Expand", "data and a shape stretched to each other.",
                                           &AttrsOf<ToShapeAttrs>(), ComposeExpand, BroadcastToOp().check),
                                  [](InferContext& c, const Shape& data) {
                                    const auto& [shape, batches] = c.attrs<ToShapeAttrs>();
                                    return rule::OpenExpand(data, rule::Known(shape, batches, c.batch()));
                                  });
  return op;
}
const OpDef& TileOp() {
  static const OpDef op =
      Knowing(Composed("Tile", "data several times along axes.", &AttrsOf<TileAttrs>(), ComposeTile, CheckTile),
              [](InferContext& c, const Shape& data) {
                return rule::OpenTile(data, rule::Known(c.attrs<TileAttrs>().repeats));
              });
  return op;
}
const OpDef& RepeatOp() {
  static const OpDef op =
      Composed("Repeat", "Each element of data several times along an axis.", &AttrsOf<RepeatAttrs>(), ComposeRepeat,
               [](const AnyAttrs& attrs) { rule::CheckAtLeast("repeats", attrs.get<RepeatAttrs>().repeats, 0); });
  return op;
}
const OpDef& SplitOp() {
  static const OpDef op = [] {
    OpDef split =
        Composed("Split", "data cut into parts along an axis.", &AttrsOf<SplitAttrs>(), ComposeSplit, CheckSplit);
    split.outputs = {Variadic("output", NumParts)};
    return Knowing(std::move(split), [](InferContext& c, const Shape& data) {
      return rule::OpenAxes(data, {c.attrs<SplitAttrs>().axis});
    });
  }();
  return op;
}
const OpDef& CropOp() {
  static const OpDef op = Composed("Crop", "A part of data's last axes.", &AttrsOf<CropAttrs>(), ComposeCrop);
  return op;
}
const OpDef& DepthToSpaceOp() {
  static const OpDef op = Composed(
      "DepthToSpace", "Channels as blocks of the image.", &AttrsOf<DepthAttrs>(),
      [](const ComposeContext& c) { return Blocks(c, true); }, CheckBlock);
  return op;
}
const OpDef& SpaceToDepthOp() {
  static const OpDef op = Composed(
      "SpaceToDepth", "Blocks of the image as channels.", &AttrsOf<DepthAttrs>(),
      [](const ComposeContext& c) { return Blocks(c, false); }, CheckBlock);
  return op;
}
}  // namespace bindery
