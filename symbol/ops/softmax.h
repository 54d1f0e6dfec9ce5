// Softmax along one axis: y_i = exp((x_i - m) / t) / sum_j exp((x_j - m) / t), m = max_j x_j.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct SoftmaxAttrs {
  int64_t axis = -1;
  double temperature = 1;
  static constexpr auto Fields() {
    return std::tuple{Field{"axis", &SoftmaxAttrs::axis, "axis of the sum"},
                      Field{"temperature", &SoftmaxAttrs::temperature, "t > 0"}};
  }
  bool operator==(const SoftmaxAttrs&) const = default;
};

Symbol Softmax(const Symbol& data, const SoftmaxAttrs& attrs = {}, const std::string& name = {});
Symbol SoftmaxGrad(const Symbol& output_grad, const Symbol& output, const SoftmaxAttrs& attrs,
                   const std::string& name = {});
const OpDef& SoftmaxOp();
// (output gradient, output) -> data gradient = y (dy - sum_j dy_j y_j) / t
const OpDef& SoftmaxGradOp();

}  // namespace bindery
