// Elements picked and put by index; shapes as tensors.
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/onnx/reader.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// ONNX' indices are integers within their extents.
std::string Index(Exporter& ex, int input, IndexMode mode) {
  if (mode != IndexMode::kRaise && mode != IndexMode::kZero && mode != IndexMode::kSkip) {
    Throw<ModelError>("ONNX has no way to clip or wrap indices");
  }
  const DType dtype = ex.DTypeOfInput(input);
  if (dtype == DType::kInt64 || dtype == DType::kInt32) return ex.In(input);
  const std::string whole = ex.Add("Cast", {ex.In(input)});
  ex.Set("to", int64_t{NumberOf(DType::kInt64)});
  return whole;
}

void ExportTake(Exporter& ex) {
  const auto& attrs = ex.attrs<TakeAttrs>();
  if (attrs.batch_dims != 0 || attrs.padding != kNoIndex) Throw<ModelError>("ONNX' Gather shares no axes");
  ex.Out("Gather", {ex.In(0), Index(ex, 1, attrs.mode)});
  ex.Set("axis", attrs.axis);
}

void ExportEmbedding(Exporter& ex) { ex.Out("Gather", {ex.In(1), Index(ex, 0, ex.attrs<EmbeddingAttrs>().mode)}); }

void ExportGatherND(Exporter& ex) {
  const auto& attrs = ex.attrs<TakeAttrs>();
  if (attrs.axis != attrs.batch_dims || attrs.padding != kNoIndex) Throw<ModelError>("ONNX has no such indices");
  ex.Out("GatherND", {ex.In(0), Index(ex, 1, attrs.mode)});
  ex.Set("batch_dims", attrs.batch_dims);
}

void ExportGatherElements(Exporter& ex) {
  const auto& attrs = ex.attrs<GatherElementsAttrs>();
  ex.Out("GatherElements", {ex.In(0), Index(ex, 1, attrs.mode)});
  ex.Set("axis", attrs.axis);
}

void ExportScatter(Exporter& ex) {
  const auto& attrs = ex.attrs<ScatterAttrs>();
  const bool by_elements = &ex.node().op() == &ScatterElementsOp();
  if (!attrs.shape.empty() || attrs.batch_dims != 0 || attrs.padding != kNoIndex || (!by_elements && attrs.axis != 0)) {
    Throw<ModelError>("ONNX has no such indices");
  }
  if (attrs.reduction == ScatterReduction::kMax || attrs.reduction == ScatterReduction::kMin) {
    Throw<ModelError>("reductions by max and min came with opset 18");
  }
  ex.Out(by_elements ? "ScatterElements" : "ScatterND", {ex.In(0), Index(ex, 1, attrs.mode), ex.In(2)});
  if (by_elements) ex.Set("axis", attrs.axis);
  if (attrs.reduction != ScatterReduction::kNone) {
    ex.Set("reduction", EnumNames(static_cast<ScatterReduction*>(nullptr))[static_cast<size_t>(attrs.reduction)].name);
  }
}

void ExportOneHot(Exporter& ex) {
  const auto& attrs = ex.attrs<OneHotAttrs>();
  const std::string depth = ex.Number(static_cast<double>(attrs.depth), DType::kInt64);
  ex.Out("OneHot", {ex.In(0), depth, OneHotValues(ex, attrs)});
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
      {"OneHot", ExportOneHot},
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
