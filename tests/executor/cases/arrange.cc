// Shapes as tensors, operators whose attributes are numbers in tensors, and what is made of others.
#include <algorithm>

#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

Symbol Ints(std::initializer_list<float> numbers) {
  return Constant(HostTensor::From({std::ssize(numbers)}, numbers).Cast(DType::kInt64));
}
Symbol ExtentOf(const Symbol& x, int64_t axis) { return ShapeArray(x, {.begin = axis, .end = axis + 1}); }
Symbol Join(const std::vector<Symbol>& numbers) { return Concat(numbers, {.axis = 0}); }

// A grid (2, out..) of places within and around data of these extents, none of which is near the middle between two
// elements, or near one: there slopes change.
HostTensor GridAround(const std::vector<int64_t>& extents, const Shape& out, bool align_corners) {
  const auto axes = std::ssize(extents);
  Shape shape = out.Insert(0, 2);
  HostTensor grid(DType::kFloat64, shape.Insert(shape.rank(), axes));
  constexpr double kParts[] = {0.2, 0.7, 0.35, 0.6, 0.8};
  for (int64_t i = 0; i < grid.elements(); ++i) {
    const auto n = static_cast<double>(extents[static_cast<size_t>(axes - 1 - i % axes)]);  // x is the last one's
    const double place = static_cast<double>(i * 7 % (static_cast<int64_t>(n) + 4) - 2) + kParts[i * 3 % 5];
    grid.Set(i, align_corners ? 2 * place / std::max(n - 1, 1.0) - 1 : (2 * place + 1) / n - 1);
  }
  return grid;
}

void AddGrids(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x"), grid = Variable("grid"), theta = Variable("theta");
  const auto add = [&](const std::string& name, const GridSampleAttrs& attrs, const Shape& data, const Shape& out) {
    const std::vector<int64_t> extents(data.begin() + 2, data.end());
    cases.push_back({.name = fmt::format("GridSample, {}, mode {}, padding {}, {}", name, static_cast<int>(attrs.mode),
                                         static_cast<int>(attrs.padding), attrs.align_corners ? "centres" : "edges"),
                     .symbol = GridSample(x, grid, attrs, "y"),
                     .inputs = {{"x", Uniform(data)}, {"grid", GridAround(extents, out, attrs.align_corners)}},
                     .batch_axes = {{"x", 0}, {"grid", 0}},
                     .terms = 16,
                     .magnitude = 16});
  };
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
    for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection}) {
      for (const bool align_corners : {false, true}) {
        add("image", {mode, padding, align_corners}, {2, 3, 4, 3}, {2, 5});
      }
    }
  }
  cases.back().wrong_shapes = {{{"x", {2, 3, 4, 3}}, {"grid", {2, 2, 5, 3}}},
                               {{"x", {2, 3, 4, 3}}, {"grid", {3, 2, 5, 2}}},
                               {{"x", {2, 3, 4, 0}}, {"grid", {2, 2, 5, 2}}},
                               {{"x", {2, 3, 4, 3, 2}}, {"grid", {2, 1, 2, 5, 3}}},
                               {{"x", {2, 3, 4}}}};
  add("volume", {.mode = ResizeMode::kNearest, .padding = GridPadding::kBorder}, {2, 2, 3, 4, 2}, {1, 2, 3});
  add("volume", {.padding = GridPadding::kReflection}, {2, 2, 3, 4, 2}, {1, 2, 3});
  add("volume", {.align_corners = true}, {2, 2, 3, 4, 2}, {1, 2, 3});
  for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kReflection}) {
    for (const bool align_corners : {false, true})
      add("one element", {ResizeMode::kLinear, padding, align_corners}, {2, 3, 1, 1}, {2, 3});
  }

  const auto add_affine = [&](const std::string& name, const Symbol& symbol, const Shape& shape) {
    cases.push_back({.name = name,
                     .symbol = symbol,
                     .inputs = {{"theta", Uniform(shape)}},
                     .batch_axes = {{"theta", 0}},
                     .terms = 12,
                     .magnitude = 4});
  };
  add_affine("AffineGrid, edges", AffineGrid(theta, {.sizes = {3, 4}}, "y"), {2, 2, 3});
  cases.back().wrong_shapes = {{{"theta", {2, 3, 4}}}, {{"theta", {2, 6}}}};
  add_affine("AffineGrid, centres", AffineGrid(theta, {.sizes = {3, 1}, .align_corners = true}, "y"), {2, 2, 3});
  add_affine("AffineGrid of a volume", AffineGrid(theta, {.sizes = {2, 3, 4}}, "y"), {2, 3, 4});
  add_affine("AffineGridBy", AffineGridBy({theta, Join({ExtentOf(theta, 2), Ints({2})})}, "y"), {2, 2, 3});
}

}  // namespace

