// What is moved: by strides, and by index.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/layout_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Block>
__device__ void Run(const Block& block, const MoveArgs& args) {
  ForUnit(args.unit, [&]<class Unit>() {
    ForAll(block, args.grid.n, [&](int64_t i) {
      const auto at = PlacesOf(args.grid, i, args.from, args.to);
      static_cast<Unit*>(args.out)[at.of[1]] = static_cast<const Unit*>(args.in)[at.of[0]];
    });
  });
}

// A tile of units of up to 8 bytes. Rows are one longer than they must be, so that what a warp reads down a column is
// in different banks.
struct Turned {
  static constexpr int64_t kRow = TransposeArgs::kTile + 1;
  alignas(16) unsigned char of[TransposeArgs::kTile * kRow * 8];
};

template <class Block>
__device__ void Run(const Block& block, const TransposeArgs& args) {
  constexpr int64_t kTile = TransposeArgs::kTile;
  Turned& turned = block.template Shared<Turned>();
  ForUnit(args.unit, [&]<class Unit>() {
    if constexpr (sizeof(Unit) <= 8) {
      Unit* const tile = reinterpret_cast<Unit*>(turned.of);
      for (int64_t task = block.index(); task < args.tiles(); task += block.count()) {
        const int64_t across = args.across(), of_index = args.down() * across, index = task / of_index;
        const int64_t within = task - index * of_index;
        const int64_t row0 = within / across * kTile, column0 = within % across * kTile;
        const auto begin = PlacesOf(args.grid, index, args.from, args.to);
        const Unit* const in = static_cast<const Unit*>(args.in) + begin.of[0];
        Unit* const out = static_cast<Unit*>(args.out) + begin.of[1];
        // f(across the tile, down it) for all of it.
        const auto each = [&](const auto& f) {
          block.Each([&](int thread) {
            for (int64_t e = thread; e < kTile * kTile; e += block.threads()) f(e % kTile, e / kTile);
          });
        };
        each([&](int64_t x, int64_t y) {
          const int64_t row = row0 + x, column = column0 + y;
          if (row >= args.rows || column >= args.columns) return;
          tile[y * Turned::kRow + x] = in[row + column * args.in_stride];
        });
        each([&](int64_t x, int64_t y) {
          const int64_t row = row0 + y, column = column0 + x;
          if (row >= args.rows || column >= args.columns) return;
          out[column + row * args.out_stride] = tile[x * Turned::kRow + y];
        });
      }
    }
  });
}

template <class Block>
__device__ void Run(const Block& block, const RangeArgs& args) {
  ForAll(block, args.n,
         [&](int64_t i) { Put(args.out.data, args.out.dtype, i, args.begin + static_cast<double>(i) * args.step); });
}

constexpr int64_t kNowhere = -1, kFault = -2;

// The place of index `element` in its extent, kNowhere for none; kFault for those that should have one, which are
// reported.
template <class Block>
__device__ int64_t PlaceOf(const Block& block, const Indexing& at, const FaultRing& faults, int64_t element,
                           int64_t extent) {
  constexpr int kRaise = 0, kClip = 1, kWrap = 2;  // IndexMode
  const double index = Number(at.indices, element);
  const double n = static_cast<double>(extent), below = index != index ? 0 : std::floor(index);
  double place = index;
  if (at.mode == kClip) place = below < 0 ? 0 : below > n - 1 ? n - 1 : below;
  if (at.mode == kWrap) {
    const double rest = below - below == 0 ? std::fmod(below, n) : 0;  // of infinity 0
    place = rest < 0 ? rest + n : rest;
  }
  if (at.mode == kRaise && index < 0) place = index + n;
  if (!(place >= 0 && place < n && place == std::floor(place))) {
    if (at.mode != kRaise) return kNowhere;
    Report(block, faults, element, index, -n, n - 1);
    return kFault;
  }
  const int64_t result = static_cast<int64_t>(place);
  const bool from_end = at.padding < 0 && at.padding != INT64_MIN;
  return result == (from_end ? at.padding + extent : at.padding) ? kNowhere : result;
}

// Where update u begins in data, or kNowhere, or kFault.
template <class Block>
__device__ int64_t BeginOf(const Block& block, const Indexing& at, const FaultRing& faults, int64_t u) {
  if (at.by_elements) {
    const int64_t others = PlacesOf(at.grid, u, at.others).of[0];
    const int64_t place = PlaceOf(block, at, faults, u, at.axis_extent);
    return place < 0 ? place : others + place * at.axis_stride;
  }
  const int64_t slab = u / at.count, row = u - slab * at.count;
  int64_t place = 0;
  for (int i = 0; i < at.k && place >= 0; ++i) {
    const int64_t element = (slab / at.outer * at.count + row) * at.k + i;
    const int64_t next = PlaceOf(block, at, faults, element, at.extents[i]);
    place = next < 0 ? next : place * at.extents[i] + next;
  }
  return place < 0 ? place : (slab * at.extent + place) * at.run;
}

