#include "symbol/ops/softmax.h"

#include <cmath>

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckSoftmaxAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<SoftmaxAttrs>();
  // Of less, the inverse is infinite in float32.
  if (!(attrs.temperature >= 1e-30) || !std::isfinite(attrs.temperature)) {
    Throw<ModelError>("temperature must be a finite number of at least 1e-30, got {}", attrs.temperature);
  }
  rule::CheckAxisAttr("axis", attrs.axis);
}

// A softmax along the batch axis mixes samples. These are data's, or the output's in the gradient.
template <class Attrs>
void InferSoftmax(InferContext& c) {
  rule::AllAlike(c);
  const Value output = c.out(0);
  if (!output.shape()) return;
  const int along = rule::Axis(c.attrs<Attrs>().axis, *output.shape());
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

void InferSoftmaxOfFloats(InferContext& c) {
  InferSoftmax<LogSoftmaxAttrs>(c);
  rule::ExpectFloat(c.out(0));
}

// dx = dy - e^y sum_j dy_j. With g the gradient of dx:
//   d/d dy = g - sum_j g_j e^y_j;   d/d y = -g e^y sum_j dy_j
std::vector<Symbol> LogSoftmaxGradGradient(const GradientContext& g) {
  const ReduceAttrs along{.axes = {g.attrs<LogSoftmaxAttrs>().axis}, .keepdims = true};
  const Symbol part = g.output_grad(0) * Exp(g.input(1));
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = g.output_grad(0) - Sum(part, along);
  if (g.wants(1)) result[1] = -(part * Sum(g.input(0), along));
  return result;
}

}  // namespace

Symbol ScoresOf(const Symbol& y) {
  const Node& node = *y.entry().node;
  if (node.is_variable() || &node.op() != &SoftmaxOp()) return y;
  const auto& [axis, temperature] = node.attrs().get<SoftmaxAttrs>();
  return (axis == -1 || axis == 1) && temperature == 1 ? Symbol(node.inputs()[0]) : y;
}

const OpDef& LogSoftmaxOp() {
  static const OpDef op = {
      .name = "LogSoftmax",
      .doc = "y_i = x_i - log sum_j exp(x_j) along one axis.",
      .attrs_type = &AttrsOf<LogSoftmaxAttrs>(),
      .infer = InferSoftmaxOfFloats,
      .check = rule::CheckAxis<LogSoftmaxAttrs>,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy - e^y sum_j dy_j. Only y is kept.
        return {LogSoftmaxGrad(g.output_grad(0), g.output(0), g.attrs<LogSoftmaxAttrs>())};
      },
      .inplace = {{0, 0}},
  };
  return op;
}

const OpDef& LogSoftmaxGradOp() {
  static const OpDef op = {
      .name = "LogSoftmaxGrad",
      .doc = "dx = dy - e^y sum_j dy_j, from the output y.",
      .attrs_type = &AttrsOf<LogSoftmaxAttrs>(),
      .inputs = {"output_grad", "output"},
      .infer = InferSoftmaxOfFloats,
      .check = rule::CheckAxis<LogSoftmaxAttrs>,
      .gradient = LogSoftmaxGradGradient,
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& HardmaxOp() {
  static const OpDef op = {
      .name = "Hardmax",
      .doc = "1 at the first of the largest elements along one axis, else 0.",
      .attrs_type = &AttrsOf<LogSoftmaxAttrs>(),
      .infer = InferSoftmaxOfFloats,
      .check = rule::CheckAxis<LogSoftmaxAttrs>,
      .gradient = rule::NoGradient,  // piecewise constant
  };
  return op;
}

const OpDef& SoftmaxOp() {
  static const OpDef op = {
      .name = "Softmax",
      .doc = "y_i = exp((x_i - m) / t) / sum_j exp((x_j - m) / t) along one axis, with m = max_j x_j.",
      .attrs_type = &AttrsOf<SoftmaxAttrs>(),
      .infer = InferSoftmax<SoftmaxAttrs>,
      .check = CheckSoftmaxAttrs,
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
      .infer = InferSoftmax<SoftmaxAttrs>,
      .check = CheckSoftmaxAttrs,
      .gradient = SoftmaxGradGradient,
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
