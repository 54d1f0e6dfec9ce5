#include "symbol/ops/matmul.h"

#include "executor/kernel_table.h"
#include "executor/kernels/cpu/gemm.h"

namespace bindery::cpu {
namespace {

MaybeKernel MakeMatMul(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<MatMulAttrs>();
  const MatMulForm form = FormOf(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  return Gemm(spec, {.m = form.m,
                     .n = form.n,
                     .k = form.k,
                     .a = {.input = 0, .row = attrs.transpose_a ? 1 : form.k, .column = attrs.transpose_a ? form.m : 1},
                     .b = {.input = 1, .row = attrs.transpose_b ? 1 : form.n, .column = attrs.transpose_b ? form.k : 1},
                     .batch = form.batch});
}

constexpr KernelEntry kEntries[] = {
    {"MatMul", MakeMatMul},
};

}  // namespace

KernelRows MatMulKernels() { return kEntries; }

}  // namespace bindery::cpu
