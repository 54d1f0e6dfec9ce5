// Operators of one operand, and of one operand and a constant.
#include <cmath>

#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"

namespace bindery {
namespace {

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef Unary(std::string name, std::string doc, GradientRule gradient, bool zero_to_zero) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .infer_shape = rule::AllAlike,
      .gradient = gradient,
      .inplace = {{0, 0}},
      .zero_to_zero = zero_to_zero,
  };
}

OpDef WithScalar(std::string name, std::string doc, GradientRule gradient, bool zero_to_zero) {
  OpDef op = Unary(std::move(name), std::move(doc), gradient, zero_to_zero);
  op.attrs_type = &AttrsOf<ScalarAttrs>();
  return op;
}

Symbol Scalar(const OpDef& op, const Symbol& x, double c) { return Apply(op, ScalarAttrs{c}, {x}); }

void CheckFactor(const AnyAttrs& attrs) { rule::CheckFinite("scalar", attrs.get<ScalarAttrs>().scalar); }

void CheckDivisor(const AnyAttrs& attrs) {
  CheckFactor(attrs);
  if (attrs.get<ScalarAttrs>().scalar == 0) throw ModelError("scalar must not be 0: it divides");
}

// dx = dy, of x + c and x - c.
std::vector<Symbol> PassOn(const GradientContext& g) { return {g.output_grad(0)}; }
// dx = -dy, of -x and c - x.
std::vector<Symbol> PassOnNegative(const GradientContext& g) { return {-g.output_grad(0)}; }

}  // namespace

Symbol operator+(const Symbol& a, double c) { return Scalar(AddScalarOp(), a, c); }
Symbol operator-(const Symbol& a, double c) { return Scalar(SubScalarOp(), a, c); }
Symbol operator*(const Symbol& a, double c) { return Scalar(MulScalarOp(), a, c); }
Symbol operator/(const Symbol& a, double c) { return Scalar(DivScalarOp(), a, c); }
Symbol operator+(double c, const Symbol& a) { return Scalar(AddScalarOp(), a, c); }
Symbol operator-(double c, const Symbol& a) { return Scalar(RSubScalarOp(), a, c); }
Symbol operator*(double c, const Symbol& a) { return Scalar(MulScalarOp(), a, c); }
Symbol operator/(double c, const Symbol& a) { return Scalar(RDivScalarOp(), a, c); }
Symbol operator-(const Symbol& a) { return Apply(NegativeOp(), {}, {a}); }

Symbol Exp(const Symbol& data, const std::string& name) { return Apply(ExpOp(), {}, {data}, name); }
Symbol Log(const Symbol& data, const std::string& name) { return Apply(LogOp(), {}, {data}, name); }
Symbol Square(const Symbol& data, const std::string& name) { return Apply(SquareOp(), {}, {data}, name); }
Symbol Sqrt(const Symbol& data, const std::string& name) { return Apply(SqrtOp(), {}, {data}, name); }
Symbol Abs(const Symbol& data, const std::string& name) { return Apply(AbsOp(), {}, {data}, name); }
Symbol Sign(const Symbol& data, const std::string& name) { return Apply(SignOp(), {}, {data}, name); }

const OpDef& AddScalarOp() {
  static const OpDef op = WithScalar("AddScalar", "x + c", PassOn, false);
  return op;
}

const OpDef& SubScalarOp() {
  static const OpDef op = WithScalar("SubScalar", "x - c", PassOn, false);
  return op;
}

const OpDef& RSubScalarOp() {
  static const OpDef op = WithScalar("RSubScalar", "c - x", PassOnNegative, false);
  return op;
}

const OpDef& MulScalarOp() {
  static const OpDef op = [] {
    OpDef def = WithScalar(
        "MulScalar", "x c",
        [](const GradientContext& g) -> std::vector<Symbol> {
          // dx = dy c
          return {g.output_grad(0) * g.attrs<ScalarAttrs>().scalar};
        },
        true);
    def.check = CheckFactor;  // 0 times infinity would be no zero
    return def;
  }();
  return op;
}

const OpDef& DivScalarOp() {
  static const OpDef op = [] {
    OpDef def = WithScalar(
        "DivScalar", "x / c",
        [](const GradientContext& g) -> std::vector<Symbol> {
          // dx = dy / c
          return {g.output_grad(0) / g.attrs<ScalarAttrs>().scalar};
        },
        true);
    def.check = CheckDivisor;
    return def;
  }();
  return op;
}

const OpDef& RDivScalarOp() {
  static const OpDef op = WithScalar(
      "RDivScalar", "c / x",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = -dy c / x^2 = -dy y / x
        return {-(g.output_grad(0) * g.output(0) / g.input(0))};
      },
      false);
  return op;
}

const OpDef& NegativeOp() {
  static const OpDef op = Unary("Negative", "-x", PassOnNegative, true);
  return op;
}

const OpDef& ExpOp() {
  static const OpDef op = Unary(
      "Exp", "e^x",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy y
        return {g.output_grad(0) * g.output(0)};
      },
      false);
  return op;
}

const OpDef& LogOp() {
  static const OpDef op = Unary(
      "Log", "the natural logarithm",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy / x
        return {g.output_grad(0) / g.input(0)};
      },
      false);
  return op;
}

const OpDef& SquareOp() {
  static const OpDef op = Unary(
      "Square", "x^2",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = 2 dy x
        return {g.output_grad(0) * g.input(0) * 2.0};
      },
      true);
  return op;
}

const OpDef& SqrtOp() {
  static const OpDef op = Unary(
      "Sqrt", "the square root",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy / (2 y)
        return {g.output_grad(0) / g.output(0) * 0.5};
      },
      true);
  return op;
}

const OpDef& AbsOp() {
  static const OpDef op = Unary(
      "Abs", "|x|",
      [](const GradientContext& g) -> std::vector<Symbol> {
        // dx = dy sign(x), 0 at 0
        return {g.output_grad(0) * Sign(g.input(0))};
      },
      true);
  return op;
}

const OpDef& SignOp() {
  static const OpDef op = Unary(
      "Sign", "-1, 0 or 1. Its gradient is 0.",
      [](const GradientContext&) -> std::vector<Symbol> { return {}; },  // piecewise constant
      true);
  return op;
}

}  // namespace bindery
