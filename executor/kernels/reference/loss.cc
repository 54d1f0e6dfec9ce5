#include "symbol/ops/loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// (output, label) -> f(output - label) grad_scale / (elements per sample)
template <auto kF>
MaybeKernel MakeRegressionGrad(const KernelSpec& spec) {
  const double grad_scale = spec.attributes<LinearRegressionOutputAttrs>().grad_scale;
  const ValueType& output = spec.inputs[0];
  const int64_t n = output.shape.Elements();
  const int64_t samples = output.shape.rank() == 0 ? 1 : output.shape[std::max(output.batch_axis, 0)];
  const double per_sample = n == 0 ? 1 : static_cast<double>(n / samples);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = kF(t.in[0][i] - t.in[1][i]) * grad_scale / per_sample;
  });
}

MaybeKernel MakeLogisticRegressionOutput(const KernelSpec& spec) {
  return InDouble(spec, [n = spec.outputs[0].shape.Elements()](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = 1 / (1 + std::exp(-t.in[0][i]));
  });
}

// (output, label) -> dx
MaybeKernel MakeSVMOutputGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SVMOutputAttrs>();
  const int64_t n = spec.inputs[0].shape.Elements(), classes = spec.inputs[0].shape.CountFrom(1);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) {
      const double label = t.in[1][i / classes];
      if (label != std::floor(label)) {
        Throw<DataError>("label {} of sample {} is not in 0..{}", label, i / classes, classes - 1);
      }
      const double sign = label == static_cast<double>(i % classes) ? -1 : 1;
      const double hinge = std::max(0.0, attrs.margin + sign * t.in[0][i]);
      t.out[0][i] = sign * attrs.regularization * (attrs.use_linear ? (hinge > 0 ? 1 : 0) : 2 * hinge);
    }
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

MaybeKernel MakeLossScale(const KernelSpec& spec) {
  return InDouble(spec, [](const Tensors& t) { t.out[0][0] = t.step->loss_scale; });
}

constexpr KernelEntry kEntries[] = {
    {"LinearRegressionOutputGrad", MakeRegressionGrad<[](double d) { return d; }>},
    {"MAERegressionOutputGrad",
     MakeRegressionGrad<[](double d) -> double { return std::isnan(d) ? d : (d > 0) - (d < 0); }>},
    {"LogisticRegressionOutput", MakeLogisticRegressionOutput},
    {"SVMOutputGrad", MakeSVMOutputGrad},
    {"MakeLossGrad", MakeMakeLossGrad},
    {"LossScale", MakeLossScale},
};

}  // namespace

KernelRows LossKernels() { return kEntries; }

}  // namespace bindery::reference