std::vector<OperatorCase> ArrangeCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Symbol& symbol, const Shape& shape) {
    cases.push_back(
        {.name = name, .symbol = symbol, .inputs = {{"x", Uniform(shape)}}, .batch_axes = {{"x", 0}}, .terms = 4});
  };
  const Symbol number = SliceChannel(ShapeArray(x), {.num_outputs = 2, .axis = 0, .squeeze_axis = true})[1];
  add("its extents beside it", Group({Tanh(x), ShapeArray(x), SizeArray(x)}), {3, 4});
  add("ReshapeBy, a view of every sample", ReshapeBy({x, Join({ExtentOf(x, 0), Ints({-1})})}, "y"), {3, 2, 4});
  add("ReshapeBy, rows", ReshapeBy({x, Join({Ints({-1}), ExtentOf(x, 2)})}, "y"), {3, 2, 4});
  add("BroadcastToBy", BroadcastToBy({x, Join({Ints({2}), ShapeArray(x)})}, "y"), {3, 4});
  add("SliceBy", SliceBy({x, Ints({1, 4}), Join({ExtentOf(x, 1), Ints({0})}), Ints({1, 2}), Ints({1, -2})}, "y"),
      {3, 4, 5});
  add("PadBy", PadBy({x, Ints({0, 1}), Join({Ints({0}), ExtentOf(x, 1)})}, "y"), {3, 4});
  const Symbol zero = Constant(HostTensor(DType::kInt64, {})), one = Constant(HostTensor::Full(DType::kInt64, {}, 1));
  add("RangeBy", Group({Tanh(x), RangeBy({zero, number, one}, "y")}), {3, 4});
  add("Range", Group({Tanh(x), Range({.begin = 1.5, .end = -3, .step = -0.75}, "y")}), {3, 4});
  add("Range of integers", Group({Tanh(x), Range({.begin = -3, .end = 4, .step = 2, .dtype = DType::kInt8}, "y")}),
      {3, 4});

  add("ExpandDims", ExpandDims(x, {{1, -1}}, "y"), {3, 4});
  add("Squeeze", Squeeze(x, {{-1, 1}}, "y"), {3, 1, 4, 1});
  add("Squeeze all", Squeeze(x, {}, "y"), {3, 1, 4, 1});
  add("SwapAxes", SwapAxes(x, {1, -1}, "y"), {3, 2, 4});
  add("Expand", Expand(x, {.shape = {2, 1, 3, 1}}, "y"), {3, 1, 4});
  add("Tile", Tile(x, {{2, 3}}, "y"), {3, 2, 4});
  add("Tile the batch", Tile(x, {{2, 2, 1}}, "y"), {3, 4});
  add("Repeat", Repeat(x, {.repeats = 3, .axis = 1}, "y"), {3, 2, 4});
  add("Repeat all", Repeat(x, {.repeats = 2, .flatten = true}, "y"), {3, 2});
  add("Flip", Flip(x, {{-1, 1}}, "y"), {3, 2, 4});
  const std::vector<Symbol> three = {x, Tanh(x), x};
  add("Stack", Stack(three, -1, "y"), {3, 2});
  add("Split", Split(x, {.axis = 1, .sizes = {1, 3}}, "y"), {3, 4, 2});
  add("Split unevenly", Split(x, {.axis = -1, .num_outputs = 3}, "y"), {3, 7});
  add("Split evenly", Split(x, {.axis = 1, .num_outputs = 2}, "y"), {3, 4});
  add("Crop", Crop(x, {.shape = {2, 1}, .offset = {1, 2}}, "y"), {3, 3, 4});
  add("Crop the middle", Crop(x, {.shape = {2}, .center = true}, "y"), {3, 3, 5});
  add("CenterCropPad", CenterCropPad(x, {.shape = {5, 2}, .axes = {1, 2}}, "y"), {3, 2, 5});
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect, PadMode::kEdge, PadMode::kWrap}) {
    const PadWithAttrs pad{.begin = {2, 1}, .end = {-1, 7}, .axes = {1, 2}, .mode = mode, .value = 0.5};
    add(fmt::format("PadWith, mode {}", static_cast<int>(mode)), PadWith(x, pad, "y"), {3, 3, 4});
  }
  for (const DepthMode mode : {DepthMode::kDCR, DepthMode::kCRD}) {
    const std::string name = mode == DepthMode::kDCR ? "DCR" : "CRD";
    add("DepthToSpace, " + name, DepthToSpace(x, {.block = 2, .mode = mode}, "y"), {3, 8, 2, 3});
    add("SpaceToDepth, " + name, SpaceToDepth(x, {.block = 2, .mode = mode}, "y"), {3, 2, 4, 6});
    add("there and back, " + name,
        SpaceToDepth(DepthToSpace(x, {.block = 2, .mode = mode}), {.block = 2, .mode = mode}, "y"), {3, 8, 2, 3});
    cases.back().forward = [](const HostTensorMap& in) { return std::vector{in.at("x")}; };
  }
  add("FullLike", FullLike(x, {1.5}, "y") * x, {3, 4});
  add("EyeLike", EyeLike(Dot(x, x, {.transpose_b = true}), {-1}, "y"), {3, 4});
  cases.back().batch_axes.clear();
  add("Full and Eye", Group({Tanh(x), Full({2, 3}, 4), Eye(2, 4, 1)}), {3, 4});

  const ResizeAttrs twice{.scales = {2, 2}, .axes = {1, 2}};
  add("Resize twice", Resize(x, twice, "y"), {2, 3, 4});
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
    for (int coordinates = 0; coordinates < 7; ++coordinates) {
      ResizeAttrs attrs{.mode = mode,
                        .coordinates = static_cast<Coordinates>(coordinates),
                        .sizes = {2, 7},
                        .axes = {1, 2},
                        .roi = {0.1, -0.2, 0.9, 0.7},
                        .extrapolation = 2};
      add(fmt::format("Resize, mode {}, coordinates {}", static_cast<int>(mode), coordinates), Resize(x, attrs, "y"),
          {2, 3, 4});
      attrs.exclude_outside = attrs.antialias = true;
      attrs.nearest = static_cast<NearestMode>(coordinates % 4);
      add(fmt::format("Resize without the outside, mode {}, coordinates {}", static_cast<int>(mode), coordinates),
          Resize(x, attrs, "y"), {2, 3, 4});
    }
  }
  add("ResizeBy",
      ResizeBy({x, Constant(HostTensor(DType::kFloat32, {0})), Join({ExtentOf(x, 0), Ints({5})}),
                Constant(HostTensor(DType::kFloat32, {0}))},
               ResizeAttrs{.mode = ResizeMode::kLinear}, "y"),
      {3, 4});
  add("TileBy", TileBy({x, Join({Ints({1}), ExtentOf(x, 1)})}, "y"), {3, 2});
  add("ExpandBy", ExpandBy({x, Join({ExtentOf(x, 0), Ints({4})})}, "y"), {3, 1});
  add("TopKBy", TopKBy({x, Ints({2})}, "y"), {3, 5});
  add("OneHotBy", Group({Tanh(x), OneHotBy({Range({.end = 3}), ExtentOf(x, 1)}, "y")}), {3, 5});
  add("SqueezeBy", SqueezeBy({x, Ints({1})}, "y"), {3, 1, 2});
  add("ExpandDimsBy", ExpandDimsBy({x, Ints({1})}, "y"), {3, 2});
  add("CenterCropPadBy", CenterCropPadBy({x, Ints({3})}, CenterCropPadAttrs{.axes = {1}}, "y"), {3, 2});
  add("SplitBy", SplitBy({x, Ints({1, 3})}, SplitAttrs{.axis = 1, .num_outputs = 2}, "y"), {3, 4});
  AddGrids(cases);
  // A table by itself.
  add("Resample",
      Resample(
          x,
          {.axis = 1, .extent = 3, .starts = {0, 2, 2, 3}, .indices = {2, 0, 1}, .weights = {0.5, -1, 2}, .outside = 3},
          "y"),
      {3, 3, 65});
  return cases;
}

}  // namespace bindery
