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
  static constexpr auto Fields() { return std::tuple{Field{"type", &ActivationAttrs::type, "the function"}}; }
  bool operator==(const ActivationAttrs&) const = default;
};

Symbol Activation(const Symbol& data, const ActivationAttrs& attrs, const std::string& name = {});
Symbol Relu(const Symbol& data, const std::string& name = {});
Symbol Sigmoid(const Symbol& data, const std::string& name = {});
Symbol Tanh(const Symbol& data, const std::string& name = {});
Symbol SoftRelu(const Symbol& data, const std::string& name = {});  // log(1 + e^x)
Symbol SoftSign(const Symbol& data, const std::string& name = {});  // x / (1 + |x|)

// (output gradient, output) -> data gradient
Symbol ActivationGrad(const Symbol& output_grad, const Symbol& output, const ActivationAttrs& attrs,
                      const std::string& name = {});

const OpDef& ActivationOp();
// (output gradient, output) -> data gradient
//   relu: dy [y > 0]; sigmoid: dy y (1 - y); tanh: dy (1 - y^2); softrelu: dy (1 - e^-y); softsign: dy (1 - |y|)^2
const OpDef& ActivationGradOp();

}  // namespace bindery
