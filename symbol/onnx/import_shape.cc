// Operators that move elements, and extents as values.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Where the file has the batch's own extent in place of "as it is", the model is for any batch all the same.
void ImportReshape(Importer& im) {
  im.Ignore({"consumed_inputs"});
  const Symbol x = im.In(0);
  const bool allow_zero = im.Flag("allowzero");
  if (im.Has(1) && !im.IsStatic(1)) {
    return im.Out(ReshapeBy({x, im.In(1)}, ReshapeAttrs{.allow_zero = allow_zero}, im.name()));
  }
  Extents to;
  if (im.Has(1)) {
    to = im.StaticExtents(1);
  } else {
    for (const int64_t extent : im.Ints("shape")) to.push_back({extent, 0});
  }
  ReshapeAttrs attrs{.allow_zero = allow_zero && std::ranges::count(to, Extent{0, 0}) > 0};
  for (const Extent& extent : to) {
    attrs.shape.push_back(extent.fixed);
    attrs.batches.push_back(extent.batches);
  }
  const bool follows = std::ranges::any_of(attrs.batches, [](int64_t batches) { return batches != 0; });
  if (!follows) attrs.batches.clear();
  if (!follows && !attrs.allow_zero && !to.empty() && to[0].fixed > 0) {
    const std::optional<int64_t> baked = im.BakedBatch(x, 0);
    if (baked == to[0].fixed) attrs.shape[0] = 0;
  }
  im.Out(Reshape(x, attrs, im.name()));
}

void ImportFlatten(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t said = im.Int("axis", 1);
  if (said == 1) return im.Out(Flatten(x, im.name()));
  const PartialExtents extents = im.ExtentsOf(x);
  const auto rank = static_cast<int64_t>(extents.size()), axis = said < 0 ? said + rank : said;
  if (axis < 0 || axis > rank) Throw<ModelError>("axis {} of an input with {} axes", said, rank);
  const std::span<const std::optional<Extent>> all(extents);
  const auto before = static_cast<size_t>(axis);
  im.Out(ReshapeTo(x, {Product(all.first(before)), Product(all.subspan(before))}, im.name()));
}

void ImportSqueeze(Importer& im) {
  const Symbol x = im.In(0);
  const PartialExtents extents = im.ExtentsOf(x);
  const std::vector<int64_t> axes = im.AttributeOrInput("axes", 1);
  std::vector<bool> drop(extents.size());
  for (const int64_t axis : axes) drop[static_cast<size_t>(im.AxisOf(x, axis))] = true;
  PartialExtents kept;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const bool is_one = extents[axis] == Extent{1, 0};
    if (drop[axis] && extents[axis] && !is_one) Throw<ModelError>("axis {} is not of extent 1", axis);
    if (axes.empty() ? !is_one : !drop[axis]) kept.push_back(extents[axis]);
  }
  im.Out(ReshapeTo(x, kept, im.name()));
}

void ImportUnsqueeze(Importer& im) {
  const Symbol x = im.In(0);
  PartialExtents extents = im.ExtentsOf(x);
  std::vector<int64_t> axes = im.AttributeOrInput("axes", 1);
  const auto rank = static_cast<int64_t>(extents.size() + axes.size());
  if (rank > Shape::kMaxRank) Throw<ModelError>("{} axes, at most {} are possible", rank, Shape::kMaxRank);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) Throw<ModelError>("axis {} of an output with {} axes", axis, rank);
    axis += axis < 0 ? rank : 0;
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) Throw<ModelError>("an axis is named twice");
  for (const int64_t axis : axes) extents.insert(extents.begin() + axis, Extent{1, 0});
  im.Out(ReshapeTo(x, extents, im.name()));
}

void ImportConcat(Importer& im) { im.Out(Concat(im.AllInputs(), {.axis = im.Int("axis", 1)}, im.name())); }

void ImportSliceByAttributes(Importer& im) {
  im.Out(Slice(im.In(0), {.begin = im.Ints("starts"), .end = im.Ints("ends"), .axes = im.Ints("axes")}, im.name()));
}

