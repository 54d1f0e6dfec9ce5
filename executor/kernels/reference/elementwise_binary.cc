#include <cmath>

#include "executor/kernels/reference/kernels.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::reference {
namespace {

// y = f(a, b), both stretched to y's shape.
template <class F>
Kernel Binary(const KernelSpec& spec, F f) {
  const Shape shape = spec.outputs[0].shape;
  const std::array<Strides, 3> strides = {PlainStrides(shape), BroadcastStrides(spec.inputs[0].shape, shape),
                                          BroadcastStrides(spec.inputs[1].shape, shape)};
  return InDouble(spec, [=](const Tensors& t) {
    Walk(shape, strides,
         [&](const std::array<int64_t, 3>& at) { t.out[0][at[0]] = f(t.in[0][at[1]], t.in[1][at[2]]); });
  });
}

}  // namespace

MaybeKernel MakeAdd(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return a + b; });
}

MaybeKernel MakeSub(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return a - b; });
}

MaybeKernel MakeMul(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return a * b; });
}

// Integers are divided as in C: towards zero.
MaybeKernel MakeDiv(const KernelSpec& spec) {
  if (IsFloat(spec.outputs[0].dtype)) return Binary(spec, [](double a, double b) { return a / b; });
  return Binary(spec, [](double a, double b) { return std::trunc(a / b); });
}

// NaN in either operand gives NaN.
MaybeKernel MakeMaximum(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return a >= b || std::isnan(a) ? a : b; });
}

MaybeKernel MakeMinimum(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return a <= b || std::isnan(a) ? a : b; });
}

MaybeKernel MakeGreaterEqual(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) -> double { return a >= b; });
}

MaybeKernel MakeLessEqual(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) -> double { return a <= b; });
}

MaybeKernel MakeAddN(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (const double* x : t.in) {
      for (int64_t i = 0; i < n; ++i) t.out[0][i] += x[i];
    }
  });
}

MaybeKernel MakeAddRelu(const KernelSpec& spec) {
  return Binary(spec, [](double a, double b) { return Activate(ActivationType::kRelu, a + b); });
}

// (g0, g1, y) -> (g0 + g1) [y > 0]
MaybeKernel MakeAddReluGrad(const KernelSpec& spec) {
  const int64_t n = spec.outputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = t.in[2][i] > 0 ? t.in[0][i] + t.in[1][i] : 0;
  });
}

// (data, like: shape only): the gradient of stretching `like`'s shape to data's.
MaybeKernel MakeSumLike(const KernelSpec& spec) {
  const Shape shape = spec.inputs[0].shape;
  if (shape == spec.outputs[0].shape) return Copy(spec);
  const std::array<Strides, 2> strides = {PlainStrides(shape), BroadcastStrides(spec.outputs[0].shape, shape)};
  return InDouble(spec, [=](const Tensors& t) {
    Walk(shape, strides, [&](const std::array<int64_t, 2>& at) { t.out[0][at[1]] += t.in[0][at[0]]; });
  });
}

}  // namespace bindery::reference
