#include "symbol/ops/normalize.h"

#include <algorithm>
#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// Element i of group g has the parameters number view.Parameter(g, i).
MaybeKernel MakeNormalize(const KernelSpec& spec) {
  const auto attrs = spec.attributes<NormalizeAttrs>();
  const GroupView view = GroupsOf(attrs, spec.inputs[0].shape);
  const size_t beta = attrs.scale ? 2 : 1;
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t g = 0; g < view.groups; ++g) {
      const double* x = t.in[0] + g * view.elements();
      double *y = t.out[0] + g * view.elements(), mean = 0, square = 0;
      const double n = static_cast<double>(view.elements());
      for (int64_t i = 0; i < view.elements() && attrs.center; ++i) mean += x[i] / n;
      for (int64_t i = 0; i < view.elements(); ++i) square += (x[i] - mean) * (x[i] - mean) / (attrs.sum ? 1 : n);
      const double inverse = 1 / std::sqrt(square + attrs.eps);
      for (int64_t i = 0; i < view.elements(); ++i) {
        const int64_t p = view.Parameter(g, i);
        y[i] = (x[i] - mean) * inverse * (attrs.scale ? t.in[1][p] : 1) + (attrs.shift ? t.in[beta][p] : 0);
      }
      t.out[1][g] = mean;
      t.out[2][g] = inverse;
    }
  });
}

// (dy, x, mean, inverse [, gamma]) -> dx [, dgamma] [, dbeta]
MaybeKernel MakeNormalizeGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<NormalizeAttrs>();
  const GroupView view = GroupsOf(attrs, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    double* dgamma = attrs.scale ? t.out[1] : nullptr;
    double* dbeta = attrs.shift ? t.out[attrs.scale ? 2 : 1] : nullptr;
    for (int64_t g = 0; g < view.groups; ++g) {
      const double *dy = t.in[0] + g * view.elements(), *x = t.in[1] + g * view.elements();
      const double mean = t.in[2][g], inverse = t.in[3][g], n = static_cast<double>(view.elements());
      const auto scaled = [&](int64_t i) { return dy[i] * (attrs.scale ? t.in[4][view.Parameter(g, i)] : 1); };
      double sum = 0, product = 0;
      for (int64_t i = 0; i < view.elements(); ++i) {
        const double normalized = (x[i] - mean) * inverse;
        sum += scaled(i);
        product += scaled(i) * normalized;
        if (dgamma) dgamma[view.Parameter(g, i)] += dy[i] * normalized;
        if (dbeta) dbeta[view.Parameter(g, i)] += dy[i];
      }
      for (int64_t i = 0; i < view.elements(); ++i) {
        const double normalized = (x[i] - mean) * inverse;
        t.out[0][g * view.elements() + i] =
            inverse * (scaled(i) - (attrs.center ? sum / n : 0) - normalized * product / (attrs.sum ? 1 : n));
      }
    }
  });
}

// f(element, the elements at its position in its window) for all of (outer, channels, inner).
template <class F>
void ForWindows(const AxisView& view, int64_t size, const F& f) {
  for (int64_t at = 0; at < view.outer * view.axis * view.inner; ++at) {
    const int64_t c = at / view.inner % view.axis;
    const int64_t first = std::max<int64_t>(c - (size - 1) / 2, 0);
    const int64_t last = size / 2 < view.axis - c ? c + size / 2 : view.axis - 1;
    for (int64_t k = first; k <= last; ++k) f(at, at + (k - c) * view.inner);
  }
}

double Factor(const LRNAttrs& attrs) { return attrs.alpha / static_cast<double>(attrs.size); }

MaybeKernel MakeLRN(const KernelSpec& spec) {
  const auto attrs = spec.attributes<LRNAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, 1);
  return InDouble(spec, [=, n = spec.inputs[0].shape.Elements()](const Tensors& t) {
    ForWindows(view, attrs.size, [&](int64_t at, int64_t in) { t.out[0][at] += t.in[0][in] * t.in[0][in]; });
    for (int64_t i = 0; i < n; ++i) {
      t.out[0][i] = t.in[0][i] * std::pow(attrs.bias + Factor(attrs) * t.out[0][i], -attrs.beta);
    }
  });
}

// (dy, x) -> dx
MaybeKernel MakeLRNGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<LRNAttrs>();
  const AxisView view = ViewAlong(spec.inputs[1].shape, 1);
  const int64_t n = spec.inputs[1].shape.Elements();
  const auto loop = [=](const Tensors& t) {
    const double *dy = t.in[0], *x = t.in[1];
    std::vector<double> s(static_cast<size_t>(n));
    ForWindows(view, attrs.size, [&](int64_t at, int64_t in) { s[at] += Factor(attrs) * x[in] * x[in]; });
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = dy[i] * std::pow(attrs.bias + s[i], -attrs.beta);
    ForWindows(view, attrs.size, [&](int64_t at, int64_t in) {
      const double outer = dy[at] * x[at] * std::pow(attrs.bias + s[at], -attrs.beta - 1);
      t.out[0][in] -= 2 * attrs.beta * Factor(attrs) * x[in] * outer;
    });
  };
  return InDouble(spec, loop);
}

constexpr KernelEntry kEntries[] = {
    {"Normalize", MakeNormalize},
    {"NormalizeGrad", MakeNormalizeGrad},
    {"LRN", MakeLRN},
    {"LRNGrad", MakeLRNGrad},
};

}  // namespace

KernelRows NormalizeKernels() { return kEntries; }

}  // namespace bindery::reference
