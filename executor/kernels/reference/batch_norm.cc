#include "symbol/ops/batch_norm.h"

#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// f(index) for every element of channel c.
template <class F>
void ForChannel(const AxisView& view, int64_t c, const F& f) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) f((o * view.axis + c) * view.inner + i);
  }
}

// (data, gamma, beta, running_mean, running_var) -> y, mean, var [, state: 1 where y > 0, if relu]
MaybeKernel MakeBatchNorm(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  const AxisView view = ViewAlong(shape, static_cast<int>(attrs.axis));
  const double n = static_cast<double>(view.outer * view.inner);
  const bool running = UsesRunningValues(spec);
  std::vector<Format> formats(spec.outputs.size());
  if (attrs.relu) formats[3] = StateFormat(shape.Elements());
  return InDouble(
      spec,
      [=](const Tensors& t) {
        const double* x = t.in[0];
        for (int64_t c = 0; c < view.axis; ++c) {
          double mean = 0, var = 0;
          if (running) {
            mean = t.in[3][c];
            var = t.in[4][c];
          } else if (n > 0) {
            ForChannel(view, c, [&](int64_t i) { mean += x[i]; });
            mean /= n;
            ForChannel(view, c, [&](int64_t i) { var += (x[i] - mean) * (x[i] - mean); });
            var /= n;
          }
          const double gamma = attrs.fix_gamma ? 1 : t.in[1][c];
          const double beta = t.in[2][c];
          ForChannel(view, c, [&](int64_t i) {
            double y = gamma * (x[i] - mean) / std::sqrt(var + attrs.eps) + beta;
            if (attrs.relu) {
              if (t.raw_out[3]) t.raw_out[3][i] = std::byte{y > 0};
              y = Activate(ActivationType::kRelu, y);
            }
            t.out[0][i] = y;
          });
          t.out[1][c] = mean;
          t.out[2][c] = var;
        }
      },
      formats);
}

// (dy, data, mean, var, gamma [, state if relu]) -> dx, dgamma, dbeta
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (attrs.relu && !IsReferenceState(spec.input_formats[5])) return std::nullopt;
  const AxisView view = ViewAlong(spec.inputs[1].shape, static_cast<int>(attrs.axis));
  const double n = static_cast<double>(view.outer * view.inner);
  const bool running = UsesRunningValues(spec);
  return InDouble(spec, [=](const Tensors& t) {
    const double *dy = t.in[0], *x = t.in[1];
    for (int64_t c = 0; c < view.axis; ++c) {
      const double mean = t.in[2][c];
      const double inv = 1 / std::sqrt(t.in[3][c] + attrs.eps);
      const double gamma = attrs.fix_gamma ? 1 : t.in[4][c];
      const auto g = [&](int64_t i) { return attrs.relu && t.raw_in[5][i] == std::byte{0} ? 0 : dy[i]; };
      const auto x_hat = [&](int64_t i) { return (x[i] - mean) * inv; };
      double sum_g = 0, sum_gx = 0;
      ForChannel(view, c, [&](int64_t i) {
        sum_g += g(i);
        sum_gx += g(i) * x_hat(i);
      });
      ForChannel(view, c, [&](int64_t i) {
        t.out[0][i] = gamma * inv * (running ? g(i) : g(i) - sum_g / n - x_hat(i) * sum_gx / n);
      });
      t.out[1][c] = attrs.fix_gamma ? 0 : sum_gx;
      t.out[2][c] = sum_g;
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"BatchNorm", MakeBatchNorm},
    {"BatchNormGrad", MakeBatchNormGrad},
};

}  // namespace

KernelRows BatchNormKernels() { return kEntries; }

}  // namespace bindery::reference
