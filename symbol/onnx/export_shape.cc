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

bool Follows(const std::vector<int64_t>& batches) {
  return std::ranges::any_of(batches, [](int64_t n) { return n != 0; });
}

// ONNX has no extents that follow the batch: one alone may take the rest instead.
std::vector<int64_t> WithoutBatches(const std::vector<int64_t>& shape, const std::vector<int64_t>& batches,
                                    bool may_infer) {
  std::vector<int64_t> extents = shape;
  if (!Follows(batches)) return extents;
  int rests = static_cast<int>(std::ranges::count(shape, -1));
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i] == 0) continue;
    if (i == 0 && batches[i] == 1 && shape[i] == 0 && may_infer && rests > 0) continue;  // 0: as it is
    extents[i] = -1;
    ++rests;
  }
  if (!may_infer || rests > 1) Throw<ModelError>("extents that follow the batch can be had once in a shape");
  return extents;
}

void ExportFlatten(Exporter& ex) { ex.Out("Flatten", {ex.In(0)}); }

void ExportReshape(Exporter& ex) {
  const auto& attrs = ex.attrs<ReshapeAttrs>();
  ex.Out("Reshape", {ex.In(0), ex.Ints(WithoutBatches(attrs.shape, attrs.batches, true), "shape")});
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

std::vector<int64_t> FirstAxes(size_t count) {
  std::vector<int64_t> axes(count);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

void ExportSlice(Exporter& ex) {
  const auto& attrs = ex.attrs<SliceAttrs>();
  if (Follows(attrs.begin_batches) || Follows(attrs.end_batches)) Throw<ModelError>("its indices follow the batch");
  const std::vector<int64_t> axes = attrs.axes.empty() ? FirstAxes(attrs.begin.size()) : attrs.axes;
  Exporter::Names inputs = {ex.In(0), ex.Ints(attrs.begin, "starts"), ex.Ints(attrs.end, "ends"),
                            ex.Ints(axes, "axes")};
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
  ex.Out("Expand", {ex.In(0), ex.Ints(WithoutBatches(attrs.shape, attrs.batches, false), "shape")});
}

void ExportPad(Exporter& ex) {
  const auto& attrs = ex.attrs<PadAttrs>();
  if (Follows(attrs.begin_batches) || Follows(attrs.end_batches)) Throw<ModelError>("its numbers follow the batch");
  if (std::ranges::any_of(attrs.step, [](int64_t step) { return step != 1; })) {
    Throw<ModelError>("ONNX pads around the elements, not between them");
  }
  const auto rank = static_cast<size_t>(ex.RankOfInput(0));
  std::vector<int64_t> pads(2 * rank);
  for (size_t i = 0; i < attrs.begin.size(); ++i) {
    const int64_t axis = attrs.axes.empty() ? static_cast<int64_t>(i) : attrs.axes[i];
    const auto place = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
    pads.at(place) = attrs.begin[i];
    pads.at(place + rank) = attrs.end[i];
  }
  ex.Out("Pad", {ex.In(0), ex.Ints(pads, "pads"), ex.Number(attrs.value, ex.DTypeOfInput(0))});
}

// Up to opset 17 a sum has its axes as an input, the others as an attribute.
void ExportReduction(Exporter& ex) {
  static const std::map<std::string, const char*> names = {
      {"L1Norm", "ReduceL1"}, {"L2Norm", "ReduceL2"}, {"LogSumExp", "ReduceLogSumExp"},
      {"Max", "ReduceMax"},   {"Mean", "ReduceMean"}, {"Min", "ReduceMin"},
      {"Prod", "ReduceProd"}, {"Sum", "ReduceSum"},   {"SumSquare", "ReduceSumSquare"},
  };
  const auto& attrs = ex.attrs<ReduceAttrs>();
  if (attrs.axes.empty() && attrs.noop_with_empty_axes && !attrs.exclude) return ex.Alias(ex.In(0));
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
    if (axes.empty()) return ex.Alias(ex.In(0));
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