void ImportSlice(Importer& im) {
  bool is_static = true;
  for (int i = 1; i < im.num_inputs(); ++i) is_static = is_static && (!im.Has(i) || im.IsStatic(i));
  if (!is_static) {
    std::vector<Symbol> inputs = {im.In(0), im.In(1), im.In(2)};
    const int64_t count = im.ShapeOf(im.In(1))[0];
    std::vector<int64_t> axes, steps(static_cast<size_t>(std::max<int64_t>(count, 0)), 1);
    for (int64_t axis = 0; axis < count; ++axis) axes.push_back(axis);
    inputs.push_back(im.Has(3) ? im.In(3) : im.List(axes));
    inputs.push_back(im.Has(4) ? im.In(4) : im.List(steps));
    return im.Out(SliceBy(inputs, im.name()));
  }
  const auto list = [&](int input) { return im.Has(input) ? im.StaticInts(input) : std::vector<int64_t>(); };
  SliceAttrs attrs{.step = list(4), .axes = list(3)};
  const auto split = [](const Extents& extents, std::vector<int64_t>* fixed, std::vector<int64_t>* batches) {
    for (const Extent& extent : extents) {
      fixed->push_back(extent.fixed);
      batches->push_back(extent.batches);
    }
    if (std::ranges::all_of(*batches, [](int64_t n) { return n == 0; })) batches->clear();
  };
  split(im.StaticExtents(1), &attrs.begin, &attrs.begin_batches);
  split(im.StaticExtents(2), &attrs.end, &attrs.end_batches);
  im.Out(Slice(im.In(0), attrs, im.name()));
}

// Sizes: an attribute, an input since version 13; none of them: equal parts, the last of which may be smaller.
void ImportSplit(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t axis = im.Int("axis", 0), parts = im.num_outputs();
  std::vector<int64_t> sizes = im.AttributeOrInput("split", 1);
  if (im.Int("num_outputs", parts) != parts) Throw<ModelError>("attribute \"num_outputs\": it has {} outputs", parts);
  if (sizes.empty()) {
    const int64_t extent = im.ShapeOf(x)[im.AxisOf(x, axis)];
    if (extent == kUnknownDim || extent % parts == 0) {
      const Symbol all = SliceChannel(x, {.num_outputs = parts, .axis = axis}, im.name());
      for (int i = 0; i < parts; ++i) im.Out(i, all[i]);
      return;
    }
    sizes.assign(static_cast<size_t>(parts), CeilDiv(extent, parts));
  }
  if (static_cast<int64_t>(sizes.size()) != parts) Throw<ModelError>("{} sizes for {} outputs", sizes.size(), parts);
  int64_t begin = 0;
  for (int i = 0; i < parts; ++i) {
    const int64_t end = CheckedAdd(begin, sizes[static_cast<size_t>(i)]);
    im.Out(i, Slice(x, {.begin = {begin}, .end = {end}, .axes = {axis}}));
    begin = end;
  }
}

void ImportTranspose(Importer& im) { im.Out(Transpose(im.In(0), {.axes = im.Ints("perm")}, im.name())); }

// To the extents that both give when they are stretched.
void ImportExpand(Importer& im) {
  const Symbol x = im.In(0);
  const PartialExtents from = im.ExtentsOf(x);
  const bool is_known = std::ranges::all_of(from, [](const auto& extent) { return extent.has_value(); });
  if (!im.IsStatic(1) || !is_known) {
    const int64_t wanted = im.ShapeOf(im.In(1))[0], more = wanted - static_cast<int64_t>(from.size());
    if (wanted == kUnknownDim || more < 0) Throw<ModelError>("input 1: {} extents of {} axes", wanted, from.size());
    Symbol own = ShapeArray(x, {});
    if (more > 0) own = Concat({im.List(std::vector<int64_t>(static_cast<size_t>(more), 1)), own}, {.axis = 0});
    return im.Out(BroadcastToBy({x, Maximum(im.In(1), own)}, im.name()));
  }
  const Extents to = im.StaticExtents(1);
  ToShapeAttrs attrs;
  const size_t rank = std::max(from.size(), to.size());
  bool follows = false;
  for (size_t i = 0; i < rank; ++i) {
    const size_t skip_from = rank - from.size(), skip_to = rank - to.size();
    const Extent wanted = i < skip_to ? Extent{1, 0} : to[i - skip_to];
    const std::optional<Extent> have = i < skip_from ? Extent{1, 0} : from[i - skip_from];
    if (wanted == Extent{1, 0} && !have) Throw<ModelError>("an extent of its input is not known");
    const Extent extent = wanted == Extent{1, 0} ? *have : wanted;
    attrs.shape.push_back(extent.fixed);
    attrs.batches.push_back(extent.batches);
    follows = follows || extent.batches != 0;
  }
  if (!follows) attrs.batches.clear();
  im.Out(BroadcastTo(x, attrs, im.name()));
}

