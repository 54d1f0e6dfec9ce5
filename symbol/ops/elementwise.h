// Element-wise arithmetic. Binary operators broadcast as in NumPy: shapes are aligned at the last axis, extents of 1
// stretch.
#pragma once

#include <span>
#include <string_view>

#include "symbol/op_def.h"

namespace bindery {

// A row of the table in elementwise.cc by its operator's name; throws ModelError if there is none.
const OpDef& ElementwiseOp(std::string_view name);
std::span<const OpDef& (*const)()> ElementwiseOps();  // every row
inline Symbol Elementwise(std::string_view op, const std::vector<Symbol>& operands, const std::string& name = {}) {
  return Apply(ElementwiseOp(op), {}, operands, name);
}

inline Symbol Add(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Add", {a, b}, name);
}
inline Symbol Sub(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Sub", {a, b}, name);
}
inline Symbol Mul(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Mul", {a, b}, name);
}
inline Symbol Div(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Div", {a, b}, name);
}
inline Symbol Mod(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Mod", {a, b}, name);
}
inline Symbol Power(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Power", {a, b}, name);
}
inline Symbol Maximum(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Maximum", {a, b}, name);
}
inline Symbol Minimum(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Minimum", {a, b}, name);
}
// 1 or 0, in the operands' dtype; no gradients. Of numbers, 0 is false.
inline Symbol Less(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Less", {a, b}, name);
}
inline Symbol LessEqual(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("LessEqual", {a, b}, name);
}
inline Symbol Greater(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Greater", {a, b}, name);
}
inline Symbol GreaterEqual(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("GreaterEqual", {a, b}, name);
}
inline Symbol Equal(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Equal", {a, b}, name);
}
inline Symbol NotEqual(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("NotEqual", {a, b}, name);
}
inline Symbol And(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("And", {a, b}, name);
}
inline Symbol Or(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Or", {a, b}, name);
}
inline Symbol Xor(const Symbol& a, const Symbol& b, const std::string& name = {}) {
  return Elementwise("Xor", {a, b}, name);
}

struct ScalarAttrs {
  double scalar = 0;
  static constexpr auto Fields() { return std::tuple{Field{"scalar", &ScalarAttrs::scalar, "the constant operand"}}; }
  bool operator==(const ScalarAttrs&) const = default;
};
Symbol operator+(const Symbol& a, const Symbol& b);
Symbol operator-(const Symbol& a, const Symbol& b);
Symbol operator*(const Symbol& a, const Symbol& b);
Symbol operator/(const Symbol& a, const Symbol& b);
Symbol operator+(const Symbol& a, double c);
Symbol operator-(const Symbol& a, double c);
Symbol operator*(const Symbol& a, double c);
Symbol operator/(const Symbol& a, double c);
Symbol operator+(double c, const Symbol& a);
Symbol operator-(double c, const Symbol& a);
Symbol operator*(double c, const Symbol& a);
Symbol operator/(double c, const Symbol& a);
Symbol operator-(const Symbol& a);

inline Symbol Exp(const Symbol& x, const std::string& name = {}) { return Elementwise("Exp", {x}, name); }
inline Symbol Expm1(const Symbol& x, const std::string& name = {}) { return Elementwise("Expm1", {x}, name); }
inline Symbol Log(const Symbol& x, const std::string& name = {}) { return Elementwise("Log", {x}, name); }
inline Symbol Log1p(const Symbol& x, const std::string& name = {}) { return Elementwise("Log1p", {x}, name); }
inline Symbol Square(const Symbol& x, const std::string& name = {}) { return Elementwise("Square", {x}, name); }
inline Symbol Sqrt(const Symbol& x, const std::string& name = {}) { return Elementwise("Sqrt", {x}, name); }
inline Symbol Reciprocal(const Symbol& x, const std::string& name = {}) { return Elementwise("Reciprocal", {x}, name); }
inline Symbol Abs(const Symbol& x, const std::string& name = {}) { return Elementwise("Abs", {x}, name); }
inline Symbol Sign(const Symbol& x, const std::string& name = {}) { return Elementwise("Sign", {x}, name); }
inline Symbol Floor(const Symbol& x, const std::string& name = {}) { return Elementwise("Floor", {x}, name); }
inline Symbol Ceil(const Symbol& x, const std::string& name = {}) { return Elementwise("Ceil", {x}, name); }
inline Symbol Round(const Symbol& x, const std::string& name = {}) { return Elementwise("Round", {x}, name); }
inline Symbol Erf(const Symbol& x, const std::string& name = {}) { return Elementwise("Erf", {x}, name); }
inline Symbol Sin(const Symbol& x, const std::string& name = {}) { return Elementwise("Sin", {x}, name); }
inline Symbol Cos(const Symbol& x, const std::string& name = {}) { return Elementwise("Cos", {x}, name); }
inline Symbol Tan(const Symbol& x, const std::string& name = {}) { return Elementwise("Tan", {x}, name); }
inline Symbol Asin(const Symbol& x, const std::string& name = {}) { return Elementwise("Asin", {x}, name); }
inline Symbol Acos(const Symbol& x, const std::string& name = {}) { return Elementwise("Acos", {x}, name); }
inline Symbol Atan(const Symbol& x, const std::string& name = {}) { return Elementwise("Atan", {x}, name); }
inline Symbol Sinh(const Symbol& x, const std::string& name = {}) { return Elementwise("Sinh", {x}, name); }
inline Symbol Cosh(const Symbol& x, const std::string& name = {}) { return Elementwise("Cosh", {x}, name); }
inline Symbol Asinh(const Symbol& x, const std::string& name = {}) { return Elementwise("Asinh", {x}, name); }
inline Symbol Acosh(const Symbol& x, const std::string& name = {}) { return Elementwise("Acosh", {x}, name); }
inline Symbol Atanh(const Symbol& x, const std::string& name = {}) { return Elementwise("Atanh", {x}, name); }
inline Symbol Not(const Symbol& x, const std::string& name = {}) { return Elementwise("Not", {x}, name); }
inline Symbol IsNaN(const Symbol& x, const std::string& name = {}) { return Elementwise("IsNaN", {x}, name); }
inline Symbol IsInf(const Symbol& x, const std::string& name = {}) { return Elementwise("IsInf", {x}, name); }

// Those that other code names.
inline const OpDef& AddOp() {
  static const OpDef& op = ElementwiseOp("Add");
  return op;
}
inline const OpDef& SubOp() {
  static const OpDef& op = ElementwiseOp("Sub");
  return op;
}
inline const OpDef& MulOp() {
  static const OpDef& op = ElementwiseOp("Mul");
  return op;
}
inline const OpDef& DivOp() {
  static const OpDef& op = ElementwiseOp("Div");
  return op;
}
inline const OpDef& MaximumOp() {
  static const OpDef& op = ElementwiseOp("Maximum");
  return op;
}
inline const OpDef& MinimumOp() {
  static const OpDef& op = ElementwiseOp("Minimum");
  return op;
}
inline const OpDef& GreaterEqualOp() {
  static const OpDef& op = ElementwiseOp("GreaterEqual");
  return op;
}
inline const OpDef& LessEqualOp() {
  static const OpDef& op = ElementwiseOp("LessEqual");
  return op;
}
inline const OpDef& NegativeOp() {
  static const OpDef& op = ElementwiseOp("Negative");
  return op;
}
inline const OpDef& ExpOp() {
  static const OpDef& op = ElementwiseOp("Exp");
  return op;
}
inline const OpDef& LogOp() {
  static const OpDef& op = ElementwiseOp("Log");
  return op;
}
inline const OpDef& SquareOp() {
  static const OpDef& op = ElementwiseOp("Square");
  return op;
}
inline const OpDef& SqrtOp() {
  static const OpDef& op = ElementwiseOp("Sqrt");
  return op;
}
inline const OpDef& AbsOp() {
  static const OpDef& op = ElementwiseOp("Abs");
  return op;
}
inline const OpDef& SignOp() {
  static const OpDef& op = ElementwiseOp("Sign");
  return op;
}
// data -> output, ScalarAttrs: x + c, x - c, c - x, x * c, x / c, c / x
const OpDef& AddScalarOp();
const OpDef& SubScalarOp();
const OpDef& RSubScalarOp();
const OpDef& MulScalarOp();
const OpDef& DivScalarOp();
const OpDef& RDivScalarOp();
const OpDef& AddNOp();  // arg0, arg1, ... of one shape -> their sum, in order
// Made by fusion: a + b of one shape, then relu; and its gradient's sum first: (a + b) [y > 0].
const OpDef& AddReluOp();      // a, b -> output
const OpDef& AddReluGradOp();  // (g0, g1, output) -> (g0 + g1) [output > 0]

struct ConstantAttrs {
  std::shared_ptr<const HostTensor> value = {};
  static constexpr auto Fields() { return std::tuple{Field{"value", &ConstantAttrs::value, "the tensor"}}; }
  bool operator==(const ConstantAttrs& other) const;  // by content
};
Symbol Constant(HostTensor value, const std::string& name = {});
const OpDef& ConstantOp();  // no inputs
// The tensor of a Constant; nullptr for other nodes.
std::shared_ptr<const HostTensor> ConstantValue(const Node& node);

}  // namespace bindery
