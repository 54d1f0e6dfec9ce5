// Operators that put elements elsewhere, by attributes and by numbers of tensors; Resize.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

using Names = Exporter::Names;

// --- By attributes.

void ExportSqueeze(Exporter& ex) {
  std::vector<int64_t> axes = ex.attrs<AxesAttrs>().axes;
  if (axes.empty()) {  // ours are those that are 1 whatever the batch is
    const std::optional<Shape> shape = ex.ShapeOfInput(0);
    for (int axis = 0; !shape || axis < shape->rank(); ++axis) {
      if (!shape || (axis > 0 && (*shape)[axis] == kUnknownDim)) {
        Throw<ModelError>("it is not known which extents are 1; name the axes");
      }
      if ((*shape)[axis] == 1) axes.push_back(axis);
    }
    if (axes.empty()) return ex.Alias(ex.In(0));
  }
  ex.Out("Squeeze", {ex.In(0), ex.Ints(axes, "axes")});
}

void ExportExpandDims(Exporter& ex) { ex.Out("Unsqueeze", {ex.In(0), ex.Ints(ex.attrs<AxesAttrs>().axes, "axes")}); }

void ExportExpand(Exporter& ex) {
  const auto& attrs = ex.attrs<ToShapeAttrs>();
  ex.Out("Expand", {ex.In(0), ex.Extents(attrs.shape, attrs.batches, "shape")});
}

// ONNX has as many repeats as axes.
void ExportTile(Exporter& ex) {
  std::vector<int64_t> repeats = ex.attrs<TileAttrs>().repeats;
  const auto rank = static_cast<size_t>(ex.RankOfInput(0));
  std::string x = ex.In(0);
  if (repeats.size() < rank) repeats.insert(repeats.begin(), rank - repeats.size(), 1);
  if (repeats.size() > rank) x = ex.Add("Unsqueeze", {x, ex.Ints(FirstAxes(repeats.size() - rank), "axes")});
  ex.Out("Tile", {x, ex.Ints(repeats, "repeats")});
}

void ExportSplit(Exporter& ex) {
  const auto& attrs = ex.attrs<SplitAttrs>();
  std::vector<int64_t> sizes = attrs.sizes;
  if (sizes.empty()) {
    const std::optional<Shape> shape = ex.ShapeOfInput(0);
    const int64_t axis = shape && attrs.axis < 0 ? attrs.axis + shape->rank() : attrs.axis;
    const int64_t extent = shape ? (*shape)[static_cast<int>(axis)] : kUnknownDim;
    if (extent == kUnknownDim) Throw<ModelError>("it is not known how long the parts are");
    const int64_t size = CeilDiv(extent, attrs.num_outputs);
    for (int64_t i = 0; i < attrs.num_outputs; ++i) {
      sizes.push_back(std::clamp<int64_t>(extent - i * size, 0, size));
    }
  }
  ex.OutAll("Split", {ex.In(0), ex.Ints(sizes, "sizes")}, static_cast<int>(sizes.size()));
  ex.Set("axis", attrs.axis);
}

void ExportPadWith(Exporter& ex) {
  const auto& attrs = ex.attrs<PadWithAttrs>();
  ex.Out("Pad", {ex.In(0), ex.Pads(attrs.begin, attrs.end, attrs.axes), ex.Number(attrs.value, ex.DTypeOfInput(0))});
  ex.Set("mode", attrs.mode);
}

void ExportDepthToSpace(Exporter& ex) {
  const auto& attrs = ex.attrs<DepthAttrs>();
  ex.Out("DepthToSpace", {ex.In(0)});
  ex.Set("blocksize", attrs.block);
  ex.Set("mode", attrs.mode);
}

void ExportSpaceToDepth(Exporter& ex) {
  ex.Out("SpaceToDepth", {ex.In(0)});
  ex.Set("blocksize", ex.attrs<DepthAttrs>().block);
}

void ExportEyeLike(Exporter& ex) {
  ex.Out("EyeLike", {ex.In(0)});
  ex.Set("k", ex.attrs<EyeLikeAttrs>().diagonal);
}

// --- Resize, and what it is made of where opset 17 has no such attributes, or no longer.

bool IsResizeOf17(const Node& node) {
  const auto& attrs = node.attrs().get<ResizeAttrs>();
  return attrs.axes.empty() && !attrs.antialias && attrs.aspect == AspectPolicy::kStretch &&
         attrs.coordinates != Coordinates::kHalfPixelSymmetric &&
         attrs.coordinates != Coordinates::kHalfPixelForNearest;
}

