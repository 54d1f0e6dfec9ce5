#include "symbol/ops/fully_connected.h"

#include "base/error.h"
#include "symbol/ops/linear_layer.h"
#include "symbol/ops/quantized_layer.h"

namespace bindery {
namespace {

using rule::Value;

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

// dx = dy W, as data's shape has it; dW = dy^T x, db = the sum of dy over samples.
struct Layer {
  using Attrs = FullyConnectedAttrs;
  using GradDataAttrs = FullyConnectedAttrs;
  static constexpr char kName[] = "FullyConnected";
  static constexpr auto kForward = FullyConnected;
  static constexpr auto kGradWeight = FullyConnectedGradWeight;
  static int64_t Outputs(const Attrs& attrs) { return attrs.num_hidden; }
  static constexpr auto Infer = InferProduct;
  static void Check(const Attrs& attrs) { rule::CheckAtLeast("num_hidden", attrs.num_hidden, 1); }
  static void SetData(const Attrs& attrs, Value data, Value) {
    if (attrs.flatten) data.Set(rule::Unknown(2));  // its axes are joined
  }
  static void SetOutputs(Attrs&, const GradientContext&) {}
  template <class ShapeOf>
  static Symbol GradData(const Symbol& dy, const Symbol& w, const Attrs& attrs, const ShapeOf& data) {
    const Symbol grad = FullyConnectedGradData(dy, w, attrs);
    if (!attrs.flatten) return grad;
    const Extents shape = data();
    return shape.size() == 2 ? grad : rule::ReshapeTo(grad, shape);
  }
  static Symbol Spread(const Symbol& b, const Attrs&, const Extents& shape) { return rule::BroadcastTo(b, shape); }
};
using Linear = rule::LinearLayer<Layer>;

}  // namespace

const OpDef& FullyConnectedOp() {
  static const OpDef op = Linear::Forward("y = f(x W^T + b), f the activation, if any.");
  return op;
}

const OpDef& QuantizedFullyConnectedOp() {
  using Attrs = QuantizedFullyConnectedAttrs;
  static const OpDef op = rule::QuantizedLayer<Attrs>(
      "QuantizedFullyConnected",
      "f(scale (x - zero_point) W^T by integers, + b), quantized if dtype is no float32; made by fusion, in "
      "predictions.",
      [](const Attrs& attrs) { return attrs.num_hidden; },
      [](const Attrs& attrs, Value data, Value weight, Value output) { InferProduct(attrs, data, weight, output); },
      [](const AnyAttrs& attrs) { Layer::Check(attrs.get<Attrs>()); });
  return op;
}

const OpDef& FullyConnectedGradDataOp() {
  static const OpDef op = Linear::GradData("dx = dy W.");
  return op;
}

const OpDef& FullyConnectedGradWeightOp() {
  static const OpDef op = Linear::GradWeight("dW = dy^T x, db = sum over samples of dy.");
  return op;
}

}  // namespace bindery
