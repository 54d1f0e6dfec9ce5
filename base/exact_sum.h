// ExactSum: a sum of doubles that does not depend on the order of adding. A number is cut into three pieces, multiples
// of 2^-20, 2^-50 and 2^-80, and each kind of piece is added by itself: exact, because it stays far below 2^53
// multiples (for 2^24 numbers up to 2^9 each). What is left of a number, below 2^-81, is dropped. Two sums are added
// piece by piece.
#pragma once

#include <cmath>

namespace bindery {

struct ExactSum {
  static constexpr int kSize = 3;

  static void Add(double value, double* pieces) {
    constexpr double kUnits[kSize] = {0x1p-20, 0x1p-50, 0x1p-80};
    if (!(std::abs(value) < 0x1p50)) {  // too large to be cut, infinite or NaN
      pieces[0] += value;
      return;
    }
    for (int i = 0; i < kSize; ++i) {
      const double piece = std::nearbyint(value / kUnits[i]) * kUnits[i];
      pieces[i] += piece;
      value -= piece;  // exact: both are multiples of value's last bit
    }
  }
  static double Total(const double* pieces) { return pieces[0] + (pieces[1] + pieces[2]); }
};

}  // namespace bindery
