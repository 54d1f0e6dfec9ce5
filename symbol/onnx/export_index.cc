// Elements picked and put by index, or at the places of a grid; shapes as tensors.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Of data, input 0, along an axis.
int64_t ExtentAt(const Exporter& ex, int64_t axis) {
  const std::optional<Shape> shape = ex.ShapeOfInput(0);
  return shape ? (*shape)[static_cast<int>(axis < 0 ? axis + shape->rank() : axis)] : kUnknownDim;
}

DType IndexType(const Exporter& ex, int input) {
  return ex.DTypeOfInput(input) == DType::kInt32 ? DType::kInt32 : DType::kInt64;
}

// The nearest indices of an extent.
std::string Clipped(Exporter& ex, const std::string& index, DType dtype, int64_t extent) {
  return ex.Add("Clip", {index, ex.Number(0, dtype), ex.Number(static_cast<double>(extent - 1), dtype)});
}

// ONNX' indices are integers within their extents, negative ones from the end. Where the mode would have them clipped
// or wrapped, the extent must be known.
std::string Index(Exporter& ex, int input, IndexMode mode, int64_t extent = kUnknownDim) {
  const DType dtype = IndexType(ex, input);
  if (mode == IndexMode::kZero || mode == IndexMode::kSkip) Throw<ModelError>("ONNX has no indices that pick nothing");
  const std::string index = ex.In(input, dtype);
  if (mode == IndexMode::kRaise) return index;
  if (extent == kUnknownDim) Throw<ModelError>("it is not known where indices are to be clipped or wrapped");
  if (mode == IndexMode::kClip) return Clipped(ex, index, dtype, extent);
  return ex.Add("Mod", {index, ex.Number(static_cast<double>(extent), dtype)});
}

void ExportTake(Exporter& ex) {
  const auto& attrs = ex.attrs<TakeAttrs>();
  if (attrs.batch_dims != 0 || attrs.padding != kNoIndex) Throw<ModelError>("ONNX' Gather shares no axes");
  ex.Out("Gather", {ex.In(0), Index(ex, 1, attrs.mode, ExtentAt(ex, attrs.axis))});
  ex.Set("axis", attrs.axis);
}

void ExportEmbedding(Exporter& ex) {
  const auto& attrs = ex.attrs<EmbeddingAttrs>();
  ex.Out("Gather", {ex.In(1), Index(ex, 0, attrs.mode, attrs.input_dim)});
}

// By places of data's axes without one; what picks nothing is NaN, or 0.
void ExportPick(Exporter& ex) {
  const auto& attrs = ex.attrs<PickAttrs>();
  const int64_t extent = ExtentAt(ex, attrs.axis);
  const bool may_miss = attrs.mode == IndexMode::kSkip || attrs.mode == IndexMode::kZero;
  std::string place = Index(ex, 1, may_miss ? IndexMode::kRaise : attrs.mode, extent), found;
  if (may_miss) {
    if (extent == kUnknownDim) Throw<ModelError>("it is not known which places there are");
    const std::string nearest = Clipped(ex, place, IndexType(ex, 1), extent);
    found = ex.Add("Equal", {place, nearest});
    place = nearest;
  }
  const std::string axis = ex.Ints({attrs.axis}, "axis");
  if (!attrs.keepdims) place = ex.Add("Unsqueeze", {place, axis});
  std::string picked = ex.Add("GatherElements", {ex.In(0), place});
  ex.Set("axis", attrs.axis);
  if (!attrs.keepdims) picked = ex.Add("Squeeze", {picked, axis});
  if (!may_miss) return ex.Alias(picked);
  const DType dtype = ex.DTypeOfInput(0);
  const bool is_nan = attrs.mode == IndexMode::kSkip && IsFloat(dtype);
  ex.Out("Where", {found, picked, ex.Number(is_nan ? std::numeric_limits<double>::quiet_NaN() : 0, dtype)});
}

