// The elementwise functions, each told once and compiled for every kind of number: vectors of floats (cpu/simd), the
// element types (native_functions.h), and what another backend computes with. Included inside a namespace that has, for
// its types T, Value<T>(c), a constant, Truth<T>(mask), 1 or 0, sum(a, b), where integers wrap around, quotient(a, b),
// remainder(a, b), dividends_remainder(a, b), normal_part(x), that of a normal distribution below x, and the functions
// of <cmath>; so it has no include guard and includes nothing. What a function means
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
struct Trunc : Function<"Trunc", kFloatsOnly> {
  constexpr auto operator()(auto x) const { return trunc(x); }
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
struct Div : Function<"Div", kSaturates> {
  constexpr auto operator()(auto a, auto b) const { return quotient(a, b); }
};
struct Mod : Function<"Mod"> {
  constexpr auto operator()(auto a, auto b) const { return remainder(a, b); }
};
struct Fmod : Function<"Fmod"> {
  constexpr auto operator()(auto a, auto b) const { return dividends_remainder(a, b); }
};
struct Power : Function<"Power"> {
  constexpr auto operator()(auto a, auto b) const { return pow(a, b); }
};
struct Maximum : Function<"Maximum"> {
  constexpr auto operator()(auto a, auto b) const { return ((a >= b) | (a != a)) ? a : b; }
};
struct Minimum : Function<"Minimum"> {
  constexpr auto operator()(auto a, auto b) const { return ((a <= b) | (a != a)) ? a : b; }
};
struct PRelu : Function<"PRelu", kFloatsOnly> {
  constexpr auto operator()(auto a, auto b) const { return a < 0 ? a * b : a; }
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

// Of integers alone, so not compiled for vectors of floats.
struct BitNot : Function<"BitNot", kIntegersOnly> {
  constexpr auto operator()(auto x) const { return ~x; }
};
struct BitAnd : Function<"BitAnd", kIntegersOnly> {
  constexpr auto operator()(auto a, auto b) const { return a & b; }
};
struct BitOr : Function<"BitOr", kIntegersOnly> {
  constexpr auto operator()(auto a, auto b) const { return a | b; }
};
struct BitXor : Function<"BitXor", kIntegersOnly> {
  constexpr auto operator()(auto a, auto b) const { return a ^ b; }
};
struct ShiftLeft : Function<"ShiftLeft", kIntegersOnly> {
  constexpr auto operator()(auto a, auto b) const { return shift_left(a, b); }
};
struct ShiftRight : Function<"ShiftRight", kIntegersOnly> {
  constexpr auto operator()(auto a, auto b) const { return shift_right(a, b); }
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

// Curves, in the order of CurveType: f(x) with two numbers a and b, and its slope there, at bends that of PyTorch: of
// the left, but of the right at the high ends of hard_sigmoid, hard_swish and hard_tanh and at the low end of shrink.
struct LeakyRelu : Function<"leaky_relu", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto) const { return x < 0 ? a * x : x; }
  constexpr auto slope(auto x, auto a, auto) const { return x > 0 ? Value<decltype(x)>(1) : a; }
};
struct Selu : Function<"selu", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto b) const { return b * (x < 0 ? -a * one_minus_exp(-x) : x); }
  constexpr auto slope(auto x, auto a, auto b) const { return x <= 0 ? b * a * exp(x) : b; }
};
struct Celu : Function<"celu", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto) const { return x < 0 ? -a * one_minus_exp(-x / a) : x; }
  constexpr auto slope(auto x, auto a, auto) const { return x <= 0 ? exp(x / a) : Value<decltype(x)>(1); }
};
struct Gelu : Function<"gelu", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto, auto) const { return x * normal_part(x); }
  constexpr auto slope(auto x, auto, auto) const {
    using T = decltype(x);
    return normal_part(x) + x * exp(x * x * Value<T>(-0.5)) * Value<T>(0.39894228040143268);
  }
};
struct GeluTanh : Function<"gelu_tanh", kFloatsOnly | kZeroKept> {
  static constexpr auto part(auto x) {  // (1 + tanh u) / 2
    using T = decltype(x);
    return sigmoid(x * (Value<T>(1.5957691216057308) + x * x * Value<T>(0.07135481627260025)));
  }
  constexpr auto operator()(auto x, auto, auto) const { return x * part(x); }
  constexpr auto slope(auto x, auto, auto) const {
    using T = decltype(x);
    const T s = part(x), inner = Value<T>(1.5957691216057308) + x * x * Value<T>(0.21406444881780074);
    const T rest = s * (1 - s);  // 0 far out, where `inner` may be infinite of an x that is not
    return s + x * (rest > 0 ? rest * inner : Value<T>(0));
  }
};
struct Swish : Function<"swish", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto) const { return x * sigmoid(a * x); }
  constexpr auto slope(auto x, auto a, auto) const {
    const auto s = sigmoid(a * x);
    return s * (1 + a * x * (1 - s));
  }
};
struct HardSigmoid : Function<"hard_sigmoid", kFloatsOnly> {
  constexpr auto operator()(auto x, auto a, auto b) const {
    using T = decltype(x);
    const T y = a * x + b;
    return y < 0 ? Value<T>(0) : y > 1 ? Value<T>(1) : y;
  }
  constexpr auto slope(auto x, auto a, auto b) const {
    const auto y = a * x + b;
    return ((y > 0) & (y < 1)) ? a : Value<decltype(x)>(0);
  }
};
struct HardSwish : Function<"hard_swish", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto b) const { return x * HardSigmoid()(x, a, b); }
  constexpr auto slope(auto x, auto a, auto b) const {
    using T = decltype(x);
    const T y = a * x + b, more = ((y > 0) & (y < 1)) ? a * x : Value<T>(0);  // beyond, x may be infinite
    return HardSigmoid()(x, a, b) + more;
  }
};
struct HardTanh : Function<"hard_tanh", kFloatsOnly> {
  constexpr auto operator()(auto x, auto a, auto b) const { return x < a ? a : x > b ? b : x; }
  constexpr auto slope(auto x, auto a, auto b) const {
    using T = decltype(x);
    return ((x <= a) | (x >= b)) ? Value<T>(0) : Value<T>(1);
  }
};
struct ThresholdedRelu : Function<"thresholded_relu", kFloatsOnly> {
  constexpr auto operator()(auto x, auto a, auto) const { return x <= a ? Value<decltype(x)>(0) : x; }
  constexpr auto slope(auto x, auto a, auto) const { return Truth<decltype(x)>(x > a); }
};
struct Shrink : Function<"shrink", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto b) const {
    return x < -a ? x + b : x > a ? x - b : Value<decltype(x)>(0);
  }
  constexpr auto slope(auto x, auto a, auto) const { return Truth<decltype(x)>(abs(x) > a); }
};
struct Mish : Function<"mish", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto, auto) const { return x * tanh(softrelu(x)); }
  constexpr auto slope(auto x, auto, auto) const {
    const auto t = tanh(softrelu(x));
    return t + x * (1 - t * t) * sigmoid(x);
  }
};
struct SmoothL1 : Function<"smooth_l1", kFloatsOnly | kZeroKept> {
  constexpr auto operator()(auto x, auto a, auto) const {
    using T = decltype(x);
    const T square = a * a, size = abs(x);
    return size * square < 1 ? x * x * square * Value<T>(0.5) : size - Value<T>(0.5) / square;
  }
  constexpr auto slope(auto x, auto a, auto) const {
    using T = decltype(x);
    const T square = a * a;
    return abs(x) * square < 1 ? x * square : x < 0 ? Value<T>(-1) : Value<T>(1);
  }
};
// Made by fusion: relu(a + b) of one shape.
struct AddRelu : Function<"AddRelu", kZeroKept> {
  constexpr auto operator()(auto a, auto b) const { return Relu()(sum(a, b)); }
};

}  // namespace fn

