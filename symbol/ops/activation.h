// Activation functions, each with a gradient that is a function of its output.
#pragma once

#include <array>
#include <span>

#include "symbol/op_def.h"

namespace bindery {

enum class ActivationType { kNone, kRelu, kSigmoid, kTanh, kSoftRelu, kSoftSign };
inline std::span<const EnumName> EnumNames(ActivationType*) {
  static constexpr std::array<EnumName, 6> names{
      {{0, "none"}, {1, "relu"}, {2, "sigmoid"}, {3, "tanh"}, {4, "softrelu"}, {5, "softsign"}}};
  return names;
}

// kNone is the identity; only other operators' `activation` attribute takes it.
struct ActivationAttrs {
  ActivationType type = ActivationType::kRelu;
  static FieldList Fields() { return {{"type", &ActivationAttrs::type, "the function"}}; }
};

const OpDef& ActivationOp();
inline constexpr OpFunction<ActivationAttrs> Activation{ActivationOp};
struct ActivationFunction {
  ActivationType type;
  Symbol operator()(const Symbol& data, const std::string& name = {}) const { return Activation(data, {type}, name); }
};
inline constexpr ActivationFunction Relu{ActivationType::kRelu};
inline constexpr ActivationFunction Sigmoid{ActivationType::kSigmoid};
inline constexpr ActivationFunction Tanh{ActivationType::kTanh};
inline constexpr ActivationFunction SoftRelu{ActivationType::kSoftRelu};  // log(1 + e^x)
inline constexpr ActivationFunction Softplus = SoftRelu;                  // as most call it
inline constexpr ActivationFunction SoftSign{ActivationType::kSoftSign};  // x / (1 + |x|)

// (output gradient, output) -> data gradient
//   relu: dy [y > 0]; sigmoid: dy y (1 - y); tanh: dy (1 - y^2); softrelu: dy (1 - e^-y); softsign: dy (1 - |y|)^2
const OpDef& ActivationGradOp();
inline constexpr OpFunction<ActivationAttrs, 2> ActivationGrad{ActivationGradOp};

}  // namespace bindery