template <class Block>
__device__ void Run(const Block& block, const GatherArgs& args) {
  ForUnit(args.unit, [&]<class Unit>() {
    ForAll(block, args.n * args.at.run, [&](int64_t i) {
      const int64_t u = i / args.at.run, begin = BeginOf(block, args.at, args.faults, u);
      Unit value = {};
      if (begin >= 0) {
        value = static_cast<const Unit*>(args.in)[begin + i - u * args.at.run];
      } else if constexpr (!std::is_same_v<Unit, Unit16>) {
        value = static_cast<Unit>(begin == kFault ? args.fault : args.nothing);
      }
      static_cast<Unit*>(args.out)[i] = value;
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const RowNumbersArgs& args) {
  ForAll(block, args.n, [&](int64_t i) { args.out[i] = BeginOf(block, args.at, args.faults, i); });
}

template <class Value>
__device__ Value Joined(int reduction, Value a, Value b) {
  switch (reduction) {  // ScatterReduction
    case 1: return Plus(a, b);
    case 2: return Times(a, b);
    case 3: return b > a || b != b ? b : a;
    case 4: return b < a || b != b ? b : a;
    default: return b;
  }
}

// Element i of update u.
template <class Value>
__device__ Value UpdateAt(const ScatterArgs& args, int64_t u, int64_t i) {
  const int64_t from = u * args.at.run + i;
  if constexpr (std::is_integral_v<Value>) {
    return Element<Value>(args.updates, from);
  } else {
    return static_cast<Value>(Number(args.updates, from));
  }
}
// It goes to where the update begins.
__device__ inline void JoinUpdate(const ScatterArgs& args, int64_t begin, int64_t u, int64_t i) {
  ForValues(args.out.dtype, [&]<class Value>() {
    const Value old = Get<Value>(args.out.data, args.out.dtype, begin + i);
    PutWrapped(args.out.data, args.out.dtype, begin + i, Joined(args.reduction, old, UpdateAt<Value>(args, u, i)));
  });
}

struct Found {
  static constexpr int kMax = 1024;  // threads of a block
  int64_t begin[kMax];
};

// The last of the updates in order, from `first` on, that begin where it does: by steps that double, then halve.
__device__ inline int64_t LastOfPlace(const ScatterArgs& args, int64_t first, int64_t begin) {
  int64_t last = first, next = first + 1;
  while (next < args.n && args.places[args.order[next]] == begin) {
    last = next;
    next = next + (next - first) < args.n ? next + (next - first) : args.n;
  }
  while (next - last > 1) {
    const int64_t middle = last + (next - last) / 2;
    (args.places[args.order[middle]] == begin ? last : next) = middle;
  }
  return last;
}

template <class Block>
__device__ void ScatterSorted(const Block& block, const ScatterArgs& args) {
  ForAll(block, args.n * args.at.run, [&](int64_t k) {
    const int64_t first = k / args.at.run, i = k - first * args.at.run, begin = args.places[args.order[first]];
    if (begin < 0 || (first > 0 && args.places[args.order[first - 1]] == begin)) return;
    // Known before, so that no update's fetch waits for another's: there may be many of one place.
    const int64_t last = LastOfPlace(args, first, begin);
    ForValues(args.out.dtype, [&]<class Value>() {
      Value all = Get<Value>(args.out.data, args.out.dtype, begin + i);
      for (int64_t next = first; next <= last; ++next) {
        all = Joined(args.reduction, all, UpdateAt<Value>(args, args.order[next], i));
      }
      PutWrapped(args.out.data, args.out.dtype, begin + i, all);
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const ScatterArgs& args) {
  if (args.stage == ScatterStage::kSorted) return ScatterSorted(block, args);
  if (args.stage == ScatterStage::kFind) {
    return ForAll(block, args.n, [&](int64_t u) { args.places[u] = BeginOf(block, args.at, args.faults, u); });
  }
  Found& found = block.template Shared<Found>();
  const int64_t run = args.at.run;
  for (int64_t first = 0; first < args.n; first += block.threads()) {
    block.Each([&](int thread) {
      const int64_t u = first + thread;
      int64_t begin = u < args.n ? BeginOf(block, args.at, args.faults, u) : -1;
      if (begin >= 0 && run > 0 && begin / run % block.count() != block.index()) begin = -1;
      found.begin[thread] = begin;
    });
    const int64_t count = args.n - first < block.threads() ? args.n - first : block.threads();
    for (int64_t u = 0; u < count; ++u) {
      const int64_t begin = found.begin[u];
      if (begin < 0) continue;
      // A thread has the same elements of each run that begins there: those at one place are joined in their order.
      block.Each([&](int thread) {
        for (int64_t i = thread; i < run; i += block.threads()) JoinUpdate(args, begin, first + u, i);
      });
    }
    block.Each([](int) {});  // before `found` is written again
  }
}

template <class Block>
__device__ void Run(const Block& block, const OneHotArgs& args) {
  ForAll(block, args.n, [&](int64_t i) {
    const int64_t row = i / args.inner / args.axis, k = i / args.inner % args.axis;
    const double index = Number(args.indices, row * args.inner + i % args.inner);
    const double place = args.from_end && index < 0 ? index + static_cast<double>(args.axis) : index;
    Put(args.out.data, args.out.dtype, i, place == static_cast<double>(k) ? args.on : args.off);
  });
}

}  // namespace bindery::cuda
