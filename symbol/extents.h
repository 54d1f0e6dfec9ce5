// Extents that follow the batch. A gradient says how large its argument is; the batch's part of that must not be fixed
// when the gradient is taken, or the graph would fit one batch alone.
#pragma once

#include <cstdint>
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
inline Extent operator-(const Extent& a, const Extent& b) { return a + b * -1; }

// A batch larger than those that programs have: what a graph makes of it shows whether an extent stays limited (as that
// of the first 100 samples) or follows the batch.
inline constexpr int64_t kManySamples = 1 << 20;

using Extents = std::vector<Extent>;  // a shape

}  // namespace bindery
