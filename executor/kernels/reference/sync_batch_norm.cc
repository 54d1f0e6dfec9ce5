// What `sync` batch normalisation is made of. Statistics are (3, C): count, mean, M2 = sum (x - mean)^2.
#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/batch_norm.h"

namespace bindery::reference {
namespace {

AxisView Channels(const KernelSpec& spec, const Shape& data) {
  return ViewAlong(data, static_cast<int>(spec.attributes<BatchNormAttrs>().axis));
}

// f(c, index) for every element, c its channel.
template <class F>
void ForEach(const AxisView& view, const F& f) {
  int64_t i = 0;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t c = 0; c < view.axis; ++c) {
      for (int64_t k = 0; k < view.inner; ++k) f(c, i++);
    }
  }
}

// One channel of merged statistics.
struct Moments {
  double n, mean, var;
  Moments(const double* statistics, int64_t channels, int64_t c)
      : n(statistics[c]), mean(statistics[channels + c]), var(n > 0 ? statistics[2 * channels + c] / n : 0) {}
};

// data -> statistics
MaybeKernel MakeBatchNormStatistics(const KernelSpec& spec) {
  const AxisView view = Channels(spec, spec.inputs[0].shape);
  const int64_t count = view.outer * view.inner;
  return InDouble(spec, [=](const Tensors& t) {
    double *n = t.out[0], *mean = n + view.axis, *m2 = mean + view.axis;
    for (int64_t c = 0; c < view.axis; ++c) n[c] = static_cast<double>(count);
    ForEach(view, [&](int64_t c, int64_t i) { mean[c] += t.in[0][i] / static_cast<double>(count); });
    ForEach(view, [&](int64_t c, int64_t i) { m2[c] += (t.in[0][i] - mean[c]) * (t.in[0][i] - mean[c]); });
  });
}

// statistics of one device or, along a new axis 0, of several -> statistics
MaybeKernel MakeMergeStatistics(const KernelSpec& spec) {
  const Shape& out = spec.outputs[0].shape;
  const int64_t channels = out[1], each = out.Elements(), all = spec.inputs[0].shape.Elements();
  return InDouble(spec, [=](const Tensors& t) {
    double *n = t.out[0], *mean = n + channels, *m2 = mean + channels;
    for (int64_t c = 0; c < channels; ++c) {
      for (const double* s = t.in[0] + c; s < t.in[0] + all; s += each) {
        n[c] += s[0];
        mean[c] += s[0] * s[channels];
      }
      if (n[c] > 0) mean[c] /= n[c];
      for (const double* s = t.in[0] + c; s < t.in[0] + all; s += each) {
        const double delta = s[channels] - mean[c];
        m2[c] += s[2 * channels] + s[0] * delta * delta;
      }
    }
  });
}

// (mean, var) -> statistics
MaybeKernel MakeBatchStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[0].shape[0];
  const auto count = static_cast<double>(spec.attributes<BatchStatisticsAttrs>().count);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t c = 0; c < channels; ++c) {
      t.out[0][c] = count;
      t.out[0][channels + c] = t.in[0][c];
      t.out[0][2 * channels + c] = count * t.in[1][c];
    }
  });
}

// (statistics, running_mean, running_var) -> running_mean, running_var
MaybeKernel MakeMoveStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[1].shape[0];
  const double momentum = spec.attributes<BatchNormAttrs>().momentum;
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t c = 0; c < channels; ++c) {
      const Moments m(t.in[0], channels, c);
      const double old = m.n > 0 ? momentum : 1;
      t.out[0][c] = old * t.in[1][c] + (1 - old) * m.mean;
      t.out[1][c] = old * t.in[2][c] + (1 - old) * m.var;
    }
  });
}

// (data, gamma, beta, statistics, running_mean, running_var) -> y, mean, var
MaybeKernel MakeBatchNormNormalize(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  const AxisView view = Channels(spec, spec.inputs[0].shape);
  const bool running = UsesRunningValues(spec);
  const auto moments = [=](const Tensors& t, int64_t c) {
    Moments m(t.in[3], view.axis, c);
    if (running) {
      m.mean = t.in[4][c];
      m.var = t.in[5][c];
    }
    return m;
  };
  return InDouble(spec, [=](const Tensors& t) {
    ForEach(view, [&](int64_t c, int64_t i) {
      const Moments m = moments(t, c);
      const double gamma = attrs.fix_gamma ? 1 : t.in[1][c];
      t.out[0][i] = gamma * (t.in[0][i] - m.mean) / std::sqrt(m.var + attrs.eps) + t.in[2][c];
    });
    for (int64_t c = 0; c < view.axis; ++c) {
      t.out[1][c] = moments(t, c).mean;
      t.out[2][c] = moments(t, c).var;
    }
  });
}

// (dy, data, statistics) -> sums (2, C): sum dy, sum dy x^
MaybeKernel MakeBatchNormGradSums(const KernelSpec& spec) {
  const double eps = spec.attributes<BatchNormAttrs>().eps;
  const AxisView view = Channels(spec, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    ForEach(view, [&](int64_t c, int64_t i) {
      const Moments m(t.in[2], view.axis, c);
      t.out[0][c] += t.in[0][i];
      t.out[0][view.axis + c] += t.in[0][i] * (t.in[1][i] - m.mean) / std::sqrt(m.var + eps);
    });
  });
}

// (dy, data, gamma, statistics, sums) -> dx
MaybeKernel MakeBatchNormGradInput(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  const AxisView view = Channels(spec, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    ForEach(view, [&](int64_t c, int64_t i) {
      const Moments m(t.in[3], view.axis, c);
      const double inv = 1 / std::sqrt(m.var + attrs.eps);
      const double gamma = attrs.fix_gamma ? 1 : t.in[2][c];
      const double x_hat = (t.in[1][i] - m.mean) * inv;
      const double sum_g = t.in[4][c], sum_gx = t.in[4][view.axis + c];
      t.out[0][i] = gamma * inv * (t.in[0][i] - sum_g / m.n - x_hat * sum_gx / m.n);
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"BatchNormStatistics", MakeBatchNormStatistics}, {"MergeStatistics", MakeMergeStatistics},
    {"BatchStatistics", MakeBatchStatistics},         {"MoveStatistics", MakeMoveStatistics},
    {"BatchNormNormalize", MakeBatchNormNormalize},   {"BatchNormGradSums", MakeBatchNormGradSums},
    {"BatchNormGradInput", MakeBatchNormGradInput},
};

}  // namespace

KernelRows SyncBatchNormKernels() { return kEntries; }

}  // namespace bindery::reference
