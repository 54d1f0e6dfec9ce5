#include "symbol/ops/activation.h"

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

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

constexpr KernelEntry kEntries[] = {
    {"Activation", MakeActivation},
    {"ActivationGrad", MakeActivationGrad},
};

}  // namespace

KernelRows ActivationKernels() { return kEntries; }

}  // namespace bindery::reference
