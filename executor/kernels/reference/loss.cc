#include "symbol/ops/loss.h"

#include <algorithm>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

template <class F>
Kernel CountIf(const KernelSpec& spec, F counts) {
  const int64_t n = spec.inputs[0].shape.Elements();
  return InDouble(
      spec, [=](const Tensors& t) { t.out[0][0] = static_cast<double>(std::count_if(t.in[0], t.in[0] + n, counts)); });
}

// label -> (1)
MaybeKernel MakeCountValid(const KernelSpec& spec) {
  const auto attrs = spec.attributes<CountValidAttrs>();
  return CountIf(spec, [=](double label) { return !attrs.use_ignore || label != attrs.ignore_label; });
}

// data -> (1)
MaybeKernel MakeCountAbove(const KernelSpec& spec) {
  return CountIf(spec, [t = spec.attributes<CountAboveAttrs>().threshold](double x) { return x > t; });
}

// (output, label) -> (output - label) grad_scale / (elements per sample)
MaybeKernel MakeLinearRegressionOutputGrad(const KernelSpec& spec) {
  const double grad_scale = spec.attributes<LinearRegressionOutputAttrs>().grad_scale;
  const ValueType& output = spec.inputs[0];
  const int64_t n = output.shape.Elements();
  const int64_t samples = output.shape.rank() == 0 ? 1 : output.shape[std::max(output.batch_axis, 0)];
  const double per_sample = n == 0 ? 1 : static_cast<double>(n / samples);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = (t.in[0][i] - t.in[1][i]) * grad_scale / per_sample;
  });
}

// [valid count] -> grad_scale / divisor
MaybeKernel MakeMakeLossGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<MakeLossGradAttrs>();
  return InDouble(spec, [=](const Tensors& t) {
    double divisor = 1;
    if (attrs.normalization == Normalization::kBatch) divisor = static_cast<double>(t.step->batch_size);
    if (attrs.normalization == Normalization::kValid) divisor = std::max(1.0, t.in[0][0]);
    t.out[0][0] = attrs.grad_scale / divisor;
  });
}

constexpr KernelEntry kEntries[] = {
    {"CountValid", MakeCountValid},
    {"CountAbove", MakeCountAbove},
    {"LinearRegressionOutputGrad", MakeLinearRegressionOutputGrad},
    {"MakeLossGrad", MakeMakeLossGrad},
};

}  // namespace

KernelRows LossKernels() { return kEntries; }

}  // namespace bindery::reference
