#include "symbol/ops/grid.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_of.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// --- GridSample

// data (N, C, n..), grid (N, m.., axes) and output (N, C, m..) have as many axes.
void InferGridSample(InferContext& c) {
  const auto& attrs = c.attrs<GridSampleAttrs>();
  const Value data = c.in(0), grid = c.in(1), output = c.out(0);
  rule::SameDType({data, output});
  rule::ExpectFloat(grid);
  if (attrs.mode != ResizeMode::kNearest) rule::ExpectFloat(data);
  if (attrs.mode != ResizeMode::kNearest || (data.dtype() && IsFloat(*data.dtype()))) rule::SameDType({data, grid});
  if (!rule::SameRank(data, output) && !rule::SameRank(grid, output)) return;
  if (!rule::SameRank(data, grid) || !rule::SameRank(grid, output)) return;
  const int rank = data.shape()->rank(), space = rank - 2;
  if (rank != 4 && rank != 5)
    Throw<ShapeError>("expected data of 4 or 5 axes (N, C, [D,] H, W), got {}", *data.shape());
  if (grid.shape()->rank() != rank) {
    Throw<ShapeError>("expected a grid of {} axes, as data {} has, got {}", rank, *data.shape(), *grid.shape());
  }
  output.Set(rule::Unknown(rank));
  if (space == 3 && attrs.mode == ResizeMode::kCubic) throw ShapeError("cubic is of images, not of volumes");
  const auto meet = [](Value a, int axis_a, Value b, int axis_b) {
    b.Set(b.shape()->With(axis_b, (*a.shape())[axis_a]));
    a.Set(a.shape()->With(axis_a, (*b.shape())[axis_b]));
  };
  grid.Set(grid.shape()->With(rank - 1, space));
  meet(data, 0, grid, 0);
  meet(data, 0, output, 0);
  meet(data, 1, output, 1);
  for (int axis = 0; axis < space; ++axis) {
    meet(grid, 1 + axis, output, 2 + axis);
    if ((*data.shape())[2 + axis] == 0) Throw<ShapeError>("data {} has no elements to sample", *data.shape());
  }
  data.Carry(output, [](int axis) { return axis < 2 ? axis : -1; });
  grid.Carry(output, [rank](int axis) { return axis == 0 ? 0 : axis < rank - 1 ? axis + 1 : -1; });
}

// The places of a grid among data's elements, along axes of these extents, and the ways to treat them. Numbers of axes
// are vectors, as places are: (..., axes).
struct Places {
  std::vector<double> extents;
  DType dtype;
  bool align_corners;

  Symbol Of(const std::function<double(double n)>& f) const {
    HostTensor numbers(dtype, {std::ssize(extents)});
    for (size_t i = 0; i < extents.size(); ++i) numbers.Set(static_cast<int64_t>(i), f(extents[i]));
    return Constant(std::move(numbers));
  }
  Symbol OfGrid(const Symbol& grid) const {
    if (align_corners) return (grid + 1.0) * Of([](double n) { return (n - 1) / 2; });
    return (grid + 1.0) * Of([](double n) { return n / 2; }) - 0.5;
  }
  // What is farther outside, infinite perhaps, counts as this far. At the bounds there is no slope, as in PyTorch.
  Symbol Within(const Symbol& places, double beyond) const {
    return Minimum(Of([=](double n) { return n - 1 + beyond; }), Maximum(-beyond, places));
  }
  // Turned over at the first and the last centre, or at the edges, as often as it needs. The period of a single centre
  // is any: what comes of it is not above 0, to which it is moved.
  Symbol Reflected(const Symbol& places) const {
    const double low = align_corners ? 0 : -0.5;
    const auto span = [aligned = align_corners](double n) { return aligned ? n - 1 : n; };
    const Symbol turned = Mod(Abs(places - low), Of([&](double n) { return std::max(2 * span(n), 1.0); }));
    return Of([&](double n) { return low + span(n); }) - Abs(turned - Of(span));
  }
};

