#include "symbol/ops/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

MaybeKernel MakeTopK(const KernelSpec& spec) {
  const auto attrs = spec.attributes<TopKAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  const int64_t k = attrs.k == 0 ? view.axis : attrs.k;
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t row = 0; row < view.outer * view.inner; ++row) {
      const int64_t outer = row / view.inner, column = row % view.inner;
      const auto x = [&](int64_t i) { return t.in[0][(outer * view.axis + i) * view.inner + column]; };
      const auto is_less = [&](int64_t a, int64_t b) { return x(a) < x(b) || (!std::isnan(x(a)) && std::isnan(x(b))); };
      std::vector<int64_t> order(static_cast<size_t>(view.axis));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return attrs.largest ? is_less(b, a) : is_less(a, b); });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t to = (outer * k + i) * view.inner + column, place = order[static_cast<size_t>(i)];
        t.out[0][to] = x(place);
        t.out[1][to] = static_cast<double>(place);
      }
    }
  });
}

// f(first element of a row along the axis, distance to the next, how many), in the order of the scan.
template <class F>
void ForRows(const ScanAttrs& attrs, const Shape& shape, const F& f) {
  const AxisView view = ViewAlong(shape, static_cast<int>(attrs.axis));
  for (int64_t row = 0; row < view.outer * view.inner && view.axis > 0; ++row) {
    const int64_t first = row / view.inner * view.axis * view.inner + row % view.inner;
    const int64_t last = first + (view.axis - 1) * view.inner;
    f(attrs.reverse ? last : first, attrs.reverse ? -view.inner : view.inner, view.axis);
  }
}

template <bool kProduct>
MaybeKernel MakeScan(const KernelSpec& spec) {
  return Wrapping(spec, [attrs = spec.attributes<ScanAttrs>(), shape = spec.inputs[0].shape](const Tensors& t) {
    ForRows(attrs, shape, [&](int64_t first, int64_t step, int64_t n) {
      double sum = kProduct;
      for (int64_t k = 0; k < n; ++k) {
        const double x = t.in[0][first + k * step], next = kProduct ? sum * x : sum + x;
        t.out[0][first + k * step] = attrs.exclusive ? sum : next;
        sum = next;
      }
    });
  });
}

// (dy, x) -> dx_k: the sum over the y_j that x_k is in of dy_j times the product of the others.
MaybeKernel MakeCumProdGrad(const KernelSpec& spec) {
  return InDouble(spec, [attrs = spec.attributes<ScanAttrs>(), shape = spec.inputs[0].shape](const Tensors& t) {
    ForRows(attrs, shape, [&](int64_t first, int64_t step, int64_t n) {
      for (int64_t k = 0; k < n; ++k) {
        double others = 1;  // of the product up to j: its factors but k
        for (int64_t j = k + attrs.exclusive, i = 0; j < n; ++j) {
          for (; i < j + !attrs.exclusive; ++i) others *= i == k ? 1 : t.in[1][first + i * step];
          t.out[0][first + k * step] += t.in[0][first + j * step] * others;
        }
      }
    });
  });
}

MaybeKernel MakeTrilu(const KernelSpec& spec) {
  const auto attrs = spec.attributes<TriluAttrs>();
  const Shape shape = spec.inputs[0].shape;
  return InDouble(spec, [=, height = shape[-2], width = shape[-1], n = shape.Elements()](const Tensors& t) {
    for (int64_t at = 0; at < n; ++at) {
      const int64_t above = at % width - at / width % height;
      if (attrs.upper ? above >= attrs.k : above <= attrs.k) t.out[0][at] = t.in[0][at];
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"TopK", MakeTopK},   {"CumSum", MakeScan<false>}, {"CumProd", MakeScan<true>}, {"CumProdGrad", MakeCumProdGrad},
    {"Trilu", MakeTrilu},
};

}  // namespace

KernelRows OrderKernels() { return kEntries; }

}  // namespace bindery::reference
