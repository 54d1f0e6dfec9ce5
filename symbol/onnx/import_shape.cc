// Operators that move elements, and extents as values.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"

namespace bindery::onnx {
namespace {

// Where the file has the batch's own extent in place of "as it is", the model is for any batch all the same. Bytes of
// the file stay what it holds: they may be packed weights, which are unpacked while it is read.
void ImportReshape(Importer& im) {
  im.Ignore({"consumed_inputs"});
  const Symbol x = im.In(0);
  const bool allow_zero = im.Flag("allowzero");
  if (im.IsComputed(1)) {
    return im.Out(ReshapeBy({x, im.In(1)}, ReshapeAttrs{.allow_zero = allow_zero}, im.name()));
  }
  Extents to;
  if (im.Has(1)) {
    to = im.StaticExtents(1);
  } else {
    for (const int64_t extent : im.Ints("shape")) to.push_back({extent, 0});
  }
  ReshapeAttrs attrs{.shape = rule::FixedParts(to),
                     .batches = rule::BatchParts(to),
                     .allow_zero = allow_zero && std::ranges::count(to, Extent{0, 0}) > 0};
  if (attrs.batches.empty() && !attrs.allow_zero && !to.empty() && to[0].fixed > 0) {
    const std::optional<int64_t> baked = im.BakedBatch(x, 0);
    if (baked == to[0].fixed) attrs.shape[0] = 0;
  }
  const Symbol y = Reshape(x, attrs, im.name());
  const HostTensor* held = im.Held(0);
  if (held != nullptr && (held->dtype() == DType::kUInt8 || held->dtype() == DType::kInt8)) {
    if (const Shape shape = im.ShapeOf(y); shape.IsKnown()) return im.OutHeld(0, shape);
  }
  im.Out(y);
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

// A Reshape where the input's extents are known as far as that needs them; else what is done when they are.
void ImportSqueeze(Importer& im) {
  const Symbol x = im.In(0);
  if (im.IsOpen(1)) return im.Out(SqueezeBy({x, im.In(1)}, im.name()));
  const std::vector<int64_t> axes = im.AttributeOrInput("axes", 1);
  const std::optional<PartialExtents> extents = im.KnownExtentsOf(x);
  PartialExtents kept;
  for (size_t axis = 0; extents && axis < extents->size(); ++axis) {
    const std::optional<Extent>& extent = (*extents)[axis];
    const bool named = std::ranges::any_of(axes, [&](int64_t a) { return im.AxisOf(x, a) == static_cast<int>(axis); });
    if (named && extent && extent != Extent{1, 0}) Throw<ModelError>("axis {} is not of extent 1", axis);
    if (axes.empty() ? extent != Extent{1, 0} : !named) kept.push_back(extent);
  }
  const bool all_are_told = !axes.empty() || std::ranges::count(kept, std::optional<Extent>()) == 0;
  if (extents && all_are_told && CanReshapeTo(kept)) return im.Out(ReshapeTo(x, kept, im.name()));
  im.Out(Squeeze(x, {.axes = axes}, im.name()));
}

void ImportUnsqueeze(Importer& im) {
  const Symbol x = im.In(0);
  if (im.IsOpen(1)) return im.Out(ExpandDimsBy({x, im.In(1)}, im.name()));
  im.Out(Unsqueezed(im, x, im.AttributeOrInput("axes", 1), im.name()));
}

void ImportConcat(Importer& im) { im.Out(Concat(im.AllInputs(), {.axis = im.Int("axis", 1)}, im.name())); }

void ImportSliceByAttributes(Importer& im) {
  im.Out(Slice(im.In(0), {.begin = im.Ints("starts"), .end = im.Ints("ends"), .axes = im.Ints("axes")}, im.name()));
}

// Backward, nothing is before an end behind the last element; our largest, kSliceEnd, would be the beginning.
Extents EndsOf(Importer& im) {
  Extents ends = im.StaticExtents(2);
  const HostTensor* steps = im.Has(4) ? im.Constant(4) : nullptr;
  for (size_t i = 0; steps != nullptr && i < ends.size() && static_cast<int64_t>(i) < steps->elements(); ++i) {
    if (steps->At(static_cast<int64_t>(i)) < 0 && ends[i] == Extent{kSliceEnd, 0}) ends[i].fixed = kSliceEnd / 2;
  }
  return ends;
}

void ImportSlice(Importer& im) {
  bool is_computed = false;
  for (int i = 1; i < im.num_inputs(); ++i) is_computed = is_computed || (i < 3 ? im.IsComputed(i) : im.IsOpen(i));
  if (is_computed) {
    const Symbol ends = im.Constant(2) != nullptr ? im.List(rule::FixedParts(EndsOf(im))) : im.In(2);
    std::vector<Symbol> inputs = {im.In(0), im.In(1), ends};
    const int64_t count = im.LengthOf(1);
    if (count > Shape::kMaxRank) Throw<ModelError>("{} axes are sliced", count);
    std::vector<int64_t> axes, steps(static_cast<size_t>(count), 1);
    for (int64_t axis = 0; axis < count; ++axis) axes.push_back(axis);
    inputs.push_back(im.Has(3) ? im.In(3) : im.List(axes));
    inputs.push_back(im.Has(4) ? im.In(4) : im.List(steps));
    return im.Out(SliceBy(inputs, im.name()));
  }
  const auto list = [&](int input) { return im.Has(input) ? im.StaticInts(input) : std::vector<int64_t>(); };
  const Extents begin = im.StaticExtents(1), end = EndsOf(im);
  im.Out(Slice(im.In(0),
               {.begin = rule::FixedParts(begin),
                .end = rule::FixedParts(end),
                .step = list(4),
                .axes = list(3),
                .begin_batches = rule::BatchParts(begin),
                .end_batches = rule::BatchParts(end)},
               im.name()));
}

// Sizes: an attribute, an input since version 13; without them parts are equal, since version 18 all but the last.
void ImportSplit(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t parts = im.num_outputs();
  if (parts == 0) Throw<ModelError>("it has no outputs, so the parts cannot be told");
  const SplitAttrs attrs{.axis = im.Int("axis", 0), .num_outputs = parts};
  if (im.Int("num_outputs", parts) != parts) Throw<ModelError>("attribute \"num_outputs\": it has {} outputs", parts);
  const auto out = [&](const Symbol& all) {
    for (int i = 0; i < parts; ++i) im.Out(i, all[i]);
  };
  if (im.IsOpen(1)) return out(SplitBy({x, im.In(1)}, attrs, im.name()));
  std::vector<int64_t> sizes = im.AttributeOrInput("split", 1);
  const std::optional<PartialExtents> extents = im.KnownExtentsOf(x);
  const int64_t extent = extents ? im.ShapeOf(x)[im.AxisOf(x, attrs.axis)] : kUnknownDim;
  const bool is_equal = extent == kUnknownDim ? im.opset() < 18 : extent > 0 && extent % parts == 0;
  if (sizes.empty() && is_equal) {
    return out(SliceChannel(x, {.num_outputs = parts, .axis = attrs.axis}, im.name()));
  }
  if (sizes.empty()) return out(Split(x, attrs, im.name()));
  if (std::ssize(sizes) != parts) Throw<ModelError>("{} sizes for {} outputs", sizes.size(), parts);
  int64_t begin = 0;
  for (int i = 0; i < parts; ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)], end = CheckedAdd(begin, size, "the sum of the sizes");
    if (size < 0) Throw<ModelError>("a part of {} elements", size);
    im.Out(i, Slice(x, {.begin = {begin}, .end = {end}, .axes = {attrs.axis}}));
    begin = end;
  }
  if (extent != kUnknownDim && begin != extent) Throw<ModelError>("the parts are {} in all, not {}", begin, extent);
}

void ImportTranspose(Importer& im) { im.Out(Transpose(im.In(0), {.axes = im.Ints("perm")}, im.name())); }

// To the extents that both give when they are stretched.
void ImportExpand(Importer& im) {
  if (im.IsComputed(1)) return im.Out(ExpandBy({im.In(0), im.In(1)}, im.name()));
  const Extents to = im.StaticExtents(1);
  im.Out(Expand(im.In(0), {.shape = rule::FixedParts(to), .batches = rule::BatchParts(to)}, im.name()));
}

void ImportTile(Importer& im) {
  if (im.IsOpen(1)) return im.Out(TileBy({im.In(0), im.In(1)}, im.name()));
  im.Out(Tile(im.In(0), {.repeats = im.StaticInts(1)}, im.name()));
}

// The numbers of all beginnings, then of all ends; attributes up to version 10, inputs since.
void ImportPad(Importer& im) {
  PadWithAttrs attrs{.mode = im.Enum("mode", PadMode::kConstant), .value = im.Float("value", 0)};
  if (im.Has(2)) attrs.value = im.Static(2).elements() == 1 ? im.Static(2).At(0) : 0;
  if (im.Has(3)) attrs.axes = im.StaticInts(3);
  if (im.IsOpen(1)) {
    const int64_t half = im.LengthOf(1) / 2;
    const Symbol begin = Slice(im.In(1), {.begin = {0}, .end = {half}, .axes = {0}});
    const Symbol end = Slice(im.In(1), {.begin = {half}, .end = {kSliceEnd}, .axes = {0}});
    return im.Out(PadBy({im.In(0), begin, end}, attrs, im.name()));
  }
  const std::vector<int64_t> pads = im.AttributeOrInput(im.opset() < 2 ? "paddings" : "pads", 1);
  const auto half = static_cast<std::ptrdiff_t>(pads.size() / 2);
  attrs.begin.assign(pads.begin(), pads.begin() + half);
  attrs.end.assign(pads.begin() + half, pads.end());
  const bool takes_away = std::ranges::any_of(pads, [](int64_t count) { return count < 0; });
  if (attrs.mode != PadMode::kConstant || takes_away) return im.Out(PadWith(im.In(0), attrs, im.name()));
  im.Out(Pad(im.In(0), {.begin = attrs.begin, .end = attrs.end, .axes = attrs.axes, .value = attrs.value}, im.name()));
}

void ImportCenterCropPad(Importer& im) {
  CenterCropPadAttrs attrs{.axes = im.Ints("axes")};
  if (im.IsOpen(1)) return im.Out(CenterCropPadBy({im.In(0), im.In(1)}, attrs, im.name()));
  attrs.shape = im.StaticInts(1);
  im.Out(CenterCropPad(im.In(0), attrs, im.name()));
}

ImportFn Blocks(const OpFunction<DepthAttrs>& f) {
  return [f](Importer& im) {
    const DepthAttrs attrs{.block = im.Int("blocksize", 0), .mode = im.Enum("mode", DepthMode::kDCR)};
    im.Out(f(im.In(0), attrs, im.name()));
  };
}

void ImportEyeLike(Importer& im) {
  const EyeLikeAttrs attrs{.diagonal = im.Int("k", 0)};
  if (!im.HasAttribute("dtype")) return im.Out(EyeLike(im.In(0), attrs, im.name()));
  im.Out(Cast(EyeLike(im.In(0), attrs), {.dtype = DTypeOf(static_cast<int>(im.Int("dtype", 0)))}, im.name()));
}

// --- Resize: inputs (x, scales), since version 11 (x, roi, scales, sizes). What is missing may also be an empty list.

bool IsGiven(Importer& im, int input) {
  if (!im.Has(input)) return false;
  const HostTensor* constant = im.Constant(input);
  return constant == nullptr || constant->elements() > 0;
}

std::vector<double> StaticNumbers(const Importer& im, int input) {
  const HostTensor& tensor = im.Static(input);
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i) numbers.push_back(tensor.At(i));
  return numbers;
}

