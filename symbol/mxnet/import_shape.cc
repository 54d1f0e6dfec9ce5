// Elements put elsewhere: other shapes, parts, copies; and tensors of given numbers.
#include <algorithm>
#include <vector>

#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

// At most as many as a tensor may have, and each one of them: arithmetic with them overflows nowhere.
std::vector<int64_t> AxesOf(const Importer& im, const char* key) {
  std::vector<int64_t> axes = im.Ints(key);
  const auto is_none = [](int64_t axis) { return axis < -Shape::kMaxRank || axis >= Shape::kMaxRank; };
  if (std::ssize(axes) > Shape::kMaxRank || std::ranges::any_of(axes, is_none)) {
    Throw<ModelError>("attribute \"{}\": expected axes, each from -{} to {}", key, Shape::kMaxRank,
                      Shape::kMaxRank - 1);
  }
  return axes;
}

// --- Reshape.

// The shape that codes ask for, from the shape of x: 0 keeps an extent, -1 takes what remains, -2 keeps all that
// follow, -3 joins two, -4 splits one into the two numbers behind it, one of which may be -1. In reverse they count
// from the last axis.
Symbol CodedShape(const Symbol& x, std::vector<int64_t> codes, bool reverse) {
  if (reverse) std::ranges::reverse(codes);
  int64_t next = 0;  // axis of x
  const auto extents = [&](int64_t count) {
    const int64_t begin = reverse ? -next - count : next;
    next += count;
    return ShapeArray(x, {.begin = begin, .end = begin + count == 0 ? INT64_MAX : begin + count});
  };
  std::vector<Symbol> shape;
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t code = codes[i];
    if (next >= Shape::kMaxRank) Throw<ModelError>("attribute \"shape\": its codes ask for too many axes");
    if (code >= -1 && code != 0) {
      shape.push_back(Indices({code}));
      ++next;
    } else if (code == 0) {
      shape.push_back(extents(1));
    } else if (code == -2) {
      const auto reads = [](int64_t behind) { return behind < 1; };
      if (std::ranges::any_of(std::span(codes).subspan(i + 1), reads)) {
        Throw<ModelError>("attribute \"shape\": behind -2, which takes all axes, another code can be no extent");
      }
      shape.push_back(reverse ? ShapeArray(x, {.begin = 0, .end = -next == 0 ? INT64_MAX : -next})
                              : ShapeArray(x, {.begin = next}));
    } else if (code == -3) {
      const Symbol first = extents(1), second = extents(1);
      shape.push_back(Mul(first, second));
    } else if (code == -4) {
      if (reverse || i + 2 >= codes.size()) Throw<ModelError>("attribute \"shape\": a -4 that cannot be imported");
      const int64_t a = codes[i + 1], b = codes[i + 2];
      const Symbol whole = extents(1);
      if ((a < 1 && a != -1) || (b < 1 && b != -1) || (a == -1 && b == -1)) {
        Throw<ModelError>("attribute \"shape\": -4 takes two extents, one of which may be -1");
      }
      shape.push_back(a == -1 ? Div(whole, Indices({b})) : Indices({a}));
      shape.push_back(b == -1 ? Div(whole, Indices({a})) : Indices({b}));
      i += 2;
    } else {
      Throw<ModelError>("attribute \"shape\": {} is no extent and no code", code);
    }
  }
  if (reverse) std::ranges::reverse(shape);
  return Concat(shape, {.axis = 0});
}

void ImportReshape(Importer& im) {
  const Symbol x = im.In(0);
  const bool reverse = im.Flag("reverse"), keep_highest = im.Flag("keep_highest");
  std::vector<int64_t> shape = im.Ints("shape");
  // As it was called before 0.9, where 0 is what remains.
  if (const std::vector<int64_t> target = im.Ints("target_shape"); shape.empty() && !target.empty()) {
    for (size_t i = 0; i < target.size(); ++i) {
      shape.push_back(i == 0 && keep_highest ? 0 : target[i] == 0 ? -1 : target[i]);
    }
  }
  if (shape.empty()) Throw<ModelError>("attribute \"shape\" is missing");
  const bool plain = std::ranges::all_of(shape, [](int64_t code) { return code >= -1; });
  if (plain && (!reverse || std::ranges::count(shape, 0) == 0)) {
    return im.Out(Reshape(x, {.shape = std::move(shape)}, im.name()));
  }
  im.Out(ReshapeBy({x, CodedShape(x, std::move(shape), reverse)}, im.name()));
}

