#include "symbol/ops/activation.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

std::string TypeName(ActivationType type) {
  return EnumNames(static_cast<ActivationType*>(nullptr))[static_cast<int>(type)].name;
}

void CheckType(const AnyAttrs& attrs) {
  if (attrs.get<ActivationAttrs>().type == ActivationType::kNone) {
    Throw<ModelError>("type must be relu, sigmoid, tanh, softrelu or softsign, got none");
  }
}

// dx = dy f', f' as a function of the output y. With g the gradient of dx:
//   d/d dy = g f';   d/d y = g dy df'/dy
//   relu 0; sigmoid 1 - 2y; tanh -2y; softrelu e^-y; softsign -2 (1 - |y|) sign(y)
std::vector<Symbol> ActivationGradGradient(const GradientContext& g) {
  const ActivationAttrs& attrs = g.attrs<ActivationAttrs>();
  const Symbol &dx = g.output_grad(0), dy = g.input(0), y = g.input(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = ActivationGrad(dx, y, attrs);
  if (!g.wants(1) || attrs.type == ActivationType::kRelu) return result;
  Symbol slope;
  switch (attrs.type) {
    case ActivationType::kSigmoid: slope = y * -2.0 + 1.0; break;
    case ActivationType::kTanh: slope = y * -2.0; break;
    case ActivationType::kSoftRelu: slope = Exp(-y); break;
    default: slope = y * 2.0 - Sign(y) * 2.0;  // softsign, as |y| sign(y) = y
  }
  result[1] = dx * dy * slope;
  return result;
}

}  // namespace

const OpDef& ActivationOp() {
  static const OpDef op = {
      .name = "Activation",
      .doc = "y = f(x): relu max(0, x); sigmoid 1 / (1 + e^-x); tanh; softrelu log(1 + e^x); softsign x / (1 + |x|).",
      .attrs_type = &AttrsOf<ActivationAttrs>(),
      .auto_name = [](const AnyAttrs& attrs) { return TypeName(attrs.get<ActivationAttrs>().type); },
      .infer = rule::Like(0),
      .check = CheckType,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy f'(x), where f' is known from y: only y is kept.
        return {ActivationGrad(g.output_grad(0), g.output(0), g.attrs<ActivationAttrs>())};
      },
      .inplace = {{0, 0}},
      // zero_to_zero would be right for relu, tanh and softsign only; their kernels know.
  };
  return op;
}

const OpDef& ActivationGradOp() {
  static const OpDef op = {
      .name = "ActivationGrad",
      .doc =
          "dx = dy f', from the output y: relu [y > 0]; sigmoid y (1 - y); tanh 1 - y^2; softrelu 1 - e^-y; softsign "
          "(1 - |y|)^2.",
      .attrs_type = &AttrsOf<ActivationAttrs>(),
      .inputs = {"output_grad", "output"},
      .infer = rule::Like(1),
      .check = CheckType,
      .gradient = ActivationGradGradient,
      .inplace = {{0, 0}, {1, 0}},
      .zero_to_zero = true,  // dy = 0
  };
  return op;
}

}  // namespace bindery
