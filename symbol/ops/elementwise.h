// Element-wise arithmetic. Binary operators broadcast as in NumPy: shapes are aligned at the last axis, extents of 1
// stretch.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

Symbol Add(const Symbol& a, const Symbol& b, const std::string& name = {});
Symbol Sub(const Symbol& a, const Symbol& b, const std::string& name = {});
Symbol Mul(const Symbol& a, const Symbol& b, const std::string& name = {});
Symbol Div(const Symbol& a, const Symbol& b, const std::string& name = {});
Symbol Maximum(const Symbol& a, const Symbol& b, const std::string& name = {});  // gradient to a where a >= b
Symbol Minimum(const Symbol& a, const Symbol& b, const std::string& name = {});  // gradient to a where a <= b
Symbol GreaterEqual(const Symbol& a, const Symbol& b,
                    const std::string& name = {});  // 1 or 0, in a's dtype; no gradient
Symbol LessEqual(const Symbol& a, const Symbol& b, const std::string& name = {});

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

Symbol Exp(const Symbol& data, const std::string& name = {});
Symbol Log(const Symbol& data, const std::string& name = {});
Symbol Square(const Symbol& data, const std::string& name = {});
Symbol Sqrt(const Symbol& data, const std::string& name = {});
Symbol Abs(const Symbol& data, const std::string& name = {});
Symbol Sign(const Symbol& data, const std::string& name = {});  // -1, 0, 1; no gradient

// a, b -> output
const OpDef& AddOp();
const OpDef& SubOp();
const OpDef& MulOp();
const OpDef& DivOp();
const OpDef& MaximumOp();
const OpDef& MinimumOp();
const OpDef& GreaterEqualOp();
const OpDef& LessEqualOp();
// data -> output, ScalarAttrs: x + c, x - c, c - x, x * c, x / c, c / x
const OpDef& AddScalarOp();
const OpDef& SubScalarOp();
const OpDef& RSubScalarOp();
const OpDef& MulScalarOp();
const OpDef& DivScalarOp();
const OpDef& RDivScalarOp();
// data -> output
const OpDef& NegativeOp();
const OpDef& ExpOp();
const OpDef& LogOp();
const OpDef& SquareOp();
const OpDef& SqrtOp();
const OpDef& AbsOp();
const OpDef& SignOp();

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

}  // namespace bindery
