#include "symbol/ops/softmax.h"

#include <cmath>

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<SoftmaxAttrs>();
  if (!(attrs.temperature > 0) || !std::isfinite(attrs.temperature)) {
    Throw<ModelError>("temperature must be a finite number above 0, got {}", attrs.temperature);
  }
  rule::CheckAxisAttr("axis", attrs.axis);
}

// A softmax along the batch axis mixes samples. These are data's, or the output's in the gradient.
void InferSoftmax(InferContext& c) {
  rule::AllAlike(c);
  const Value output = c.out(0);
  if (!output.shape()) return;
  const int along = rule::Axis(c.attrs<SoftmaxAttrs>().axis, *output.shape());
  c.in(c.num_inputs() - 1).Carry(output, [&](int axis) { return axis == along ? -1 : axis; });
}

// dx = y (dy - s) / t, s = sum_j dy_j y_j. With g the gradient of dx and q = sum_j g_j y_j:
//   d/d dy = y (g - q) / t;   d/d y = (g (dy - s) - q dy) / t
std::vector<Symbol> SoftmaxGradGradient(const GradientContext& g) {
  const auto& attrs = g.attrs<SoftmaxAttrs>();
  const Symbol &dx = g.output_grad(0), dy = g.input(0), y = g.input(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = SoftmaxGrad(dx, y, attrs);
  if (!g.wants(1)) return result;
  const auto dot = [&](const Symbol& a) { return Sum(a * y, {.axes = {attrs.axis}, .keepdims = true}); };
  result[1] = (dx * (dy - dot(dy)) - dot(dx) * dy) / attrs.temperature;
  return result;
}

}  // namespace

const OpDef& SoftmaxOp() {
  static const OpDef op = {
      .name = "Softmax",
      .doc = "y_i = exp((x_i - m) / t) / sum_j exp((x_j - m) / t) along one axis, with m = max_j x_j.",
      .attrs_type = &AttrsOf<SoftmaxAttrs>(),
      .infer = InferSoftmax,
      .check = CheckAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = y (dy - sum_j dy_j y_j) / t. Only y is kept.
        return {SoftmaxGrad(g.output_grad(0), g.output(0), g.attrs<SoftmaxAttrs>())};
      },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& SoftmaxGradOp() {
  static const OpDef op = {
      .name = "SoftmaxGrad",
      .doc = "dx = y (dy - sum_j dy_j y_j) / t, from the output y.",
      .attrs_type = &AttrsOf<SoftmaxAttrs>(),
      .inputs = {"output_grad", "output"},
      .infer = InferSoftmax,
      .check = CheckAttrs,
      .gradient = SoftmaxGradGradient,
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
