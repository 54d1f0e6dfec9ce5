// Element-wise arithmetic. Operators of several operands broadcast as in NumPy: shapes are aligned at the last axis,
// extents of 1 stretch.
#pragma once

#include <span>
#include <string_view>

#include "symbol/op_def.h"

namespace bindery {

// A row of the table in elementwise.cc by its operator's name; throws ModelError if there is none.
const OpDef& ElementwiseOp(std::string_view name);
std::span<const OpDef& (*const)()> ElementwiseOps();  // every row

// One number, in the element type of what it is combined with (float32 if that is open).
struct ScalarAttrs {
  double scalar = 0;
  static FieldList Fields() { return {{"scalar", &ScalarAttrs::scalar, "the number"}}; }
};
Symbol Scalar(double number);
const OpDef& ScalarOp();                              // no inputs
std::optional<double> ScalarValue(const Node& node);  // of a Scalar

struct Operand {
  Operand(const Symbol& of) : symbol(of) {}           // NOLINT: both are operands as they stand
  Operand(double number) : symbol(Scalar(number)) {}  // NOLINT
  Symbol symbol;
};

// Functions of one operand and of two: Exp(x), Maximum(a, 0.0, "name"). `op` is the definition.
struct UnaryFunction {
  const char* of;
  const OpDef& op() const { return ElementwiseOp(of); }
  Symbol operator()(const Symbol& x, const std::string& name = {}) const { return Apply(op(), {}, {x}, name); }
};
struct BinaryFunction {
  const char* of;
  const OpDef& op() const { return ElementwiseOp(of); }
  Symbol operator()(const Operand& a, const Operand& b, const std::string& name = {}) const {
    return Apply(op(), {}, {a.symbol, b.symbol}, name);
  }
};

inline constexpr UnaryFunction Negative{"Negative"};
inline constexpr UnaryFunction Abs{"Abs"};
inline constexpr UnaryFunction Sign{"Sign"};
inline constexpr UnaryFunction Square{"Square"};
inline constexpr UnaryFunction Sqrt{"Sqrt"};
inline constexpr UnaryFunction Reciprocal{"Reciprocal"};
inline constexpr UnaryFunction Exp{"Exp"};
inline constexpr UnaryFunction Expm1{"Expm1"};
inline constexpr UnaryFunction Log{"Log"};
inline constexpr UnaryFunction Log1p{"Log1p"};
inline constexpr UnaryFunction Floor{"Floor"};
inline constexpr UnaryFunction Ceil{"Ceil"};
inline constexpr UnaryFunction Round{"Round"};
inline constexpr UnaryFunction Trunc{"Trunc"};
inline constexpr UnaryFunction Erf{"Erf"};
inline constexpr UnaryFunction Sin{"Sin"};
inline constexpr UnaryFunction Cos{"Cos"};
inline constexpr UnaryFunction Tan{"Tan"};
inline constexpr UnaryFunction Asin{"Asin"};
inline constexpr UnaryFunction Acos{"Acos"};
inline constexpr UnaryFunction Atan{"Atan"};
inline constexpr UnaryFunction Sinh{"Sinh"};
inline constexpr UnaryFunction Cosh{"Cosh"};
inline constexpr UnaryFunction Asinh{"Asinh"};
inline constexpr UnaryFunction Acosh{"Acosh"};
inline constexpr UnaryFunction Atanh{"Atanh"};
inline constexpr BinaryFunction Add{"Add"};
inline constexpr BinaryFunction Sub{"Sub"};
inline constexpr BinaryFunction Mul{"Mul"};
inline constexpr BinaryFunction Div{"Div"};
inline constexpr BinaryFunction Mod{"Mod"};
inline constexpr BinaryFunction Fmod{"Fmod"};
inline constexpr BinaryFunction Power{"Power"};
inline constexpr BinaryFunction Maximum{"Maximum"};
inline constexpr BinaryFunction Minimum{"Minimum"};
inline constexpr BinaryFunction PRelu{"PRelu"};  // (data, slope): slope data below 0; of channels it is (C, 1, 1)
// These give bool, and no gradients. Of numbers, 0 is false.
inline constexpr UnaryFunction Not{"Not"};
inline constexpr UnaryFunction IsNaN{"IsNaN"};
inline constexpr UnaryFunction IsInf{"IsInf"};
inline constexpr BinaryFunction Less{"Less"};
inline constexpr BinaryFunction LessEqual{"LessEqual"};
inline constexpr BinaryFunction Greater{"Greater"};
inline constexpr BinaryFunction GreaterEqual{"GreaterEqual"};
inline constexpr BinaryFunction Equal{"Equal"};
inline constexpr BinaryFunction NotEqual{"NotEqual"};
inline constexpr BinaryFunction And{"And"};
inline constexpr BinaryFunction Or{"Or"};
inline constexpr BinaryFunction Xor{"Xor"};
// Of the bits of integers. By a negative number, or by as many bits as there are, shifting moves all of them out.
inline constexpr UnaryFunction BitNot{"BitNot"};
inline constexpr BinaryFunction BitAnd{"BitAnd"};
inline constexpr BinaryFunction BitOr{"BitOr"};
inline constexpr BinaryFunction BitXor{"BitXor"};
inline constexpr BinaryFunction ShiftLeft{"ShiftLeft"};
inline constexpr BinaryFunction ShiftRight{"ShiftRight"};

inline Symbol Log2(const Symbol& x, const std::string& name = {}) { return Mul(Log(x), 1.4426950408889634, name); }
inline Symbol Log10(const Symbol& x, const std::string& name = {}) { return Mul(Log(x), 0.43429448190325183, name); }
inline Symbol Rsqrt(const Symbol& x, const std::string& name = {}) { return Reciprocal(Sqrt(x), name); }
// Of any number of operands, each stretched to those before it: f(f(x0, x1), x2)...; and their mean.
Symbol Fold(const BinaryFunction& f, std::span<const Symbol> operands, const std::string& name = {});
Symbol MeanOf(std::span<const Symbol> operands, const std::string& name = {});

// a where the condition, of bool, is true, else b
Symbol Where(const Symbol& condition, const Operand& a, const Operand& b, const std::string& name = {});
inline Symbol Clip(const Symbol& x, const Operand& low, const Operand& high, const std::string& name = {}) {
  return Minimum(Maximum(x, low), high, name);
}

inline Symbol operator+(const Operand& a, const Operand& b) { return Add(a, b); }
inline Symbol operator-(const Operand& a, const Operand& b) { return Sub(a, b); }
inline Symbol operator*(const Operand& a, const Operand& b) { return Mul(a, b); }
inline Symbol operator/(const Operand& a, const Operand& b) { return Div(a, b); }
inline Symbol operator-(const Symbol& a) { return Negative(a); }

const OpDef& AddNOp();  // arg0, arg1, ... of one shape -> their sum, in order
// Made by fusion: relu of a sum; and of its gradient, the sum first.
inline constexpr BinaryFunction AddRelu{"AddRelu"};
const OpDef& AddReluGradOp();  // (g0, g1, output) -> (g0 + g1) [output > 0]

struct ConstantAttrs {
  std::shared_ptr<const HostTensor> value = {};
  static FieldList Fields() { return {{"value", &ConstantAttrs::value, "the tensor"}}; }
};
Symbol Constant(HostTensor value, const std::string& name = {});
const OpDef& ConstantOp();  // no inputs
// The tensor of a Constant; nullptr for other nodes.
std::shared_ptr<const HostTensor> ConstantValue(const Node& node);

}  // namespace bindery