void ExportGatherND(Exporter& ex) {
  const auto& attrs = ex.attrs<TakeAttrs>();
  if (attrs.axis != attrs.batch_dims || attrs.padding != kNoIndex) Throw<ModelError>("ONNX has no such indices");
  ex.Out("GatherND", {ex.In(0), Index(ex, 1, attrs.mode)});
  ex.Set("batch_dims", attrs.batch_dims);
}

void ExportGatherElements(Exporter& ex) {
  const auto& attrs = ex.attrs<GatherElementsAttrs>();
  ex.Out("GatherElements", {ex.In(0), Index(ex, 1, attrs.mode, ExtentAt(ex, attrs.axis))});
  ex.Set("axis", attrs.axis);
}

// Into data, or into zeros of a shape. What is put as single elements along the last axis, at indices of each sample,
// is put by ONNX' ScatterElements.
void ExportScatter(Exporter& ex) {
  const auto& attrs = ex.attrs<ScatterAttrs>();
  const bool into_zeros = !attrs.shape.empty(), shares_axes = attrs.batch_dims != 0;
  const int indices = into_zeros ? 0 : 1;
  bool by_elements = &ex.node().op() == &ScatterElementsOp();
  if (attrs.padding != kNoIndex) Throw<ModelError>("ONNX has no such indices");
  std::string index = Index(ex, indices, attrs.mode);
  if (!by_elements && shares_axes) {
    const int64_t rank = into_zeros ? std::ssize(attrs.shape) : ex.RankOfInput(0);
    by_elements = attrs.axis == attrs.batch_dims && attrs.axis == rank - 1 && ex.RankOfInput(indices) == rank + 1;
    if (by_elements) index = ex.Add("Squeeze", {index, ex.Ints({-1}, "axes")});
  }
  if (!by_elements && (shares_axes || attrs.axis != 0)) Throw<ModelError>("ONNX has no such indices");
  if (attrs.reduction == ScatterReduction::kMax || attrs.reduction == ScatterReduction::kMin) {
    Throw<ModelError>("reductions by max and min came with opset 18");
  }
  const std::string data = into_zeros ? ex.Add("Expand", {ex.Number(0, ex.DTypeOfInput(indices + 1)),
                                                          ex.Extents(attrs.shape, attrs.batches, "shape")})
                                      : ex.In(0);
  ex.Out(by_elements ? "ScatterElements" : "ScatterND", {data, index, ex.In(indices + 1)});
  if (by_elements) ex.Set("axis", attrs.axis);
  if (attrs.reduction != ScatterReduction::kNone) {
    ex.Set("reduction", EnumNames(static_cast<ScatterReduction*>(nullptr))[static_cast<size_t>(attrs.reduction)].name);
  }
}

void ExportOneHot(Exporter& ex) {
  const auto& attrs = ex.attrs<OneHotAttrs>();
  const std::string depth = ex.Number(static_cast<double>(attrs.depth), DType::kInt64);
  ex.Out("OneHot", {OneHotIndex(ex, attrs, depth), depth, OneHotValues(ex, attrs)});
  ex.Set("axis", attrs.axis);
}

void ExportPlace(Exporter& ex) {
  const auto& attrs = ex.attrs<ArgAttrs>();
  ex.Out(ex.node().op().name.c_str(), {ex.In(0)});
  ex.Set("axis", attrs.axis);
  ex.Set("keepdims", int64_t{attrs.keepdims});
  ex.Set("select_last_index", int64_t{attrs.select_last_index});
}

void ExportTopK(Exporter& ex) {
  const auto& attrs = ex.attrs<TopKAttrs>();
  if (attrs.k == 0 || attrs.dtype != DType::kInt64) Throw<ModelError>("ONNX gives the k first, with int64 indices");
  ex.OutAll("TopK", {ex.In(0), ex.Ints({attrs.k}, "k")}, 2);
  SetTopK(ex, attrs);
}

