// Reductions over axes of plain data, and SumTo.
//
// Neighbouring axes that are both kept or both reduced are one axis. If the innermost is reduced, each result is a sum
// of contiguous runs; if it is kept, a strip of neighbouring results is accumulated row by row, in double, and so are
// the results of short rows. Where there are few results of many elements, threads share one result: it is joined from
// blocks, which the shape alone decides, so that results do not depend on the number of threads.
#include "symbol/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/slices.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"

namespace bindery::cpu {
namespace {

class Reduction {
 public:
  // Bit i of `reduced`: axis i of `shape` is reduced.
  Reduction(const Shape& shape, uint32_t reduced) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const bool is_reduced = reduced >> axis & 1u;
      if (shape[axis] == 1) continue;
      if (!axes_.empty() && axes_.back().reduced == is_reduced) {
        axes_.back().extent *= shape[axis];
      } else {
        axes_.push_back({shape[axis], is_reduced, 0});
      }
    }
    if (axes_.empty()) axes_.push_back({1, false, 0});
    int64_t stride = 1;
    for (size_t i = axes_.size(); i-- > 0; stride *= axes_[i].extent) axes_[i].stride = stride;
    inner_ = axes_.back();
    axes_.pop_back();
    for (const Axis& axis : axes_) (axis.reduced ? reduced_ : kept_) *= axis.extent;
  }

  bool inner_reduced() const { return inner_.reduced; }
  int64_t inner() const { return inner_.extent; }
  int64_t kept() const { return kept_; }        // outer positions of results
  int64_t reduced() const { return reduced_; }  // outer positions that are joined
  int64_t elements() const { return kept_ * reduced_ * inner_.extent; }
  int64_t count() const { return reduced_ * (inner_.reduced ? inner_.extent : 1); }  // elements joined to one

  // Offset in the data of an outer kept or reduced position.
  int64_t KeptOffset(int64_t position) const { return Offset(position, false); }
  int64_t ReducedOffset(int64_t position) const { return Offset(position, true); }

 private:
  struct Axis {
    int64_t extent;
    bool reduced;
    int64_t stride;
  };
  int64_t Offset(int64_t position, bool reduced) const {
    int64_t offset = 0;
    for (size_t i = axes_.size(); i-- > 0;) {
      if (axes_[i].reduced != reduced) continue;
      offset += position % axes_[i].extent * axes_[i].stride;
      position /= axes_[i].extent;
    }
    return offset;
  }

  std::vector<Axis> axes_;  // all but the innermost
  Axis inner_{};
  int64_t kept_ = 1, reduced_ = 1;
};

enum class Function { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSumExp };

constexpr int64_t kStrip = 512;  // results accumulated side by side

// Results whose elements are contiguous runs, cut into blocks of about kRun elements: some runs, or a part of one.
struct Blocks {
  int64_t runs, length;   // of one block: so many runs of the reduced positions, so many elements of each
  int64_t groups, parts;  // blocks of one result
  int64_t per_result() const { return groups * parts; }

  // Many results are worth no blocks: each is one thread's.
  explicit Blocks(const Reduction& r) {
    constexpr int64_t kMany = 64;
    runs = r.kept() >= kMany ? r.reduced() : std::max<int64_t>(kRun / r.inner(), 1);
    length = r.kept() >= kMany ? r.inner() : std::min<int64_t>(r.inner(), kRun);
    groups = CeilDiv(r.reduced(), runs);
    parts = CeilDiv(r.inner(), length);
  }
};

// f(offset in the data, number of elements) for the runs of a block.
template <class F>
void ForBlock(const Reduction& r, const Blocks& blocks, int64_t block, const F& f) {
  const int64_t k = block / blocks.per_result(), group = block / blocks.parts % blocks.groups;
  const int64_t first = block % blocks.parts * blocks.length, n = std::min(blocks.length, r.inner() - first);
  const int64_t begin = group * blocks.runs, end = std::min(begin + blocks.runs, r.reduced());
  for (int64_t j = begin; j < end; ++j) f(r.KeptOffset(k) + first + r.ReducedOffset(j), n);
}

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
  if constexpr (kFunction == Function::kL2 || kFunction == Function::kSumSquare) return Sum(A{0}, x, x);
  return x;
}

// A reduction of elements of type T.
template <class T, Function kFunction>
struct Reducer {
  using A = Accumulator<T>;
  static constexpr bool kVectors = std::is_floating_point_v<T>, kMax = kVectors && kFunction == Function::kMax,
                        kMin = kVectors && kFunction == Function::kMin,
                        kSum = kVectors && (kFunction == Function::kSum || kFunction == Function::kMean),
                        kExp = kFunction == Function::kLogSumExp,  // of what y holds already, the maxima
      kJoins = kVectors && !kMax && !kMin && !kSum && !kExp;
  Reduction r;

