#include "symbol/ops/reduce.h"

#include <cmath>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// A data shape with the walk from each element to the one it is reduced to.
struct Reduction {
  Shape shape;
  std::array<Strides, 2> strides;
  int64_t outputs;
  double count;  // elements reduced to one

  Reduction(const KernelSpec& spec, const Shape& data) : shape(data) {
    const uint32_t reduced = ReducedAxes(spec.attributes<ReduceAttrs>(), data);
    strides = {PlainStrides(data), ReducedStrides(data, reduced)};
    outputs = 1;
    count = 1;
    for (int axis = 0; axis < data.rank(); ++axis) {
      if (reduced >> axis & 1u) {
        count *= static_cast<double>(data[axis]);
      } else {
        outputs *= data[axis];
      }
    }
  }
  // f(index of a data element, index of what it is reduced to)
  template <class F>
  void ForEach(const F& f) const {
    Walk(shape, strides, [&](const std::array<int64_t, 2>& at) { f(at[0], at[1]); });
  }
};

MaybeKernel MakeSum(const KernelSpec& spec) {
  const Reduction r(spec, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) { r.ForEach([&](int64_t i, int64_t o) { t.out[0][o] += t.in[0][i]; }); });
}

MaybeKernel MakeMean(const KernelSpec& spec) {
  const Reduction r(spec, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    r.ForEach([&](int64_t i, int64_t o) { t.out[0][o] += t.in[0][i]; });
    for (int64_t o = 0; o < r.outputs; ++o) t.out[0][o] /= r.count;
  });
}

// NaN wins; the maximum of nothing is minus infinity.
MaybeKernel MakeMax(const KernelSpec& spec) {
  const Reduction r(spec, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t o = 0; o < r.outputs; ++o) t.out[0][o] = -INFINITY;
    r.ForEach([&](int64_t i, int64_t o) {
      if (t.in[0][i] > t.out[0][o] || std::isnan(t.in[0][i])) t.out[0][o] = t.in[0][i];
    });
  });
}

// The elements that were repeated when the output's shape was stretched to data's are added.
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  const Shape shape = spec.inputs[0].shape;
  const std::array<Strides, 2> strides = {PlainStrides(shape), BroadcastStrides(spec.outputs[0].shape, shape)};
  return InDouble(spec, [=](const Tensors& t) {
    Walk(shape, strides, [&](const std::array<int64_t, 2>& at) { t.out[0][at[1]] += t.in[0][at[0]]; });
  });
}

// (m, k) x (k, n), each perhaps stored transposed; vectors are rows and columns
MaybeKernel MakeDot(const KernelSpec& spec) {
  const auto attrs = spec.attributes<DotAttrs>();
  const DotSizes sizes = ProductSizes(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const auto [m, k, n] = sizes;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        const double left = t.in[0][attrs.transpose_a ? i * m + row : row * k + i];
        for (int64_t column = 0; column < n; ++column) {
          t.out[0][row * n + column] += left * t.in[1][attrs.transpose_b ? column * k + i : i * n + column];
        }
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeSum}, {"Mean", MakeMean}, {"Max", MakeMax}, {"SumTo", MakeSumTo}, {"Dot", MakeDot},
};

}  // namespace

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::reference
