#include "symbol/ops/convolution.h"

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/window.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<ConvolutionAttrs>();
  rule::CheckAtLeast("num_filter", attrs.num_filter, 1);
  rule::CheckKernel(attrs.kernel);
  rule::CheckPerAxis("stride", attrs.stride, attrs.kernel.size(), 1);
  rule::CheckPerAxis("pad", attrs.pad, attrs.kernel.size(), 0);
  rule::CheckPerAxis("dilate", attrs.dilate, attrs.kernel.size(), 1);
  rule::CheckAtLeast("groups", attrs.groups, 1);
  if (attrs.num_filter % attrs.groups != 0) {
    Throw<ModelError>("num_filter {} is not divisible by groups {}", attrs.num_filter, attrs.groups);
  }
}

struct Window {
  int64_t kernel, stride, pad, extent;  // extent: of the dilated kernel
};

Window WindowOf(const ConvolutionAttrs& attrs, int axis) {
  const int64_t kernel = attrs.kernel[axis], dilate = rule::PerAxis(attrs.dilate, axis, 1);
  return {kernel, rule::PerAxis(attrs.stride, axis, 1), rule::PerAxis(attrs.pad, axis, 0),
          CheckedAdd(CheckedMul(dilate, kernel - 1, "the dilated kernel"), 1, "the dilated kernel")};
}

// Output extents from the data's, and back where the stride is 1 (else several inputs give the same output).
//   output = floor((s + 2 pad - dilate (kernel - 1) - 1) / stride) + 1
void InferSpatial(const ConvolutionAttrs& attrs, Shape& data, Shape& output) {
  for (size_t i = 0; i < attrs.kernel.size(); ++i) {
    const Window window = WindowOf(attrs, static_cast<int>(i));
    const int axis = static_cast<int>(i) + 2;
    if (data[axis] != kUnknownDim) {
      const int64_t padded = rule::PaddedExtent(data[axis], window.pad, window.pad);
      if (window.extent > padded) {
        Throw<ShapeError>("the window of {} along axis {} is larger than the input with padding, {}", window.extent,
                          axis, padded);
      }
      output.Set(axis, (padded - window.extent) / window.stride + 1);
    } else if (output[axis] != kUnknownDim && window.stride == 1) {
      const int64_t padding = CheckedMul(2, window.pad, "the padding");
      const int64_t extent = CheckedAdd(output[axis], window.extent - 1, "the input's extent") - padding;
      if (extent < 1) Throw<ShapeError>("no input gives an output of {} along axis {}", output[axis], axis);
      data.Set(axis, extent);
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

void InferGradData(InferContext& c) {
  const Value data = Value::In(c, 2), grad = Value::Out(c, 0);
  rule::Alike({data, grad});
  InferConvolution(c.attrs<ConvolutionAttrs>(), data, Value::In(c, 1), Value::In(c, 0));
  rule::Alike({data, grad});
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
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // With g = dy f': dx = the transposed convolution of g with w, dw = the correlation of x with g,
        // db = sum of g over samples and positions.
        const auto& attrs = g.attrs<ConvolutionAttrs>();
        Symbol dy = g.output_grad(0);
        if (attrs.activation != ActivationType::kNone) {
          dy = Apply(ActivationGradOp(), ActivationAttrs{attrs.activation}, {dy, g.output(0)}, g.NameFor("activation"));
        }
        std::vector<Symbol> result(g.num_inputs());
        if (g.wants(0)) {
          result[0] =
              Apply(ConvolutionGradDataOp(), Linear(attrs, true), {dy, g.input(1), g.input(0)}, g.NameFor("data"));
        }
        const bool wants_bias = !attrs.no_bias && g.wants(2);
        if (g.wants(1) || wants_bias) {
          const auto grads =
              ApplyAll(ConvolutionGradWeightOp(), Linear(attrs, !wants_bias), {dy, g.input(0)}, g.NameFor("weight"));
          if (g.wants(1)) result[1] = grads[0];
          if (wants_bias) result[2] = grads[1];
        }
        return result;
      },
  };
  return op;
}

const OpDef& ConvolutionGradDataOp() {
  static const OpDef op = {
      .name = "ConvolutionGradData",
      .doc =
          "dx[n, c, i] = sum of w[f, c, k] dy[n, f, o] where o stride + k dilate - pad = i: the transposed "
          "convolution.",
      .attrs_type = &AttrsOf<ConvolutionAttrs>(),
      .inputs = rule::Inputs({"output_grad", "weight", "data"}),
      .shape_only = {2},
      .infer_shape = InferGradData,
      .batch_axis = rule::BatchedAs(2),
      .check = CheckAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Bilinear. With G the gradient of dx: d/d dy = conv(G, w), d/d w = the weight gradient of dy and G.
        const auto attrs = Linear(g.attrs<ConvolutionAttrs>(), true);
        const Symbol& grad = g.output_grad(0);
        std::vector<Symbol> result(3);
        if (g.wants(0)) result[0] = Apply(ConvolutionOp(), attrs, {grad, g.input(1)}, g.NameFor("output_grad"));
        if (g.wants(1)) result[1] = Apply(ConvolutionGradWeightOp(), attrs, {g.input(0), grad}, g.NameFor("weight"));
        return result;
      },
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
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Bilinear. With G, h the gradients of dw and db: d/d dy = conv(x, G) + h, d/d x = the data gradient of dy by
        // G.
        const auto& attrs = g.attrs<ConvolutionAttrs>();
        Symbol grad = g.output_grad(0);
        if (grad.empty()) grad = Apply(ZerosLikeOp(), {}, {g.output(0)}, g.NameFor("zeros"));
        const bool bias = !attrs.no_bias && !g.output_grad(1).empty();
        std::vector<Symbol> result(2);
        if (g.wants(0)) {
          std::vector<Symbol> inputs = {g.input(1), grad};
          if (bias) inputs.push_back(g.output_grad(1));
          result[0] = Apply(ConvolutionOp(), Linear(attrs, !bias), std::move(inputs), g.NameFor("output_grad"));
        }
        if (g.wants(1)) {
          result[1] =
              Apply(ConvolutionGradDataOp(), Linear(attrs, true), {g.input(0), grad, g.input(1)}, g.NameFor("data"));
        }
        return result;
      },
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
