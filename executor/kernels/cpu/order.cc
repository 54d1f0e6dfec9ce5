// TopK, CumSum, CumProd and Trilu.
//
// Elements are ordered as whole numbers: a key in which order is that of the elements, joined with their place, so that
// equal ones keep theirs. Accumulated are slices of neighbouring columns, step by step along the axis, in the widest
// type.
#include "symbol/ops/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// Unsigned numbers in the order of the elements: NaN is largest, -0 is 0.
template <class T>
KeyOf<T> Key(T element) {
  using Unsigned = KeyOf<T>;
  constexpr Unsigned kTop = Unsigned{1} << (8 * sizeof(Unsigned) - 1);
  if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? static_cast<Unsigned>(element) ^ kTop : static_cast<Unsigned>(element);
  } else {
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto x = static_cast<Real>(element);
    if (x != x) return ~Unsigned{0};
    const auto bits = std::bit_cast<Unsigned>(x + Real{0});
    return bits & kTop ? ~bits : bits | kTop;
  }
}

// A key and where its element is: one number if it has room for both.
struct Narrow {
  uint64_t both;
  static constexpr int64_t kMostPlaces = int64_t{1} << 32;
  Narrow() = default;
  Narrow(uint64_t key, int64_t place) : both(key << 32 | static_cast<uint64_t>(place)) {}
  int64_t place() const { return static_cast<int64_t>(both & 0xffffffff); }
  bool operator<(const Narrow& other) const { return both < other.both; }
};
struct Wide {
  uint64_t key;
  int64_t at;
  Wide() = default;
  Wide(uint64_t k, int64_t place) : key(k), at(place) {}
  int64_t place() const { return at; }
  bool operator<(const Wide& other) const { return key != other.key ? key < other.key : at < other.at; }
};

// The entries of a row: n elements, `step` apart. Those sought come first.
template <class Entry>
using EntryLoop = void (*)(const void* row, int64_t step, int64_t n, bool largest, Entry* entries);
template <class T, class Entry>
void MakeEntries(const void* row, int64_t step, int64_t n, bool largest, Entry* entries) {
  const T* x = static_cast<const T*>(row);
  const KeyOf<T> flip = largest ? ~KeyOf<T>{0} : 0;
  for (int64_t i = 0; i < n; ++i) entries[i] = Entry(Key(x[i * step]) ^ flip, i);
}

// The first k of n entries, in order.
template <class Entry>
void SortFirst(Entry* entries, int64_t k, int64_t n) {
  if (k <= n / 64) {  // most are seen once, by the least of those that are kept
    std::partial_sort(entries, entries + k, entries + n);
  } else {
    if (k < n) std::nth_element(entries, entries + k, entries + n);
    std::sort(entries, entries + k);
  }
}

// y[i] = x[the place of entry i], for k elements of so many bytes, `step` apart.
template <class Entry>
void TakeEntries(int64_t size, const std::byte* x, const Entry* entries, int64_t k, int64_t step, std::byte* y) {
  OfSize(size, [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(x);
    T* to = reinterpret_cast<T*>(y);
    for (int64_t i = 0; i < k; ++i) to[i * step] = from[entries[i].place() * step];
  });
}

// data -> values, indices
template <class Entry>
Kernel TopKBy(const KernelSpec& spec, EntryLoop<Entry> make_entries) {
  const auto attrs = spec.attributes<TopKAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  const int64_t k = attrs.k == 0 ? view.axis : attrs.k, size = SizeOf(spec.inputs[0].dtype);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = CheckedMul(view.axis * spec.threads, sizeof(Entry));
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const int64_t rows = view.outer * view.inner;
    ParallelFor(rows, 1, rows * view.axis <= kSerialElements / 16 ? rows : 0,
                [&](int64_t begin, int64_t end, int thread) {
                  Entry* entries = static_cast<Entry*>(args.scratch) + thread * view.axis;
                  std::byte* values = args.out<std::byte>(0);
                  for (int64_t row = begin; row < end; ++row) {
                    const int64_t outer = row / view.inner, column = row % view.inner;
                    const std::byte* x = args.in<std::byte>(0) + (outer * view.axis * view.inner + column) * size;
                    make_entries(x, view.inner, view.axis, attrs.largest, entries);
                    SortFirst(entries, k, view.axis);
                    const int64_t to = outer * k * view.inner + column;
                    if (values) TakeEntries(size, x, entries, k, view.inner, values + to * size);
                    if (!args.outputs[1]) continue;
                    for (int64_t i = 0; i < k; ++i) {
                      const int64_t at = to + i * view.inner, place = entries[i].place();
                      if (attrs.dtype == DType::kInt32) {
                        args.out<int32_t>(1)[at] = static_cast<int32_t>(place);
                      } else {
                        args.out<int64_t>(1)[at] = place;
                      }
                    }
                  }
                });
  });
}

