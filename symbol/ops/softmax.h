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
};

const OpDef& SoftmaxOp();
inline constexpr OpFunction<SoftmaxAttrs> Softmax{SoftmaxOp};
// (output gradient, output) -> data gradient = y (dy - sum_j dy_j y_j) / t
const OpDef& SoftmaxGradOp();
inline constexpr OpFunction<SoftmaxAttrs, 2> SoftmaxGrad{SoftmaxGradOp};

}  // namespace bindery
