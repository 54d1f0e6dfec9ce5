// Layers: windows, normalisation, matrices.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "symbol/onnx/exporter.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

const char* NameOf(ActivationType type) {
  switch (type) {
    case ActivationType::kNone: return nullptr;
    case ActivationType::kRelu: return "Relu";
    case ActivationType::kSigmoid: return "Sigmoid";
    case ActivationType::kTanh: return "Tanh";
    case ActivationType::kSoftRelu: return "Softplus";
    case ActivationType::kSoftSign: return "Softsign";
  }
  return nullptr;
}

// The result of a layer that may have an activation: what `add` gives is the layer without.
template <class AddFn>
void OutActivated(Exporter& ex, ActivationType type, const char* op, const Exporter::Names& inputs, AddFn&& set) {
  if (type == ActivationType::kNone) {
    ex.Out(op, inputs);
    return set();
  }
  const std::string y = ex.Add(op, inputs);
  set();
  ex.Out(NameOf(type), {y});
}

void ExportActivation(Exporter& ex) { ex.Out(NameOf(ex.attrs<ActivationAttrs>().type), {ex.In(0)}); }

// One number per axis counts for both sides; all beginnings come before all ends.
std::vector<int64_t> BothSides(std::vector<int64_t> pad, size_t spatial) {
  if (pad.size() == spatial) pad.insert(pad.end(), pad.begin(), pad.begin() + static_cast<std::ptrdiff_t>(spatial));
  return pad;
}

template <class Attrs>
void SetWindows(Exporter& ex, const Attrs& attrs) {
  const size_t spatial = attrs.kernel.size();
  ex.Set("kernel_shape", attrs.kernel);
  if (!attrs.stride.empty()) ex.Set("strides", attrs.stride);
  if (!attrs.dilate.empty()) ex.Set("dilations", attrs.dilate);
  switch (attrs.auto_pad) {
    case AutoPad::kNone:
      if (!attrs.pad.empty()) ex.Set("pads", BothSides(attrs.pad, spatial));
      break;
    case AutoPad::kValid: ex.Set("auto_pad", "VALID"); break;
    case AutoPad::kSameUpper: ex.Set("auto_pad", "SAME_UPPER"); break;
    case AutoPad::kSameLower: ex.Set("auto_pad", "SAME_LOWER"); break;
  }
}

void ExportConvolution(Exporter& ex) {
  const auto& attrs = ex.attrs<ConvolutionAttrs>();
  OutActivated(ex, attrs.activation, "Conv", ex.AllInputs(), [&] {
    SetWindows(ex, attrs);
    ex.Set("group", attrs.groups);
  });
}

void ExportPooling(Exporter& ex) {
  const auto& attrs = ex.attrs<PoolingAttrs>();
  const bool average = attrs.type == PoolType::kAvg;
  if (attrs.global) return ex.Out(average ? "GlobalAveragePool" : "GlobalMaxPool", {ex.In(0)});
  const bool dilated = std::ranges::any_of(attrs.dilate, [](int64_t dilate) { return dilate != 1; });
  if (average && dilated) Throw<ModelError>("averages over windows with dilation came with opset 19");
  PoolingAttrs windows = attrs;
  if (!dilated) windows.dilate.clear();
  ex.Out(average ? "AveragePool" : "MaxPool", {ex.In(0)});
  SetWindows(ex, windows);
  if (attrs.ceil_mode) ex.Set("ceil_mode", int64_t{1});
  if (average) ex.Set("count_include_pad", int64_t{attrs.count_include_pad});
}

void ExportBatchNorm(Exporter& ex) {
  const auto& attrs = ex.attrs<BatchNormAttrs>();
  if (attrs.axis != 1) {
    const int rank = ex.RankOfInput(0);
    if (attrs.axis != 1 - rank) Throw<ModelError>("ONNX' channels are axis 1, here they are axis {}", attrs.axis);
  }
  std::string gamma = ex.In(1);
  if (attrs.fix_gamma) {
    const std::optional<Shape> shape = ex.ShapeOfInput(1);
    if (!shape || !shape->IsKnown()) Throw<ModelError>("it is not known how many channels it has");
    gamma = ex.Constant(HostTensor::Full(ex.DTypeOfInput(1), *shape, 1), "gamma");
  }
  const auto activation = attrs.relu ? ActivationType::kRelu : ActivationType::kNone;
  OutActivated(ex, activation, "BatchNormalization", {ex.In(0), gamma, ex.In(2), ex.In(3), ex.In(4)}, [&] {
    ex.Set("epsilon", attrs.eps);
    ex.Set("momentum", attrs.momentum);
  });
  for (const int statistic : {1, 2}) ex.AliasOutput(statistic, ex.In(2 + statistic));
}

