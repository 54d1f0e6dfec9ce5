#include "executor/kernels/reference/softmax.h"

#include <algorithm>
#include <cmath>

#include "executor/kernel_table.h"
#include "symbol/ops/softmax.h"

namespace bindery::reference {

// y_i = exp((x_i - m) / t) / sum_j exp((x_j - m) / t), m = max_j x_j
void SoftmaxAlong(const AxisView& view, double temperature, const double* x, double* y) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      const auto at = [&](int64_t k) { return (o * view.axis + k) * view.inner + i; };
      double max = -INFINITY, sum = 0;
      for (int64_t k = 0; k < view.axis; ++k) max = std::max(max, x[at(k)]);
      for (int64_t k = 0; k < view.axis; ++k) sum += y[at(k)] = std::exp((x[at(k)] - max) / temperature);
      for (int64_t k = 0; k < view.axis; ++k) y[at(k)] /= sum;
    }
  }
}

namespace {

MaybeKernel MakeSoftmax(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SoftmaxAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  return InDouble(spec, [=](const Tensors& t) { SoftmaxAlong(view, attrs.temperature, t.in[0], t.out[0]); });
}

// (dy, y) -> dx = y (dy - sum_j dy_j y_j) / t
MaybeKernel MakeSoftmaxGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SoftmaxAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *y = t.in[1];
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) {
        const auto at = [&](int64_t k) { return (o * view.axis + k) * view.inner + i; };
        double sum = 0;
        for (int64_t k = 0; k < view.axis; ++k) sum += dy[at(k)] * y[at(k)];
        for (int64_t k = 0; k < view.axis; ++k) t.out[0][at(k)] = y[at(k)] * (dy[at(k)] - sum) / attrs.temperature;
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"Softmax", MakeSoftmax},
    {"SoftmaxGrad", MakeSoftmaxGrad},
};

}  // namespace

KernelRows SoftmaxKernels() { return kEntries; }

}  // namespace bindery::reference
