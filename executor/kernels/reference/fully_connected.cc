// y (M, H) = x (M, K) w (H, K)^T + b. M is the first extent if `flatten`, else the product of all but the last.
#include "symbol/ops/fully_connected.h"

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

struct Sizes {
  int64_t m, k, h;
  Sizes(const FullyConnectedAttrs& attrs, const Shape& data)
      : m(attrs.flatten ? data[0] : data.CountTo(data.rank() - 1)), k(attrs.flatten ? data.CountFrom(1) : data[-1]),
        h(attrs.num_hidden) {}
};

// (x, w [, b]) -> y
MaybeKernel MakeFullyConnected(const KernelSpec& spec) {
  const auto attrs = spec.attributes<FullyConnectedAttrs>();
  const Sizes s(attrs, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double *x = t.in[0], *w = t.in[1];
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t h = 0; h < s.h; ++h) {
        double sum = attrs.no_bias ? 0 : t.in[2][h];
        for (int64_t k = 0; k < s.k; ++k) sum += x[m * s.k + k] * w[h * s.k + k];
        t.out[0][m * s.h + h] = Activate(attrs.activation, sum);
      }
    }
  });
}

// (dy, w) -> dx = dy w
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec) {
  const Sizes s(spec.attributes<FullyConnectedAttrs>(), spec.outputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *w = t.in[1];
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t h = 0; h < s.h; ++h) {
        for (int64_t k = 0; k < s.k; ++k) t.out[0][m * s.k + k] += dy[m * s.h + h] * w[h * s.k + k];
      }
    }
  });
}

// (dy, x) -> dw = dy^T x [, db = sum over rows of dy]
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec) {
  const auto attrs = spec.attributes<FullyConnectedAttrs>();
  const Sizes s(attrs, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *x = t.in[1];
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t h = 0; h < s.h; ++h) {
        for (int64_t k = 0; k < s.k && t.raw_out[0]; ++k) t.out[0][h * s.k + k] += dy[m * s.h + h] * x[m * s.k + k];
        if (!attrs.no_bias) t.out[1][h] += dy[m * s.h + h];
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"FullyConnected", MakeFullyConnected},
    {"FullyConnectedGradData", MakeFullyConnectedGradData},
    {"FullyConnectedGradWeight", MakeFullyConnectedGradWeight},
};

}  // namespace

KernelRows FullyConnectedKernels() { return kEntries; }

}  // namespace bindery::reference
