#include "symbol/ops/fully_connected.h"

#include "base/error.h"
#include "symbol/ops/common.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<FullyConnectedAttrs>();
  rule::CheckAtLeast("num_hidden", attrs.num_hidden, 1);
}

// data (N, ...) or (..., K); weight (H, K); output (N, H) or (..., H), in every direction.
void InferProduct(const FullyConnectedAttrs& attrs, Value data, Value weight, Value output) {
  if (!attrs.flatten && !data.shape() && output.shape() && output.shape()->rank() > 0) {
    data.Set(output.shape()->With(-1, kUnknownDim));  // the same but for the last axis
  }
  if (!data.shape()) {
    weight.Set({attrs.num_hidden, kUnknownDim});
    if (attrs.flatten) output.Set({kUnknownDim, attrs.num_hidden});
    return;
  }
  const int rank = data.shape()->rank();
  if (attrs.flatten && rank < 2) Throw<ShapeError>("expected data of 2 or more axes (N, ...), got {}", *data.shape());
  if (rank < 1) throw ShapeError("expected data of 1 or more axes (..., K), got ()");

  const int first = attrs.flatten ? 1 : rank - 1;  // the axes from here on are contracted
  weight.Set({attrs.num_hidden, rule::ProductFrom(*data.shape(), first)});
  const int64_t contracted = (*weight.shape())[1];
  if (contracted == 0) Throw<ShapeError>("a sample of data {} has no elements", *data.shape());
  if (contracted != kUnknownDim) data.Set(rule::FillFromProduct(*data.shape(), first, contracted));
  if (attrs.flatten) {
    output.Set({(*data.shape())[0], attrs.num_hidden});
    data.Set(rule::Unknown(rank).With(0, (*output.shape())[0]));
  } else {
    output.Set(data.shape()->With(-1, attrs.num_hidden));
    data.Set(output.shape()->With(-1, kUnknownDim));
  }
}

// (output gradient, weight) -> data gradient, of which `flatten` has joined the axes
void InferGradData(InferContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  if (attrs.flatten) c.SetOutput(0, rule::Unknown(2));
  InferProduct(attrs, Value::Out(c, 0), Value::In(c, 1), Value::In(c, 0));
}

void InferGradWeight(InferContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  InferProduct(attrs, Value::In(c, 1), Value::Out(c, 0), Value::In(c, 0));
  if (!attrs.no_bias) c.SetOutput(1, {attrs.num_hidden});
}

void BatchAxis(BatchAxisContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  const int axis = c.input_axes[0];
  const bool kept = attrs.flatten ? axis == 0 : axis < c.input_shapes[0].rank() - 1;
  c.output_axes[0] = kept ? axis : -1;
}

FullyConnectedAttrs Linear(FullyConnectedAttrs attrs, bool no_bias) {
  attrs.activation = ActivationType::kNone;
  attrs.no_bias = no_bias;
  return attrs;
}

// dy W, as data's shape has it.
template <class ShapeOf>
Symbol DataGradient(const Symbol& dy, const Symbol& weight, const FullyConnectedAttrs& attrs, const ShapeOf& data) {
  const Symbol grad = FullyConnectedGradData(dy, weight, Linear(attrs, true));
  if (!attrs.flatten) return grad;
  const Extents shape = data();
  return shape.size() == 2 ? grad : rule::ReshapeTo(grad, shape);
}

// With g = dy f': dx = g W, dW = g^T x, db = sum over samples of g.
std::vector<Symbol> FullyConnectedGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<FullyConnectedAttrs>();
  Symbol dy = g.output_grad(0);
  if (attrs.activation != ActivationType::kNone) dy = ActivationGrad(dy, g.output(0), {attrs.activation});
  std::vector<Symbol> result(g.num_inputs());
  if (g.wants(0)) result[0] = DataGradient(dy, g.input(1), attrs, [&] { return g.shape(0); });
  const bool wants_bias = !attrs.no_bias && g.wants(2);
  if (g.wants(1) || wants_bias) {
    const Symbol grads = FullyConnectedGradWeight(dy, g.input(0), Linear(attrs, !wants_bias));
    if (g.wants(1)) result[1] = grads[0];
    if (wants_bias) result[2] = grads[1];
  }
  return result;
}

