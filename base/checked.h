// Checked int64 arithmetic for sizes: the one place where element counts and bytes are multiplied.
// Overflow throws ShapeError; `what` names the quantity in the message ("elements of (2, 3)").
#pragma once

#include <cstdint>

#include "base/error.h"

namespace bindery {

inline int64_t CheckedMul(int64_t a, int64_t b, const char* what = "size") {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) Throw<ShapeError>("{} overflows: {} * {}", what, a, b);
  return result;
}

inline int64_t CheckedAdd(int64_t a, int64_t b, const char* what = "size") {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) Throw<ShapeError>("{} overflows: {} + {}", what, a, b);
  return result;
}

// Smallest multiple of `unit` (> 0) that is >= `value` (>= 0).
inline int64_t RoundUp(int64_t value, int64_t unit) { return CheckedAdd(value, unit - 1) / unit * unit; }

// a / b (> 0), rounded up.
inline int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0); }

}  // namespace bindery
