// The numbers that shapes are computed with: of constants, of shapes, and of what is computed from these. They are
// known when a graph is bound, so extents and attributes may follow from them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "symbol/extents.h"

namespace bindery {

// at[k]: with k samples more in the batch than there are, which shows what grows with it. NaN: not known yet. Integers
// are exact up to 2^53; larger ones stand for "without end" and become int64's extremes again.
struct Number {
  std::array<double, 3> at;
  Number(double number) : at{number, number, number} {}  // NOLINT: most follow no batch
  Number(double now, double next, double after) : at{now, next, after} {}
  bool IsKnown() const { return !std::isnan(at[0]); }
  bool FollowsBatch() const { return at[1] != at[0] || at[2] != at[0]; }  // of a known one

  // As an extent, or an index. `batch` is its extent, if there is one.
  Extent ToExtent(std::optional<int64_t> batch) const {
    const double growth = at[1] - at[0];
    if (!batch || growth == 0 || at[2] - at[1] != growth) return {ToInteger(at[0]), 0};
    return {ToInteger(at[0] - growth * static_cast<double>(*batch)), ToInteger(growth)};
  }
  static int64_t ToInteger(double number) {
    constexpr double kEnd = 0x1p63;
    if (number >= kEnd) return std::numeric_limits<int64_t>::max();
    return number <= -kEnd ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(number);
  }
};

// Of one value, in the order of its elements. Larger values are data: nothing is known of them.
using Numbers = std::vector<Number>;
inline constexpr int64_t kMaxNumbers = 64;

}  // namespace bindery