// `attrs` with what the inputs give; where one is computed, an operator that takes all of them.
void OutResized(Importer& im, ResizeAttrs attrs, int roi, int scales, int sizes) {
  const Symbol x = im.In(0);
  bool is_computed = false;
  for (const int input : {roi, scales, sizes}) {
    is_computed = is_computed || (IsGiven(im, input) && (input == sizes ? im.IsComputed(input) : im.IsOpen(input)));
  }
  if (is_computed) {
    std::vector<Symbol> inputs = {x};
    for (const int input : {scales, sizes, roi}) {
      const bool counts = IsGiven(im, input);
      inputs.push_back(counts ? im.In(input) : bindery::Constant(HostTensor(DType::kFloat32, {0})));
    }
    return im.Out(ResizeBy(inputs, attrs, im.name()));
  }
  if (IsGiven(im, roi) && attrs.coordinates == Coordinates::kCropAndResize) attrs.roi = StaticNumbers(im, roi);
  if (IsGiven(im, scales)) attrs.scales = StaticNumbers(im, scales);
  if (IsGiven(im, sizes)) {
    Extents to = im.StaticExtents(sizes);
    if (attrs.axes.empty() && !to.empty() && im.BakedBatch(x, 0) == to[0].fixed && to[0].batches == 0) to[0] = {0, 1};
    attrs.sizes = rule::FixedParts(to);
    attrs.sizes_batches = rule::BatchParts(to);
  }
  im.Out(Resize(x, attrs, im.name()));
}

