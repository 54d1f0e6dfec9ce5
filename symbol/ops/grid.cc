#include "symbol/ops/grid.h"

#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_of.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// --- GridSample

// data (N, C, n..), grid (N, m.., axes) and output (N, C, m..) have as many axes. Places bring along what is along
// their own axes; data are mixed along all but the first two.
void InferSampling(const GridSampleAttrs& attrs, Value data, Value grid, Value output) {
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
  rule::Share(data, output, [](int axis) { return axis < 2; });
  rule::Share(data, grid, [](int axis) { return axis == 0; });
  grid.Carry(output, [rank](int axis) { return axis == 0 ? 0 : axis < rank - 1 ? axis + 1 : -1; });
  output.Carry(grid, [](int axis) { return axis == 0 ? 0 : axis == 1 ? -1 : axis - 1; });
}

void CheckGridSampleGrad(const AnyAttrs& any) {
  const auto& attrs = any.get<GridSampleGradAttrs>();
  rule::CheckExtentsAttr({attrs.extents, attrs.batches});
  if (attrs.extents.size() == 2 || attrs.extents.size() == 3) return;
  Throw<ModelError>("extents must be (H, W) or (D, H, W), got {}", rule::ToString(attrs.extents));
}

void InferGridSampleGradData(InferContext& c) {
  const auto& attrs = c.attrs<GridSampleGradAttrs>();
  const Value data = c.out(0);
  const rule::ExtentList list{attrs.extents, attrs.batches};
  Shape shape = rule::Unknown(static_cast<int>(list.size()) + 2);
  for (size_t i = 0; i < list.size(); ++i) shape.Set(static_cast<int>(i) + 2, rule::ExtentAt(list, i, c.batch()));
  data.Set(shape);
  InferSampling(attrs, data, c.in(1), c.in(0));
  if (list.FirstFollowing() >= 0) c.PlaceBatch(0, 2 + list.FirstFollowing());
}

// With w(place, element) the weight that an element has at a place:
//   ddata = the sum of dy w over the places; dgrid = the sum of dy data dw/dgrid over channels and elements
std::vector<Symbol> GridSampleGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<GridSampleAttrs>();
  const Symbol &dy = g.output_grad(0), &data = g.input(0), &grid = g.input(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) {
    Extents space = g.shape(0);
    space.erase(space.begin(), space.begin() + 2);
    result[0] = GridSampleGradData(dy, grid, {attrs, rule::FixedParts(space), rule::BatchParts(space)});
  }
  if (g.wants(1) && attrs.mode != ResizeMode::kNearest) result[1] = GridSampleGradGrid(dy, data, grid, attrs);
  return result;
}

// It is linear in dy, by the same weights: with G what flows back, d/d dy = G at the places of the grid.
std::vector<Symbol> GridSampleGradDataGradient(const GradientContext& g) {
  const GridSampleAttrs& attrs = g.attrs<GridSampleGradAttrs>();
  const Symbol &back = g.output_grad(0), &dy = g.input(0), &grid = g.input(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = GridSample(back, grid, attrs);
  if (g.wants(1) && attrs.mode != ResizeMode::kNearest) result[1] = GridSampleGradGrid(dy, back, grid, attrs);
  return result;
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
      .infer = [](InferContext& c) { InferSampling(c.attrs<GridSampleAttrs>(), c.in(0), c.in(1), c.out(0)); },
      .gradient = GridSampleGradient,
  };
  return op;
}

const OpDef& GridSampleGradDataOp() {
  static const OpDef op = {
      .name = "GridSampleGradData",
      .doc = "dy at the places of a grid, added to the elements that are sampled there, by their weights.",
      .attrs_type = &AttrsOf<GridSampleGradAttrs>(),
      .inputs = {"output_grad", "grid"},
      .infer = InferGridSampleGradData,
      .check = CheckGridSampleGrad,
      .gradient = GridSampleGradDataGradient,
  };
  return op;
}

const OpDef& GridSampleGradGridOp() {
  static const OpDef op = {
      .name = "GridSampleGradGrid",
      .doc = "The slope of what is sampled at the places of a grid, times dy.",
      .attrs_type = &AttrsOf<GridSampleAttrs>(),
      .inputs = {"output_grad", "data", "grid"},
      .infer =
          [](InferContext& c) {
            rule::Same({c.in(2), c.out(0)});
            InferSampling(c.attrs<GridSampleAttrs>(), c.in(1), c.out(0), c.in(0));
            c.in(2).Carry(c.out(0));
          },
      .not_differentiable = "the second derivative by places is not provided",
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
