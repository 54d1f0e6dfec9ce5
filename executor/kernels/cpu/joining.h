// What reductions do to elements: the functions, what they are accumulated in, and their loops. Float and double have
// loops of their own; other floats become float, and integers as wide as there are, tile by tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "base/dtype.h"
#include "engine/kernels/flat.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

enum class Function { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSumExp };

constexpr int64_t kStrip = 512;  // results accumulated side by side

// Integers wrap around; NaN is greatest, and least.
template <Function kFunction, class A>
A Join(A a, A b) {
  if constexpr (kFunction == Function::kMax) return b > a || b != b ? b : a;
  if constexpr (kFunction == Function::kMin) return b < a || b != b ? b : a;
  if constexpr (kFunction == Function::kProd) return Sum(A{0}, a, b);
  return Sum(a, b);
}

// What joins with anything to leave it as it is.
template <Function kFunction, class A>
constexpr A Nothing() {
  using Limits = std::numeric_limits<A>;
  if constexpr (kFunction == Function::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  if constexpr (kFunction == Function::kMin) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return kFunction == Function::kProd ? 1 : 0;
}

// What is joined of an element.
template <Function kFunction, class A>
A Term(A x) {
  if constexpr (kFunction == Function::kL1) return x < 0 ? Sum(A{0}, static_cast<A>(-1), x) : x;
  if constexpr (kFunction == Function::kSumSquare) return Sum(A{0}, x, x);
  return x;
}

// How elements, at x, are joined to numbers of type A, and these become results, at y. What elements are is known to
// the classes below; the traversal (reduce.cc) knows their size alone.
template <class A>
class Joining {
 public:
  Joining(A nothing, A (*join)(A a, A b)) : nothing(nothing), join(join) {}
  virtual ~Joining() = default;

  const A nothing;            // what joins with anything to leave it as it is
  A (*const join)(A a, A b);  // two numbers

  // n elements, joined. Here and below y is where the results will be, and LogSumExp's maxima are.
  virtual A Row(const void* x, int64_t n, const void* y) const = 0;
  // n numbers side by side, at most kStrip, each joined with one element.
  virtual void To(const void* x, A* numbers, int64_t n, const void* y) const = 0;
  // n results; the numbers may change.
  virtual void Finish(A* numbers, int64_t n, void* y) const = 0;
};

// Max and Min of float or double.
template <class T>
struct Extremes : Joining<T> {
  T (*const row)(const T* x, int64_t n);
  void (*const to)(const T* x, T* y, int64_t n);

  explicit Extremes(bool max)
      : Joining<T>(max ? Nothing<Function::kMax, T>() : Nothing<Function::kMin, T>(),
                   max ? Join<Function::kMax, T> : Join<Function::kMin, T>),
        row(max ? BestLoops<T>().max : BestLoops<T>().min), to(max ? BestLoops<T>().max_to : BestLoops<T>().min_to) {}
  T Row(const void* x, int64_t n, const void*) const override { return row(static_cast<const T*>(x), n); }
  void To(const void* x, T* numbers, int64_t n, const void*) const override {
    to(static_cast<const T*>(x), numbers, n);
  }
  void Finish(T* numbers, int64_t n, void* y) const override { std::copy_n(numbers, n, static_cast<T*>(y)); }
};

// Sums, norms and products of float or double.
template <class T>
struct Sums : Joining<double> {
  const Function function;
  const int64_t divisor;
  LoopsOf<T>::Joining loops;

  Sums(Function function, int64_t divisor)
      : Joining<double>(function == Function::kProd ? 1 : 0,
                        function == Function::kProd ? Join<Function::kProd, double> : Join<Function::kSum, double>),
        function(function), divisor(divisor) {
    const LoopsOf<T>& best = BestLoops<T>();
    switch (function) {
      case Function::kL1: loops = best.magnitudes; break;
      case Function::kL2:
      case Function::kSumSquare: loops = best.squares; break;
      case Function::kProd: loops = best.products; break;
      default: loops = {best.sum, best.add_to};
    }
  }
  double Row(const void* x, int64_t n, const void*) const override { return loops.row(static_cast<const T*>(x), n); }
  void To(const void* x, double* numbers, int64_t n, const void*) const override {
    loops.to(static_cast<const T*>(x), numbers, n);
  }
  void Finish(double* numbers, int64_t n, void* y) const override {
    T* results = static_cast<T*>(y);
    if (function == Function::kL2) {
      for (int64_t i = 0; i < n; ++i) results[i] = static_cast<T>(std::sqrt(numbers[i]));
    } else if (divisor != 1) {
      for (int64_t i = 0; i < n; ++i) results[i] = Narrowed<T>(numbers[i], divisor);
    } else {
      std::copy_n(numbers, n, results);
    }
  }
};

// The second part of LogSumExp, of float or double: of what y holds already, the maxima.
template <class T>
struct ExpSums : Joining<double> {
  ExpSums() : Joining<double>(0, Join<Function::kSum, double>) {}
  // What e^x is reckoned from: of no finite maximum, 0.
  static T Shift(T max) { return std::isfinite(max) ? max : 0; }
  double Row(const void* x, int64_t n, const void* y) const override {
    return BestLoops<T>().exp_sum(static_cast<const T*>(x), n, Shift(*static_cast<const T*>(y)));
  }
  void To(const void* x, double* numbers, int64_t n, const void* y) const override {
    T tile[kStrip];
    for (int64_t i = 0; i < n; ++i) tile[i] = static_cast<const T*>(x)[i] - Shift(static_cast<const T*>(y)[i]);
    BestLoops<T>().template UnaryOf<native::fn::Exp>()(tile, tile, n);
    BestLoops<T>().add_to(tile, numbers, n);
  }
  void Finish(double* numbers, int64_t n, void* y) const override {
    T* results = static_cast<T*>(y);
    for (int64_t i = 0; i < n; ++i) results[i] = static_cast<T>(Shift(results[i]) + std::log(numbers[i]));
  }
};

// The loops of elements of type T that are joined to numbers of type A.
template <class T, class A>
struct PlainLoops {
  static constexpr int64_t kLanes = 8;  // side by side, for vectors
  A nothing;
  A (*join)(A a, A b);
  void (*row)(const T* x, int64_t n, A* lanes);  // elements k, k + kLanes, ... to lane k, what is left to lane 0
  A (*joined)(const A* lanes);
  void (*to)(const T* x, A* numbers, int64_t n);

  template <Function kFunction>
  static void Row(const T* x, int64_t n, A* lanes) {
    A own[kLanes];
    std::copy_n(lanes, kLanes, own);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) own[k] = Join<kFunction>(own[k], Term<kFunction, A>(x[i + k]));
    }
    for (; i < n; ++i) own[0] = Join<kFunction>(own[0], Term<kFunction, A>(x[i]));
    std::copy_n(own, kLanes, lanes);
  }
  template <Function kFunction>
  static A Joined(const A* lanes) {
    return std::accumulate(lanes + 1, lanes + kLanes, lanes[0], Join<kFunction, A>);
  }
  template <Function kFunction>
  static void To(const T* x, A* numbers, int64_t n) {
    for (int64_t i = 0; i < n; ++i) numbers[i] = Join<kFunction>(numbers[i], Term<kFunction, A>(x[i]));
  }
  template <Function kFunction>
  static PlainLoops Of() {
    return {Nothing<kFunction, A>(), Join<kFunction, A>, Row<kFunction>, Joined<kFunction>, To<kFunction>};
  }
  static PlainLoops Of(Function function) {
    switch (function) {
      case Function::kMax: return Of<Function::kMax>();
      case Function::kMin: return Of<Function::kMin>();
      case Function::kProd: return Of<Function::kProd>();
      case Function::kL1: return Of<Function::kL1>();
      case Function::kL2:
      case Function::kSumSquare: return Of<Function::kSumSquare>();
      default: return Of<Function::kSum>();
    }
  }
};

