// Softmax along one axis: y_i = exp((x_i - m) / t) / sum_j exp((x_j - m) / t), m = max_j x_j.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct SoftmaxAttrs {
  int64_t axis = -1;
  double temperature = 1;
  static FieldList Fields() {
    return {{"axis", &SoftmaxAttrs::axis, "axis of the sum"}, {"temperature", &SoftmaxAttrs::temperature, "t > 0"}};
  }
};

const OpDef& SoftmaxOp();
inline constexpr OpFunction<SoftmaxAttrs> Softmax{SoftmaxOp};
// What y, of shape (N, K), is the plain softmax over the classes of; y itself if it is none.
Symbol ScoresOf(const Symbol& y);
// (output gradient, output) -> data gradient = y (dy - sum_j dy_j y_j) / t
const OpDef& SoftmaxGradOp();
inline constexpr OpFunction<SoftmaxAttrs, 2> SoftmaxGrad{SoftmaxGradOp};

struct LogSoftmaxAttrs {
  int64_t axis = -1;
  static FieldList Fields() { return {{"axis", &LogSoftmaxAttrs::axis, "axis of the sum"}}; }
};
const OpDef& LogSoftmaxOp();  // x_i - log sum_j exp(x_j)
inline constexpr OpFunction<LogSoftmaxAttrs> LogSoftmax{LogSoftmaxOp};
const OpDef& LogSoftmaxGradOp();  // (output gradient, output) -> data gradient = dy - e^y sum_j dy_j
inline constexpr OpFunction<LogSoftmaxAttrs, 2> LogSoftmaxGrad{LogSoftmaxGradOp};
const OpDef& HardmaxOp();  // 1 at the first of the largest elements, else 0. No gradient passes.
inline constexpr OpFunction<LogSoftmaxAttrs> Hardmax{HardmaxOp};

}  // namespace bindery