// The weights of the elements around a place, from `first` on from the one below it, by its distance from that:
// PyTorch's and ONNX' cubic ones have the coefficient -0.75.
struct Taps {
  int64_t first;
  std::vector<Symbol> weights;
};
Taps LinearTaps(const Symbol& part) { return {0, {1.0 - part, part}}; }
Taps CubicTaps(const Symbol& part) {
  constexpr double a = -0.75;
  const auto near = [](const Symbol& x) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; };
  const auto far = [](const Symbol& x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {-1, {far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)}};
}

std::vector<Symbol> ComposeGridSample(const ComposeContext& c) {
  const auto& attrs = c.attrs<GridSampleAttrs>();
  const Extents &shape = c.shapes[0], &grid_shape = c.shapes[1];
  const size_t space = shape.size() - 2;
  const DType dtype = c.dtypes[0].value_or(DType::kFloat32);
  Places places{.extents = {},
                .dtype = rule::StatisticsDType(c.dtypes[1].value_or(DType::kFloat32)),
                .align_corners = attrs.align_corners};
  for (size_t axis = 0; axis < space; ++axis) {
    const Extent& extent = shape[2 + axis];
    if (extent.batches != 0 && c.of_every_batch) return {};
    places.extents.push_back(static_cast<double>(At(extent, c.batch)));
  }
  const bool zeros = attrs.padding == GridPadding::kZeros, reflects = attrs.padding == GridPadding::kReflection;
  // An index outside is clipped, or takes 0: no place leads out of the data. NaN is outside, or 0.
  const TakeAttrs take{.axis = 2, .batch_dims = 1, .mode = zeros ? IndexMode::kZero : IndexMode::kClip};
  // A grid has x first, data's axes end with it.
  Symbol at = places.OfGrid(Flip(Cast(c.inputs[1], {.dtype = places.dtype}), {{-1}}));

  const bool cubic = attrs.mode == ResizeMode::kCubic;
  if (reflects && !cubic) at = places.Reflected(at);
  // As far outside as no element near it is inside; a cubic's elements are reflected one by one.
  if (!cubic) at = places.Within(at, zeros ? 2 : 0);
  if (cubic && !reflects) at = places.Within(at, 3);
  if (attrs.mode == ResizeMode::kNearest) return {GatherND(c.inputs[0], Round(at), take, c.name)};

  const Symbol data = Cast(c.inputs[0], {.dtype = places.dtype});  // so that gradients are added up in it, too
  const Symbol below = Floor(at), part = at - below;
  const Taps taps = cubic ? CubicTaps(part) : LinearTaps(part);
  // Weights [tap][axis] as (N, 1, m..), for all channels.
  Extents of_all_channels(grid_shape.begin(), grid_shape.end() - 1);
  of_all_channels.insert(of_all_channels.begin() + 1, Extent{1, 0});
  std::vector<std::vector<Symbol>> weights;
  for (const Symbol& tap : taps.weights) {
    const auto count = static_cast<int64_t>(space);
    const Symbol axes = SliceChannel(tap, {.num_outputs = count, .axis = -1, .squeeze_axis = true});
    std::vector<Symbol>& own = weights.emplace_back();
    for (int axis = 0; axis < count; ++axis) own.push_back(rule::ReshapeTo(axes[axis], of_all_channels));
  }
  // The sum of all neighbours, each with the product of its weights.
  Symbol sum;
  HostTensor step(places.dtype, {static_cast<int64_t>(space)});
  const std::function<void(size_t, const Symbol&)> add = [&](size_t axis, const Symbol& weight) {
    if (axis < space) {
      for (size_t tap = 0; tap < weights.size(); ++tap) {
        step.Set(static_cast<int64_t>(axis), static_cast<double>(taps.first) + static_cast<double>(tap));
        add(axis + 1, weight.empty() ? weights[tap][axis] : weight * weights[tap][axis]);
      }
      return;
    }
    Symbol index = below + Constant(step);
    if (reflects && cubic) index = places.Reflected(index);
    const Symbol term = GatherND(data, index, take) * weight;
    sum = sum.empty() ? term : sum + term;
  };
  add(0, {});
  return {Cast(sum, {.dtype = dtype}, c.name)};
}