// The numbers of all beginnings, then of all ends; attributes up to version 10, inputs since.
void ImportPad(Importer& im) {
  const std::string mode = im.String("mode", "constant");
  if (mode != "constant") Throw<ModelError>("attribute \"mode\": only constant can be had, got \"{}\"", mode);
  PadAttrs attrs{.value = im.Float("value", 0)};
  if (im.Has(2)) attrs.value = im.Static(2).elements() == 1 ? im.Static(2).At(0) : 0;
  const std::vector<int64_t> pads = im.AttributeOrInput(im.opset() < 2 ? "paddings" : "pads", 1);
  if (im.Has(3)) attrs.axes = im.StaticInts(3);
  const auto half = static_cast<std::ptrdiff_t>(pads.size() / 2);
  attrs.begin.assign(pads.begin(), pads.begin() + half);
  attrs.end.assign(pads.begin() + half, pads.end());
  im.Out(Pad(im.In(0), attrs, im.name()));
}

void ImportConstantOfShape(Importer& im) {
  const HostTensor value = im.Tensor("value").value_or(HostTensor(DType::kFloat32, {1}));
  if (value.elements() != 1) Throw<ModelError>("attribute \"value\": expected one element");
  const Symbol one = bindery::Constant(value.Reshape({}), im.name() + "_value");
  if (!im.IsStatic(0)) return im.Out(BroadcastToBy({one, im.In(0)}, im.name()));
  ToShapeAttrs attrs;
  for (const Extent& extent : im.StaticExtents(0)) {
    attrs.shape.push_back(extent.fixed);
    attrs.batches.push_back(extent.batches);
  }
  im.Out(BroadcastTo(one, attrs, im.name()));
}

void ImportShape(Importer& im) {
  im.Out(ShapeArray(im.In(0), {.begin = im.Int("start", 0), .end = im.Int("end", INT64_MAX)}, im.name()));
}

void ImportRange(Importer& im) {
  const HostTensor *begin = im.Constant(0), *end = im.Constant(1), *step = im.Constant(2);
  for (const HostTensor* given : {begin, end, step}) {
    if (given == nullptr) {
      const RangeAttrs attrs{.dtype = im.DTypeOf(im.In(0))};
      return im.Out(RangeBy({im.In(0), im.In(1), im.In(2)}, attrs, im.name()));
    }
    if (given->elements() != 1) Throw<ModelError>("a range is told by three numbers");
  }
  im.Out(Range({.begin = begin->At(0), .end = end->At(0), .step = step->At(0), .dtype = begin->dtype()}, im.name()));
}

}  // namespace

std::span<const ImportRow> ShapeImports() {
  static const std::vector<ImportRow> rows = {
      {"Concat", 1, ImportConcat},
      {"ConstantOfShape", 9, ImportConstantOfShape},
      {"Expand", 8, ImportExpand},
      {"Flatten", 1, ImportFlatten},
      {"Pad", 1, ImportPad},
      {"Range", 11, ImportRange},
      {"Reshape", 1, ImportReshape},
      {"Shape", 1, ImportShape},
      {"Size", 1, Unary(SizeArray)},
      {"Slice", 1, ImportSliceByAttributes},
      {"Slice", 10, ImportSlice},
      {"Split", 1, ImportSplit},
      {"Squeeze", 1, ImportSqueeze},
      {"Transpose", 1, ImportTranspose},
      {"Unsqueeze", 1, ImportUnsqueeze},
  };
  return rows;
}

}  // namespace bindery::onnx
