#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::reference {
namespace {

// y = f(a, b), both stretched to y's shape.
template <auto kF>
MaybeKernel Binary(const KernelSpec& spec) {
  const Shape shape = spec.outputs[0].shape;
  const std::array<Strides, 3> strides = {PlainStrides(shape), BroadcastStrides(spec.inputs[0].shape, shape),
                                          BroadcastStrides(spec.inputs[1].shape, shape)};
  return InDouble(spec, [=](const Tensors& t) {
    Walk(shape, strides,
         [&](const std::array<int64_t, 3>& at) { t.out[0][at[0]] = kF(t.in[0][at[1]], t.in[1][at[2]]); });
  });
}

// Integers are divided as in C: towards zero.
MaybeKernel MakeDiv(const KernelSpec& spec) {
  if (IsFloat(spec.outputs[0].dtype)) return Binary<[](double a, double b) { return a / b; }>(spec);
  return Binary<[](double a, double b) { return std::trunc(a / b); }>(spec);
}

MaybeKernel MakeAddN(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
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

constexpr KernelEntry kEntries[] = {
    {"Add", Binary<[](double a, double b) { return a + b; }>},
    {"Sub", Binary<[](double a, double b) { return a - b; }>},
    {"Mul", Binary<[](double a, double b) { return a * b; }>},
    {"Div", MakeDiv},
    // NaN in either operand gives NaN.
    {"Maximum", Binary<[](double a, double b) { return a >= b || std::isnan(a) ? a : b; }>},
    {"Minimum", Binary<[](double a, double b) { return a <= b || std::isnan(a) ? a : b; }>},
    {"GreaterEqual", Binary<[](double a, double b) -> double { return a >= b; }>},
    {"LessEqual", Binary<[](double a, double b) -> double { return a <= b; }>},
    {"AddRelu", Binary<[](double a, double b) { return Activate(ActivationType::kRelu, a + b); }>},
    {"AddN", MakeAddN},
    {"AddReluGrad", MakeAddReluGrad},
};

}  // namespace

KernelRows BinaryKernels() { return kEntries; }

}  // namespace bindery::reference
