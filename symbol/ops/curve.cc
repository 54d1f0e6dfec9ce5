#include "symbol/ops/curve.h"

#include "base/error.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

void CheckCurveAttrs(const AnyAttrs& any) {
  const auto& [type, alpha, beta] = any.get<CurveAttrs>();
  rule::CheckFinite("alpha", alpha);
  rule::CheckFinite("beta", beta);
  if ((type == CurveType::kCelu || type == CurveType::kSmoothL1) && alpha == 0) throw ModelError("alpha must not be 0");
  if (type == CurveType::kShrink && alpha < 0) Throw<ModelError>("alpha must not be negative, got {}", alpha);
  if (type == CurveType::kHardTanh && alpha > beta)
    Throw<ModelError>("alpha must not be above beta, got {} and {}", alpha, beta);
}

// The samples are those of data, the last input.
void InferCurve(InferContext& c) {
  rule::Like(c.num_inputs() - 1)(c);
  rule::ExpectFloat(c.out(0));
}

// f'' at x; empty where it is 0.
Symbol Bend(const CurveAttrs& attrs, const Symbol& x) {
  const double a = attrs.alpha, b = attrs.beta;
  constexpr double kRoot = 0.79788456080286536, kThird = 0.035677408136300125;  // of gelu_tanh
  constexpr double kDensity = 0.39894228040143268;                              // of the normal distribution at 0
  switch (attrs.type) {
    case CurveType::kSelu: return Where(Less(x, 0.0), Exp(Minimum(x, 0.0)) * (a * b), 0.0);
    case CurveType::kCelu: return Where(Less(x, 0.0), Exp(Minimum(x, 0.0) * (1 / a)) * (1 / a), 0.0);
    case CurveType::kGelu: return (2.0 - Square(x)) * Exp(Square(x) * -0.5) * kDensity;
    case CurveType::kGeluTanh: {
      // With u the argument of tanh: (1 - t^2) (u' + x (u'' / 2 - t u'^2)).
      const Symbol square = Square(x), t = Tanh(x * (square * kThird + kRoot)), slope = square * (3 * kThird) + kRoot;
      return (1.0 - Square(t)) * (slope + x * (x * (3 * kThird) - t * Square(slope)));
    }
    case CurveType::kSwish: {
      const Symbol s = Sigmoid(x * a);
      return s * (1.0 - s) * (2.0 + x * a * (1.0 - s * 2.0)) * a;
    }
    case CurveType::kHardSwish: {
      const Symbol y = x * a + b;
      return Where(And(Greater(y, 0.0), Less(y, 1.0)), 2 * a, Mul(x, 0.0));
    }
    case CurveType::kMish: {
      const Symbol t = Tanh(SoftRelu(x)), s = Sigmoid(x);
      return (1.0 - Square(t)) * s * (2.0 + x * (1.0 - s - t * s * 2.0));
    }
    case CurveType::kSmoothL1: return Where(Less(Abs(x) * (a * a), 1.0), a * a, Mul(x, 0.0));
    default: return {};
  }
}

}  // namespace

const OpDef& CurveOp() {
  static const OpDef op = {
      .name = "Curve",
      .doc = "y = f(x), a bent line or a smooth one: leaky_relu, selu, gelu, swish and others.",
      .attrs_type = &AttrsOf<CurveAttrs>(),
      .auto_name =
          [](const AnyAttrs& attrs) {
            return std::string(
                EnumNames(static_cast<CurveType*>(nullptr))[static_cast<int>(attrs.get<CurveAttrs>().type)].name);
          },
      .infer = InferCurve,
      .check = CheckCurveAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        return {Apply(CurveGradOp(), g.attrs<CurveAttrs>(), {g.output_grad(0), g.input(0)})};
      },
      .inplace = {{0, 0}},
      // zero_to_zero is known to the kernels, by function.
  };
  return op;
}

const OpDef& CurveGradOp() {
  static const OpDef op = {
      .name = "CurveGrad",
      .doc = "dx = dy f'(x).",
      .attrs_type = &AttrsOf<CurveAttrs>(),
      .inputs = {"output_grad", "data"},
      .infer = InferCurve,
      .check = CheckCurveAttrs,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // d/d dy = f'(x); d/d x = dy f''(x)
        const auto& attrs = g.attrs<CurveAttrs>();
        std::vector<Symbol> gradients(2);
        if (g.wants(0)) gradients[0] = Apply(CurveGradOp(), attrs, {g.output_grad(0), g.input(1)});
        const Symbol bend = g.wants(1) ? Bend(attrs, g.input(1)) : Symbol();
        if (!bend.empty()) gradients[1] = g.output_grad(0) * g.input(0) * bend;
        return gradients;
      },
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