MaybeKernel MakeTopK(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype;
  const int64_t extent = spec.inputs[0].shape[static_cast<int>(spec.attributes<TopKAttrs>().axis)];
  if (SizeOf(dtype) == 8 || extent > Narrow::kMostPlaces) {
    return TopKBy<Wide>(spec, Dispatch(dtype, []<class T>() -> EntryLoop<Wide> { return MakeEntries<T, Wide>; }));
  }
  return TopKBy<Narrow>(spec, Dispatch(dtype, []<class T>() -> EntryLoop<Narrow> { return MakeEntries<T, Narrow>; }));
}

template <bool kProduct, class A>
A Accumulated(A sum, A x) {
  return kProduct ? Sum(A{0}, sum, x) : Sum(sum, x);
}
// One more step of n columns; their sums so far are kept.
template <class T, bool kProduct, bool kExclusive>
inline void ScanStep(const T* x, Accumulator<T>* sums, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const Accumulator<T> next = Accumulated<kProduct>(sums[i], Widened(x[i]));
    y[i] = Narrowed<T>(kExclusive ? sums[i] : next);
    sums[i] = next;
  }
}

// The axis in the order in which it is gone along.
struct Course {
  AxisView view;
  ScanAttrs attrs;
  explicit Course(const KernelSpec& spec)
      : view(ViewAlong(spec.outputs[0].shape, static_cast<int>(spec.attributes<ScanAttrs>().axis))),
        attrs(spec.attributes<ScanAttrs>()) {}
  int64_t At(int64_t step) const { return (attrs.reverse ? view.axis - 1 - step : step) * view.inner; }
};

// Some rows at a time, whose sums do not wait for each other; more would fall on the same places of the cache where
// rows are powers of two long.
constexpr int64_t kRows = 4;
// scan(row, count) for `count` rows from `row` on, which the compiler knows.
template <class Scan>
void ForRows(const AxisView& view, const Scan& scan) {
  ParallelFor(CeilDiv(view.outer, kRows), 1, kSerialElements / (kRows * view.axis),
              [&](int64_t begin, int64_t end, int) {
                int64_t row = begin * kRows;
                const int64_t last = std::min(end * kRows, view.outer);
                for (; row + kRows <= last; row += kRows) scan(row, std::integral_constant<int64_t, kRows>());
                for (; row < last; ++row) scan(row, std::integral_constant<int64_t, 1>());
              });
}

template <class T, bool kProduct, bool kExclusive>
void ScanRows(const Course& course, const T* x, T* y) {
  const int64_t n = course.view.axis;
  ForRows(course.view, [&]<int64_t kCount>(int64_t row, std::integral_constant<int64_t, kCount>) {
    std::array<Accumulator<T>, kCount> sums;
    sums.fill(Accumulator<T>{kProduct});
    for (int64_t step = 0; step < n; ++step) {
      const int64_t at = row * n + course.At(step);
      for (int64_t k = 0; k < kCount; ++k)
        ScanStep<T, kProduct, kExclusive>(x + at + k * n, &sums[k], y + at + k * n, 1);
    }
  });
}

template <class T, bool kProduct>
void Scan(const Course& course, const T* x, T* y) {
  if (course.view.inner == 1) {
    course.attrs.exclusive ? ScanRows<T, kProduct, true>(course, x, y) : ScanRows<T, kProduct, false>(course, x, y);
    return;
  }
  ForSlices(course.view, kSerialElements, [&](const Slice& s) {
    Accumulator<T> sums[kSliceColumns];
    std::fill_n(sums, s.columns, Accumulator<T>{kProduct});
    for (int64_t step = 0; step < course.view.axis; ++step) {
      const int64_t at = s.start + course.At(step);
      (course.attrs.exclusive ? ScanStep<T, kProduct, true> : ScanStep<T, kProduct, false>)(x + at, sums, y + at,
                                                                                            s.columns);
    }
  });
}

// data -> y: elements of type T, or such as become numbers of type T, which they are accumulated in, in scratch memory.
template <class T, bool kProduct>
Kernel ScanBy(const KernelSpec& spec) {
  Kernel kernel = PlainKernel(spec, "loop");
  const DType dtype = spec.inputs[0].dtype;
  const int64_t n = spec.inputs[0].shape.Elements();
  if (dtype != kDTypeOf<T>) kernel.scratch_bytes = CheckedMul(n, sizeof(T));
  return WithLoop(std::move(kernel), [=, course = Course(spec)](const Arguments& args) {
    if (dtype == kDTypeOf<T>) return Scan<T, kProduct>(course, args.in<T>(0), args.out<T>(0));
    T* numbers = static_cast<T*>(args.scratch);
    flat::Cast(dtype, args.inputs[0], kDTypeOf<T>, numbers, n);
    Scan<T, kProduct>(course, numbers, numbers);
    StoreSums(numbers, n, dtype, args.outputs[0]);
  });
}
template <bool kProduct>
MaybeKernel MakeScan(const KernelSpec& spec) {
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> MaybeKernel {
    return ScanBy<std::conditional_t<std::is_same_v<T, float>, float, Accumulator<T>>, kProduct>(spec);
  });
}

