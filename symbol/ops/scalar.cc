// Operators of one operand and a constant.
#include <cmath>

#include "base/error.h"
#include "symbol/ops/common.h"
#include "symbol/ops/elementwise.h"

namespace bindery {
namespace {

using GradientRule = std::vector<Symbol> (*)(const GradientContext&);

OpDef WithScalar(std::string name, std::string doc, GradientRule gradient, bool zero_to_zero) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .attrs_type = &AttrsOf<ScalarAttrs>(),
      .infer_shape = rule::AllAlike,
      .gradient = gradient,
      .inplace = {{0, 0}},
      .zero_to_zero = zero_to_zero,
  };
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
Symbol operator-(const Symbol& a) { return Elementwise("Negative", {a}); }

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

}  // namespace bindery