void ImportReshapeLike(Importer& im) {
  for (const char* part : {"lhs_begin", "lhs_end", "rhs_begin", "rhs_end"}) im.Expect(part, {});
  im.Out(ReshapeBy({im.In(0), ShapeArray(im.In(1))}, im.name()));
}

// --- Stretched.

void ImportBroadcastTo(Importer& im) {
  std::vector<int64_t> shape = im.Ints("shape");
  std::ranges::replace(shape, int64_t{0}, int64_t{1});  // 0: as it is
  im.Out(Expand(im.In(0), {.shape = std::move(shape)}, im.name()));
}

void ImportBroadcastLike(Importer& im) {
  for (const char* part : {"lhs_axes", "rhs_axes"}) im.Expect(part, {});
  im.Out(ExpandBy({im.In(0), ShapeArray(im.In(1))}, im.name()));
}

// These axes, whose extents are 1, get others.
void ImportBroadcastAxis(Importer& im) {
  const Symbol x = im.In(0);
  const std::vector<int64_t> axes = AxesOf(im, "axis"), sizes = im.Ints("size");
  std::vector<Symbol> shape;
  int64_t next = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i >= sizes.size() || axes[i] < next) Throw<ModelError>("axes must rise, from 0 on, and each needs a size");
    if (axes[i] > next) shape.push_back(ShapeArray(x, {.begin = next, .end = axes[i]}));
    shape.push_back(Indices({sizes[i]}));
    next = axes[i] + 1;
  }
  shape.push_back(ShapeArray(x, {.begin = next}));
  im.Out(ExpandBy({x, Concat(shape, {.axis = 0})}, im.name()));
}

// --- Axes.

void ImportTranspose(Importer& im) { im.Out(Transpose(im.In(0), {.axes = im.Ints("axes")}, im.name())); }
void ImportExpandDims(Importer& im) { im.Out(ExpandDims(im.In(0), {.axes = {im.Int("axis")}}, im.name())); }
void ImportSqueeze(Importer& im) { im.Out(Squeeze(im.In(0), {.axes = im.Ints("axis")}, im.name())); }
void ImportSwapAxis(Importer& im) {
  im.Out(SwapAxes(im.In(0), {.a = im.Int("dim1", 0), .b = im.Int("dim2", 0)}, im.name()));
}
void ImportFlip(Importer& im) { im.Out(Flip(im.In(0), {.axes = im.Ints("axis")}, im.name())); }

// --- Joined and cut.

void ImportConcat(Importer& im) {
  im.Ignore({"num_args"});
  im.Out(Concat(im.AllInputs(), {.axis = im.Int("dim", 1)}, im.name()));
}

void ImportStack(Importer& im) {
  im.Ignore({"num_args"});
  im.Out(Stack(im.AllInputs(), im.Int("axis", 0), im.name()));
}

void ImportSliceChannel(Importer& im) {
  const int64_t parts = im.Int("num_outputs");
  im.Spend(parts);
  im.Out(SliceChannel(
      im.In(0), {.num_outputs = parts, .axis = im.Int("axis", 1), .squeeze_axis = im.Flag("squeeze_axis")}, im.name()));
}

// At these places, or in so many equal parts.
void ImportSplit(Importer& im) {
  const std::vector<int64_t> places = im.Ints("indices");
  const int64_t sections = im.Int("sections", 0), axis = im.Int("axis", 1);
  const bool squeezed = im.Flag("squeeze_axis");
  if (sections > 0) {
    im.Spend(sections);
    return im.Out(SliceChannel(im.In(0), {.num_outputs = sections, .axis = axis, .squeeze_axis = squeezed}, im.name()));
  }
  im.Spend(2 * std::ssize(places));
  std::vector<Symbol> parts;
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t end = i + 1 < places.size() ? places[i + 1] : kSliceEnd;
    Symbol part =
        Slice(im.In(0), {.begin = {places[i]}, .end = {end}, .axes = {axis}}, fmt::format("{}_{}", im.name(), i));
    parts.push_back(squeezed ? Squeeze(part, {.axes = {axis}}) : part);
  }
  im.Out(parts);
}

