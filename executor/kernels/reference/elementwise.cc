// The elementwise operators' formulas in double: a second opinion on executor/kernels/functions.h.
#include "symbol/ops/elementwise.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

template <class F>
Loop MapOf(const KernelSpec& spec, F f) {
  return [f, n = spec.outputs[0].shape.Elements()](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = f(t.in[0][i]);
  };
}

template <auto kF, Integers kIntegers = Integers::kSaturate>
MaybeKernel Unary(const KernelSpec& spec) {
  return InDouble(spec, MapOf(spec, kF), {}, kIntegers);
}

// y = f(a, b), both stretched to y's shape.
template <auto kF, Integers kIntegers = Integers::kSaturate>
MaybeKernel Binary(const KernelSpec& spec) {
  const Shape shape = spec.outputs[0].shape;
  const std::array<Strides, 3> strides = {PlainStrides(shape), BroadcastStrides(spec.inputs[0].shape, shape),
                                          BroadcastStrides(spec.inputs[1].shape, shape)};
  const auto loop = [=](const Tensors& t) {
    Walk(shape, strides,
         [&](const std::array<int64_t, 3>& at) { t.out[0][at[0]] = kF(t.in[0][at[1]], t.in[1][at[2]]); });
  };
  return InDouble(spec, loop, {}, kIntegers);
}

// Integers are divided as in C: towards zero.
MaybeKernel MakeDiv(const KernelSpec& spec) {
  if (IsFloat(spec.outputs[0].dtype)) return Binary<[](double a, double b) { return a / b; }>(spec);
  return Binary<[](double a, double b) { return a == 0 ? 0 : std::trunc(a / b); }>(spec);
}

// (condition, a, b) -> y: bits are moved, whatever they are.
MaybeKernel MakeWhere(const KernelSpec& spec) {
  const Shape shape = spec.outputs[0].shape;
  std::array<Strides, 4> strides = {PlainStrides(shape)};
  for (int i = 0; i < 3; ++i) strides[i + 1] = BroadcastStrides(spec.inputs[i].shape, shape);
  const int64_t size = SizeOf(spec.outputs[0].dtype);
  return OnBytes(spec, [=](const Tensors& t) {
    Walk(shape, strides, [&](const std::array<int64_t, 4>& at) {
      const int chosen = t.raw_in[0][at[1]] != std::byte{0} ? 1 : 2;
      std::memcpy(t.raw_out[0] + at[0] * size, t.raw_in[chosen] + at[chosen + 1] * size, static_cast<size_t>(size));
    });
  });
}

MaybeKernel MakeAddN(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return Wrapping(spec, [=](const Tensors& t) {
    for (const double* x : t.in) {
      for (int64_t i = 0; i < n; ++i) t.out[0][i] += x[i];
    }
  });
}

// (g0, g1, y) -> (g0 + g1) [y > 0]
MaybeKernel MakeAddReluGrad(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = t.in[2][i] > 0 ? t.in[0][i] + t.in[1][i] : 0;
  });
}

// The bits of a number, of two's complement, and the number of bits that came of some: signed if one of these was.
uint64_t Bits(double x) { return x < 0 ? static_cast<uint64_t>(static_cast<int64_t>(x)) : static_cast<uint64_t>(x); }
template <class F>
double OfBits(double a, double b, F f) {
  const uint64_t y = f(Bits(a), Bits(b));
  return a < 0 || b < 0 ? static_cast<double>(static_cast<int64_t>(y)) : static_cast<double>(y);
}
// a 2^b for b of the type's bits, else 0; integers wrap around.
MaybeKernel MakeShiftLeft(const KernelSpec& spec) {
  return Dispatch(spec.outputs[0].dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (std::is_integral_v<T>) {
      return Binary<[](double a, double b) {
        constexpr double kBits = 8 * sizeof(T);
        return b >= 0 && b < kBits ? static_cast<double>(static_cast<T>(Bits(a) << static_cast<int>(b))) : 0.0;
      }>(spec);
    } else {
      return std::nullopt;
    }
  });
}
MaybeKernel MakeBitNot(const KernelSpec& spec) {
  return Dispatch(spec.outputs[0].dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (std::is_unsigned_v<T>)
      return Unary<[](double x) { return static_cast<double>(std::numeric_limits<T>::max()) - x; }>(spec);
    return Unary<[](double x) { return -1 - x; }>(spec);
  });
}

double Mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