void ExportSoftmax(Exporter& ex) {
  const auto& attrs = ex.attrs<SoftmaxAttrs>();
  std::string x = ex.In(0);
  if (attrs.temperature != 1) x = ex.Add("Div", {x, ex.Number(attrs.temperature, ex.DTypeOfInput(0))});
  ex.Out("Softmax", {x});
  ex.Set("axis", attrs.axis);
}

// x W^T + b, of rows.
void ExportFullyConnected(Exporter& ex) {
  const auto& attrs = ex.attrs<FullyConnectedAttrs>();
  const std::optional<Shape> shape = ex.ShapeOfInput(0);
  const bool is_matrix = shape && shape->rank() == 2;
  if (attrs.flatten || is_matrix) {
    std::vector<std::string> inputs = ex.AllInputs();
    if (!is_matrix) inputs[0] = ex.Add("Flatten", {inputs[0]});
    return OutActivated(ex, attrs.activation, "Gemm", inputs, [&] { ex.Set("transB", int64_t{1}); });
  }
  const std::string weight = ex.Add("Transpose", {ex.In(1)});
  if (attrs.no_bias) return OutActivated(ex, attrs.activation, "MatMul", {ex.In(0), weight}, [] {});
  const std::string product = ex.Add("MatMul", {ex.In(0), weight});
  OutActivated(ex, attrs.activation, "Add", {product, ex.In(2)}, [] {});
}

void ExportDot(Exporter& ex) {
  const auto& attrs = ex.attrs<DotAttrs>();
  if (ex.RankOfInput(0) != 2 || ex.RankOfInput(1) != 2) Throw<ModelError>("only products of two matrices can be had");
  ex.Out("Gemm", {ex.In(0), ex.In(1)});
  ex.Set("transA", int64_t{attrs.transpose_a});
  ex.Set("transB", int64_t{attrs.transpose_b});
}

void ExportMatMul(Exporter& ex) {
  const auto& attrs = ex.attrs<MatMulAttrs>();
  Exporter::Names inputs = ex.AllInputs();
  for (const int i : {0, 1}) {
    if (!(i == 0 ? attrs.transpose_a : attrs.transpose_b)) continue;
    const int64_t rank = ex.RankOfInput(i);
    std::vector<int64_t> perm(static_cast<size_t>(rank));
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm.at(perm.size() - 1), perm.at(perm.size() - 2));
    inputs[static_cast<size_t>(i)] = ex.Add("Transpose", {inputs[static_cast<size_t>(i)]});
    ex.Set("perm", perm);
  }
  ex.Out("MatMul", inputs);
}

// A transposed convolution, where the output's extents follow from the input's.
void ExportConvolutionGradData(Exporter& ex) {
  const auto& attrs = ex.attrs<ConvolutionGradDataAttrs>();
  if (attrs.auto_pad != AutoPad::kNone) Throw<ModelError>("auto_pad of a transposed convolution");
  ex.Out("ConvTranspose", {ex.In(0), ex.In(1)});
  ConvolutionGradDataAttrs windows = attrs;
  SetWindows(ex, windows);
  ex.Set("group", attrs.groups);
  if (!attrs.beyond.empty()) ex.Set("output_padding", attrs.beyond);
  if (attrs.extents.empty()) return;
  // output_padding: what the windows of the input do not reach.
  const std::optional<Shape> shape = ex.ShapeOfInput(0);
  std::vector<int64_t> more;
  for (size_t i = 0; i < attrs.kernel.size(); ++i) {
    const auto at = [&](const std::vector<int64_t>& list, size_t place, int64_t otherwise) {
      return list.empty() ? otherwise : list.at(place);
    };
    const std::vector<int64_t> pads = BothSides(attrs.pad, attrs.kernel.size());
    const int64_t size = shape ? (*shape)[static_cast<int>(i) + 2] : kUnknownDim;
    if (size == kUnknownDim) Throw<ModelError>("the spatial extents of its input are not known");
    const int64_t reached = at(attrs.stride, i, 1) * (size - 1) + at(attrs.dilate, i, 1) * (attrs.kernel[i] - 1) + 1 -
                            at(pads, i, 0) - at(pads, i + attrs.kernel.size(), 0);
    more.push_back(attrs.extents[i] - reached);
  }
  ex.Set("output_padding", more);
}

}  // namespace

std::span<const ExportRow> NnExports() {
  static constexpr ExportRow kRows[] = {
      {"Activation", ExportActivation},
      {"BatchNorm", ExportBatchNorm},
      {"Convolution", ExportConvolution},
      {"ConvolutionGradData", ExportConvolutionGradData},
      {"MatMul", ExportMatMul},
      {"Dot", ExportDot},
      {"FullyConnected", ExportFullyConnected},
      {"Pooling", ExportPooling},
      {"Softmax", ExportSoftmax},
  };
  return kRows;
}

}  // namespace bindery::onnx
