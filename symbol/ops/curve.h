// Curves: activation functions of one number that are bent by up to two more, and whose gradient is a function of the
// input. (Those whose gradient is a function of the output are Activation's.)
#pragma once

#include <array>
#include <span>

#include "symbol/op_def.h"

namespace bindery {

// With a = alpha, b = beta, and Phi the distribution function of the normal distribution:
//   leaky_relu        x, below 0 a x                        selu              b x, below 0 b a (e^x - 1)
//   celu              x, below 0 a (e^(x / a) - 1)          gelu              x Phi(x)
//   gelu_tanh         x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); Hendrycks and Gimpel, arXiv 1606.08415
//   swish             x / (1 + e^(-a x))                    hard_sigmoid      a x + b from 0 to 1
//   hard_swish        x (a x + b from 0 to 1)               hard_tanh         x from a to b
//   thresholded_relu  x above a, else 0                     shrink            x + b below -a, x - b above a, else 0
//   mish              x tanh(log(1 + e^x))
//   smooth_l1         (a x)^2 / 2, |x| - 1 / (2 a^2) from |x| = 1 / a^2 on
enum class CurveType {
  kLeakyRelu,
  kSelu,
  kCelu,
  kGelu,
  kGeluTanh,
  kSwish,
  kHardSigmoid,
  kHardSwish,
  kHardTanh,
  kThresholdedRelu,
  kShrink,
  kMish,
  kSmoothL1,
};
inline std::span<const EnumName> EnumNames(CurveType*) {
  static constexpr std::array<EnumName, 13> names{{{0, "leaky_relu"},
                                                   {1, "selu"},
                                                   {2, "celu"},
                                                   {3, "gelu"},
                                                   {4, "gelu_tanh"},
                                                   {5, "swish"},
                                                   {6, "hard_sigmoid"},
                                                   {7, "hard_swish"},
                                                   {8, "hard_tanh"},
                                                   {9, "thresholded_relu"},
                                                   {10, "shrink"},
                                                   {11, "mish"},
                                                   {12, "smooth_l1"}}};
  return names;
}

struct CurveAttrs {
  CurveType type = CurveType::kLeakyRelu;
  double alpha = 1, beta = 1;
  static FieldList Fields() {
    return {{"type", &CurveAttrs::type, "the function"},
            {"alpha", &CurveAttrs::alpha, "a of the function"},
            {"beta", &CurveAttrs::beta, "b of the function"}};
  }
};

// Floating point data of any shape -> the same. ModelError: alpha of 0 for celu and smooth_l1, negative for shrink,
// alpha above beta for hard_tanh, numbers that are not finite.
const OpDef& CurveOp();
inline constexpr OpFunction<CurveAttrs> Curve{CurveOp};
inline Symbol LeakyRelu(const Symbol& data, double slope = 0.01, const std::string& name = {}) {
  return Curve(data, {CurveType::kLeakyRelu, slope}, name);
}
inline Symbol Elu(const Symbol& data, double alpha = 1, const std::string& name = {}) {
  return Curve(data, {CurveType::kSelu, alpha}, name);
}
// The numbers are those of Klambauer and others, arXiv 1706.02515.
inline Symbol Selu(const Symbol& data, double alpha = 1.6732632423543772, double scale = 1.0507009873554805,
                   const std::string& name = {}) {
  return Curve(data, {CurveType::kSelu, alpha, scale}, name);
}
inline Symbol Celu(const Symbol& data, double alpha = 1, const std::string& name = {}) {
  return Curve(data, {CurveType::kCelu, alpha}, name);
}
inline Symbol Gelu(const Symbol& data, const std::string& name = {}) { return Curve(data, {CurveType::kGelu}, name); }
inline Symbol GeluTanh(const Symbol& data, const std::string& name = {}) {
  return Curve(data, {CurveType::kGeluTanh}, name);
}
inline Symbol Swish(const Symbol& data, double factor = 1, const std::string& name = {}) {  // factor 1: SiLU
  return Curve(data, {CurveType::kSwish, factor}, name);
}
inline Symbol HardSigmoid(const Symbol& data, double alpha = 0.2, double beta = 0.5, const std::string& name = {}) {
  return Curve(data, {CurveType::kHardSigmoid, alpha, beta}, name);
}
inline Symbol HardSwish(const Symbol& data, const std::string& name = {}) {
  return Curve(data, {CurveType::kHardSwish, 1.0 / 6, 0.5}, name);
}
inline Symbol HardTanh(const Symbol& data, double low = -1, double high = 1, const std::string& name = {}) {
  return Curve(data, {CurveType::kHardTanh, low, high}, name);
}
inline Symbol Relu6(const Symbol& data, const std::string& name = {}) { return HardTanh(data, 0, 6, name); }
inline Symbol ThresholdedRelu(const Symbol& data, double threshold = 1, const std::string& name = {}) {
  return Curve(data, {CurveType::kThresholdedRelu, threshold}, name);
}
inline Symbol Shrink(const Symbol& data, double threshold = 0.5, double bias = 0, const std::string& name = {}) {
  return Curve(data, {CurveType::kShrink, threshold, bias}, name);
}
inline Symbol Mish(const Symbol& data, const std::string& name = {}) { return Curve(data, {CurveType::kMish}, name); }
inline Symbol SmoothL1(const Symbol& data, double sigma = 1, const std::string& name = {}) {
  return Curve(data, {CurveType::kSmoothL1, sigma}, name);
}

const OpDef& CurveGradOp();  // (output gradient, data) -> data gradient

}  // namespace bindery
