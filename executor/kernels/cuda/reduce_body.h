// Many elements as one, and what else goes along an axis.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/exp_sum.h"
#include "executor/kernels/cuda/placed.h"
#include "executor/kernels/cuda/reduce_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Value>
struct Reduced {
  Reduction what;
  DType dtype;  // whose least (most) is the maximum (minimum) of nothing
  __device__ Value Start() const {
    switch (what) {
      case Reduction::kMax:
      case Reduction::kMin: return Limit(what == Reduction::kMax);
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

 private:
  __device__ Value Limit(bool least) const {
    if constexpr (!std::is_integral_v<Value>) {
      return least ? -std::numeric_limits<Value>::infinity() : std::numeric_limits<Value>::infinity();
    } else {
      Value limit = 0;
      ForType(dtype, [&]<class T>() {
        using Limits = std::numeric_limits<T>;
        if constexpr (std::is_integral_v<T>) limit = static_cast<Value>(least ? Limits::lowest() : Limits::max());
      });
      return limit;
    }
  }
};

// Rows of what `start`, `add` (to a part, element k of a row) and `join` make, `end` of all of which is the result. All
// stages by one loop: each copy of what `add` does costs nvcc seconds.
template <bool kInDouble, class Part, class Block, class Add, class Join, class End>
__device__ void ReduceRows(const Block& block, const ReduceArgs& args, const Part& start, const Add& add,
                           const Join& join, const End& end) {
  static_assert(sizeof(Part) <= ReduceArgs::kPartial);
  const auto partial = [&](int64_t i) -> Part& { return static_cast<Part*>(args.partial)[i]; };
  ForRows(block, args.rows, [&](const auto& team, int64_t index) {
    int64_t row = index, from = 0, n = args.each.n;
    if (args.stage == Stage::kParts) {
      row = index / args.parts;
      from = (index - row * args.parts) * args.length;
      n = n - from < args.length ? n - from : args.length;
    } else if (args.stage == Stage::kEnd) {
      n = args.parts;
    }
    const int64_t first = PlacesOf(args.row, row, args.row_strides).of[0];
    const Part part = team.Join(
        n, start,
        [&](Part* sum, int64_t k) {
          if (args.stage == Stage::kEnd) {
            *sum = join(*sum, partial(index * args.parts + k));
          } else {
            add(sum, first, from + k);
          }
        },
        join);
    team.Once([&] {
      if (args.stage == Stage::kParts) {
        partial(index) = part;
      } else if constexpr (kInDouble) {
        Put(args.out.data, args.out.dtype, index, end(part));
      } else {
        PutWrapped(args.out.data, args.out.dtype, index, end(part));
      }
    });
  });
}

template <bool kInDouble, class Value, class Block>
__device__ void ReduceAs(const Block& block, const ReduceArgs& args) {
  const auto at = [&](int64_t first, int64_t k) {
    const int64_t i = first + PlacesOf(args.each, k, args.each_strides).of[0];
    if constexpr (kInDouble) {
      return Number(args.in, i);
    } else {
      return Element<Value>(args.in, i);
    }
  };
  if constexpr (!std::is_integral_v<Value> && !kInDouble) {
    if (args.what == Reduction::kLogSumExp) {
      using Sum = ExpSum<Value>;
      return ReduceRows<kInDouble>(
          block, args, Sum::Nothing(), [&](Sum* part, int64_t first, int64_t k) { part->Add(at(first, k), Value{1}); },
          [](const Sum& a, const Sum& b) { return Sum::Joined(a, b, Value{1}); },
          [](const Sum& sum) { return sum.max - sum.max != 0 ? sum.max : sum.max + std::log(sum.sum); });
    }
  }
  const Reduced<Value> reduced{args.what, args.in.dtype};
  ReduceRows<kInDouble>(
      block, args, reduced.Start(),
      [&](Value* part, int64_t first, int64_t k) { *part = reduced.Join(*part, reduced.Of(at(first, k))); },
      [&](Value a, Value b) { return reduced.Join(a, b); }, [&](Value all) { return reduced.End(all, args.each.n); });
}

template <class Block>
__device__ void Run(const Block& block, const ReduceArgs& args) {
  if (args.in_double) return ReduceAs<true, double>(block, args);
  ForValues(args.in.dtype, [&]<class Value>() { ReduceAs<false, Value>(block, args); });
}

template <class Block>
__device__ void Run(const Block& block, const MeasureArgs& args) {
  ForValues(args.in.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t index) {
      const PartOfRow part(args, index, args.axis);
      const int64_t row = part.row, first = row / args.inner * args.axis * args.inner + row % args.inner;
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
        const Counts counts = JoinParts(
            args, team, part, Counts{},
            [&](Counts* to, int64_t k) {
              const Value next = at(part.first + k);
              to->before += next > own || (next == own && part.first + k < place);
              to->nans += next != next;
            },
            [](const Counts& a, const Counts& b) {
              return Counts{a.before + b.before, a.nans + b.nans};
            });
        result = exists && counts.nans == 0 ? counts.before : args.axis;
      } else {
        const bool largest = args.what == Measure::kArgMax, last = args.last;
        using Best = Placed<Value>;
        result = JoinParts(
                     args, team, part, Best{0, -1},
                     [&](Best* best, int64_t k) {
                       const Best next{at(part.first + k), part.first + k};
                       if (IsBetter(next, *best, largest, last)) *best = next;
                     },
                     [&](const Best& a, const Best& b) { return IsBetter(b, a, largest, last) ? b : a; })
                     .place;
      }
      if (part.part == 0 && args.stage != Stage::kParts) team.Once([&] { args.out[row] = result; });
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

}  // namespace bindery::cuda
