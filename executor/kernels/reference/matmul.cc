#include "symbol/ops/matmul.h"

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// (m, k) x (k, n), each perhaps stored transposed, for every index of the batch
MaybeKernel MakeMatMul(const KernelSpec& spec) {
  const auto attrs = spec.attributes<MatMulAttrs>();
  const MatMulForm form = FormOf(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  int64_t products = 1;
  for (const MatMulAxis& axis : form.batch) products *= axis.extent;
  return InDouble(spec, [=](const Tensors& t) {
    const auto [m, n, k] = std::tuple{form.m, form.n, form.k};
    for (int64_t product = 0; product < products; ++product) {
      const double *a = t.in[0], *b = t.in[1];
      int64_t index = product;
      for (size_t i = form.batch.size(); i-- > 0; index /= form.batch[i].extent) {
        a += index % form.batch[i].extent * form.batch[i].a;
        b += index % form.batch[i].extent * form.batch[i].b;
      }
      double* y = t.out[0] + product * m * n;
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t i = 0; i < k; ++i) {
          const double left = a[attrs.transpose_a ? i * m + row : row * k + i];
          for (int64_t column = 0; column < n; ++column) {
            y[row * n + column] += left * b[attrs.transpose_b ? column * k + i : i * n + column];
          }
        }
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"MatMul", MakeMatMul},
};

}  // namespace

KernelRows MatMulKernels() { return kEntries; }

}  // namespace bindery::reference
