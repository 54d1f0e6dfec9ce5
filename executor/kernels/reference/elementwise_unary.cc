#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::reference {
namespace {

template <class F>
Kernel Map(const KernelSpec& spec, F f) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = f(t.in[0][i]);
  });
}

template <auto kF>
MaybeKernel Unary(const KernelSpec& spec) {
  return Map(spec, kF);
}

// f(x, c) with the scalar of the operator's attributes.
template <auto kF>
MaybeKernel Scalar(const KernelSpec& spec) {
  return Map(spec, [c = spec.attributes<ScalarAttrs>().scalar](double x) { return kF(x, c); });
}

// Integers are divided as in C: towards zero.
template <auto kF>
MaybeKernel Quotient(const KernelSpec& spec) {
  if (IsFloat(spec.outputs[0].dtype)) return Scalar<kF>(spec);
  return Scalar<[](double x, double c) { return std::trunc(kF(x, c)); }>(spec);
}

constexpr KernelEntry kEntries[] = {
    {"AddScalar", Scalar<[](double x, double c) { return x + c; }>},
    {"SubScalar", Scalar<[](double x, double c) { return x - c; }>},
    {"RSubScalar", Scalar<[](double x, double c) { return c - x; }>},
    {"MulScalar", Scalar<[](double x, double c) { return x * c; }>},
    {"DivScalar", Quotient<[](double x, double c) { return x / c; }>},
    {"RDivScalar", Quotient<[](double x, double c) { return c / x; }>},
    {"Negative", Unary<[](double x) { return -x; }>},
    {"Exp", Unary<[](double x) { return std::exp(x); }>},
    {"Log", Unary<[](double x) { return std::log(x); }>},
    {"Square", Unary<[](double x) { return x * x; }>},
    {"Sqrt", Unary<[](double x) { return std::sqrt(x); }>},
    {"Abs", Unary<[](double x) { return std::fabs(x); }>},
    {"Sign", Unary<[](double x) -> double { return std::isnan(x) ? x : (x > 0) - (x < 0); }>},
};

}  // namespace

KernelRows UnaryKernels() { return kEntries; }

}  // namespace bindery::reference
