#include "symbol/ops/fully_connected.h"

#include "base/error.h"
#include "symbol/ops/linear_layer.h"

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
  rule::Share(data, output, [&](int axis) { return axis < first; });
}

void Infer(InferContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  rule::SameDTypes(c);
  c.in(2).Set({attrs.num_hidden});
  InferProduct(attrs, c.in(0), c.in(1), c.out(0));
}

// Of data that `flatten` has joined the axes of.
void InferGradData(InferContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  rule::SameDTypes(c);
  if (attrs.flatten) c.out(0).Set(rule::Unknown(2));
  InferProduct(attrs, c.out(0), c.in(1), c.in(0));
}

void InferGradWeight(InferContext& c) {
  const auto& attrs = c.attrs<FullyConnectedAttrs>();
  rule::SameDTypes(c);
  InferProduct(attrs, c.in(1), c.out(0), c.in(0));
  c.out(1).Set({attrs.num_hidden});
}

// dx = dy W, as data's shape has it; dW = dy^T x, db = the sum of dy over samples.
struct Layer {
  using Attrs = FullyConnectedAttrs;
  static Symbol Forward(const Symbol& x, const Symbol& w, const Symbol& b, const Attrs& attrs) {
    return FullyConnected(x, w, b, attrs);
  }
  template <class ShapeOf>
  static Symbol GradData(const Symbol& dy, const Symbol& w, const Attrs& attrs, const ShapeOf& data) {
    const Symbol grad = FullyConnectedGradData(dy, w, attrs);
    if (!attrs.flatten) return grad;
    const Extents shape = data();
    return shape.size() == 2 ? grad : rule::ReshapeTo(grad, shape);
  }
  static Symbol GradWeight(const Symbol& dy, const Symbol& x, const Attrs& attrs) {
    return FullyConnectedGradWeight(dy, x, attrs);
  }
  static Symbol Spread(const Symbol& b, const Attrs&, const Extents& shape) { return rule::BroadcastTo(b, shape); }
};
using Linear = rule::LinearLayer<Layer>;

}  // namespace

Symbol FullyConnected(const Symbol& data, const FullyConnectedAttrs& attrs, const std::string& name) {
  return Apply(FullyConnectedOp(), attrs, {data}, name);
}
Symbol FullyConnected(const Symbol& data, const Symbol& weight, const Symbol& bias, const FullyConnectedAttrs& attrs,
                      const std::string& name) {
  return Linear::Make(FullyConnectedOp(), data, weight, bias, attrs, name);
}

const OpDef& FullyConnectedOp() {
  static const OpDef op = {
      .name = "FullyConnected",
      .doc = "y = f(x W^T + b), f the activation, if any.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = {"data", "weight", Optional("bias", Unless(&FullyConnectedAttrs::no_bias))},
      .infer = Infer,
      .check = CheckAttrs,
      .gradient = Linear::Gradient,
  };
  return op;
}

const OpDef& FullyConnectedGradDataOp() {
  static const OpDef op = {
      .name = "FullyConnectedGradData",
      .doc = "dx = dy W.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = {"output_grad", "weight"},
      .infer = InferGradData,
      .check = CheckAttrs,
      .gradient = Linear::GradDataGradient<FullyConnectedAttrs>,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& FullyConnectedGradWeightOp() {
  static const OpDef op = {
      .name = "FullyConnectedGradWeight",
      .doc = "dW = dy^T x, db = sum over samples of dy.",
      .attrs_type = &AttrsOf<FullyConnectedAttrs>(),
      .inputs = {"output_grad", "data"},
      .outputs = {"weight_grad", Optional("bias_grad", Unless(&FullyConnectedAttrs::no_bias))},
      .infer = InferGradWeight,
      .check = CheckAttrs,
      .gradient = Linear::GradWeightGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
