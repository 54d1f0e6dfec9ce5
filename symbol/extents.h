// Extents that follow the batch. A gradient says how large its argument is; the batch's part of that must not be fixed
// when the gradient is taken, or the graph would fit one batch alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked.h"

namespace bindery {

// fixed + batches * N, with N the extent of the batch where the graph is bound.
struct Extent {
  int64_t fixed = 0, batches = 0;
  bool operator==(const Extent&) const = default;
};

inline Extent operator+(const Extent& a, const Extent& b) {
  return {CheckedAdd(a.fixed, b.fixed, "an extent"), CheckedAdd(a.batches, b.batches, "an extent")};
}
inline Extent operator*(const Extent& a, int64_t factor) {
  return {CheckedMul(a.fixed, factor, "an extent"), CheckedMul(a.batches, factor, "an extent")};
}
inline Extent operator*(const Extent& a, const Extent& b) {
  if (a.batches != 0 && b.batches != 0) Throw<ShapeError>("an extent cannot be samples times samples");
  return b.batches == 0 ? a * b.fixed : b * a.fixed;
}
// ShapeError if it does not divide.
inline Extent operator/(const Extent& a, int64_t divisor) {
  if (divisor < 1 || a.fixed % divisor != 0 || a.batches % divisor != 0) {
    Throw<ShapeError>("an extent of {} elements and {} batches does not divide by {}", a.fixed, a.batches, divisor);
  }
  return {a.fixed / divisor, a.batches / divisor};
}
inline Extent operator-(const Extent& a, const Extent& b) { return a + b * -1; }

// A batch larger than those that programs have: what a graph makes of it shows whether an extent stays limited (as that
// of the first 100 samples) or follows the batch.
inline constexpr int64_t kManySamples = 1 << 20;

inline int64_t At(const Extent& extent, std::optional<int64_t> batch) {
  return CheckedAdd(extent.fixed, CheckedMul(extent.batches, batch.value_or(0), "an extent"), "an extent");
}

using Extents = std::vector<Extent>;  // a shape

}  // namespace bindery