void SetResize(Exporter& ex, const ResizeAttrs& attrs) {
  ex.Set("mode", attrs.mode);
  ex.Set("coordinate_transformation_mode", attrs.coordinates);
  ex.Set("nearest_mode", attrs.nearest);
  ex.Set("cubic_coeff_a", attrs.cubic_coefficient);
  ex.Set("exclude_outside", int64_t{attrs.exclude_outside});
  ex.Set("extrapolation_value", attrs.extrapolation);
}

void ExportResize(Exporter& ex) {
  const auto& attrs = ex.attrs<ResizeAttrs>();
  const auto floats = [&](const std::vector<double>& values, const char* what) -> std::string {
    if (values.empty()) return "";
    HostTensor tensor(DType::kFloat32, {std::ssize(values)});
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, values[static_cast<size_t>(i)]);
    return ex.Constant(tensor, what);
  };
  const std::string sizes = attrs.scales.empty() ? ex.Extents(attrs.sizes, attrs.sizes_batches, "sizes") : "";
  ex.Out("Resize", {ex.In(0), floats(attrs.roi, "roi"), floats(attrs.scales, "scales"), sizes});
  SetResize(ex, attrs);
}

// Elements at indices, or a product with the matrix of the weights along the axis.
void ExportResample(Exporter& ex) {
  const auto& attrs = ex.attrs<ResampleAttrs>();
  const int64_t outputs = std::ssize(attrs.starts) - 1;
  const DType dtype = ex.DTypeOfInput(0);
  bool one_each = attrs.weights.empty();
  for (int64_t i = 0; i < outputs; ++i) one_each = one_each && attrs.starts[i + 1] == attrs.starts[i] + 1;
  if (one_each) {
    ex.Out("Gather", {ex.In(0), ex.Ints(attrs.indices, "indices")});
    return ex.Set("axis", attrs.axis);
  }
  CheckTerms(CheckedMul(attrs.extent, outputs, "a matrix"));
  HostTensor matrix(dtype, {attrs.extent, outputs}), outside(dtype, {outputs});
  for (int64_t i = 0; i < outputs; ++i) {
    if (attrs.starts[i] == attrs.starts[i + 1]) outside.Set(i, attrs.outside);
    for (int64_t k = attrs.starts[i]; k < attrs.starts[i + 1]; ++k) {
      const int64_t place = attrs.indices[k] * outputs + i;
      matrix.Set(place, matrix.At(place) + (attrs.weights.empty() ? 1 : attrs.weights[k]));
    }
  }
  const int rank = ex.RankOfInput(0);
  std::vector<int64_t> last = FirstAxes(rank);  // the axis is swapped with the last
  std::swap(last[attrs.axis + (attrs.axis < 0 ? rank : 0)], last[rank - 1]);
  const auto swapped = [&](const std::string& x) {
    const std::string turned = ex.Add("Transpose", {x});
    ex.Set("perm", last);
    return turned;
  };
  std::string y = ex.Add("MatMul", {swapped(ex.In(0)), ex.Constant(matrix, "weights")});
  if (attrs.outside != 0) y = ex.Add("Add", {y, ex.Constant(outside, "outside")});
  ex.Out("Transpose", {y});
  ex.Set("perm", last);
}

// --- By numbers. ONNX' extents, axes and counts are of int64.

std::string Int64s(Exporter& ex, int input) { return ex.In(input, DType::kInt64); }

// Its inputs, all but the first whole numbers, in ONNX' order.
void ExportBy(Exporter& ex, const char* op) {
  Names inputs = {ex.In(0)};
  for (int i = 1; i < static_cast<int>(ex.node().inputs().size()); ++i) inputs.push_back(Int64s(ex, i));
  ex.Out(op, inputs);
}

void ExportReshapeBy(Exporter& ex) {
  ExportBy(ex, "Reshape");
  if (ex.attrs<ReshapeAttrs>().allow_zero) ex.Set("allowzero", int64_t{1});
}

// ONNX has ranges of few types, ours is of any: in the widest, and rounded.
void OutRange(Exporter& ex, const Names& inputs, DType widest, DType wanted) {
  if (widest == wanted) return ex.Out("Range", inputs);
  ex.Out("Cast", {ex.Add("Range", inputs)});
  ex.Set("to", int64_t{NumberOf(wanted)});
}

void ExportRange(Exporter& ex) {
  const auto& attrs = ex.attrs<RangeAttrs>();
  const auto is_whole = [](double number) { return number == std::floor(number) && std::fabs(number) < 0x1p53; };
  const bool whole = !IsFloat(attrs.dtype) && is_whole(attrs.begin) && is_whole(attrs.step) && is_whole(attrs.end);
  const DType widest = whole ? DType::kInt64 : DType::kFloat64;
  OutRange(ex, {ex.Number(attrs.begin, widest), ex.Number(attrs.end, widest), ex.Number(attrs.step, widest)}, widest,
           attrs.dtype);
}

