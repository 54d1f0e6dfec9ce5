// Many elements as one, and what else goes along an axis.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/exp_sum.h"
#include "executor/kernels/cuda/reduce_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Value>
struct Reduced {
  Reduction what;
  __device__ Value Start() const {
    using Limits = std::numeric_limits<Value>;
    constexpr Value kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    constexpr Value kLowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    switch (what) {
      case Reduction::kMax: return kLowest;
      case Reduction::kMin: return kHighest;
      case Reduction::kProd: return 1;
      default: return 0;
    }
  }
  __device__ Value Of(Value x) const {
    switch (what) {
      case Reduction::kL1Norm: return x < Value{0} ? Times<Value>(static_cast<Value>(-1), x) : x;
      case Reduction::kL2Norm:
      case Reduction::kSumSquare: return Times(x, x);
      default: return x;
    }
  }
  __device__ Value Join(Value a, Value b) const {  // NaN wins
    switch (what) {
      case Reduction::kMax: return b > a || b != b ? b : a;
      case Reduction::kMin: return b < a || b != b ? b : a;
      case Reduction::kProd: return Times(a, b);
      default: return Plus(a, b);
    }
  }
  __device__ Value End(Value y, int64_t n) const {
    if constexpr (!std::is_integral_v<Value>) {
      if (what == Reduction::kMean) return y / static_cast<Value>(n);
      if (what == Reduction::kL2Norm) return std::sqrt(y);
    }
    return y;
  }
};

