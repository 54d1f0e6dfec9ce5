// Resample: along an axis, each element of the output is a weighted sum of elements of the input.
#include <algorithm>
#include <cstring>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/resize.h"

namespace bindery::cpu {
namespace {

// A table as kernels read it, and the tensor seen as (outer, axis, inner).
struct Table {
  std::vector<int64_t> starts, indices;
  std::vector<double> weights;
  double outside;
  int64_t outer, extent, inner, count;  // `count`: of the output along the axis

  explicit Table(const KernelSpec& spec) {
    const auto& attrs = spec.attributes<ResampleAttrs>();
    const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
    starts = attrs.starts;
    indices = attrs.indices;
    weights = attrs.weights;
    outside = attrs.outside;
    outer = view.outer;
    extent = view.axis;
    inner = view.inner;
    count = std::ssize(starts) - 1;
  }
  // Is every element another one as it is?
  bool Copies() const {
    if (!weights.empty()) return false;
    for (int64_t i = 0; i < count; ++i) {
      if (starts[i + 1] - starts[i] != 1) return false;
    }
    return true;
  }
  // Calls body(row, first, i) for all rows of `inner` elements of the output: output i of the rows whose inputs begin
  // at row `first`.
  template <class Body>
  void ForRows(const Body& body) const {
    const int64_t serial = std::max<int64_t>(1, kSerialElements / std::max<int64_t>(1, inner));
    const int64_t grain = inner >= kGrain ? 1 : kGrain;
    ParallelFor(outer * count, grain, serial, [&](int64_t begin, int64_t end, int) {
      int64_t first = begin / count * extent, i = begin % count;
      for (int64_t row = begin; row < end; ++row) {
        body(row, first, i);
        if (++i < count) continue;
        i = 0;
        first += extent;
      }
    });
  }
};

template <class T>
void CopyRows(const Table& table, const T* x, T* y) {
  if (table.inner == 1) {
    table.ForRows([&](int64_t row, int64_t first, int64_t i) { y[row] = x[first + table.indices[i]]; });
    return;
  }
  const size_t bytes = static_cast<size_t>(table.inner) * sizeof(T);
  table.ForRows([&](int64_t row, int64_t first, int64_t i) {
    std::memcpy(y + row * table.inner, x + (first + table.indices[i]) * table.inner, bytes);
  });
}

// Of 16-bit floats in float32, of integers in double.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double> || std::is_integral_v<T>, double, float>;

template <class T>
void SumRows(const Table& table, const T* x, T* y) {
  using Sum = SumOf<T>;
  const auto weight = [&](int64_t k) { return table.weights.empty() ? Sum{1} : static_cast<Sum>(table.weights[k]); };
  const auto outside = Convert<T>(table.outside);
  if (table.inner == 1) {
    table.ForRows([&](int64_t row, int64_t first, int64_t i) {
      Sum sum = 0;
      for (int64_t k = table.starts[i]; k < table.starts[i + 1]; ++k) {
        sum += weight(k) * static_cast<Sum>(x[first + table.indices[k]]);
      }
      y[row] = table.starts[i] == table.starts[i + 1] ? outside : Convert<T>(sum);
    });
    return;
  }
  table.ForRows([&](int64_t row, int64_t first, int64_t i) {
    T* to = y + row * table.inner;
    const int64_t begin = table.starts[i], end = table.starts[i + 1];
    if (begin == end) return void(std::fill_n(to, table.inner, outside));
    constexpr int64_t kBlock = 64;
    for (int64_t j = 0; j < table.inner; j += kBlock) {
      const int64_t n = std::min(kBlock, table.inner - j);
      Sum sums[kBlock] = {};
      for (int64_t k = begin; k < end; ++k) {
        const T* from = x + (first + table.indices[k]) * table.inner + j;
        const Sum w = weight(k);
        for (int64_t m = 0; m < n; ++m) sums[m] += w * static_cast<Sum>(from[m]);
      }
      for (int64_t m = 0; m < n; ++m) to[j + m] = Convert<T>(sums[m]);
    }
  });
}

MaybeKernel MakeResample(const KernelSpec& spec) {
  const Table table(spec);
  const DType dtype = spec.inputs[0].dtype;
  if (table.Copies()) {
    return OfSize(SizeOf(dtype), [&]<class T>() {
      return WithLoop(PlainKernel(spec, "copy"),
                      [table](const Arguments& args) { CopyRows<T>(table, args.in<T>(0), args.out<T>(0)); });
    });
  }
  return Dispatch(dtype, [&]<class T>() {
    return WithLoop(PlainKernel(spec, "loop"),
                    [table](const Arguments& args) { SumRows<T>(table, args.in<T>(0), args.out<T>(0)); });
  });
}

constexpr KernelEntry kEntries[] = {{"Resample", MakeResample}};

}  // namespace

KernelRows ResampleKernels() { return kEntries; }

}  // namespace bindery::cpu