void ImportResize(Importer& im) {
  const ResizeAttrs attrs{.mode = im.Enum("mode", ResizeMode::kNearest),
                          .coordinates = im.Enum("coordinate_transformation_mode", Coordinates::kHalfPixel),
                          .nearest = im.Enum("nearest_mode", NearestMode::kRoundPreferFloor),
                          .axes = im.Ints("axes"),
                          .cubic_coefficient = im.Float("cubic_coeff_a", -0.75),
                          .exclude_outside = im.Flag("exclude_outside"),
                          .antialias = im.Flag("antialias"),
                          .extrapolation = im.Float("extrapolation_value", 0),
                          .aspect = im.Enum("keep_aspect_ratio_policy", AspectPolicy::kStretch)};
  OutResized(im, attrs, 1, 2, 3);
}

// Scales alone, an attribute of Upsample up to version 8; "bilinear" is the first version's name.
void ImportScaled(Importer& im) {
  ResizeAttrs attrs{.coordinates = Coordinates::kAsymmetric, .nearest = NearestMode::kFloor};
  const bool bilinear = im.String("mode", "nearest") == "bilinear";
  attrs.mode = bilinear ? ResizeMode::kLinear : im.Enum("mode", ResizeMode::kNearest);
  attrs.scales = im.Floats("scales");
  constexpr int kNone = INT32_MAX;
  OutResized(im, attrs, kNone, 1, kNone);
}