using UnaryFunctions =
    FunctionList<fn::Negative, fn::Abs, fn::Sign, fn::Square, fn::Sqrt, fn::Exp, fn::Expm1, fn::Log, fn::Log1p,
                 fn::Reciprocal, fn::Floor, fn::Ceil, fn::Round, fn::Trunc, fn::Erf, fn::Sin, fn::Cos, fn::Tan,
                 fn::Asin, fn::Acos, fn::Atan, fn::Sinh, fn::Cosh, fn::Asinh, fn::Acosh, fn::Atanh>;
using BinaryFunctions = FunctionList<fn::Add, fn::Sub, fn::Mul, fn::Div, fn::Mod, fn::Fmod, fn::Power, fn::Maximum,
                                     fn::Minimum, fn::PRelu, fn::AddRelu>;
// Not compiled for vectors: what gives bool, and what is of integers.
using Predicates = FunctionList<fn::Not, fn::IsNaN, fn::IsInf, fn::BitNot>;
using Relations = FunctionList<fn::Less, fn::LessEqual, fn::Greater, fn::GreaterEqual, fn::Equal, fn::NotEqual, fn::And,
                               fn::Or, fn::Xor, fn::BitAnd, fn::BitOr, fn::BitXor, fn::ShiftLeft, fn::ShiftRight>;
using ActivationFunctions = FunctionList<fn::Relu, fn::Sigmoid, fn::Tanh, fn::SoftRelu, fn::SoftSign>;
using CurveFunctions =
    FunctionList<fn::LeakyRelu, fn::Selu, fn::Celu, fn::Gelu, fn::GeluTanh, fn::Swish, fn::HardSigmoid, fn::HardSwish,
                 fn::HardTanh, fn::ThresholdedRelu, fn::Shrink, fn::Mish, fn::SmoothL1>;
using ActivationGradFunctions =
    FunctionList<fn::ReluGrad, fn::SigmoidGrad, fn::TanhGrad, fn::SoftReluGrad, fn::SoftSignGrad>;