constexpr KernelEntry kEntries[] = {
    {"Negative", Unary<[](double x) { return -x; }, Integers::kWrap>},
    {"Abs", Unary<[](double x) { return std::fabs(x); }, Integers::kWrap>},
    {"Sign", Unary<[](double x) -> double { return std::isnan(x) ? x : (x > 0) - (x < 0); }>},
    {"Square", Unary<[](double x) { return x * x; }, Integers::kWrap>},
    {"Sqrt", Unary<[](double x) { return std::sqrt(x); }>},
    {"Exp", Unary<[](double x) { return std::exp(x); }>},
    {"Expm1", Unary<[](double x) { return std::expm1(x); }>},
    {"Log", Unary<[](double x) { return std::log(x); }>},
    {"Log1p", Unary<[](double x) { return std::log1p(x); }>},
    {"Reciprocal", Unary<[](double x) { return 1 / x; }>},
    {"Floor", Unary<[](double x) { return std::floor(x); }>},
    {"Ceil", Unary<[](double x) { return std::ceil(x); }>},
    {"Round", Unary<[](double x) { return std::nearbyint(x); }>},
    {"Trunc", Unary<[](double x) { return std::trunc(x); }>},
    {"Erf", Unary<[](double x) { return std::erf(x); }>},
    {"Sin", Unary<[](double x) { return std::sin(x); }>},
    {"Cos", Unary<[](double x) { return std::cos(x); }>},
    {"Tan", Unary<[](double x) { return std::tan(x); }>},
    {"Asin", Unary<[](double x) { return std::asin(x); }>},
    {"Acos", Unary<[](double x) { return std::acos(x); }>},
    {"Atan", Unary<[](double x) { return std::atan(x); }>},
    {"Sinh", Unary<[](double x) { return std::sinh(x); }>},
    {"Cosh", Unary<[](double x) { return std::cosh(x); }>},
    {"Asinh", Unary<[](double x) { return std::asinh(x); }>},
    {"Acosh", Unary<[](double x) { return std::acosh(x); }>},
    {"Atanh", Unary<[](double x) { return std::atanh(x); }>},
    {"Not", Unary<[](double x) -> double { return x == 0; }>},
    {"IsNaN", Unary<[](double x) -> double { return std::isnan(x); }>},
    {"IsInf", Unary<[](double x) -> double { return std::isinf(x); }>},
    {"Add", Binary<[](double a, double b) { return a + b; }, Integers::kWrap>},
    {"Sub", Binary<[](double a, double b) { return a - b; }, Integers::kWrap>},
    {"Mul", Binary<[](double a, double b) { return a * b; }, Integers::kWrap>},
    {"Div", MakeDiv},
    {"Mod", Binary<Mod>},
    {"Fmod", Binary<[](double a, double b) { return std::fmod(a, b); }>},
    {"PRelu", Binary<[](double a, double b) { return a < 0 ? a * b : a; }>},
    {"BitNot", MakeBitNot},
    {"BitAnd", Binary<[](double a, double b) { return OfBits(a, b, std::bit_and<uint64_t>()); }>},
    {"BitOr", Binary<[](double a, double b) { return OfBits(a, b, std::bit_or<uint64_t>()); }>},
    {"BitXor", Binary<[](double a, double b) { return OfBits(a, b, std::bit_xor<uint64_t>()); }>},
    {"ShiftLeft", MakeShiftLeft},
    {"ShiftRight", Binary<[](double a, double b) {
       return b >= 0 && b < 64 ? std::floor(std::ldexp(a, -static_cast<int>(b))) : a < 0 ? -1.0 : 0.0;
     }>},
    {"Power", Binary<[](double a, double b) { return std::pow(a, b); }>},
    // NaN in either operand gives NaN.
    {"Maximum", Binary<[](double a, double b) { return a >= b || std::isnan(a) ? a : b; }>},
    {"Minimum", Binary<[](double a, double b) { return a <= b || std::isnan(a) ? a : b; }>},
    {"Less", Binary<[](double a, double b) -> double { return a < b; }>},
    {"LessEqual", Binary<[](double a, double b) -> double { return a <= b; }>},
    {"Greater", Binary<[](double a, double b) -> double { return b < a; }>},
    {"GreaterEqual", Binary<[](double a, double b) -> double { return b <= a; }>},
    {"Equal", Binary<[](double a, double b) -> double { return a == b; }>},
    {"NotEqual", Binary<[](double a, double b) -> double { return a != b; }>},
    {"And", Binary<[](double a, double b) -> double { return a != 0 && b != 0; }>},
    {"Or", Binary<[](double a, double b) -> double { return a != 0 || b != 0; }>},
    {"Xor", Binary<[](double a, double b) -> double { return (a != 0) != (b != 0); }>},
    {"Where", MakeWhere},
    {"AddRelu", Binary<[](double a, double b) { return Activate(ActivationType::kRelu, a + b); }>},
    {"AddN", MakeAddN},
    {"AddReluGrad", MakeAddReluGrad},
};

}  // namespace

KernelRows ElementwiseKernels() { return kEntries; }

}  // namespace bindery::reference