// Elements of all other types: they are of type T, or in tiles become elements of it, which holds them exactly.
template <class T>
struct Widening : Joining<Accumulator<T>> {
  using A = Accumulator<T>;
  using Loops = PlainLoops<T, A>;
  static_assert(kStrip % Loops::kLanes == 0 && kStrip <= kSerialElements);  // flat::Cast stays in the calling thread
  const DType dtype;
  const Function function;
  const int64_t size, divisor;
  const Loops loops;

  Widening(DType dtype, Function function, int64_t divisor) : Widening(dtype, function, divisor, Loops::Of(function)) {}
  Widening(DType dtype, Function function, int64_t divisor, const Loops& loops)
      : Joining<A>(loops.nothing, loops.join), dtype(dtype), function(function), size(SizeOf(dtype)), divisor(divisor),
        loops(loops) {}
  // n elements as they are, or in the tile.
  const T* Widened(const void* x, int64_t n, T* tile) const {
    if (dtype == kDTypeOf<T>) return static_cast<const T*>(x);
    flat::Cast(dtype, x, kDTypeOf<T>, tile, n);
    return tile;
  }
  A Row(const void* x, int64_t n, const void*) const override {
    T tile[kStrip];
    A lanes[Loops::kLanes];
    std::fill_n(lanes, Loops::kLanes, this->nothing);
    for (int64_t at = 0; at < n; at += kStrip) {
      const int64_t count = std::min(kStrip, n - at);
      loops.row(Widened(static_cast<const std::byte*>(x) + at * size, count, tile), count, lanes);
    }
    return loops.joined(lanes);
  }
  void To(const void* x, A* numbers, int64_t n, const void*) const override {
    T tile[kStrip];
    loops.to(Widened(x, n, tile), numbers, n);
  }
  void Finish(A* numbers, int64_t n, void* y) const override {
    if (function == Function::kL2) {
      double roots[kStrip];
      for (int64_t i = 0; i < n; ++i) roots[i] = std::sqrt(static_cast<double>(numbers[i]));
      return flat::Cast(DType::kFloat64, roots, dtype, y, n);
    }
    if (divisor != 1 && dtype != DType::kBool) {  // a mean is true where there is one that is
      for (int64_t i = 0; i < n; ++i) numbers[i] = Narrowed<A>(numbers[i], divisor);
    }
    StoreSums(numbers, n, dtype, y);
  }
};

}  // namespace bindery::cpu
