// The order of elements along an axis, and what is accumulated along one.
#pragma once

#include "executor/kernels/cuda/order_args.h"
#include "executor/kernels/cuda/placed.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Value>
struct Scan {
  const ScanArgs& args;

  // Element k of a row, of its order: from the end if it is reversed.
  __device__ int64_t PlaceOf(int64_t row, int64_t k) const {
    const int64_t begin = row / args.inner * args.axis * args.inner + row % args.inner;
    return begin + (args.reverse ? args.axis - 1 - k : k) * args.inner;
  }
  __device__ Value At(const Source& source, int64_t row, int64_t k) const {
    if constexpr (std::is_integral_v<Value>) {
      return Element<Value>(source, PlaceOf(row, k));
    } else {
      return Number(source, PlaceOf(row, k));
    }
  }
  __device__ void Store(int64_t row, int64_t k, Value value) const {
    if constexpr (std::is_integral_v<Value>) {
      PutWrapped(args.out.data, args.out.dtype, PlaceOf(row, k), value);
    } else {
      Put(args.out.data, args.out.dtype, PlaceOf(row, k), value);
    }
  }
  __device__ Value Joined(Value a, Value b) const { return args.product ? Times(a, b) : Plus(a, b); }
  __device__ Value Nothing() const { return args.product ? 1 : 0; }
  __device__ Value& Scratch(int64_t i) const { return static_cast<Value*>(args.scratch)[i]; }

  // Elements first..end-1 of a row, behind what comes to `sum`.
  __device__ void Elements(int64_t row, int64_t first, int64_t end, Value sum) const {
    for (int64_t k = first; k < end; ++k) {
      const Value next = Joined(sum, At(args.in, row, k));
      Store(row, k, args.exclusive ? sum : next);
      sum = next;
    }
  }
  // symbol/ops/order.h: dx_k = p_k s_k
  __device__ void Gradient(int64_t row) const {
    Value before = 1;
    for (int64_t k = 0; k < args.axis; ++k) {
      Scratch(row * args.axis + k) = before;
      before *= At(args.x, row, k);
    }
    Value sum = 0;
    const int64_t ahead = args.exclusive ? 1 : 0;  // the first product that has x_k is y_(k + ahead), if there is such
    for (int64_t k = args.axis - 1; k >= 0; --k) {
      const Value behind = k + ahead + 1 < args.axis ? At(args.x, row, k + 1) * sum : 0;
      const bool is_used = k + ahead < args.axis;
      sum = is_used ? behind + At(args.in, row, k + ahead) : 0;
      Store(row, k, is_used ? Scratch(row * args.axis + k) * sum : 0);
    }
  }
};

template <class Block>
__device__ void Run(const Block& block, const ScanArgs& args) {
  const auto run = [&]<class Value>() {
    const Scan<Value> scan{args};
    const bool by_chunks = args.stage == ScanStage::kTotals || args.stage == ScanStage::kChunks;
    ForAll(block, by_chunks ? args.rows * args.chunks : args.rows, [&](int64_t i) {
      const int64_t row = by_chunks ? i / args.chunks : i,
                    first = by_chunks ? (i - row * args.chunks) * args.length : 0;
      const int64_t end = args.axis - first < args.length ? args.axis : first + args.length;
      switch (args.stage) {
        case ScanStage::kWhole:
          if constexpr (!std::is_integral_v<Value>) {
            if (args.grad) return scan.Gradient(row);
          }
          return scan.Elements(row, 0, args.axis, scan.Nothing());
        case ScanStage::kTotals: {
          Value sum = scan.Nothing();
          for (int64_t k = first; k < end; ++k) sum = scan.Joined(sum, scan.At(args.in, row, k));
          scan.Scratch(i) = sum;
          return;
        }
        case ScanStage::kBefore: {
          Value sum = scan.Nothing();
          for (int64_t k = row * args.chunks; k < (row + 1) * args.chunks; ++k) {
            const Value own = scan.Scratch(k);
            scan.Scratch(k) = sum;
            sum = scan.Joined(sum, own);
          }
          return;
        }
        case ScanStage::kChunks: return scan.Elements(row, first, end, scan.Scratch(i));
      }
    });
  };
  if (args.out.dtype == DType::kUInt64) return run.template operator()<uint64_t>();
  IsFloating(args.out.dtype) ? run.template operator()<double>() : run.template operator()<int64_t>();
}