// Bilinear. With G the gradient of dx: d/d dy = G W^T, d/d W = dy^T G.
std::vector<Symbol> GradDataGradient(const GradientContext& g) {
  const auto attrs = Linear(g.attrs<FullyConnectedAttrs>(), true);
  const Symbol& grad = g.output_grad(0);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = FullyConnected(grad, g.input(1), {}, attrs);
  if (g.wants(1)) result[1] = FullyConnectedGradWeight(g.input(0), grad, attrs);
  return result;
}

// Bilinear. With G, h the gradients of dW and db: d/d dy = x G^T + h, d/d x = dy G.
std::vector<Symbol> GradWeightGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<FullyConnectedAttrs>();
  const Symbol& grad = g.output_grad(0);
  const Symbol bias = attrs.no_bias ? Symbol() : g.output_grad(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) {
    result[0] = grad.empty() ? rule::BroadcastTo(bias, g.shape(0))
                             : FullyConnected(g.input(1), grad, bias, Linear(attrs, bias.empty()));
  }
  if (g.wants(1) && !grad.empty()) result[1] = DataGradient(g.input(0), grad, attrs, [&] { return g.shape(1); });
  return result;
}

}  // namespace

Symbol FullyConnected(const Symbol& data, const FullyConnectedAttrs& attrs, const std::string& name) {
  return Apply(FullyConnectedOp(), attrs, {data}, name);
}
Symbol FullyConnected(const Symbol& data, const Symbol& weight, const Symbol& bias, const FullyConnectedAttrs& attrs,
                      const std::string& name) {
  std::vector<Symbol> inputs = {data, weight};
  if (!attrs.no_bias) inputs.push_back(bias);
  if (attrs.no_bias && !bias.empty()) throw ModelError("FullyConnected: a bias is given, but no_bias is set");
  return Apply(FullyConnectedOp(), attrs, std::move(inputs), name);
}

Symbol FullyConnectedGradData(const Symbol& output_grad, const Symbol& weight, const FullyConnectedAttrs& attrs,
                              const std::string& name) {
  return Apply(FullyConnectedGradDataOp(), attrs, {output_grad, weight}, name);
}
Symbol FullyConnectedGradWeight(const Symbol& output_grad, const Symbol& data, const FullyConnectedAttrs& attrs,
                                const std::string& name) {
  return Apply(FullyConnectedGradWeightOp(), attrs, {output_grad, data}, name);
}

const OpDef& FullyConnectedOp() {
  static const OpDef op = {
      .name = "FullyConnected",
      .doc = "y = f(x W^T + b), f the activation, if any.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = [](const AnyAttrs& attrs, int) -> std::vector<std::string> {
        if (attrs.get<FullyConnectedAttrs>().no_bias) return {"data", "weight"};
        return {"data", "weight", "bias"};
      },
      .infer_shape =
          [](InferContext& c) {
            const auto& attrs = c.attrs<FullyConnectedAttrs>();
            if (!attrs.no_bias) c.SetInput(2, {attrs.num_hidden});
            InferProduct(attrs, Value::In(c, 0), Value::In(c, 1), Value::Out(c, 0));
          },
      .batch_axis = BatchAxis,
      .check = CheckAttrs,
      .gradient = FullyConnectedGradient,
  };
  return op;
}

const OpDef& FullyConnectedGradDataOp() {
  static const OpDef op = {
      .name = "FullyConnectedGradData",
      .doc = "dx = dy W.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = rule::Inputs({"output_grad", "weight"}),
      .infer_shape = InferGradData,
      .batch_axis = BatchAxis,
      .check = CheckAttrs,
      .gradient = GradDataGradient,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& FullyConnectedGradWeightOp() {
  static const OpDef op = {
      .name = "FullyConnectedGradWeight",
      .doc = "dW = dy^T x, db = sum over samples of dy.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = rule::Inputs({"output_grad", "data"}),
      .outputs = [](const AnyAttrs& attrs) -> std::vector<std::string> {
        if (attrs.get<FullyConnectedAttrs>().no_bias) return {"weight_grad"};
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
