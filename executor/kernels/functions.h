// The elementwise functions, each told once and compiled for every kind of number: vectors of floats (cpu/simd), the
// element types (native_functions.h), and what another backend computes with. Included inside a namespace that has, for
// its types T, Value<T>(c), a constant, Truth<T>(mask), 1 or 0, sum(a, b), where integers wrap around, quotient(a, b),
// remainder(a, b), and the functions of <cmath>; so it has no include guard and includes nothing. What a function means
// for graphs is in symbol/ops/elementwise.cc, what fast results are compared with in reference/elementwise.cc.
//
// `constexpr` lets compilers for accelerators use them there; masks of vectors have no && and ||.

namespace fn {

// y = f(x)
struct Negative : Function<"Negative", kWraps> {
  constexpr auto operator()(auto x) const { return -x; }
};
struct Abs : Function<"Abs"> {
  constexpr auto operator()(auto x) const { return abs(x); }
};
struct Sign : Function<"Sign"> {
  constexpr auto operator()(auto x) const { return x != x ? x : Truth<decltype(x)>(x > 0) - Truth<decltype(x)>(x < 0); }
};
struct Square : Function<"Square", kWraps> {
  constexpr auto operator()(auto x) const { return x * x; }
};
struct Sqrt : Function<"Sqrt", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return sqrt(x); }
};
struct Exp : Function<"Exp", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return exp(x); }
};
struct Expm1 : Function<"Expm1", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return expm1(x); }
};
struct Log : Function<"Log", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return log(x); }
};
struct Log1p : Function<"Log1p", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return log1p(x); }
};
struct Reciprocal : Function<"Reciprocal", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return 1 / x; }
};
struct Floor : Function<"Floor", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return floor(x); }
};
struct Ceil : Function<"Ceil", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return ceil(x); }
};
struct Round : Function<"Round", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return rint(x); }
};
struct Erf : Function<"Erf", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return erf(x); }
};
struct Sin : Function<"Sin", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return sin(x); }
};
struct Cos : Function<"Cos", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return cos(x); }
};
struct Tan : Function<"Tan", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return tan(x); }
};
struct Asin : Function<"Asin", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return asin(x); }
};
struct Acos : Function<"Acos", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return acos(x); }
};
struct Atan : Function<"Atan", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return atan(x); }
};
struct Sinh : Function<"Sinh", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return sinh(x); }
};
struct Cosh : Function<"Cosh", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return cosh(x); }
};
struct Asinh : Function<"Asinh", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return asinh(x); }
};
struct Acosh : Function<"Acosh", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return acosh(x); }
};
struct Atanh : Function<"Atanh", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return atanh(x); }
};
struct Not : Function<"Not", kTruth> {
  constexpr bool operator()(auto x) const { return x == 0; }
};
struct IsNaN : Function<"IsNaN", kFloatsOnly | kTruth> {
  constexpr bool operator()(auto x) const { return x != x; }
};
struct IsInf : Function<"IsInf", kFloatsOnly | kTruth> {
  constexpr bool operator()(auto x) const { return abs(x) == Value<decltype(x)>(INFINITY); }
};