void ExportCumSum(Exporter& ex) {
  const auto& attrs = ex.attrs<ScanAttrs>();
  ex.Out("CumSum", {ex.In(0), ex.Number(static_cast<double>(attrs.axis), DType::kInt64)});
  ex.Set("exclusive", int64_t{attrs.exclusive});
  ex.Set("reverse", int64_t{attrs.reverse});
}

void ExportTrilu(Exporter& ex) {
  const auto& attrs = ex.attrs<TriluAttrs>();
  ex.Out("Trilu", {ex.In(0), ex.Number(static_cast<double>(attrs.k), DType::kInt64)});
  ex.Set("upper", int64_t{attrs.upper});
}

void ExportSequenceReverse(Exporter& ex) {
  const auto& attrs = ex.attrs<SequenceAttrs>();
  ex.Out("ReverseSequence", {ex.In(0), Index(ex, 1, IndexMode::kRaise)});
  ex.Set("time_axis", attrs.axis);
  ex.Set("batch_axis", attrs.batch_axis);
}

// Of two axes: others came with opset 20.
void ExportGridSample(Exporter& ex) {
  const auto& attrs = ex.attrs<GridSampleAttrs>();
  if (ex.RankOfInput(0) != 4) Throw<ModelError>("sampling of volumes came with opset 20");
  ex.Out("GridSample", {ex.In(0), ex.In(1)});
  constexpr std::array<const char*, 3> kModes = {"nearest", "bilinear", "bicubic"};
  ex.Set("mode", kModes[static_cast<size_t>(attrs.mode)]);
  ex.Set("padding_mode", attrs.padding);
  ex.Set("align_corners", int64_t{attrs.align_corners});
}

void ExportShapeArray(Exporter& ex) {
  const auto& attrs = ex.attrs<ShapeArrayAttrs>();
  ex.Out("Shape", {ex.In(0)});
  if (attrs.begin != 0) ex.Set("start", attrs.begin);
  if (attrs.end != INT64_MAX) ex.Set("end", attrs.end);
}

void ExportSizeArray(Exporter& ex) { ex.Out("Size", {ex.In(0)}); }

}  // namespace

std::string OneHotValues(Exporter& ex, const OneHotAttrs& attrs) {
  HostTensor values(attrs.dtype, {2});
  values.Set(0, attrs.off_value);
  values.Set(1, attrs.on_value);
  return ex.Constant(values, "values");
}

// ONNX counts negative indices from the end: without that, they are moved to where nothing is, as what lies behind is.
std::string OneHotIndex(Exporter& ex, const OneHotAttrs& attrs, const std::string& depth) {
  if (attrs.from_end) return ex.In(0);
  const std::string negative = ex.Add("Less", {ex.In(0), ex.Number(0, ex.DTypeOfInput(0))});
  return ex.Add("Where", {negative, depth, ex.In(0, DType::kInt64)});
}

void SetTopK(Exporter& ex, const TopKAttrs& attrs) {
  ex.Set("axis", attrs.axis);
  ex.Set("largest", int64_t{attrs.largest});
  ex.Set("sorted", int64_t{attrs.sorted});
}

std::span<const ExportRow> IndexExports() {
  static constexpr ExportRow kRows[] = {
      {"ArgMax", ExportPlace},
      {"ArgMin", ExportPlace},
      {"CumSum", ExportCumSum},
      {"Embedding", ExportEmbedding},
      {"GatherElements", ExportGatherElements},
      {"GatherND", ExportGatherND},
      {"GridSample", ExportGridSample},
      {"OneHot", ExportOneHot},
      {"Pick", ExportPick},
      {"ScatterElements", ExportScatter},
      {"ScatterND", ExportScatter},
      {"SequenceReverse", ExportSequenceReverse},
      {"ShapeArray", ExportShapeArray},
      {"SizeArray", ExportSizeArray},
      {"Take", ExportTake},
      {"TopK", ExportTopK},
      {"Trilu", ExportTrilu},
  };
  return kRows;
}

}  // namespace bindery::onnx
