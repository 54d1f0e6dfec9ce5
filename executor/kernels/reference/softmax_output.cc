#include <algorithm>
#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/softmax.h"
#include "symbol/ops/loss.h"

namespace bindery::reference {
namespace {

// What the label says the probability of class k should be.
struct Target {
  const SoftmaxOutputAttrs attrs;
  const AxisView view;

  int64_t ClassOf(double label, int64_t sample) const {
    if (!(label >= 0 && label < static_cast<double>(view.axis) && label == std::floor(label))) {
      Throw<DataError>("label {} of sample {} is not in 0..{}", label, sample, view.axis - 1);
    }
    return static_cast<int64_t>(label);
  }
  double Of(int64_t label, int64_t k) const {
    if (k == label) return 1 - attrs.smooth_alpha;
    return attrs.smooth_alpha / static_cast<double>(view.axis - 1);
  }
};

// (data, label: not read) -> probabilities
MaybeKernel MakeSoftmaxOutput(const KernelSpec& spec) {
  const AxisView view = ClassesOf(spec.attributes<SoftmaxOutputAttrs>(), spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) { SoftmaxAlong(view, 1, t.in[0], t.out[0]); });
}

// (p, label [, valid count] [, head gradient]) -> (p - target) grad_scale / divisor
MaybeKernel MakeSoftmaxOutputGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<SoftmaxOutputAttrs>();
  const AxisView view = ClassesOf(attrs, spec.inputs[0].shape);
  const bool label_is_distribution = spec.inputs[1].shape == spec.inputs[0].shape;
  const int head = attrs.normalization == Normalization::kValid ? 3 : 2;
  const Target target{attrs, view};
  return InDouble(spec, [=](const Tensors& t) {
    const double *p = t.in[0], *label = t.in[1];
    double divisor = 1;
    if (attrs.normalization == Normalization::kBatch) divisor = static_cast<double>(t.step->batch_size);
    if (attrs.normalization == Normalization::kValid) divisor = std::max(1.0, t.in[2][0]);
    if (attrs.normalization != Normalization::kValid && attrs.multi_output) divisor *= static_cast<double>(view.inner);

    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) {
        const double l = label_is_distribution ? 0 : label[o * view.inner + i];
        if (!label_is_distribution && attrs.use_ignore && l == attrs.ignore_label) continue;  // gradient 0
        const int64_t class_of_label = label_is_distribution ? 0 : target.ClassOf(l, o);
        for (int64_t k = 0; k < view.axis; ++k) {
          const int64_t at = (o * view.axis + k) * view.inner + i;
          const double wanted = label_is_distribution ? label[at] : target.Of(class_of_label, k);
          t.out[0][at] = (p[at] - wanted) * attrs.grad_scale / divisor;
          if (attrs.out_grad) t.out[0][at] *= t.in[head][at];
        }
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"SoftmaxOutput", MakeSoftmaxOutput},
    {"SoftmaxOutputGrad", MakeSoftmaxOutputGrad},
};

}  // namespace

KernelRows SoftmaxOutputKernels() { return kEntries; }

}  // namespace bindery::reference
