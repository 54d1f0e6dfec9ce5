// Sums of several operands, constants and numbers.
#include <fmt/format.h>

#include "base/error.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/numbers.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

const ConstantAttrs& Checked(const ConstantAttrs& attrs) {
  if (attrs.value == nullptr) throw ModelError("value is missing");
  return attrs;
}

}  // namespace

std::shared_ptr<const HostTensor> ConstantValue(const Node& node) {
  if (node.is_variable() || &node.op() != &ConstantOp()) return nullptr;
  return node.attrs().get<ConstantAttrs>().value;
}

Symbol Constant(HostTensor value, const std::string& name) {
  return Apply(ConstantOp(), ConstantAttrs{std::make_shared<const HostTensor>(std::move(value))}, {}, name);
}

std::optional<double> ScalarValue(const Node& node) {
  if (node.is_variable() || &node.op() != &ScalarOp()) return std::nullopt;
  return node.attrs().get<ScalarAttrs>().scalar;
}

// Named as it reads, but in a scope that names by itself.
Symbol Scalar(double number) {
  return Apply(ScalarOp(), ScalarAttrs{number}, {}, NameScope::Current() ? "" : fmt::format("{}", number));
}

Symbol Fold(const BinaryFunction& f, std::span<const Symbol> operands, const std::string& name) {
  if (operands.empty()) Throw<ModelError>("{} of no operands", f.of);
  Symbol y = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) y = f(y, operands[i], i + 1 < operands.size() ? "" : name);
  return y;
}

Symbol MeanOf(std::span<const Symbol> operands, const std::string& name) {
  return Mul(Fold(Add, operands), 1.0 / static_cast<double>(operands.size()), name);
}

const OpDef& AddNOp() {
  static const OpDef op = {
      .name = "AddN",
      .doc = "arg0 + arg1 + ..., in order; one shape.",
      .inputs = {Variadic("arg")},
      .infer = rule::LikeEach,
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // Each gets dy.
        return std::vector<Symbol>(g.num_inputs(), g.output_grad(0));
      },
      .inplace = {{0, 0}},
      .is_identity = [](const AnyAttrs&, const std::vector<Entry>& inputs) { return inputs.size() == 1; },
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& AddReluGradOp() {
  static const OpDef op = {
      .name = "AddReluGrad",
      .doc = "(g0 + g1) [output > 0] of one shape. Made by fusion.",
      .inputs = {"g0", "g1", "output"},
      .infer = rule::Like(2),
      .gradient = [](const GradientContext& g) -> std::vector<Symbol> {
        // dg0 = dg1 = dx [output > 0]; nothing for the output, as relu' is piecewise constant.
        const Symbol grad = ActivationGrad(g.output_grad(0), g.input(2), {ActivationType::kRelu});
        return {grad, grad, {}};
      },
      .inplace = {{0, 0}, {1, 0}, {2, 0}},
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& ConstantOp() {
  static const OpDef op = {
      .name = "Constant",
      .doc = "A tensor given with the model.",
      .attrs_type = &AttrsOf<ConstantAttrs>(),
      .inputs = {},
      .infer =
          [](InferContext& c) {
            const HostTensor& value = *Checked(c.attrs<ConstantAttrs>()).value;
            c.out(0).SetDType(value.dtype());
            c.out(0).Set(value.shape());
          },
      .check = [](const AnyAttrs& attrs) { Checked(attrs.get<ConstantAttrs>()); },
      .gradient = rule::NoGradient,  // no inputs
      .numbers = rule::ConstantNumbers,
  };
  return op;
}

const OpDef& ScalarOp() {
  static const OpDef op = {
      .name = "Scalar",
      .doc = "A number, in the element type of what it is combined with.",
      .attrs_type = &AttrsOf<ScalarAttrs>(),
      .inputs = {},
      .infer = [](InferContext& c) { c.out(0).Set({}); },  // of any type
      .gradient = rule::NoGradient,                        // no inputs
      .numbers = rule::ScalarNumbers,
  };
  return op;
}

}  // namespace bindery