void ExportRangeBy(Exporter& ex) {
  const DType dtype = ex.attrs<RangeAttrs>().dtype;
  bool whole = !IsFloat(dtype);
  for (const int i : {0, 1, 2}) whole = whole && !IsFloat(ex.DTypeOfInput(i));
  const DType widest = whole ? DType::kInt64 : DType::kFloat64;
  OutRange(ex, {ex.In(0, widest), ex.In(1, widest), ex.In(2, widest)}, widest, dtype);
}

void ExportSplitBy(Exporter& ex) {
  ex.OutAll("Split", {ex.In(0), Int64s(ex, 1)}, ex.node().num_outputs());
  ex.Set("axis", ex.attrs<SplitAttrs>().axis);
}

void ExportPadBy(Exporter& ex) {
  const auto& attrs = ex.attrs<PadWithAttrs>();
  const std::string pads = ex.Add("Concat", {Int64s(ex, 1), Int64s(ex, 2)});
  ex.Set("axis", int64_t{0});
  ex.Out("Pad", {ex.In(0), pads, ex.Number(attrs.value, ex.DTypeOfInput(0))});
  ex.Set("mode", attrs.mode);
}
bool IsPadByOf17(const Node& node) {
  const auto& attrs = node.attrs().get<PadWithAttrs>();
  return attrs.axes.empty() && attrs.mode != PadMode::kWrap;
}

void ExportTopKBy(Exporter& ex) {
  const std::string k = ex.Add("Reshape", {Int64s(ex, 1), ex.Ints({1}, "one")});
  ex.OutAll("TopK", {ex.In(0), k}, 2);
  SetTopK(ex, ex.attrs<TopKAttrs>());
}

void ExportOneHotBy(Exporter& ex) {
  const auto& attrs = ex.attrs<OneHotAttrs>();
  const std::string depth = Int64s(ex, 1);
  ex.Out("OneHot", {OneHotIndex(ex, attrs, depth), depth, OneHotValues(ex, attrs)});
  ex.Set("axis", attrs.axis);
}

void ExportResizeBy(Exporter& ex) {
  const auto floats = [&](int input) { return ex.In(input, DType::kFloat32); };
  const auto given = [&](int input) { return ex.ShapeOfInput(input) != Shape{0}; };
  ex.Out("Resize", {ex.In(0), given(3) ? floats(3) : "", given(1) ? floats(1) : "", given(2) ? Int64s(ex, 2) : ""});
  SetResize(ex, ex.attrs<ResizeAttrs>());
}

}  // namespace

std::span<const ExportRow> ArrangeExports() {
  static constexpr ExportRow kRows[] = {
      {"BroadcastToBy", [](Exporter& ex) { ExportBy(ex, "Expand"); }},
      {"DepthToSpace", ExportDepthToSpace},
      {"Expand", ExportExpand},
      {"ExpandBy", [](Exporter& ex) { ExportBy(ex, "Expand"); }},
      {"ExpandDims", ExportExpandDims},
      {"ExpandDimsBy", [](Exporter& ex) { ExportBy(ex, "Unsqueeze"); }},
      {"EyeLike", ExportEyeLike},
      {"OneHotBy", ExportOneHotBy},
      {"PadBy", ExportPadBy, IsPadByOf17},
      {"PadWith", ExportPadWith,
       [](const Node& node) { return node.attrs().get<PadWithAttrs>().mode != PadMode::kWrap; }},
      {"Range", ExportRange},
      {"RangeBy", ExportRangeBy},
      {"Resample", ExportResample},
      {"ReshapeBy", ExportReshapeBy},
      {"Resize", ExportResize, IsResizeOf17},
      {"ResizeBy", ExportResizeBy, IsResizeOf17},
      {"SliceBy", [](Exporter& ex) { ExportBy(ex, "Slice"); }},
      {"SpaceToDepth", ExportSpaceToDepth,
       [](const Node& node) { return node.attrs().get<DepthAttrs>().mode == DepthMode::kDCR; }},
      {"Split", ExportSplit},
      {"SplitBy", ExportSplitBy},
      {"Squeeze", ExportSqueeze},
      {"SqueezeBy", [](Exporter& ex) { ExportBy(ex, "Squeeze"); }},
      {"Tile", ExportTile},
      {"TileBy", [](Exporter& ex) { ExportBy(ex, "Tile"); }},
      {"TopKBy", ExportTopKBy},
  };
  return kRows;
}

}  // namespace bindery::onnx