// Does a come before b? NaN is the largest: of the smallest it comes last.
template <class Value>
__device__ bool ComesFirst(const Placed<Value>& a, const Placed<Value>& b, bool largest) {
  if (largest) return IsBetter(a, b, true, false);
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a.place >= 0 && b.place >= 0 && a_is_nan != b_is_nan) return b_is_nan;
  return IsBetter(a, b, false, false);
}

template <class Value>
__device__ Placed<Value> ElementAt(const TopKArgs& args, int64_t row, int64_t k) {
  return {Element<Value>(args.in, (row / args.inner * args.axis + k) * args.inner + row % args.inner), k};
}
template <class Value>
__device__ void Give(const TopKArgs& args, int64_t row, int64_t i, const Placed<Value>& element) {
  const int64_t to = (row / args.inner * args.k + i) * args.inner + row % args.inner;
  if (args.values.data) PutWrapped(args.values.data, args.values.dtype, to, element.value);
  if (args.places.data) Put(args.places.data, args.places.dtype, to, element.place);
}

template <class Block>
__device__ void Run(const Block& block, const TopKArgs& args) {
  ForValues(args.in.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      using Best = Placed<Value>;
      const auto before = [&](const Best& a, const Best& b) { return ComesFirst(a, b, args.largest); };
      Best previous{0, -1};
      for (int64_t i = 0; i < args.k; ++i) {
        const Best best = team.Join(
            args.axis, Best{0, -1},
            [&](Best* mine, int64_t k) {
              const Best next = ElementAt<Value>(args, row, k);
              if ((i == 0 || before(previous, next)) && before(next, *mine)) *mine = next;
            },
            [&](const Best& a, const Best& b) { return before(b, a) ? b : a; });
        team.Once([&] { Give(args, row, i, best); });
        previous = best;
      }
    });
  });
}

// Puts the places of one pair into the order of their run of `size`.
template <class Value>
__device__ void Exchange(const SortArgs& args, int64_t pair, int64_t size, int64_t stride) {
  const int64_t pairs = args.padded / 2, row = pair / pairs, within = pair - row * pairs;
  const int64_t i = within / stride * stride * 2 + within % stride;
  int32_t &a = args.places[row * args.padded + i], &b = args.places[row * args.padded + i + stride];
  const int64_t axis = args.of.axis;
  const auto before = [&](int32_t x, int32_t y) {
    if (x >= axis || y >= axis) return x < y;
    return ComesFirst(ElementAt<Value>(args.of, row, x), ElementAt<Value>(args.of, row, y), args.of.largest);
  };
  if (((i & size) == 0) == before(b, a)) {
    const int32_t kept = a;
    a = b;
    b = kept;
  }
}

template <class Block>
__device__ void Run(const Block& block, const SortArgs& args) {
  const int64_t all = args.of.rows.count * args.padded;
  ForValues(args.of.in.dtype, [&]<class Value>() {
    if (args.stage == SortStage::kStep) {
      ForAll(block, all / 2, [&](int64_t pair) { Exchange<Value>(args, pair, args.size, args.stride); });
      return;
    }
    if (args.stage == SortStage::kEnd) {
      ForAll(block, args.of.rows.count * args.of.k, [&](int64_t i) {
        const int64_t row = i / args.of.k, at = i - row * args.of.k;
        Give(args.of, row, at, ElementAt<Value>(args.of, row, args.places[row * args.padded + at]));
      });
      return;
    }
    for (int64_t begin = SortArgs::kChunk * block.index(); begin < all; begin += SortArgs::kChunk * block.count()) {
      const int64_t n = all - begin < SortArgs::kChunk ? all - begin : SortArgs::kChunk;
      const auto step = [&](int64_t size, int64_t stride) {
        block.Each([&](int thread) {
          for (int64_t pair = thread; pair < n / 2; pair += block.threads()) {
            Exchange<Value>(args, begin / 2 + pair, size, stride);
          }
        });
      };
      if (args.stage == SortStage::kBegin) {
        block.Each([&](int thread) {
          for (int64_t at = begin + thread; at < begin + n; at += block.threads()) {
            args.places[at] = static_cast<int32_t>(at % args.padded);
          }
        });
        for (int64_t size = 2; size <= SortArgs::kChunk && size <= args.padded; size *= 2) {
          for (int64_t stride = size / 2; stride > 0; stride /= 2) step(size, stride);
        }
      } else {
        for (int64_t stride = SortArgs::kChunk / 2; stride > 0; stride /= 2) step(args.size, stride);
      }
    }
  });
}

}  // namespace bindery::cuda