// (dy, x) -> dx of `count` columns, `apart` from each other: first the products of what is before, then, backward,
// times what follows.
template <class T>
void CumProdGrad(const Course& course, const T* dy, const T* x, T* dx, auto count, auto apart) {
  using A = Accumulator<T>;
  const bool exclusive = course.attrs.exclusive;
  A carried[kSliceColumns];
  std::fill_n(carried, int64_t{count}, A{1});
  for (int64_t step = 0; step < course.view.axis; ++step) {
    int64_t at = course.At(step);
    for (int64_t i = 0; i < count; ++i, at += apart) {
      dx[at] = Narrowed<T>(carried[i]);
      carried[i] = Sum(A{0}, carried[i], A{Widened(x[at])});
    }
  }
  std::fill_n(carried, int64_t{count}, A{0});  // x_(k+1) s_(k+1)
  for (int64_t step = course.view.axis; step-- > 0;) {
    int64_t at = course.At(step);
    const bool is_unused = exclusive && step + 1 == course.view.axis;  // no product has it, even if it is infinite
    for (int64_t i = 0; i < count; ++i, at += apart) {
      if (is_unused) {
        dx[at] = Narrowed<T>(A{0});
        carried[i] = A{Widened(dy[at])};
        continue;
      }
      const A own = Sum(carried[i], A{Widened(dy[at])}), s = exclusive ? carried[i] : own;
      dx[at] = Narrowed<T>(Sum(A{0}, A{Widened(dx[at])}, s));
      carried[i] = exclusive ? Sum(A{Widened(dy[at])}, A{Widened(x[at])}, s) : Sum(A{0}, A{Widened(x[at])}, s);
    }
  }
}
// The same from element `first` on.
using ColumnsGrad = void (*)(const Course& course, const Arguments& args, int64_t first, int64_t count, int64_t apart);
template <class T>
void CumProdColumnsGrad(const Course& course, const Arguments& args, int64_t first, int64_t count, int64_t apart) {
  const T *dy = args.in<T>(0) + first, *x = args.in<T>(1) + first;
  T* dx = args.out<T>(0) + first;
  if (apart == 1) return CumProdGrad(course, dy, x, dx, count, std::integral_constant<int64_t, 1>());
  if (count == kRows) return CumProdGrad(course, dy, x, dx, std::integral_constant<int64_t, kRows>(), apart);
  CumProdGrad(course, dy, x, dx, count, apart);
}
MaybeKernel MakeCumProdGrad(const KernelSpec& spec) {
  // dx holds the products of what is before: these may leave 16 bits where the gradient does not.
  if (SizeOf(spec.inputs[0].dtype) == 2 && IsFloat(spec.inputs[0].dtype)) return std::nullopt;
  const ColumnsGrad grad =
      Dispatch(spec.inputs[0].dtype, []<class T>() -> ColumnsGrad { return CumProdColumnsGrad<T>; });
  return WithLoop(PlainKernel(spec, "loop"), [grad, course = Course(spec)](const Arguments& args) {
    if (const int64_t n = course.view.axis; course.view.inner == 1) {
      return ForRows(course.view, [&](int64_t row, int64_t count) { grad(course, args, row * n, count, n); });
    }
    ForSlices(course.view, kSerialElements,
              [&](const Slice& slice) { grad(course, args, slice.start, slice.columns, 1); });
  });
}

MaybeKernel MakeTrilu(const KernelSpec& spec) {
  const auto attrs = spec.attributes<TriluAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  const int64_t height = shape[-2], width = shape[-1], rows = shape.CountTo(shape.rank() - 1);
  const int64_t k = std::clamp(attrs.k, -height, width);
  return OfSize(SizeOf(spec.inputs[0].dtype), [&]<class T>() {
    return WithLoop(PlainKernel(spec, "loop"), [=](const Arguments& args) {
      ParallelFor(rows, 1, kSerialElements / width, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t diagonal = row % height + k;
          const int64_t first = attrs.upper ? std::clamp<int64_t>(diagonal, 0, width) : 0;
          const int64_t last = attrs.upper ? width : std::clamp<int64_t>(diagonal + 1, 0, width);
          const T* x = args.in<T>(0) + row * width;
          T* y = args.out<T>(0) + row * width;
          std::fill_n(y, first, T{});
          std::copy(x + first, x + last, y + first);
          std::fill(y + last, y + width, T{});
        }
      });
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"TopK", MakeTopK},   {"CumSum", MakeScan<false>}, {"CumProd", MakeScan<true>}, {"CumProdGrad", MakeCumProdGrad},
    {"Trilu", MakeTrilu},
};

}  // namespace

KernelRows OrderKernels() { return kEntries; }

}  // namespace bindery::cpu
