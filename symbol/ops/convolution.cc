#include "symbol/ops/convolution.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fusions.h"
#include "symbol/ops/linear_layer.h"
#include "symbol/ops/quantized_layer.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

void CheckConvolution(const ConvolutionAttrs& attrs, int64_t fewest = 1) {
  rule::CheckAtLeast("num_filter", attrs.num_filter, fewest);
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

  int64_t count = attrs.num_filter > 0 ? attrs.num_filter : kUnknownDim;
  if (count == kUnknownDim && output.shape() && output.shape()->rank() == rank) count = (*output.shape())[1];
  if (count == kUnknownDim && weight.shape() && weight.shape()->rank() == rank) count = (*weight.shape())[0];
  if (count == 0) throw ShapeError("the output has no channels");
  if (count != kUnknownDim && count % attrs.groups != 0) {
    Throw<ShapeError>("{} filters are not divisible by groups {}", count, attrs.groups);
  }
  Shape filters = rule::Unknown(rank).With(0, count);
  if (in[1] != kUnknownDim) {
    if (in[1] % attrs.groups != 0) Throw<ShapeError>("{} channels are not divisible by groups {}", in[1], attrs.groups);
    filters.Set(1, in[1] / attrs.groups);
  }
  for (int i = 2; i < rank; ++i) filters.Set(i, attrs.kernel[i - 2]);
  weight.Set(filters);
  filters = *weight.shape();
  if (filters[1] != kUnknownDim) in.Set(1, CheckedMul(filters[1], attrs.groups, "the number of channels"));

  Shape out = rule::Unknown(rank).With(0, in[0]).With(1, count);
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
struct ConvolutionLayer {
  using Attrs = ConvolutionAttrs;
  using GradDataAttrs = ConvolutionGradDataAttrs;
  static constexpr char kName[] = "Convolution";
  static constexpr auto kForward = Convolution;
  static constexpr auto kGradWeight = ConvolutionGradWeight;
  static int64_t Outputs(const Attrs& attrs) { return attrs.num_filter; }
  static constexpr auto Infer = InferConvolution;
  static void Check(const Attrs& attrs) { CheckConvolution(attrs); }
  static void Check(const GradDataAttrs& attrs) {
    CheckConvolution(attrs, 0);
    rule::CheckPerAxis("extents", attrs.extents, attrs.kernel.size(), 1);
    rule::CheckPerAxis("beyond", attrs.beyond, attrs.kernel.size(), 0);
    rule::CheckAtLeast("channels", attrs.channels, 0);
    for (size_t i = 0; i < attrs.beyond.size(); ++i) {
      const int64_t stride = attrs.stride.empty() ? 1 : attrs.stride[i];
      if (attrs.beyond[i] < stride && (attrs.extents.empty() || attrs.beyond[i] == 0)) continue;
      Throw<ModelError>("beyond must be less than the stride, and 0 with extents, got {}",
                        rule::ToString(attrs.beyond));
    }
  }
  static void SetData(const GradDataAttrs& attrs, Value data, Value output) {
    const int rank = static_cast<int>(attrs.kernel.size()) + 2;
    Shape shape = rule::Unknown(rank);
    if (attrs.channels > 0) shape.Set(1, attrs.channels);
    const bool follow = attrs.extents.empty() && output.shape() && output.shape()->rank() == rank;
    for (int axis = 2; axis < rank; ++axis) {
      if (!attrs.extents.empty()) shape.Set(axis, attrs.extents[axis - 2]);
      if (!follow || (*output.shape())[axis] == kUnknownDim) continue;
      const int64_t beyond = attrs.beyond.empty() ? 0 : attrs.beyond[axis - 2];
      shape.Set(axis, rule::InputOf(rule::WindowsOf(attrs), axis - 2, (*output.shape())[axis], beyond));
    }
    data.Set(shape);
  }
  static void SetOutputs(Attrs& attrs, const GradientContext& g) {
    if (attrs.num_filter == 0) attrs.num_filter = g.shape(0)[1].fixed;
  }
  template <class ShapeOf>
  static Symbol GradData(const Symbol& dy, const Symbol& w, const Attrs& attrs, const ShapeOf& data) {
    ConvolutionGradDataAttrs grad{attrs};
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
using LinearConvolution = rule::LinearLayer<ConvolutionLayer>;

}  // namespace

std::vector<Window> ConvolutionWindows(const ConvolutionAttrs& attrs, const Shape& data) {
  std::vector<Window> windows;
  for (int axis = 2; axis < data.rank(); ++axis) {
    windows.push_back(rule::WindowOf(rule::WindowsOf(attrs), axis - 2, data[axis]));
  }
  return windows;
}

Symbol Deconvolution(const Symbol& data, const DeconvolutionAttrs& attrs, const std::string& name) {
  if (name.empty()) throw ModelError("Deconvolution: the name must be given, its weight is named after it");
  const Symbol bias = attrs.no_bias ? Symbol() : Variable(name + "_bias", {.shape = Shape{attrs.num_filter}});
  return Deconvolution(data, Variable(name + "_weight"), bias, attrs, name);
}

Symbol Deconvolution(const Symbol& data, const Symbol& weight, const Symbol& bias, const DeconvolutionAttrs& attrs,
                     const std::string& name) {
  ConvolutionGradDataAttrs grad;
  grad.kernel = attrs.kernel;
  grad.stride = attrs.stride;
  grad.dilate = attrs.dilate;
  grad.auto_pad = attrs.auto_pad;
  grad.groups = attrs.groups;
  grad.channels = attrs.num_filter;
  if (attrs.target_shape.empty()) {
    grad.pad = attrs.pad;
    grad.beyond = attrs.output_padding;
  } else {
    if (!attrs.pad.empty() || !attrs.output_padding.empty()) {
      Throw<ModelError>("Deconvolution \"{}\": pad and output_padding follow from target_shape, and must be empty",
                        name);
    }
    grad.extents = attrs.target_shape;
    if (grad.auto_pad == AutoPad::kNone) grad.auto_pad = AutoPad::kSameLower;
  }
  const Symbol y = ConvolutionGradData(data, weight, grad, bias.empty() ? name : "");
  if (bias.empty()) return y;
  std::vector<int64_t> per_channel(attrs.kernel.size() + 1, 1);
  per_channel[0] = attrs.num_filter;
  return Add(y, Reshape(bias, {.shape = per_channel}), name);
}

const OpDef& ConvolutionOp() {
  static const OpDef op = LinearConvolution::Forward(
      "y[n, f, o] = f(b[f] + sum over c, k of w[f, c, k] x[n, c, o stride + k dilate - pad]), f the activation, if "
      "any.");
  return op;
}

const OpDef& ConvolutionAddOp() {
  static const OpDef op = {
      .name = "ConvolutionAdd",
      .doc = "f(the convolution without f, + addend); made by fusion, in predictions.",
      .attrs_type = &AttrsOf<ConvolutionAttrs>(),
      .inputs = {"data", "weight", Optional("bias", Unless(&ConvolutionAttrs::no_bias)), "addend"},
      .infer =
          [](InferContext& c) {
            rule::SameDTypes(c);
            const auto& attrs = c.attrs<ConvolutionAttrs>();
            if (!attrs.no_bias) c.in(2).Set({attrs.num_filter});
            InferConvolution(attrs, c.in(0), c.in(1), c.out(0));
            rule::SameShape({c.in(3), c.out(0)});
          },
      .check = [](const AnyAttrs& attrs) { CheckConvolution(attrs.get<ConvolutionAttrs>()); },
      .not_differentiable = "it is made in predictions alone",
      .operations = [](auto in, auto out) { return OperationsOfSums(out[0], in[1]); },
  };
  return op;
}

const OpDef& QuantizedConvolutionOp() {
  using Attrs = QuantizedConvolutionAttrs;
  static const OpDef op = rule::QuantizedLayer<Attrs>(
      "QuantizedConvolution",
      "f(scale times the convolution of data - zero_point by integers, + bias), quantized if dtype is no float32; made "
      "by fusion, in predictions.",
      [](const Attrs& attrs) { return attrs.num_filter; },
      [](const Attrs& attrs, Value data, Value weight, Value output) { InferConvolution(attrs, data, weight, output); },
      [](const AnyAttrs& attrs) { CheckConvolution(attrs.get<Attrs>()); });
  return op;
}

const OpDef& ConvolutionGradDataOp() {
  static const OpDef op = LinearConvolution::GradData(
      "dx[n, c, i] = sum of w[f, c, k] dy[n, f, o] where o stride + k dilate - pad = i: the transposed convolution.");
  return op;
}

const OpDef& ConvolutionGradWeightOp() {
  static const OpDef op = LinearConvolution::GradWeight(
      "dw[f, c, k] = sum over n, o of dy[n, f, o] x[n, c, o stride + k dilate - pad]; db[f] = sum of dy[n, f, o].");
  return op;
}

}  // namespace bindery
