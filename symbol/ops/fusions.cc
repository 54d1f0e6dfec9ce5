#include "symbol/ops/fusions.h"

#include <vector>

#include "symbol/ops.h"

namespace bindery {
namespace {

using Result = std::optional<FusedOp>;

bool IsRelu(const Node& node) { return node.attrs().get<ActivationAttrs>().type == ActivationType::kRelu; }

// The gradient of every activation is a function of its output, so nothing else is lost with its input.
template <class Attrs>
Result WithActivation(const Node& layer, const Node& activation, const Fusion::TypeOf&) {
  Attrs attrs = layer.attrs().get<Attrs>();
  if (attrs.activation != ActivationType::kNone) return {};
  attrs.activation = activation.attrs().get<ActivationAttrs>().type;
  return FusedOp{&layer.op(), attrs};
}

Result NormWithRelu(const Node& norm, const Node& activation, const Fusion::TypeOf&) {
  BatchNormAttrs attrs = norm.attrs().get<BatchNormAttrs>();
  if (attrs.relu || attrs.sync || !IsRelu(activation)) return {};
  attrs.relu = true;
  return FusedOp{&norm.op(), attrs};
}

Result AddAndRelu(const Node& add, const Node& activation, const Fusion::TypeOf& type_of) {
  if (!IsRelu(activation) || type_of(add.inputs()[0]).shape != type_of(add.inputs()[1]).shape) return {};
  return FusedOp{&AddRelu.op(), NoAttrs{}};
}

Result ConvolutionAndAdd(const Node& convolution, const Node& add, const Fusion::TypeOf& type_of) {
  const ConvolutionAttrs& attrs = convolution.attrs().get<ConvolutionAttrs>();
  const ValueType &a = type_of(add.inputs()[0]), &b = type_of(add.inputs()[1]);
  if (attrs.activation != ActivationType::kNone || a.shape != b.shape || a.dtype != DType::kFloat32) return {};
  return FusedOp{&ConvolutionAddOp(), attrs};
}

Result AddAndReluGrad(const Node& sum, const Node& grad, const Fusion::TypeOf&) {
  if (!IsRelu(grad) || sum.inputs().size() != 2) return {};
  return FusedOp{&AddReluGradOp(), NoAttrs{}};
}

}  // namespace

std::span<const Fusion> Fusions() {
  static const std::vector<Fusion> rows = {
      {&BatchNormOp(), &ActivationOp(), NormWithRelu},
      {&ConvolutionOp(), &ActivationOp(), WithActivation<ConvolutionAttrs>},
      {&ConvolutionAddOp(), &ActivationOp(), WithActivation<ConvolutionAttrs>},
      {&FullyConnectedOp(), &ActivationOp(), WithActivation<FullyConnectedAttrs>},
      {&Add.op(), &ActivationOp(), AddAndRelu},
      {&AddNOp(), &ActivationGradOp(), AddAndReluGrad},
  };
  return rows;
}

std::span<const Fusion> PredictionFusions() {
  static const std::vector<Fusion> rows = {
      {.producer = &ConvolutionOp(), .reader = &Add.op(), .fuse = ConvolutionAndAdd, .commutes = true},
  };
  return rows;
}

}  // namespace bindery
