// Binary operators with broadcasting, and arithmetic on symbols.
#include "symbol/ops/elementwise.h"

#include "symbol/ops/broadcast.h"
#include "symbol/ops/common.h"

namespace bindery {
namespace {

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef Binary(std::string name, std::string doc, GradientRule gradient, bool zero_to_zero) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .inputs = rule::Inputs({"a", "b"}),
      .infer_shape = rule::InferBroadcast,
      .batch_axis = rule::BatchAligned,
      .gradient = gradient,
      .inplace = {{0, 0}, {1, 0}},  // for the operand that is not stretched
      .zero_to_zero = zero_to_zero,
  };
}

// The gradient of operand i, where one is wanted: `make` gives it in the output's shape.
template <class Make>
Symbol OperandGrad(const GradientContext& g, int i, Make make) {
  return g.wants(i) ? rule::OperandGradient(g, i, make()) : Symbol();
}

// max and min: dy flows to a where `a_wins` (1 or 0), else to b.
std::vector<Symbol> SelectGradient(const GradientContext& g, const Symbol& a_wins) {
  const Symbol& dy = g.output_grad(0);
  return {OperandGrad(g, 0, [&] { return dy * a_wins; }), OperandGrad(g, 1, [&] { return dy * (1 - a_wins); })};
}

// Piecewise constant: the derivative is 0 wherever it exists.
std::vector<Symbol> NoGradient(const GradientContext&) { return {}; }

}  // namespace

Symbol Add(const Symbol& a, const Symbol& b, const std::string& name) { return Apply(AddOp(), {}, {a, b}, name); }
Symbol Sub(const Symbol& a, const Symbol& b, const std::string& name) { return Apply(SubOp(), {}, {a, b}, name); }
Symbol Mul(const Symbol& a, const Symbol& b, const std::string& name) { return Apply(MulOp(), {}, {a, b}, name); }
Symbol Div(const Symbol& a, const Symbol& b, const std::string& name) { return Apply(DivOp(), {}, {a, b}, name); }
Symbol Maximum(const Symbol& a, const Symbol& b, const std::string& name) {
  return Apply(MaximumOp(), {}, {a, b}, name);
}
Symbol Minimum(const Symbol& a, const Symbol& b, const std::string& name) {
  return Apply(MinimumOp(), {}, {a, b}, name);
}
Symbol GreaterEqual(const Symbol& a, const Symbol& b, const std::string& name) {
  return Apply(GreaterEqualOp(), {}, {a, b}, name);
}
Symbol LessEqual(const Symbol& a, const Symbol& b, const std::string& name) {
  return Apply(LessEqualOp(), {}, {a, b}, name);
}

Symbol operator+(const Symbol& a, const Symbol& b) { return Add(a, b); }
Symbol operator-(const Symbol& a, const Symbol& b) { return Sub(a, b); }
Symbol operator*(const Symbol& a, const Symbol& b) { return Mul(a, b); }
Symbol operator/(const Symbol& a, const Symbol& b) { return Div(a, b); }

const OpDef& AddOp() {
  static const OpDef op = Binary(
      "Add", "a + b",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // da = dy, db = dy, each summed over the axes along which the operand was stretched; so in all below.
        return {OperandGrad(g, 0, [&] { return g.output_grad(0); }),
                OperandGrad(g, 1, [&] { return g.output_grad(0); })};
      },
      true);
  return op;
}

const OpDef& SubOp() {
  static const OpDef op = Binary(
      "Sub", "a - b",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // da = dy, db = -dy
        return {OperandGrad(g, 0, [&] { return g.output_grad(0); }),
                OperandGrad(g, 1, [&] { return -g.output_grad(0); })};
      },
      true);
  return op;
}

const OpDef& MulOp() {
  static const OpDef op = Binary(
      "Mul", "a b",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // da = dy b, db = dy a
        return {OperandGrad(g, 0, [&] { return g.output_grad(0) * g.input(1); }),
                OperandGrad(g, 1, [&] { return g.output_grad(0) * g.input(0); })};
      },
      true);
  return op;
}

const OpDef& DivOp() {
  static const OpDef op = Binary(
      "Div", "a / b",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // da = dy / b, db = -(dy / b) y, as y / b = a / b^2
        const Symbol over_b = g.output_grad(0) / g.input(1);
        return {OperandGrad(g, 0, [&] { return over_b; }), OperandGrad(g, 1, [&] { return -(over_b * g.output(0)); })};
      },
      false);  // 0 / 0
  return op;
}

const OpDef& MaximumOp() {
  static const OpDef op = Binary(
      "Maximum", "max(a, b)",
      [](const GradientContext& g) {
        // da = dy [a >= b], db = dy [a < b]
        return SelectGradient(g, GreaterEqual(g.input(0), g.input(1)));
      },
      true);
  return op;
}

const OpDef& MinimumOp() {
  static const OpDef op = Binary(
      "Minimum", "min(a, b)",
      [](const GradientContext& g) {
        // da = dy [a <= b], db = dy [a > b]
        return SelectGradient(g, LessEqual(g.input(0), g.input(1)));
      },
      true);
  return op;
}

const OpDef& GreaterEqualOp() {
  static const OpDef op = Binary("GreaterEqual", "1 where a >= b, else 0. Its gradient is 0.", NoGradient, false);
  return op;
}

const OpDef& LessEqualOp() {
  static const OpDef op = Binary("LessEqual", "1 where a <= b, else 0. Its gradient is 0.", NoGradient, false);
  return op;
}

}  // namespace bindery
