#include "symbol/ops/convolution.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
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
}

void CheckAttrs(const AnyAttrs& any) { CheckConvolution(any.get<ConvolutionAttrs>()); }

void CheckGradData(const AnyAttrs& any) {
  const auto& attrs = any.get<ConvolutionGradDataAttrs>();
  CheckConvolution(attrs);
  rule::CheckPerAxis("extents", attrs.extents, attrs.kernel.size(), 1);
  if (attrs.extents.empty() && HasStride(attrs)) {
    throw ModelError("extents are missing: with a stride above 1 the data's do not follow");
  }
}

// (output gradient, weight) -> data gradient
void InferGradData(InferContext& c) {
  const auto& attrs = c.attrs<ConvolutionGradDataAttrs>();
  const int rank = static_cast<int>(attrs.kernel.size()) + 2;
  Shape data = rule::Unknown(rank);
  for (size_t i = 0; i < attrs.extents.size(); ++i) data.Set(static_cast<int>(i) + 2, attrs.extents[i]);
  c.SetOutput(0, data);
  InferConvolution(attrs, Value::Out(c, 0), Value::In(c, 1), Value::In(c, 0));
}

void InferGradWeight(InferContext& c) {
  const auto& attrs = c.attrs<ConvolutionAttrs>();
  InferConvolution(attrs, Value::In(c, 1), Value::Out(c, 0), Value::In(c, 0));
  if (!attrs.no_bias) c.SetOutput(1, {attrs.num_filter});
}

ConvolutionAttrs Linear(ConvolutionAttrs attrs, bool no_bias) {
  attrs.activation = ActivationType::kNone;
  attrs.no_bias = no_bias;
  return attrs;
}

// The gradient of data by dy; `data` tells its shape, which is asked for only if a stride leaves it open.
template <class ShapeOf>
Symbol DataGradient(const Symbol& dy, const Symbol& weight, const ConvolutionAttrs& attrs, const ShapeOf& data) {
  ConvolutionGradDataAttrs grad{Linear(attrs, true), {}};
  if (HasStride(attrs)) {
    const Extents shape = data();
    for (size_t i = 2; i < shape.size(); ++i) grad.extents.push_back(shape[i].fixed);
  }
  return ConvolutionGradData(dy, weight, grad);
}

// With g = dy f': dx = the transposed convolution of g with w, dw = the correlation of x with g, db = sum of g over
// samples and positions.
std::vector<Symbol> ConvolutionGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<ConvolutionAttrs>();
  Symbol dy = g.output_grad(0);
  if (attrs.activation != ActivationType::kNone) dy = ActivationGrad(dy, g.output(0), {attrs.activation});
  std::vector<Symbol> result(g.num_inputs());
  if (g.wants(0)) result[0] = DataGradient(dy, g.input(1), attrs, [&] { return g.shape(0); });
  const bool wants_bias = !attrs.no_bias && g.wants(2);
  if (g.wants(1) || wants_bias) {
    const Symbol grads = ConvolutionGradWeight(dy, g.input(0), Linear(attrs, !wants_bias));
    if (g.wants(1)) result[1] = grads[0];
    if (wants_bias) result[2] = grads[1];
  }
  return result;
}

// Bilinear. With G the gradient of dx: d/d dy = conv(G, w), d/d w = the weight gradient of dy and G.
std::vector<Symbol> GradDataGradient(const GradientContext& g) {
  const auto attrs = Linear(g.attrs<ConvolutionGradDataAttrs>(), true);
  const Symbol& grad = g.output_grad(0);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = Convolution(grad, g.input(1), {}, attrs);
  if (g.wants(1)) result[1] = ConvolutionGradWeight(g.input(0), grad, attrs);
  return result;
}

// Bilinear. With G, h the gradients of dw and db: d/d dy = conv(x, G) + h, d/d x = the data gradient of dy by G.
std::vector<Symbol> GradWeightGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<ConvolutionAttrs>();
  const Symbol& grad = g.output_grad(0);
  const Symbol bias = attrs.no_bias ? Symbol() : g.output_grad(1);
  std::vector<Symbol> result(2);
  if (g.wants(0) && !grad.empty()) {
    result[0] = Convolution(g.input(1), grad, bias, Linear(attrs, bias.empty()));
  } else if (g.wants(0)) {
    std::vector<int64_t> per_channel(attrs.kernel.size() + 1, 1);
    per_channel[0] = attrs.num_filter;
    result[0] = rule::BroadcastTo(Reshape(bias, {.shape = per_channel}), g.shape(0));
  }
  if (g.wants(1) && !grad.empty()) result[1] = DataGradient(g.input(0), grad, attrs, [&] { return g.shape(1); });
  return result;
}

}  // namespace