template <class Value, class Block>
__device__ void ReduceAs(const Block& block, const ReduceArgs& args) {
  ForRows(block, args.rows, [&](const auto& team, int64_t row) {
    const int64_t first = PlacesOf(args.row, row, args.row_strides).of[0];
    const auto at = [&](int64_t k) {
      const int64_t i = first + PlacesOf(args.each, k, args.each_strides).of[0];
      return args.in_double ? static_cast<Value>(Number(args.in, i)) : Element<Value>(args.in, i);
    };
    Value result = 0;
    bool done = false;
    if constexpr (!std::is_integral_v<Value>) {
      if (args.what == Reduction::kLogSumExp) {
        using Sum = ExpSum<Value>;
        const Sum sum = team.Join(
            args.each.n, Sum::Nothing(), [&](Sum* part, int64_t k) { part->Add(at(k), Value{1}); },
            [](const Sum& a, const Sum& b) { return Sum::Joined(a, b, Value{1}); });
        result = sum.max - sum.max != 0 ? sum.max : sum.max + std::log(sum.sum);
        done = true;
      }
    }
    if (!done) {
      const Reduced<Value> reduced{args.what};
      result = reduced.End(team.Join(
                               args.each.n, reduced.Start(),
                               [&](Value* part, int64_t k) { *part = reduced.Join(*part, reduced.Of(at(k))); },
                               [&](Value a, Value b) { return reduced.Join(a, b); }),
                           args.each.n);
    }
    team.Once([&] {
      if (args.in_double) {
        Put(args.out.data, args.out.dtype, row, result);
      } else {
        PutWrapped(args.out.data, args.out.dtype, row, result);
      }
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const ReduceArgs& args) {
  if (args.in_double) return ReduceAs<double>(block, args);
  ForValues(args.in.dtype, [&]<class Value>() { ReduceAs<Value>(block, args); });
}

// An element and where it is along the axis.
template <class Value>
struct Placed {
  Value value;
  int64_t place;  // -1: none
};
// Does a come before b? NaN is larger (smaller) than any number.
template <class Value>
__device__ bool IsBetter(const Placed<Value>& a, const Placed<Value>& b, bool largest, bool last) {
  if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a.value == b.value || (a_is_nan && b_is_nan)) return last ? a.place > b.place : a.place < b.place;
  if (a_is_nan || b_is_nan) return a_is_nan;
  return largest ? a.value > b.value : a.value < b.value;
}

template <class Block>
__device__ void Run(const Block& block, const MeasureArgs& args) {
  ForValues(args.in.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      const int64_t first = row / args.inner * args.axis * args.inner + row % args.inner;
      const auto at = [&](int64_t k) { return Element<Value>(args.in, first + k * args.inner); };
      int64_t result = 0;
      if (args.what == Measure::kRankOf) {
        const double number = Number(args.place, row);
        const bool exists = number >= 0 && number < static_cast<double>(args.axis) && number == std::floor(number);
        const int64_t place = exists ? static_cast<int64_t>(number) : 0;
        const Value own = at(place);
        struct Counts {
          int64_t before, nans;
        };
        const Counts counts = team.Join(
            args.axis, Counts{},
            [&](Counts* part, int64_t k) {
              const Value next = at(k);
              part->before += next > own || (next == own && k < place);
              part->nans += next != next;
            },
            [](const Counts& a, const Counts& b) {
              return Counts{a.before + b.before, a.nans + b.nans};
            });
        result = exists && counts.nans == 0 ? counts.before : args.axis;
      } else {
        const bool largest = args.what == Measure::kArgMax, last = args.last;
        using Best = Placed<Value>;
        result = team.Join(
                         args.axis, Best{0, -1},
                         [&](Best* best, int64_t k) {
                           const Best next{at(k), k};
                           if (IsBetter(next, *best, largest, last)) *best = next;
                         },
                         [&](const Best& a, const Best& b) { return IsBetter(b, a, largest, last) ? b : a; })
                     .place;
      }
      team.Once([&] { args.out[row] = result; });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const SumExactlyArgs& args) {
  struct Pieces {  // base/exact_sum.h
    double of[3];
  };
  if (block.index() > 0) return;
  const BlockTeam<Block> team{block};
  const Pieces sum = team.Join(
      args.n, Pieces{},
      [&](Pieces* pieces, int64_t i) {
        constexpr double kUnits[] = {0x1p-20, 0x1p-50, 0x1p-80};
        double value = Number(args.in, i);
        if (!(std::fabs(value) < 0x1p50)) {
          pieces->of[0] += value;
          return;
        }
        for (int k = 0; k < 3; ++k) {
          const double piece = std::rint(value / kUnits[k]) * kUnits[k];
          pieces->of[k] += piece;
          value -= piece;
        }
      },
      [](const Pieces& a, const Pieces& b) {
        return Pieces{{a.of[0] + b.of[0], a.of[1] + b.of[1], a.of[2] + b.of[2]}};
      });
  team.Once([&] {
    for (int k = 0; k < 3; ++k) args.out[k] = sum.of[k];
  });
}

template <class Block>
__device__ void Run(const Block& block, const FirstOutsideArgs& args) {
  if (block.index() > 0) return;
  const uint64_t first = block.Least([&](int thread) {
    for (int64_t i = thread; i < args.n; i += block.threads()) {
      const double x = Number(args.in, i);
      const bool inside = x >= args.low && x <= args.high && (!args.whole || x == std::floor(x));
      if (!inside && !(args.use_ignore && x == args.ignore)) return static_cast<uint64_t>(i);
    }
    return kNone;
  });
  BlockTeam<Block>{block}.Once([&] {
    args.out[0] = first == kNone ? -1 : static_cast<double>(first);
    args.out[1] = first == kNone ? 0 : Number(args.in, static_cast<int64_t>(first));
  });
}

template <class Block>
__device__ void Run(const Block& block, const ScanArgs& args) {
  const auto scan = [&]<class Value>() {
    ForAll(block, args.rows, [&](int64_t row) {
      const int64_t begin = row / args.inner * args.axis * args.inner + row % args.inner;
      const int64_t step = args.reverse ? -args.inner : args.inner;
      const int64_t first = args.reverse ? begin + (args.axis - 1) * args.inner : begin;
      const auto at = [&](const Source& source, int64_t k) {
        if constexpr (std::is_integral_v<Value>) {
          return Element<Value>(source, first + k * step);
        } else {
          return Number(source, first + k * step);
        }
      };
      const auto store = [&](int64_t k, Value value) {
        if constexpr (std::is_integral_v<Value>) {
          PutWrapped(args.out.data, args.out.dtype, first + k * step, value);
        } else {
          Put(args.out.data, args.out.dtype, first + k * step, value);
        }
      };
      if (!args.grad) {
        Value sum = args.product ? 1 : 0;
        for (int64_t k = 0; k < args.axis; ++k) {
          const Value x = at(args.in, k), next = args.product ? Times(sum, x) : Plus(sum, x);
          store(k, args.exclusive ? sum : next);
          sum = next;
        }
        return;
      }
      // symbol/ops/order.h: dx_k = p_k s_k
      if constexpr (!std::is_integral_v<Value>) {
        Value sum = 0;
        for (int64_t k = args.axis - 1; k >= 0; --k) {
          Value before = 1;
          for (int64_t i = 0; i < k; ++i) before *= at(args.x, i);
          const bool has_next = k + 1 < args.axis;
          const Value behind = has_next ? at(args.x, k + 1) * sum : 0;
          sum = behind + (!args.exclusive ? at(args.in, k) : has_next ? at(args.in, k + 1) : 0);
          store(k, before * sum);
        }
      }
    });
  };
  switch (args.out.dtype) {
    case DType::kUInt64: return scan.template operator()<uint64_t>();
    default:
      if (IsFloating(args.out.dtype)) return scan.template operator()<double>();
      return scan.template operator()<int64_t>();
  }
}

template <class Block>
__device__ void Run(const Block& block, const TopKArgs& args) {
  ForValues(args.in.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      const int64_t outer = row / args.inner, column = row % args.inner;
      using Best = Placed<Value>;
      // NaN is the largest: of the smallest it comes last.
      const auto before = [&](const Best& a, const Best& b) {
        if (args.largest) return IsBetter(a, b, true, false);
        const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
        if (a.place >= 0 && b.place >= 0 && a_is_nan != b_is_nan) return b_is_nan;
        return IsBetter(a, b, false, false);
      };
      Best previous{0, -1};
      for (int64_t i = 0; i < args.k; ++i) {
        const Best best = team.Join(
            args.axis, Best{0, -1},
            [&](Best* mine, int64_t k) {
              const Best next{Element<Value>(args.in, (outer * args.axis + k) * args.inner + column), k};
              if ((i == 0 || before(previous, next)) && before(next, *mine)) *mine = next;
            },
            [&](const Best& a, const Best& b) { return before(b, a) ? b : a; });
        team.Once([&] {
          const int64_t to = (outer * args.k + i) * args.inner + column;
          if (args.values.data) PutWrapped(args.values.data, args.values.dtype, to, best.value);
          if (args.places.data) Put(args.places.data, args.places.dtype, to, best.place);
        });
        previous = best;
      }
    });
  });
}

}  // namespace bindery::cuda
