// Gradients of 3 x 3 weights by units for bfloat16: sums over neighbouring places, two at a time.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace bindery::cpu {

// Of blocks of kBlock channels at each place, of windows with a pad of 1: stride 1 or 2, rows of an even number of
// places, at least 4. A word is a channel at two places of a row, the first of them its lower half.
struct BFloat16Gradients {
  static constexpr int64_t kBlock = 16;
  int64_t stride, x_columns, y_columns;

  // Vectors of words in a row of x and of dy.
  int64_t x_row() const { return x_columns + 2; }
  int64_t y_row() const { return y_columns / 2 + 2; }
  // A row of x: at each place, and one before and behind, that place and the one `stride` further on; no places are 0.
  void PackX(const bfloat16* x, uint32_t* words) const;
  // A row of dy: pairs of places; before them the first pair without what no left column of weights has, behind them the
  // last without what no right one has. So nothing is multiplied by a place that is not there.
  void PackY(const bfloat16* dy, uint32_t* words) const;
  // To sums[column * channels + c], vectors of kBlock floats, are added those of one row of weights for kBlock channels c
  // of x, over `rows` rows of dy; rows of x are `stride` apart.
  void Add(const uint32_t* x, const uint32_t* dy, int64_t rows, int64_t channels, float* sums) const;
};

}  // namespace bindery::cpu
