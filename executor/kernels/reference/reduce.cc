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
  return Wrapping(spec, [=](const Tensors& t) { r.ForEach([&](int64_t i, int64_t o) { t.out[0][o] += t.in[0][i]; }); });
}

MaybeKernel MakeMean(const KernelSpec& spec) {
  const Reduction r(spec, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    r.ForEach([&](int64_t i, int64_t o) { t.out[0][o] += t.in[0][i]; });
    for (int64_t o = 0; o < r.outputs; ++o) t.out[0][o] /= r.count;
  });
}

// y = start, then f(y, x) for each element in turn.
template <class F>
Loop Joined(
    const KernelSpec& spec, double start, F join, double (*finish)(double) = [](double y) { return y; }) {
  return [=, r = Reduction(spec, spec.inputs[0].shape)](const Tensors& t) {
    std::fill_n(t.out[0], r.outputs, start);
    r.ForEach([&](int64_t i, int64_t o) { t.out[0][o] = join(t.out[0][o], t.in[0][i]); });
    for (int64_t o = 0; o < r.outputs; ++o) t.out[0][o] = finish(t.out[0][o]);
  };
}

// NaN wins. The maximum of nothing is minus infinity, of bools false.
MaybeKernel MakeMax(const KernelSpec& spec) {
  const double least = spec.inputs[0].dtype == DType::kBool ? 0 : -INFINITY;
  return InDouble(spec, Joined(spec, least, [](double y, double x) { return x > y || std::isnan(x) ? x : y; }));
}
MaybeKernel MakeMin(const KernelSpec& spec) {
  return InDouble(spec, Joined(spec, INFINITY, [](double y, double x) { return x < y || std::isnan(x) ? x : y; }));
}
MaybeKernel MakeProd(const KernelSpec& spec) {
  return Wrapping(spec, Joined(spec, 1, [](double y, double x) { return y * x; }));
}
MaybeKernel MakeL1Norm(const KernelSpec& spec) {
  return Wrapping(spec, Joined(spec, 0, [](double y, double x) { return y + std::fabs(x); }));
}
constexpr auto kAddSquare = [](double y, double x) { return y + x * x; };
MaybeKernel MakeL2Norm(const KernelSpec& spec) {
  return InDouble(spec, Joined(spec, 0, kAddSquare, [](double y) { return std::sqrt(y); }));
}
MaybeKernel MakeSumSquare(const KernelSpec& spec) { return Wrapping(spec, Joined(spec, 0, kAddSquare)); }

MaybeKernel MakeLogSumExp(const KernelSpec& spec) {
  const Reduction r(spec, spec.inputs[0].shape);
  return InDouble(spec, [=](const Tensors& t) {
    const double* x = t.in[0];
    double* y = t.out[0];
    std::vector<double> max(static_cast<size_t>(r.outputs), -INFINITY);
    r.ForEach([&](int64_t i, int64_t o) { max[o] = std::fmax(max[o], x[i]); });
    const auto shift = [&](int64_t o) { return std::isfinite(max[o]) ? max[o] : 0; };
    r.ForEach([&](int64_t i, int64_t o) { y[o] += std::exp(x[i] - shift(o)); });
    for (int64_t o = 0; o < r.outputs; ++o) y[o] = shift(o) + std::log(y[o]);
  });
}

// The elements that were repeated when the output's shape was stretched to data's are added.
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  const Shape shape = spec.inputs[0].shape;
  const std::array<Strides, 2> strides = {PlainStrides(shape), BroadcastStrides(spec.outputs[0].shape, shape)};
  return Wrapping(spec, [=](const Tensors& t) {
    Walk(shape, strides, [&](const std::array<int64_t, 2>& at) { t.out[0][at[1]] += t.in[0][at[0]]; });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeSum},       {"Mean", MakeMean},           {"Max", MakeMax},
    {"Min", MakeMin},       {"Prod", MakeProd},           {"L1Norm", MakeL1Norm},
    {"L2Norm", MakeL2Norm}, {"SumSquare", MakeSumSquare}, {"LogSumExp", MakeLogSumExp},
    {"SumTo", MakeSumTo},
};

}  // namespace

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::reference
