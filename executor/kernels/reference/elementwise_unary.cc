#include <cmath>

#include "executor/kernels/reference/kernels.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::reference {
namespace {

template <class F>
Kernel Unary(const KernelSpec& spec, F f) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = f(t.in[0][i]);
  });
}

double Scalar(const KernelSpec& spec) { return spec.attributes<ScalarAttrs>().scalar; }

// Integers are divided as in C: towards zero.
double Quotient(double a, double b, bool is_float) { return is_float ? a / b : std::trunc(a / b); }

}  // namespace

MaybeKernel MakeAddScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec)](double x) { return x + c; });
}

MaybeKernel MakeSubScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec)](double x) { return x - c; });
}

MaybeKernel MakeRSubScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec)](double x) { return c - x; });
}

MaybeKernel MakeMulScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec)](double x) { return x * c; });
}

MaybeKernel MakeDivScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec), f = IsFloat(spec.outputs[0].dtype)](double x) { return Quotient(x, c, f); });
}

MaybeKernel MakeRDivScalar(const KernelSpec& spec) {
  return Unary(spec, [c = Scalar(spec), f = IsFloat(spec.outputs[0].dtype)](double x) { return Quotient(c, x, f); });
}

MaybeKernel MakeNegative(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return -x; });
}

MaybeKernel MakeExp(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return std::exp(x); });
}

MaybeKernel MakeLog(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return std::log(x); });
}

MaybeKernel MakeSquare(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return x * x; });
}

MaybeKernel MakeSqrt(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return std::sqrt(x); });
}

MaybeKernel MakeAbs(const KernelSpec& spec) {
  return Unary(spec, [](double x) { return std::fabs(x); });
}

MaybeKernel MakeSign(const KernelSpec& spec) {
  return Unary(spec, [](double x) -> double { return std::isnan(x) ? x : (x > 0) - (x < 0); });
}

}  // namespace bindery::reference
