// Losses that are values of the graph.
#include <string>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"

namespace bindery::onnx {
namespace {

// From the logarithms lp of probabilities: (1 - a) w[label] -lp[label] + a / K sum_k w_k -lp_k, and w[label]; both 0
// where the label is ignored.
void ExportCrossEntropy(Exporter& ex) {
  const auto& attrs = ex.attrs<CrossEntropyAttrs>();
  const int64_t rank = ex.RankOfInput(0), axis = attrs.axis < 0 ? attrs.axis + rank : attrs.axis;
  const DType dtype = rule::StatisticsDType(ex.DTypeOfInput(0));
  const auto number = [&](double value) { return ex.Number(value, dtype); };
  const std::string axes = ex.Ints({axis}, "axis");
  std::string logarithms = ex.In(0, dtype);
  if (!attrs.log_input) {
    logarithms = ex.Add("LogSoftmax", {logarithms});
    ex.Set("axis", axis);
  }
  std::string label = ex.In(1, DType::kInt64), ignored;
  if (attrs.use_ignore) {
    ignored = ex.Add("Equal", {label, ex.Number(attrs.ignore_label, DType::kInt64)});
    label = ex.Add("Where", {ignored, ex.Number(0, DType::kInt64), label});
  }
  const auto kept = [&](const std::string& x) {
    return ignored.empty() ? x : ex.Add("Where", {ignored, number(0), x});
  };
  std::string own = ex.Add("GatherElements", {logarithms, ex.Add("Unsqueeze", {label, axes})});
  ex.Set("axis", axis);
  own = ex.Add("Squeeze", {own, axes});
  std::string weight;
  if (attrs.use_weight) {
    weight = ex.Add("Gather", {ex.In(2, dtype), label});
    own = ex.Add("Mul", {own, weight});
  } else {
    weight = ex.Add("Expand", {number(1), ex.Add("Shape", {label})});
  }
  ex.AliasOutput(1, kept(weight));
  std::string loss = own;
  if (attrs.label_smoothing > 0) {
    const std::optional<Shape> shape = ex.ShapeOfInput(0);
    const int64_t classes = (*shape)[static_cast<int>(axis)];
    if (classes == kUnknownDim) Throw<ModelError>("it is not known how many classes there are");
    std::string all = logarithms;
    if (attrs.use_weight) {
      std::vector<int64_t> of_classes(static_cast<size_t>(rank - axis), 1);
      of_classes[0] = -1;
      all = ex.Add("Mul", {all, ex.Add("Reshape", {ex.In(2, dtype), ex.Ints(of_classes, "classes")})});
    }
    all = ex.Add("ReduceSum", {all, axes});
    ex.Set("keepdims", int64_t{0});
    const double shared = attrs.label_smoothing / static_cast<double>(classes);
    loss =
        ex.Add("Add", {ex.Add("Mul", {own, number(1 - attrs.label_smoothing)}), ex.Add("Mul", {all, number(shared)})});
  }
  ex.Out("Neg", {kept(loss)});
}

}  // namespace

std::span<const ExportRow> LossExports() {
  static constexpr ExportRow kRows[] = {{"CrossEntropy", ExportCrossEntropy}};
  return kRows;
}

}  // namespace bindery::onnx
