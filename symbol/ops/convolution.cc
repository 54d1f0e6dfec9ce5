#include "symbol/ops/convolution.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/linear_layer.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckConvolution(const ConvolutionAttrs& attrs) {
  rule::CheckAtLeast("num_filter", attrs.num_filter, 1);
  rule::CheckWindows(rule::WindowsOf(attrs));
  rule::CheckAtLeast("groups", attrs.groups, 1);
  if (attrs.num_filter % attrs.groups != 0) {
    Throw<ModelError>("num_filter {} is not divisible by groups {}", attrs.num_filter, attrs.groups);
  }
}

bool HasStride(const ConvolutionAttrs& attrs) {
  return std::ranges::any_of(attrs.stride, [](int64_t stride) { return stride != 1; });
}

// Output extents from the data's, and back where the stride is 1 (else several inputs give the same output).
void InferSpatial(const ConvolutionAttrs& attrs, Shape& data, Shape& output) {
  const rule::WindowAttrs windows = rule::WindowsOf(attrs);
  for (int axis = 2; axis < data.rank(); ++axis) {
    if (data[axis] != kUnknownDim) {
      output.Set(axis, rule::WindowOf(windows, axis - 2, data[axis]).output);
    } else if (output[axis] != kUnknownDim && (attrs.stride.empty() || attrs.stride[axis - 2] == 1)) {
      data.Set(axis, rule::InputOf(windows, axis - 2, output[axis]));
    }
  }
}

// data (N, C, spatial...), weight (F, C / groups, kernel...), output (N, F, spatial'...), in every direction.
void InferConvolution(const ConvolutionAttrs& attrs, Value data, Value weight, Value output) {
  const int rank = static_cast<int>(attrs.kernel.size()) + 2;
  const char* axes = rule::DataAxes(rank);
  if (data.shape()) rule::ExpectRank(*data.shape(), rank, axes);
  data.Set(rule::Unknown(rank));
  Shape in = *data.shape();
  rule::ExpectNotEmpty(in);

  Shape filters = rule::Unknown(rank).With(0, attrs.num_filter);
  if (in[1] != kUnknownDim) {
    if (in[1] % attrs.groups != 0) Throw<ShapeError>("{} channels are not divisible by groups {}", in[1], attrs.groups);
    filters.Set(1, in[1] / attrs.groups);
  }
  for (int i = 2; i < rank; ++i) filters.Set(i, attrs.kernel[i - 2]);
  weight.Set(filters);
  filters = *weight.shape();
  if (filters[1] != kUnknownDim) in.Set(1, CheckedMul(filters[1], attrs.groups, "the number of channels"));

  Shape out = rule::Unknown(rank).With(0, in[0]).With(1, attrs.num_filter);
  if (output.shape() && output.shape()->rank() == rank) {  // another rank: the merge below complains
    for (int i = 2; i < rank; ++i) out.Set(i, (*output.shape())[i]);
    if (in[0] == kUnknownDim) in.Set(0, (*output.shape())[0]);
  }
  InferSpatial(attrs, in, out);
  data.Set(in);
  output.Set(out);
  rule::Share(data, output, [](int axis) { return axis == 0; });
}

// dx = the transposed convolution of dy with w, dw = the correlation of x with dy, db = the sum of dy over samples and
// positions.
struct Layer {
  using Attrs = ConvolutionAttrs;
  using GradDataAttrs = ConvolutionGradDataAttrs;
  static constexpr char kName[] = "Convolution";
  static constexpr auto kForward = Convolution;
  static constexpr auto kGradWeight = ConvolutionGradWeight;
  static int64_t Outputs(const Attrs& attrs) { return attrs.num_filter; }
  static constexpr auto Infer = InferConvolution;
  static void Check(const Attrs& attrs) { CheckConvolution(attrs); }
  static void Check(const GradDataAttrs& attrs) {
    CheckConvolution(attrs);
    rule::CheckPerAxis("extents", attrs.extents, attrs.kernel.size(), 1);
    if (attrs.extents.empty() && HasStride(attrs)) {
      throw ModelError("extents are missing: with a stride above 1 the data's do not follow");
    }
  }
  static void SetData(const GradDataAttrs& attrs, Value data) {
    Shape shape = rule::Unknown(static_cast<int>(attrs.kernel.size()) + 2);
    for (size_t i = 0; i < attrs.extents.size(); ++i) shape.Set(static_cast<int>(i) + 2, attrs.extents[i]);
    data.Set(shape);
  }
  template <class ShapeOf>
  static Symbol GradData(const Symbol& dy, const Symbol& w, const Attrs& attrs, const ShapeOf& data) {
    ConvolutionGradDataAttrs grad{attrs, {}};
    if (HasStride(attrs)) {
      const Extents shape = data();
      for (size_t i = 2; i < shape.size(); ++i) grad.extents.push_back(shape[i].fixed);
    }
    return ConvolutionGradData(dy, w, grad);
  }
  static Symbol Spread(const Symbol& b, const Attrs& attrs, const Extents& shape) {
    std::vector<int64_t> per_channel(attrs.kernel.size() + 1, 1);
    per_channel[0] = attrs.num_filter;
    return rule::BroadcastTo(Reshape(b, {.shape = per_channel}), shape);
  }
};
using Linear = rule::LinearLayer<Layer>;

}  // namespace

std::vector<Window> ConvolutionWindows(const ConvolutionAttrs& attrs, const Shape& data) {
  std::vector<Window> windows;
  for (int axis = 2; axis < data.rank(); ++axis) {
    windows.push_back(rule::WindowOf(rule::WindowsOf(attrs), axis - 2, data[axis]));
  }
  return windows;
}

const OpDef& ConvolutionOp() {
  static const OpDef op = Linear::Forward(
      "y[n, f, o] = f(b[f] + sum over c, k of w[f, c, k] x[n, c, o stride + k dilate - pad]), f the activation, if "
      "any.");
  return op;
}

const OpDef& ConvolutionGradDataOp() {
  static const OpDef op = Linear::GradData(
      "dx[n, c, i] = sum of w[f, c, k] dy[n, f, o] where o stride + k dilate - pad = i: the transposed convolution.");
  return op;
}

const OpDef& ConvolutionGradWeightOp() {
  static const OpDef op = Linear::GradWeight(
      "dw[f, c, k] = sum over n, o of dy[n, f, o] x[n, c, o stride + k dilate - pad]; db[f] = sum of dy[n, f, o].");
  return op;
}

}  // namespace bindery