  int64_t divisor() const { return kFunction == Function::kMean ? r.count() : 1; }

  // What e^x is reckoned from: of no finite maximum, 0.
  static T Shift(T max) { return std::isfinite(max) ? max : 0; }

  static const auto& Joining() {
    const LoopsOf<T>& loops = BestLoops<T>();
    if constexpr (kFunction == Function::kL1) return loops.magnitudes;
    if constexpr (kFunction == Function::kProd) return loops.products;
    if constexpr (kFunction == Function::kL2 || kFunction == Function::kSumSquare) return loops.squares;
  }

  // n elements, joined.
  static A JoinRun(const T* x, int64_t n, T max) {
    if constexpr (kMax) {
      return static_cast<double>(BestLoops<T>().max(x, n));
    } else if constexpr (kMin) {
      return static_cast<double>(BestLoops<T>().min(x, n));
    } else if constexpr (kSum) {
      return BestLoops<T>().sum(x, n);
    } else if constexpr (kExp) {
      return BestLoops<T>().exp_sum(x, n, Shift(max));
    } else if constexpr (kJoins) {
      return Joining().row(x, n);
    } else {
      constexpr int64_t kLanes = 8;  // side by side, for vectors
      A lanes[kLanes];
      std::fill_n(lanes, kLanes, Nothing<kFunction, A>());
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        for (int64_t k = 0; k < kLanes; ++k) {
          lanes[k] = Join<kFunction>(lanes[k], Term<kFunction>(Widened(x[i + k])));
        }
      }
      for (; i < n; ++i) lanes[0] = Join<kFunction>(lanes[0], Term<kFunction>(Widened(x[i])));
      return std::accumulate(lanes + 1, lanes + kLanes, lanes[0], Join<kFunction, A>);
    }
  }

  A JoinBlock(const Blocks& blocks, const T* x, int64_t block, T max) const {
    A result = Nothing<kFunction, A>();
    ForBlock(r, blocks, block,
             [&](int64_t at, int64_t n) { result = Join<kFunction>(result, JoinRun(x + at, n, max)); });
    return result;
  }

  // The result at y, from what was joined.
  void Finish(A joined, T* y) const {
    if constexpr (kExp) {
      *y = static_cast<T>(Shift(*y) + std::log(joined));
    } else if constexpr (kFunction == Function::kL2) {
      *y = StoreDouble<T>(std::sqrt(static_cast<double>(joined)));
    } else {
      *y = Narrowed<T>(joined, divisor());
    }
  }

  // n results side by side, n <= kStrip, of `rows` rows that begin at offset(row).
  template <class F>
  void JoinColumns(const T* x, int64_t rows, const F& offset, T* to, int64_t n) const {
    if constexpr (kMax || kMin) {
      const LoopsOf<T>& loops = BestLoops<T>();
      std::copy_n(x + offset(0), n, to);
      for (int64_t j = 1; j < rows; ++j) (kMax ? loops.max_to : loops.min_to)(x + offset(j), to, n);
    } else {
      A results[kStrip];
      std::fill_n(results, n, Nothing<kFunction, A>());
      for (int64_t j = 0; j < rows; ++j) {
        const T* row = x + offset(j);
        if constexpr (kSum) {
          BestLoops<T>().add_to(row, results, n);
        } else if constexpr (kExp) {
          T tile[kStrip];
          for (int64_t i = 0; i < n; ++i) tile[i] = row[i] - Shift(to[i]);
          BestLoops<T>().template UnaryOf<native::fn::Exp>()(tile, tile, n);
          BestLoops<T>().add_to(tile, results, n);
        } else if constexpr (kJoins) {
          Joining().to(row, results, n);
        } else {
          for (int64_t i = 0; i < n; ++i) results[i] = Join<kFunction>(results[i], Term<kFunction>(Widened(row[i])));
        }
      }
      for (int64_t i = 0; i < n; ++i) Finish(results[i], to + i);
    }
  }

  // Results of rows that lie one after the other.
  Kernel ByShortRows(const KernelSpec& spec) const {
    return WithLoop(PlainKernel(spec, "loop"), [own = *this](const Arguments& args) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      const int64_t n = own.r.inner();
      ForTiles(own.r.kept(), n, kSerialElements, [&](int64_t first, int64_t rows) {
        TileOfRows<T> tile;
        ToColumns(x + first * n, rows, n, tile);
        own.JoinColumns(
            tile, n, [](int64_t k) { return k * kTileRows; }, y + first, rows);
      });
    });
  }

  // Results whose elements are contiguous runs.
  Kernel ByRuns(const KernelSpec& spec) const {
    Kernel kernel = PlainKernel(spec, "loop");
    const Blocks blocks(r);
    const int64_t n = r.kept() * blocks.per_result();
    const bool whole = blocks.per_result() == 1;
    if (!whole) kernel.scratch_bytes = n * static_cast<int64_t>(sizeof(A));
    return WithLoop(std::move(kernel), [=, own = *this](const Arguments& args) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      A* results = static_cast<A*>(args.scratch);
      ParallelFor(n, 1, own.r.elements() <= kSerialElements ? n : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const A result = own.JoinBlock(blocks, x, block, kExp ? y[block / blocks.per_result()] : T{});
          if (whole) {
            own.Finish(result, y + block);
          } else {
            results[block] = result;
          }
        }
      });
      for (int64_t k = 0; k < own.r.kept() && !whole; ++k) {
        const A* parts = results + k * blocks.per_result();
        own.Finish(std::accumulate(parts + 1, parts + blocks.per_result(), parts[0], Join<kFunction, A>), y + k);
      }
    });
  }

  Kernel ByStrips(const KernelSpec& spec) const {
    Kernel kernel = PlainKernel(spec, "loop");
    int64_t strip = kStrip;  // narrower ones if there is not one for every thread; that changes no result
    while (strip > 32 && r.kept() * CeilDiv(r.inner(), strip) < spec.threads) strip /= 2;
    const int64_t strips = CeilDiv(r.inner(), strip), units = r.kept() * strips;
    return WithLoop(std::move(kernel), [=, own = *this](const Arguments& args) {
      ParallelFor(units, 1, own.r.elements() <= kSerialElements ? units : 0, [&](int64_t begin, int64_t end, int) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % strips * strip;
          const int64_t k = unit / strips, inner = own.r.inner();
          own.JoinColumns(
              args.in<T>(0) + own.r.KeptOffset(k) + first, own.r.reduced(),
              [&](int64_t j) { return own.r.ReducedOffset(j); }, args.out<T>(0) + k * inner + first,
              std::min(strip, inner - first));
        }
      });
    });
  }
};