void ImportSlice(Importer& im) {
  const auto begin = im.Places("begin"), end = im.Places("end"), step = im.Places("step");
  if (begin.size() != end.size()) Throw<ModelError>("attributes \"begin\" and \"end\" are not of one length");
  SliceAttrs attrs;
  for (size_t i = 0; i < begin.size(); ++i) {
    const int64_t by = i < step.size() ? step[i].value_or(1) : 1;
    attrs.begin.push_back(begin[i].value_or(by > 0 ? 0 : kSliceEnd));
    attrs.end.push_back(end[i].value_or(by > 0 ? kSliceEnd : INT64_MIN));
    attrs.step.push_back(by);
  }
  im.Out(Slice(im.In(0), attrs, im.name()));
}

void ImportSliceAxis(Importer& im) {
  im.Out(Slice(im.In(0), {.begin = {im.Int("begin")}, .end = {im.Int("end", kSliceEnd)}, .axes = {im.Int("axis")}},
               im.name()));
}

// From these places on to before others, along these axes: numbers that are known when the graph is bound.
Symbol SlicePlaces(const Symbol& x, const Symbol& begin, const Symbol& end, const Symbol& axes,
                   const std::string& name) {
  return SliceBy({x, begin, end, axes, Add(Sub(end, end), Indices({1}))}, name);
}

// As much of the first as the second has, along some axes or all.
void ImportSliceLike(Importer& im) {
  const Symbol x = im.In(0), like = im.In(1);
  const std::vector<int64_t> axes = AxesOf(im, "axes");
  if (axes.empty()) {
    const Symbol end = ShapeArray(like);
    const auto number = [](double value) { return Constant(HostTensor::Full(DType::kInt64, {}, value)); };
    const Symbol all = RangeBy({number(0), SizeArray(end), number(1)}, RangeAttrs{.dtype = DType::kInt64});
    return im.Out(SlicePlaces(x, Sub(end, end), end, all, im.name()));
  }
  std::vector<Symbol> end;
  for (const int64_t axis : axes) {
    end.push_back(ShapeArray(like, {.begin = axis, .end = axis == -1 ? INT64_MAX : axis + 1}));
  }
  const Symbol begin = Indices(std::vector<int64_t>(axes.size(), 0));
  im.Out(SlicePlaces(x, begin, Concat(end, {.axis = 0}), Indices(axes), im.name()));
}

// Of (N, C, H, W): a height and width that are said, or another's.
void ImportCrop(Importer& im) {
  im.Ignore({"num_args"});
  std::vector<int64_t> offset = im.Ints("offset"), size = im.Ints("h_w");
  if (offset.empty()) offset = {0, 0};
  const bool center = im.Flag("center_crop");
  if (im.num_inputs() == 1) {
    return im.Out(Crop(im.In(0), {.shape = size, .offset = offset, .center = center}, im.name()));
  }
  const Symbol x = im.In(0), wanted = ShapeArray(im.In(1), {.begin = 2, .end = 4});
  const Symbol begin = center ? Div(Sub(ShapeArray(x, {.begin = 2, .end = 4}), wanted), Indices({2})) : Indices(offset);
  im.Out(SlicePlaces(x, begin, Add(begin, wanted), Indices({2, 3}), im.name()));
}

// --- Copies.

void ImportTile(Importer& im) { im.Out(Tile(im.In(0), {.repeats = im.Ints("reps")}, im.name())); }

void ImportRepeat(Importer& im) {
  const bool flat = !im.Has("axis");
  im.Out(Repeat(im.In(0), {.repeats = im.Int("repeats"), .axis = im.Int("axis", 0), .flatten = flat}, im.name()));
}

void ImportPad(Importer& im) {
  im.Expect("mode", {"constant", "edge", "reflect"});
  const std::vector<int64_t> widths = im.Ints("pad_width");
  if (widths.size() % 2 != 0) Throw<ModelError>("attribute \"pad_width\": expected two numbers for each axis");
  PadWithAttrs attrs{.mode = im.Enum("mode", PadMode::kConstant), .value = im.Float("constant_value", 0)};
  for (size_t i = 0; i < widths.size(); i += 2) {
    attrs.begin.push_back(widths[i]);
    attrs.end.push_back(widths[i + 1]);
  }
  im.Out(PadWith(im.In(0), attrs, im.name()));
}