// --- Extents and numbers as tensors.

void ImportConstantOfShape(Importer& im) {
  const HostTensor value = im.Tensor("value").value_or(HostTensor(DType::kFloat32, {1}));
  if (value.elements() != 1) Throw<ModelError>("attribute \"value\": expected one element");
  const Symbol one = bindery::Constant(value.Reshape({}), im.name() + "_value");
  if (!im.IsStatic(0)) return im.Out(BroadcastToBy({one, im.In(0)}, im.name()));
  im.Out(rule::BroadcastTo(one, im.StaticExtents(0), im.name()));
}

void ImportShape(Importer& im) {
  im.Out(ShapeArray(im.In(0), {.begin = im.Int("start", 0), .end = im.Int("end", INT64_MAX)}, im.name()));
}

void ImportRange(Importer& im) {
  im.Ignore({"stash_type"});
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

Symbol Unsqueezed(Importer& im, const Symbol& x, std::vector<int64_t> axes, const std::string& name) {
  std::optional<PartialExtents> extents = im.KnownExtentsOf(x);
  if (!extents || !CanReshapeTo(*extents)) return ExpandDims(x, {.axes = axes}, name);
  const auto rank = static_cast<int64_t>(extents->size() + axes.size());
  if (rank > Shape::kMaxRank) Throw<ModelError>("{} axes, at most {} are possible", rank, Shape::kMaxRank);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) Throw<ModelError>("axis {} of an output with {} axes", axis, rank);
    axis += axis < 0 ? rank : 0;
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) Throw<ModelError>("an axis is named twice");
  for (const int64_t axis : axes) extents->insert(extents->begin() + axis, Extent{1, 0});
  return ReshapeTo(x, *extents, name);
}

std::span<const ImportRow> ShapeImports() {
  static const std::vector<ImportRow> rows = {
      {"CenterCropPad", 18, ImportCenterCropPad},
      {"Concat", 1, ImportConcat},
      {"ConstantOfShape", 9, ImportConstantOfShape},
      {"DepthToSpace", 1, Blocks(DepthToSpace)},
      {"Expand", 8, ImportExpand},
      {"EyeLike", 9, ImportEyeLike},
      {"Flatten", 1, ImportFlatten},
      {"Pad", 1, ImportPad},
      {"Range", 11, ImportRange},
      {"Reshape", 1, ImportReshape},
      {"Resize", 10, ImportScaled},
      {"Resize", 11, ImportResize},
      {"Shape", 1, ImportShape},
      {"Size", 1, Unary(SizeArray)},
      {"Slice", 1, ImportSliceByAttributes},
      {"Slice", 10, ImportSlice},
      {"SpaceToDepth", 1, Blocks(SpaceToDepth)},
      {"Split", 1, ImportSplit},
      {"Squeeze", 1, ImportSqueeze},
      {"Tile", 6, ImportTile},
      {"Transpose", 1, ImportTranspose},
      {"Unsqueeze", 1, ImportUnsqueeze},
      {"Upsample", 7, ImportScaled},
  };
  return rows;
}

}  // namespace bindery::onnx
