// What metrics are made of, by the team: along an axis, every position of the output is one thread's; over all
// elements, parts are joined in an order that changes nothing.
#include "symbol/ops/measure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/exact_sum.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// An element as it is compared: 16-bit floats as float.
template <class T>
auto Comparable(T x) {
  if constexpr (std::is_arithmetic_v<T>) return x;
  if constexpr (!std::is_arithmetic_v<T>) return static_cast<float>(x);
}

// Of `extent` elements, `step` apart, and a place among them, which is -1 if there is none: one output.
using RowMeasure = int64_t (*)(const void* row, int64_t extent, int64_t step, int64_t place);
Kernel AlongAxis(const KernelSpec& spec, int64_t axis, RowMeasure measure) {
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(axis));
  const bool has_place = spec.inputs.size() > 1;
  const DType dtype = spec.inputs.back().dtype;
  return WithLoop(PlainKernel(spec, "loop"), [=, size = SizeOf(spec.inputs[0].dtype)](const Arguments& args) {
    const Numbers places(dtype, args.inputs.back());
    ParallelFor(view.outer * view.inner, 1, kSerialElements / view.axis, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / view.inner * view.axis * view.inner + i % view.inner;
        const double number = has_place ? places[i] : 0;
        const bool exists = number >= 0 && number < static_cast<double>(view.axis) && number == std::floor(number);
        args.out<int64_t>(0)[i] = measure(args.in<std::byte>(0) + first * size, view.axis, view.inner,
                                          exists ? static_cast<int64_t>(number) : -1);
      }
    });
  });
}

// Of numbers that are `Better` the first, or the last; the first (last) NaN before any number.
template <class T, class Better, bool kLast>
int64_t BestPlace(const void* row, int64_t extent, int64_t step, int64_t) {
  const T* x = static_cast<const T*>(row);
  auto best = Comparable(x[kLast ? (extent - 1) * step : 0]);
  int64_t place = kLast ? extent - 1 : 0;
  for (int64_t i = 1; i < extent && best == best; ++i) {
    const int64_t k = kLast ? extent - 1 - i : i;
    const auto next = Comparable(x[k * step]);
    if (!Better()(next, best) && next == next) continue;
    best = next;
    place = k;
  }
  return place;
}
template <class Better>
MaybeKernel MakeArg(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ArgAttrs>();
  return AlongAxis(spec, attrs.axis, Dispatch(spec.inputs[0].dtype, [&]<class T>() -> RowMeasure {
                     return attrs.select_last_index ? BestPlace<T, Better, true> : BestPlace<T, Better, false>;
                   }));
}

// How many are greater, or equal and before; all if there is a NaN, or no such place.
template <class T>
int64_t Rank(const void* row, int64_t extent, int64_t step, int64_t place) {
  if (place < 0) return extent;
  const T* x = static_cast<const T*>(row);
  const auto own = Comparable(x[place * step]);
  int64_t rank = 0;
  bool has_nan = false;
  for (int64_t k = 0; k < extent; ++k) {
    const auto next = Comparable(x[k * step]);
    has_nan |= next != next;
    rank += next > own || (next == own && k < place);
  }
  return has_nan ? extent : rank;
}
MaybeKernel MakeRankOf(const KernelSpec& spec) {
  return AlongAxis(spec, spec.attributes<PlaceAttrs>().axis,
                   Dispatch(spec.inputs[0].dtype, []<class T>() -> RowMeasure { return Rank<T>; }));
}

template <class T>
void AddExactly(const void* x, int64_t begin, int64_t end, double* sum) {
  for (int64_t i = begin; i < end; ++i) ExactSum::Add(LoadDouble(static_cast<const T*>(x)[i]), sum);
}
MaybeKernel MakeSumExactly(const KernelSpec& spec) {
  Kernel kernel = PlainKernel(spec, "loop");
  constexpr int64_t kSize = ExactSum::kSize;
  kernel.scratch_bytes = kSize * spec.threads * static_cast<int64_t>(sizeof(double));
  const auto add = Dispatch(spec.inputs[0].dtype, []<class T>() { return &AddExactly<T>; });
  return WithLoop(std::move(kernel),
                  [add, n = spec.inputs[0].shape.Elements(), threads = spec.threads](const Arguments& args) {
                    double *parts = static_cast<double*>(args.scratch), *sum = args.out<double>(0);
                    std::fill_n(parts, kSize * threads, 0.0);
                    std::fill_n(sum, kSize, 0.0);
                    ParallelFor(n, kGrain, kSerialElements / 8, [&](int64_t begin, int64_t end, int thread) {
                      add(args.inputs[0], begin, end, parts + thread * kSize);
                    });
                    for (int64_t i = 0; i < kSize * threads; ++i) sum[i % kSize] += parts[i];
                  });
}

// The first element of [begin, end) that is outside; `end` if none is.
template <class T>
int64_t FindOutside(const FirstOutsideAttrs& attrs, const void* elements, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(elements);
  const auto is_within = [&](T element) {
    const double value = LoadDouble(element);
    return (value >= attrs.low) & (value <= attrs.high);
  };
  const auto is_outside = [&](T element) {
    const double v = LoadDouble(element);
    return !(is_within(element) && (!attrs.whole || v == std::floor(v))) && !(attrs.use_ignore && v == attrs.ignore);
  };
  constexpr int64_t kBlock = 256;  // looked at without a branch for each element
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t block_end = std::min(at + kBlock, end);
    int64_t count = 0;
    for (int64_t i = at; i < block_end; ++i) count += is_within(x[i]);
    if (count == block_end - at && !attrs.whole) continue;
    const T* found = std::find_if(x + at, x + block_end, is_outside);
    if (found != x + block_end) return found - x;
  }
  return end;
}
MaybeKernel MakeFirstOutside(const KernelSpec& spec) {
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = spec.threads * static_cast<int64_t>(sizeof(int64_t));
  const DType dtype = spec.inputs[0].dtype;
  const auto find = Dispatch(dtype, []<class T>() { return &FindOutside<T>; });
  return WithLoop(std::move(kernel),
                  [=, attrs = spec.attributes<FirstOutsideAttrs>(), n = spec.inputs[0].shape.Elements(),
                   threads = spec.threads](const Arguments& args) {
                    auto* firsts = static_cast<int64_t*>(args.scratch);
                    std::fill_n(firsts, threads, n);
                    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int thread) {
                      const int64_t found = find(attrs, args.inputs[0], begin, end);
                      if (found < end) firsts[thread] = found;
                    });
                    const int64_t first = *std::min_element(firsts, firsts + threads);
                    args.out<double>(0)[0] = first < n ? static_cast<double>(first) : -1;
                    args.out<double>(0)[1] = first < n ? Numbers(dtype, args.inputs[0])[first] : 0;
                  });
}

constexpr KernelEntry kEntries[] = {
    {"ArgMax", MakeArg<std::greater<>>}, {"ArgMin", MakeArg<std::less<>>},   {"RankOf", MakeRankOf},
    {"SumExactly", MakeSumExactly},      {"FirstOutside", MakeFirstOutside},
};

}  // namespace

KernelRows MeasureKernels() { return kEntries; }

}  // namespace bindery::cpu