void ImportDepthToSpace(Importer& im) { im.Out(DepthToSpace(im.In(0), {.block = im.Int("block_size")}, im.name())); }
void ImportSpaceToDepth(Importer& im) { im.Out(SpaceToDepth(im.In(0), {.block = im.Int("block_size")}, im.name())); }

// --- Tensors of given numbers.

// An extent of 0 is one that MXNet works out from what the tensor is used with, as a recurrent cell's first state is:
// the batch's.
ImportFn Filled(double value) {
  return [value](Importer& im) {
    im.Ignore({"ctx"});
    ToShapeAttrs attrs{.shape = im.Ints("shape")};
    const DType dtype = im.Type("dtype");
    const double filled = im.op() == "_full" ? im.Float("value") : value;
    const auto open = std::ranges::count_if(attrs.shape, [](int64_t extent) { return extent <= 0; });
    if (open > 1) Throw<ModelError>("attribute \"shape\": more than one extent is not said");
    if (open == 1) attrs.batches.resize(attrs.shape.size());
    for (size_t i = 0; i < attrs.shape.size() && open == 1; ++i) {
      attrs.batches[i] = attrs.shape[i] <= 0 ? 1 : 0;
      attrs.shape[i] = std::max<int64_t>(attrs.shape[i], 0);
    }
    if (attrs.shape.empty()) attrs.shape = {1};
    im.Out(BroadcastTo(Constant(HostTensor::Full(dtype, {}, filled)), attrs, im.name()));
  };
}

ImportFn FilledLike(double value) {
  return [value](Importer& im) {
    im.Ignore({"dtype"});
    im.Out(FullLike(im.In(0), {value}, im.name()));
  };
}

void ImportArange(Importer& im) {
  im.Ignore({"ctx"});
  if (im.Flag("infer_range") && !im.Has("stop")) {
    Throw<ModelError>("attribute \"infer_range\": a length that what reads it decides cannot be imported");
  }
  if (im.Int("repeat", 1) != 1) Throw<ModelError>("attribute \"repeat\": only 1 can be imported");
  double begin = im.Float("start", 0), end = im.Has("stop") ? im.Float("stop") : begin;
  if (!im.Has("stop")) begin = 0;
  im.Out(Range({.begin = begin, .end = end, .step = im.Float("step", 1), .dtype = im.Type("dtype")}, im.name()));
}

}  // namespace

std::span<const ImportRow> ShapeImports() {
  static const std::vector<ImportRow> rows = {
      {"Concat", ImportConcat},
      {"Crop", ImportCrop},
      {"Flatten", Unary(Flatten)},
      {"Pad", ImportPad},
      {"Reshape", ImportReshape},
      {"SliceChannel", ImportSliceChannel},
      {"SwapAxis", ImportSwapAxis},
      {"_arange", ImportArange},
      {"_full", Filled(0)},
      {"_ones", Filled(1)},
      {"_split_v2", ImportSplit},
      {"_zeros", Filled(0)},
      {"_zeros_without_dtype", Filled(0)},
      {"broadcast_axes", ImportBroadcastAxis},
      {"broadcast_axis", ImportBroadcastAxis},
      {"broadcast_like", ImportBroadcastLike},
      {"broadcast_to", ImportBroadcastTo},
      {"concat", ImportConcat},
      {"crop", ImportSlice},
      {"depth_to_space", ImportDepthToSpace},
      {"expand_dims", ImportExpandDims},
      {"flatten", Unary(Flatten)},
      {"flip", ImportFlip},
      {"ones_like", FilledLike(1)},
      {"pad", ImportPad},
      {"repeat", ImportRepeat},
      {"reshape", ImportReshape},
      {"reshape_like", ImportReshapeLike},
      {"reverse", ImportFlip},
      {"slice", ImportSlice},
      {"slice_axis", ImportSliceAxis},
      {"slice_like", ImportSliceLike},
      {"space_to_depth", ImportSpaceToDepth},
      {"split", ImportSliceChannel},
      {"squeeze", ImportSqueeze},
      {"stack", ImportStack},
      {"swapaxes", ImportSwapAxis},
      {"tile", ImportTile},
      {"transpose", ImportTranspose},
      {"zeros_like", FilledLike(0)},
  };
  return rows;
}

}  // namespace bindery::mxnet