template <Function kFunction>
MaybeKernel ReduceKernel(const KernelSpec& spec, const Reduction& r) {
  return Dispatch(spec.inputs[0].dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (kFunction != Function::kLogSumExp || std::is_floating_point_v<T>) {
      const Reducer<T, kFunction> reducer{r};
      if (!r.inner_reduced()) return reducer.ByStrips(spec);
      return r.reduced() == 1 && r.inner() <= kShortRow ? reducer.ByShortRows(spec) : reducer.ByRuns(spec);
    } else {
      return std::nullopt;
    }
  });
}

// The axes of `to` along which `from` is stretched, as a bit mask.
uint32_t StretchedAxes(const Shape& from, const Shape& to) {
  uint32_t stretched = 0;
  for (int axis = 0; axis < to.rank(); ++axis) {
    const int at = axis - (to.rank() - from.rank());
    if (at < 0 || from[at] != to[axis]) stretched |= 1u << axis;
  }
  return stretched;
}

// data -> output
template <Function kFunction>
MaybeKernel MakeReduce(const KernelSpec& spec) {
  const Shape& shape = spec.inputs[0].shape;
  return ReduceKernel<kFunction>(spec, Reduction(shape, ReducedAxes(spec.attributes<ReduceAttrs>(), shape)));
}

// First the maxima, then what is added to them.
MaybeKernel MakeLogSumExp(const KernelSpec& spec) {
  MaybeKernel maxima = MakeReduce<Function::kMax>(spec), sums = MakeReduce<Function::kLogSumExp>(spec);
  if (!sums) return std::nullopt;
  sums->scratch_bytes = std::max(sums->scratch_bytes, maxima->scratch_bytes);
  sums->bind = [first = maxima->bind, second = sums->bind](const KernelArgs& args) -> Call {
    return [first = first(args), second = second(args)] {
      first();
      second();
    };
  };
  return sums;
}

// data -> output: the sum over the axes along which the output's shape was stretched to data's
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  if (data == output) return ViewKernel(spec);
  return ReduceKernel<Function::kSum>(spec, Reduction(data, StretchedAxes(output, data)));
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeReduce<Function::kSum>},   {"Mean", MakeReduce<Function::kMean>},
    {"Max", MakeReduce<Function::kMax>},   {"Min", MakeReduce<Function::kMin>},
    {"Prod", MakeReduce<Function::kProd>}, {"L1Norm", MakeReduce<Function::kL1>},
    {"L2Norm", MakeReduce<Function::kL2>}, {"SumSquare", MakeReduce<Function::kSumSquare>},
    {"LogSumExp", MakeLogSumExp},          {"SumTo", MakeSumTo},
};

}  // namespace

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::cpu
