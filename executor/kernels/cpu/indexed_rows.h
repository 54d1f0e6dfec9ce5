// What takes and puts by index has in common: which element an index means, and where the rows are that indices name.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/indexing.h"

namespace bindery::cpu {

constexpr int64_t kNowhere = -1;

// How indices count.
struct Counting {
  IndexMode mode;
  int64_t padding = kNoIndex;
  bool from_end = mode == IndexMode::kRaise;  // are negative ones counted so?

  template <class T>
  int64_t PlaceOf(T value, int64_t extent) const {
    int64_t index = AsIndex(value);
    if (from_end && index < 0) index += extent;
    if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(extent)) index = Outside(value, index, extent);
    return index == (padding < 0 && padding != kNoIndex ? padding + extent : padding) ? kNowhere : index;
  }
  // The same of n values, whose places are `places` then, if none is out of bounds or padding: the usual case. False: at
  // least one is. Without a branch, so that compilers take several at once.
  template <class T>
  bool AreInside(const T* values, int64_t n, int64_t extent, int64_t* places) const {
    constexpr bool kFits = std::is_integral_v<T> && !std::is_same_v<T, uint64_t>;  // in 64 bits with a sign
    if (!kFits || padding != kNoIndex) return false;
    uint64_t outside = 0;  // its highest bit: has there been one?
    if constexpr (kFits) {
      const uint64_t negative = from_end ? static_cast<uint64_t>(extent) : 0, last = static_cast<uint64_t>(extent) - 1;
      for (int64_t i = 0; i < n; ++i) {
        const auto value = static_cast<int64_t>(values[i]);
        const uint64_t place = static_cast<uint64_t>(value) + (static_cast<uint64_t>(value >> 63) & negative);
        places[i] = static_cast<int64_t>(place);
        outside |= place | (last - place);
      }
    }
    return outside >> 63 == 0;
  }

 private:
  static constexpr int64_t kFar = int64_t{1} << 62;  // no extent reaches it

  template <class T>
  int64_t AsIndex(T value) const {
    if constexpr (std::is_integral_v<T>) {
      return std::cmp_less(value + T{0}, kFar) ? static_cast<int64_t>(value) : kFar;
    } else {
      const double number = LoadDouble(value), below = std::floor(number);
      if (number == below) return static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62));
      const bool takes_below = mode == IndexMode::kClip || mode == IndexMode::kWrap;
      return !takes_below ? kFar : std::isnan(number) ? 0 : static_cast<int64_t>(std::clamp(below, -0x1p62, 0x1p62));
    }
  }

  // Modulo the extent; of a number that is not finite 0.
  template <class T>
  static int64_t Wrapped(T value, int64_t extent) {
    int64_t rest = 0;
    if constexpr (std::is_same_v<T, uint64_t>) {
      return static_cast<int64_t>(value % static_cast<uint64_t>(extent));
    } else if constexpr (std::is_integral_v<T>) {
      rest = static_cast<int64_t>(value) % extent;
    } else {
      const double number = LoadDouble(value);
      if (std::isfinite(number))
        rest = static_cast<int64_t>(std::fmod(std::floor(number), static_cast<double>(extent)));
    }
    return rest < 0 ? rest + extent : rest;
  }

  template <class T>
  int64_t Outside(T value, int64_t index, int64_t extent) const {
    switch (mode) {
      case IndexMode::kRaise: break;
      case IndexMode::kClip: return std::clamp<int64_t>(index, 0, extent - 1);
      case IndexMode::kWrap: return Wrapped(value, extent);
      case IndexMode::kSkip:
      case IndexMode::kZero: return kNowhere;
    }
    Throw<DataError>("index {} is not in {}..{}", LoadDouble(value), -extent, extent - 1);
  }
};

// Data seen as (slabs, extent, inner), rows as (slabs, count, inner): row c of a slab is at offset(slab / outer, c) of
// it. `resolve` makes the offsets of tuples [begin, end) of all (batches, count).
struct Rows {
  int64_t slabs, outer, count, extent, inner;
  std::function<void(const void* indices, int64_t begin, int64_t end, int64_t* offsets)> resolve;

  int64_t tuples() const { return slabs / outer * count; }
  // Does each offset serve a single element?
  bool single() const { return inner == 1 && outer == 1; }
  int64_t scratch_bytes() const { return tuples() * static_cast<int64_t>(sizeof(int64_t)); }
  // visit(first, offsets, n) for pieces of tuples [begin, end), which are of one slab.
  template <class Visit>
  void ForPieces(const void* indices, int64_t begin, int64_t end, const Visit& visit) const {
    constexpr int64_t kPiece = 512;
    int64_t offsets[kPiece];
    for (; begin < end; begin += kPiece) {
      const int64_t n = std::min(kPiece, end - begin);
      resolve(indices, begin, begin + n, offsets);
      visit(begin, offsets, n);
    }
  }
  const int64_t* Resolve(const Arguments& args, int indices) const {
    auto* offsets = static_cast<int64_t*>(args.scratch);
    ParallelFor(tuples(), kGrain, kSerialElements / 4, [&](int64_t begin, int64_t end, int) {
      resolve(args.inputs[static_cast<size_t>(indices)], begin, end, offsets + begin);
    });
    return offsets;
  }
};

Rows RowsAt(const TakenRows& taken, DType dtype, const Counting& counting);

// Elements are rows of length 1: each leading position that data and indices share is a slab.
Rows ElementsAt(const Shape& data, const Shape& indices, int64_t along, DType dtype, const Counting& counting);

}  // namespace bindery::cpu