// --- AffineGrid

void CheckAffineGrid(const AnyAttrs& any) {
  const auto& sizes = any.get<AffineGridAttrs>().sizes;
  if (sizes.size() != 2 && sizes.size() != 3) {
    Throw<ModelError>("sizes must be (H, W) or (D, H, W), got {}", rule::ToString(sizes));
  }
  for (const int64_t size : sizes) rule::CheckAtLeast("sizes", size, 0);
}

void InferAffineGrid(InferContext& c) {
  const auto& sizes = c.attrs<AffineGridAttrs>().sizes;
  const Value theta = c.in(0), grid = c.out(0);
  const auto space = std::ssize(sizes);
  rule::SameDType({theta, grid});
  rule::ExpectFloat(theta);
  theta.Set({kUnknownDim, space, space + 1});
  std::vector<int64_t> shape = {(*theta.shape())[0]};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.push_back(space);
  grid.Set(Shape(shape));
  theta.Set(theta.shape()->With(0, (*grid.shape())[0]));
  theta.Carry(grid, [](int axis) { return axis == 0 ? 0 : -1; });
}

// Axis by axis: the sum of its coordinates, times their columns of theta, and of theta's last column.
std::vector<Symbol> ComposeAffineGrid(const ComposeContext& c) {
  const auto& attrs = c.attrs<AffineGridAttrs>();
  const DType dtype = c.dtypes[0].value_or(DType::kFloat32), exact = rule::StatisticsDType(dtype);
  const Symbol theta = Cast(c.inputs[0], {.dtype = exact});
  const auto space = static_cast<int>(attrs.sizes.size());
  Extents shape(static_cast<size_t>(space) + 2, {1, 0});
  shape.front() = c.shapes[0][0];
  shape.back() = {space, 0};
  const auto column = [&](int64_t i) {  // (N, 1.., space)
    return rule::ReshapeTo(Slice(theta, {.begin = {i}, .end = {i + 1}, .axes = {2}}), shape);
  };
  Symbol sum = column(space);
  for (int axis = space - 1; axis >= 0; --axis) {  // x is the last one's
    const int64_t size = attrs.sizes[static_cast<size_t>(axis)];
    const auto n = static_cast<double>(size);
    Extents along(shape.size(), {1, 0});
    along[static_cast<size_t>(axis) + 1] = {size, 0};
    const Symbol places = Range({.begin = 1 - n, .end = n, .step = 2, .dtype = exact});
    const double far = attrs.align_corners ? n - 1 : n;  // -far to far is -1 to 1
    sum = sum + column(space - 1 - axis) * rule::ReshapeTo(places / (far > 0 ? far : 1), along);
  }
  return {Cast(sum, {.dtype = dtype}, c.name)};
}

}  // namespace

const OpDef& GridSampleOp() {
  static const OpDef op = {
      .name = "GridSample",
      .doc = "data at the places of a grid, -1 to 1 along each axis: nearest, linear or cubic.",
      .attrs_type = &AttrsOf<GridSampleAttrs>(),
      .inputs = {"data", "grid"},
      .infer = InferGridSample,
      .compose = ComposeGridSample,
  };
  return op;
}

const OpDef& AffineGridOp() {
  static const OpDef op = {
      .name = "AffineGrid",
      .doc = "The places of a picture's elements, moved by a matrix: a grid for GridSample.",
      .attrs_type = &AttrsOf<AffineGridAttrs>(),
      .inputs = {"theta"},
      .infer = InferAffineGrid,
      .check = CheckAffineGrid,
      .compose = ComposeAffineGrid,
  };
  return op;
}

}  // namespace bindery
