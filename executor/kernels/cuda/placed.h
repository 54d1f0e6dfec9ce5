// Elements, and where they are: which of them comes first.
#pragma once

#include <cstdint>

#include "engine/cuda/pack.h"

namespace bindery::cuda {

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

}  // namespace bindery::cuda
