// Operators that move elements, and reductions.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Where one extent alone follows the batch it takes the rest, and 0 keeps what is the batch's already.
bool CanTakeRest(const ReshapeAttrs& attrs) {
  const auto follow = std::ranges::count_if(attrs.batches, [](int64_t n) { return n != 0; });
  return follow == 1 && std::ranges::count(attrs.shape, -1) == 0 && std::ranges::count(attrs.shape, 0) <= 1;
}

void ExportFlatten(Exporter& ex) { ex.Out("Flatten", {ex.In(0)}); }

void ExportReshape(Exporter& ex) {
  const auto& attrs = ex.attrs<ReshapeAttrs>();
  std::vector<int64_t> shape = attrs.shape, batches = attrs.batches;
  if (CanTakeRest(attrs)) {
    for (size_t i = 0; i < shape.size(); ++i) shape[i] = batches[i] != 0 ? -1 : shape[i];
    batches.clear();
  }
  ex.Out("Reshape", {ex.In(0), ex.Extents(shape, batches, "shape")});
  if (attrs.allow_zero) ex.Set("allowzero", int64_t{1});
}

void ExportTranspose(Exporter& ex) {
  const auto& axes = ex.attrs<TransposeAttrs>().axes;
  ex.Out("Transpose", {ex.In(0)});
  if (!axes.empty()) ex.Set("perm", axes);
}

void ExportConcat(Exporter& ex) {
  ex.Out("Concat", ex.AllInputs());
  ex.Set("axis", ex.attrs<ConcatAttrs>().axis);
}

// Backward, ONNX' largest end is behind the last element, and the beginning is reached by the smallest.
void ExportSlice(Exporter& ex) {
  const auto& attrs = ex.attrs<SliceAttrs>();
  const std::vector<int64_t> axes = attrs.axes.empty() ? FirstAxes(attrs.begin.size()) : attrs.axes;
  std::vector<int64_t> ends = attrs.end;
  for (size_t i = 0; i < attrs.step.size(); ++i) {
    if (attrs.step[i] < 0 && ends[i] == kSliceEnd) ends[i] = INT64_MIN;
  }
  Exporter::Names inputs = {ex.In(0), ex.Extents(attrs.begin, attrs.begin_batches, "starts"),
                            ex.Extents(ends, attrs.end_batches, "ends"), ex.Ints(axes, "axes")};
  if (!attrs.step.empty()) inputs.push_back(ex.Ints(attrs.step, "steps"));
  ex.Out("Slice", inputs);
}

void ExportSliceChannel(Exporter& ex) {
  const auto& attrs = ex.attrs<SliceChannelAttrs>();
  const auto parts = static_cast<int>(attrs.num_outputs);
  if (!attrs.squeeze_axis) {
    ex.OutAll("Split", {ex.In(0)}, parts);
    return ex.Set("axis", attrs.axis);
  }
  const Exporter::Names all = ex.AddAll("Split", {ex.In(0)}, parts);
  ex.Set("axis", attrs.axis);
  const std::string axes = ex.Ints({attrs.axis}, "axes");
  for (int i = 0; i < parts; ++i) ex.Out("Squeeze", {all[static_cast<size_t>(i)], axes}, i);
}

void ExportBroadcastTo(Exporter& ex) {
  const auto& attrs = ex.attrs<ToShapeAttrs>();
  ex.Out("Expand", {ex.In(0), ex.Extents(attrs.shape, attrs.batches, "shape")});
}

void ExportPad(Exporter& ex) {
  const auto& attrs = ex.attrs<PadAttrs>();
  if (!attrs.begin_batches.empty() || !attrs.end_batches.empty()) Throw<ModelError>("its numbers follow the batch");
  if (std::ranges::any_of(attrs.step, [](int64_t step) { return step != 1; })) {
    Throw<ModelError>("ONNX pads around the elements, not between them");
  }
  ex.Out("Pad", {ex.In(0), ex.Pads(attrs.begin, attrs.end, attrs.axes), ex.Number(attrs.value, ex.DTypeOfInput(0))});
}

// A reduction along no axis: of each element alone.
void OutOfEach(Exporter& ex) {
  const std::string& op = ex.node().op().name;
  if (op == "L1Norm" || op == "L2Norm") return ex.Out("Abs", {ex.In(0)});
  if (op == "SumSquare") return ex.Out("Mul", {ex.In(0), ex.In(0)});
  ex.Alias(ex.In(0));
}

// Up to opset 17 a sum has its axes as an input, the others as an attribute.
void ExportReduction(Exporter& ex) {
  static const std::map<std::string, const char*> names = {
      {"L1Norm", "ReduceL1"}, {"L2Norm", "ReduceL2"}, {"LogSumExp", "ReduceLogSumExp"},
      {"Max", "ReduceMax"},   {"Mean", "ReduceMean"}, {"Min", "ReduceMin"},
      {"Prod", "ReduceProd"}, {"Sum", "ReduceSum"},   {"SumSquare", "ReduceSumSquare"},
  };
  const auto& attrs = ex.attrs<ReduceAttrs>();
  if (attrs.axes.empty() && attrs.noop_with_empty_axes && !attrs.exclude) return OutOfEach(ex);
  std::vector<int64_t> axes = attrs.axes;
  if (attrs.exclude) {
    const int rank = ex.RankOfInput(0);
    Shape shape;
    for (int axis = 0; axis < rank; ++axis) shape = shape.Insert(axis, 1);
    const uint32_t mask = ReducedAxes(attrs, shape);
    axes.clear();
    for (int axis = 0; axis < rank; ++axis) {
      if ((mask >> axis & 1) != 0) axes.push_back(axis);
    }
    if (axes.empty()) return OutOfEach(ex);
  }
  const std::string& op = ex.node().op().name;
  const bool is_sum = op == "Sum";
  Exporter::Names inputs = {ex.In(0)};
  if (is_sum && !axes.empty()) inputs.push_back(ex.Ints(axes, "axes"));
  ex.Out(names.at(op), inputs);
  if (!is_sum && !axes.empty()) ex.Set("axes", axes);
  ex.Set("keepdims", int64_t{attrs.keepdims});
}

}  // namespace

std::vector<int64_t> FirstAxes(size_t count) {
  std::vector<int64_t> axes(count);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

std::span<const ExportRow> ShapeExports() {
  static constexpr ExportRow kRows[] = {
      {"BroadcastTo", ExportBroadcastTo}, {"Concat", ExportConcat},       {"Flatten", ExportFlatten},
      {"L1Norm", ExportReduction},        {"L2Norm", ExportReduction},    {"LogSumExp", ExportReduction},
      {"Max", ExportReduction},           {"Min", ExportReduction},       {"Prod", ExportReduction},
      {"SumSquare", ExportReduction},     {"Mean", ExportReduction},      {"Pad", ExportPad},
      {"Reshape", ExportReshape},         {"Slice", ExportSlice},         {"SliceChannel", ExportSliceChannel},
      {"Sum", ExportReduction},           {"Transpose", ExportTranspose},
  };
  return kRows;
}

}  // namespace bindery::onnx
