// Along an axis, and over all elements: on the tensors' own memory, since what is read is large and what is given
// small.
#include "symbol/ops/measure.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/exact_sum.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// An element as it is compared: the 16-bit floats as float.
template <class T>
auto Number(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return static_cast<float>(x);
  }
}

// The elements along the axis at one position of the output.
template <class T>
struct Row {
  const T* first;
  int64_t extent, stride;
  auto operator[](int64_t k) const { return Number(first[k * stride]); }
};

// Where an index of any type points to; -1 if to none of `extent`.
int64_t PlaceAt(DType dtype, const std::byte* places, int64_t i, int64_t extent) {
  return Dispatch(dtype, [&]<class T>() -> int64_t {
    const double place = LoadDouble(reinterpret_cast<const T*>(places)[i]);
    return place >= 0 && place < static_cast<double>(extent) && place == std::floor(place) ? static_cast<int64_t>(place)
                                                                                           : -1;
  });
}

// (data [, place]) -> Y: output[i] = f(row i [, the place in it])
template <class F>
MaybeKernel AlongAxis(const KernelSpec& spec, int64_t along, const F& f) {
  const Shape& shape = spec.inputs[0].shape;
  const int axis = shape.Axis(static_cast<int>(along));
  const int64_t positions = spec.outputs[0].shape.Elements(), extent = shape[axis], inner = shape.CountFrom(axis + 1);
  const DType places = spec.inputs.size() > 1 ? spec.inputs[1].dtype : DType::kInt64;
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> Kernel {
    return OnBytes(spec, [=](const Tensors& t) {
      const T* data = reinterpret_cast<const T*>(t.raw_in[0]);
      for (int64_t i = 0; i < positions; ++i) {
        const Row<T> row{data + i / inner * extent * inner + i % inner, extent, inner};
        const auto result = f(row, t.raw_in.size() > 1 ? PlaceAt(places, t.raw_in[1], i, extent) : 0);
        reinterpret_cast<std::remove_const_t<decltype(result)>*>(t.raw_out[0])[i] = result;
      }
    });
  });
}

// NaN is larger (smaller) than any number.
template <class Better>
MaybeKernel MakeArg(const KernelSpec& spec) {
  const auto attrs = spec.attributes<ArgAttrs>();
  return AlongAxis(spec, attrs.axis, [attrs]<class T>(const Row<T>& row, int64_t) {
    int64_t best = 0;
    for (int64_t k = 1; k < row.extent; ++k) {
      const bool is_equal = row[k] == row[best] || (row[k] != row[k] && row[best] != row[best]);
      const bool is_better = Better()(row[k], row[best]) || (row[k] != row[k] && row[best] == row[best]);
      if (is_better || (is_equal && attrs.select_last_index)) best = k;
    }
    return best;
  });
}

MaybeKernel MakeRankOf(const KernelSpec& spec) {
  return AlongAxis(spec, spec.attributes<PlaceAttrs>().axis, []<class T>(const Row<T>& row, int64_t place) {
    if (place < 0) return row.extent;
    const auto own = row[place];
    int64_t before = 0, nans = 0;
    for (int64_t k = 0; k < row.extent; ++k) {
      before += row[k] > own;
      nans += row[k] != row[k];
    }
    for (int64_t k = 0; k < place; ++k) before += row[k] == own;
    return nans > 0 ? row.extent : before;
  });
}

MaybeKernel MakeSumExactly(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.Elements();
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> Kernel {
    return OnBytes(spec, [n](const Tensors& t) {
      double* pieces = reinterpret_cast<double*>(t.raw_out[0]);
      std::fill_n(pieces, ExactSum::kSize, 0.0);
      for (int64_t i = 0; i < n; ++i) ExactSum::Add(LoadDouble(reinterpret_cast<const T*>(t.raw_in[0])[i]), pieces);
    });
  });
}

MaybeKernel MakeFirstOutside(const KernelSpec& spec) {
  const int64_t n = spec.inputs[0].shape.Elements();
  return Dispatch(spec.inputs[0].dtype, [&, attrs = spec.attributes<FirstOutsideAttrs>()]<class T>() -> Kernel {
    return OnBytes(spec, [=](const Tensors& t) {
      const auto at = [x = reinterpret_cast<const T*>(t.raw_in[0])](int64_t i) { return LoadDouble(x[i]); };
      const auto inside = [&](double x) {
        return (x >= attrs.low && x <= attrs.high && (!attrs.whole || x == std::floor(x))) ||
               (attrs.use_ignore && x == attrs.ignore);
      };
      double* result = reinterpret_cast<double*>(t.raw_out[0]);
      result[0] = -1;
      result[1] = 0;
      int64_t first = 0;
      while (first < n && inside(at(first))) ++first;
      if (first == n) return;
      result[0] = static_cast<double>(first);
      result[1] = at(first);
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"ArgMax", MakeArg<std::greater<>>}, {"ArgMin", MakeArg<std::less<>>},   {"RankOf", MakeRankOf},
    {"SumExactly", MakeSumExactly},      {"FirstOutside", MakeFirstOutside},
};

}  // namespace

KernelRows MeasureKernels() { return kEntries; }

}  // namespace bindery::reference