Symbol Convolution(const Symbol& data, const ConvolutionAttrs& attrs, const std::string& name) {
  return Apply(ConvolutionOp(), attrs, {data}, name);
}
Symbol Convolution(const Symbol& data, const Symbol& weight, const Symbol& bias, const ConvolutionAttrs& attrs,
                   const std::string& name) {
  std::vector<Symbol> inputs = {data, weight};
  if (!attrs.no_bias) inputs.push_back(bias);
  if (attrs.no_bias && !bias.empty()) throw ModelError("Convolution: a bias is given, but no_bias is set");
  return Apply(ConvolutionOp(), attrs, std::move(inputs), name);
}

std::vector<Window> ConvolutionWindows(const ConvolutionAttrs& attrs, const Shape& data) {
  std::vector<Window> windows;
  for (int axis = 2; axis < data.rank(); ++axis) {
    windows.push_back(rule::WindowOf(rule::WindowsOf(attrs), axis - 2, data[axis]));
  }
  return windows;
}

Symbol ConvolutionGradData(const Symbol& output_grad, const Symbol& weight, const ConvolutionGradDataAttrs& attrs,
                           const std::string& name) {
  return Apply(ConvolutionGradDataOp(), attrs, {output_grad, weight}, name);
}
Symbol ConvolutionGradWeight(const Symbol& output_grad, const Symbol& data, const ConvolutionAttrs& attrs,
                             const std::string& name) {
  return Apply(ConvolutionGradWeightOp(), attrs, {output_grad, data}, name);
}

const OpDef& ConvolutionOp() {
  static const OpDef op = {
      .name = "Convolution",
      .doc =
          "y[n, f, o] = f(b[f] + sum over c, k of w[f, c, k] x[n, c, o stride + k dilate - pad]), f the activation, if "
          "any.",
      .attrs_type = &AttrsOf<ConvolutionAttrs>(),
      .inputs = [](const AnyAttrs& attrs, int) -> std::vector<std::string> {
        if (attrs.get<ConvolutionAttrs>().no_bias) return {"data", "weight"};
        return {"data", "weight", "bias"};
      },
      .infer_shape =
          [](InferContext& c) {
            const auto& attrs = c.attrs<ConvolutionAttrs>();
            if (!attrs.no_bias) c.SetInput(2, {attrs.num_filter});
            InferConvolution(attrs, Value::In(c, 0), Value::In(c, 1), Value::Out(c, 0));
          },
      .batch_axis = rule::BatchedAtFirstAxis,
      .check = CheckAttrs,
      .gradient = ConvolutionGradient,
  };
  return op;
}

const OpDef& ConvolutionGradDataOp() {
  static const OpDef op = {
      .name = "ConvolutionGradData",
      .doc =
          "dx[n, c, i] = sum of w[f, c, k] dy[n, f, o] where o stride + k dilate - pad = i: the transposed "
          "convolution.",
      .attrs_type = &AttrsOf<ConvolutionGradDataAttrs>(),
      .inputs = rule::Inputs({"output_grad", "weight"}),
      .infer_shape = InferGradData,
      .batch_axis = rule::BatchedAtFirstAxis,
      .check = CheckGradData,
      .gradient = GradDataGradient,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& ConvolutionGradWeightOp() {
  static const OpDef op = {
      .name = "ConvolutionGradWeight",
      .doc =
          "dw[f, c, k] = sum over n, o of dy[n, f, o] x[n, c, o stride + k dilate - pad]; db[f] = sum of dy[n, f, o].",
      .attrs_type = &AttrsOf<ConvolutionAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data"}),
      .outputs = [](const AnyAttrs& attrs) -> std::vector<std::string> {
        if (attrs.get<ConvolutionAttrs>().no_bias) return {"weight_grad"};
        return {"weight_grad", "bias_grad"};
      },
      .infer_shape = InferGradWeight,
      .batch_axis = rule::NotBatched,
      .check = CheckAttrs,
      .gradient = GradWeightGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
