#include "symbol/ops/activation.h"

#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/curve.h"

namespace bindery::reference {
namespace {

MaybeKernel MakeActivation(const KernelSpec& spec) {
  const ActivationType type = spec.attributes<ActivationAttrs>().type;
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = Activate(type, t.in[0][i]);
  });
}

// (dy, y) -> dx
MaybeKernel MakeActivationGrad(const KernelSpec& spec) {
  const ActivationType type = spec.attributes<ActivationAttrs>().type;
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = ActivateGrad(type, t.in[0][i], t.in[1][i]);
  });
}

// The curves' values and slopes.
struct CurveFormula {
  double (*y)(double x, double a, double b);
  double (*slope)(double x, double a, double b);
};
double Part(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }  // of the normal distribution
double Density(double x) { return std::exp(-x * x / 2) / std::sqrt(8 * std::atan(1.0)); }
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
// (1 + tanh(u)) / 2
double TanhPart(double x) { return Logistic(2 * std::sqrt(0.5 / std::atan(1.0)) * (x + 0.044715 * x * x * x)); }
double Bounded(double y) { return y < 0 ? 0 : y > 1 ? 1 : y; }
double SoftPlus(double x) { return Activate(ActivationType::kSoftRelu, x); }

CurveFormula FormulaOf(CurveType type) {
  using D = double;
  switch (type) {
    case CurveType::kLeakyRelu:
      return {[](D x, D a, D) { return x < 0 ? a * x : x; }, [](D x, D a, D) { return x > 0 ? 1 : a; }};
    case CurveType::kSelu:
      return {[](D x, D a, D b) { return b * (x < 0 ? a * std::expm1(x) : x); },
              [](D x, D a, D b) { return b * (x <= 0 ? a * std::exp(x) : 1); }};
    case CurveType::kCelu:
      return {[](D x, D a, D) { return x < 0 ? a * std::expm1(x / a) : x; },
              [](D x, D a, D) { return x <= 0 ? std::exp(x / a) : 1; }};
    case CurveType::kGelu:
      return {[](D x, D, D) { return x * Part(x); }, [](D x, D, D) { return Part(x) + x * Density(x); }};
    case CurveType::kGeluTanh:
      return {[](D x, D, D) { return x * TanhPart(x); },
              [](D x, D, D) {
                const D p = TanhPart(x), inner = std::sqrt(0.5 / std::atan(1.0)) * (1 + 3 * 0.044715 * x * x);
                return p + 2 * x * p * (1 - p) * inner;
              }};
    case CurveType::kSwish:
      return {[](D x, D a, D) { return x * Logistic(a * x); },
              [](D x, D a, D) { return Logistic(a * x) + a * x * Logistic(a * x) * (1 - Logistic(a * x)); }};
    case CurveType::kHardSigmoid:
      return {[](D x, D a, D b) { return Bounded(a * x + b); },
              [](D x, D a, D b) { return a * x + b > 0 && a * x + b < 1 ? a : 0; }};
    case CurveType::kHardSwish:
      return {[](D x, D a, D b) { return x * Bounded(a * x + b); },
              [](D x, D a, D b) { return Bounded(a * x + b) + (a * x + b > 0 && a * x + b < 1 ? a * x : 0); }};
    case CurveType::kHardTanh:
      return {[](D x, D a, D b) { return x < a   ? a
                                         : x > b ? b
                                                 : x; },
              [](D x, D a, D b) -> D { return !(x <= a || x >= b); }};
    case CurveType::kThresholdedRelu:
      return {[](D x, D a, D) { return x <= a ? 0 : x; }, [](D x, D a, D) -> D { return x > a; }};
    case CurveType::kShrink:
      return {[](D x, D a, D b) { return x < -a  ? x + b
                                         : x > a ? x - b
                                                 : 0; },
              [](D x, D a, D) -> D { return std::fabs(x) > a; }};
    case CurveType::kMish:
      return {[](D x, D, D) { return x * std::tanh(SoftPlus(x)); },
              [](D x, D, D) {
                const D t = std::tanh(SoftPlus(x));
                return t + x * (1 - t * t) * Logistic(x);
              }};
    case CurveType::kSmoothL1:
      return {[](D x, D a, D) { return std::fabs(x) * a * a < 1 ? a * a * x * x / 2 : std::fabs(x) - 0.5 / (a * a); },
              [](D x, D a, D) { return std::fabs(x) * a * a < 1 ? a * a * x
                                       : x < 0                  ? -1.0
                                                                : 1.0; }};
  }
  return {};
}

MaybeKernel MakeCurve(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<CurveAttrs>();
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=, f = FormulaOf(attrs.type).y, a = attrs.alpha, b = attrs.beta](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = f(t.in[0][i], a, b);
  });
}

// (dy, x) -> dx
MaybeKernel MakeCurveGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<CurveAttrs>();
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=, slope = FormulaOf(attrs.type).slope, a = attrs.alpha, b = attrs.beta](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = t.in[0][i] * slope(t.in[1][i], a, b);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Activation", MakeActivation},
    {"ActivationGrad", MakeActivationGrad},
    {"Curve", MakeCurve},
    {"CurveGrad", MakeCurveGrad},
};

}  // namespace

KernelRows ActivationKernels() { return kEntries; }

}  // namespace bindery::reference