// y = f(a, b), stretched where shapes differ
struct Add : Function<"Add", kWraps> {
  constexpr auto operator()(auto a, auto b) const { return a + b; }
};
struct Sub : Function<"Sub", kWraps> {
  constexpr auto operator()(auto a, auto b) const { return a - b; }
};
struct Mul : Function<"Mul", kWraps> {
  constexpr auto operator()(auto a, auto b) const { return a * b; }
};
struct Div : Function<"Div"> {
  constexpr auto operator()(auto a, auto b) const { return quotient(a, b); }
};
struct Mod : Function<"Mod"> {
  constexpr auto operator()(auto a, auto b) const { return remainder(a, b); }
};
struct Power : Function<"Power"> {
  constexpr auto operator()(auto a, auto b) const { return pow(a, b); }
};
struct Maximum : Function<"Maximum"> {
  constexpr auto operator()(auto a, auto b) const { return (a >= b) | (a != a) ? a : b; }
};
struct Minimum : Function<"Minimum"> {
  constexpr auto operator()(auto a, auto b) const { return (a <= b) | (a != a) ? a : b; }
};
struct Less : Function<"Less", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a < b; }
};
struct LessEqual : Function<"LessEqual", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a <= b; }
};
struct Greater : Function<"Greater", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a > b; }
};
struct GreaterEqual : Function<"GreaterEqual", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a >= b; }
};
struct Equal : Function<"Equal", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a == b; }
};
struct NotEqual : Function<"NotEqual", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a != b; }
};
struct And : Function<"And", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a != 0 && b != 0; }
};
struct Or : Function<"Or", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return a != 0 || b != 0; }
};
struct Xor : Function<"Xor", kTruth> {
  constexpr bool operator()(auto a, auto b) const { return (a != 0) != (b != 0); }
};

// Activations, in the order of ActivationType after kNone, and their derivatives times dy from the result y.
struct Relu : Function<"relu", kZeroKept> {
  constexpr auto operator()(auto x) const { return x < 0 ? Value<decltype(x)>(0) : x; }  // NaN passes
};
struct Sigmoid : Function<"sigmoid", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return sigmoid(x); }
};
struct Tanh : Function<"tanh", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x) const { return tanh(x); }
};
struct SoftRelu : Function<"softrelu", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return softrelu(x); }
};
struct SoftSign : Function<"softsign", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x) const { return x / (1 + abs(x)); }
};
struct ReluGrad : Function<"relu", kZeroKept> {
  constexpr auto operator()(auto dy, auto y) const { return y > 0 ? dy : Value<decltype(dy)>(0); }
};
struct SigmoidGrad : Function<"sigmoid", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto dy, auto y) const { return dy * (y * (1 - y)); }
};
struct TanhGrad : Function<"tanh", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto dy, auto y) const { return dy * (1 - y * y); }
};
struct SoftReluGrad : Function<"softrelu", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto dy, auto y) const { return dy * one_minus_exp(y); }
};
struct SoftSignGrad : Function<"softsign", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto dy, auto y) const { return dy * ((1 - abs(y)) * (1 - abs(y))); }
};
// Made by fusion: relu(a + b) of one shape.
struct AddRelu : Function<"AddRelu", kZeroKept> {
  constexpr auto operator()(auto a, auto b) const { return Relu()(sum(a, b)); }
};

}  // namespace fn

using UnaryFunctions =
    FunctionList<fn::Negative, fn::Abs, fn::Sign, fn::Square, fn::Sqrt, fn::Exp, fn::Expm1, fn::Log, fn::Log1p,
                 fn::Reciprocal, fn::Floor, fn::Ceil, fn::Round, fn::Erf, fn::Sin, fn::Cos, fn::Tan, fn::Asin, fn::Acos,
                 fn::Atan, fn::Sinh, fn::Cosh, fn::Asinh, fn::Acosh, fn::Atanh>;
using BinaryFunctions =
    FunctionList<fn::Add, fn::Sub, fn::Mul, fn::Div, fn::Mod, fn::Power, fn::Maximum, fn::Minimum, fn::AddRelu>;
using Predicates = FunctionList<fn::Not, fn::IsNaN, fn::IsInf>;
using Relations = FunctionList<fn::Less, fn::LessEqual, fn::Greater, fn::GreaterEqual, fn::Equal, fn::NotEqual, fn::And,
                               fn::Or, fn::Xor>;
using ActivationFunctions = FunctionList<fn::Relu, fn::Sigmoid, fn::Tanh, fn::SoftRelu, fn::SoftSign>;
using ActivationGradFunctions =
    FunctionList<fn::ReluGrad, fn::SigmoidGrad, fn::TanhGrad, fn::SoftReluGrad, fn::SoftSignGrad>;
