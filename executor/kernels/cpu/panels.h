// Rows of matrices in the forms that products of tiles (LoopsOf::add_products) work on.
#pragma once

#include <algorithm>

#include "base/checked.h"
#include "executor/kernels/cpu/simd/loops.h"

namespace bindery::cpu {

inline constexpr int64_t kTile = LoopsOf<float>::kTile;

// Rows (rows, width) side by side, (width, kTile), the columns beyond them zero.
template <class Real>
void LoadColumns(const Real* x, int64_t row_step, int64_t rows, int64_t width, Real factor, Real* tile) {
  if (rows < kTile) std::fill_n(tile, width * kTile, Real{0});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) tile[i * kTile + row] = x[row * row_step + i] * factor;
  }
}

// Rows (rows, width) as panels of (kTile, kTile): their columns, kTile at a time. Rows and columns beyond are zero.
template <class Real>
void LoadPanels(const Real* x, int64_t row_step, int64_t rows, int64_t width, Real factor, Real* panels) {
  if (rows < kTile || width % kTile != 0) std::fill_n(panels, RoundUp(width, kTile) * kTile, Real{0});
  for (int64_t at = 0; at < width; at += kTile, panels += kTile * kTile) {
    for (int64_t row = 0; row < rows; ++row) {
      BestLoops<Real>().scale(x + row * row_step + at, panels + row * kTile, std::min(kTile, width - at), factor);
    }
  }
}
template <class Real>
void StorePanels(const Real* panels, int64_t rows, int64_t width, Real factor, Real* y, int64_t row_step) {
  for (int64_t at = 0; at < width; at += kTile, panels += kTile * kTile) {
    for (int64_t row = 0; row < rows; ++row) {
      BestLoops<Real>().scale(panels + row * kTile, y + row * row_step + at, std::min(kTile, width - at), factor);
    }
  }
}
// panels += a (rows, depth) b, both of `width` columns, by `add`, which is add_products or the like.
template <class Real>
void AddToPanels(void (*add)(const typename LoopsOf<Real>::Product& p), const Real* a, int64_t a_row, int64_t a_column,
                 const Real* b, int64_t rows, int64_t depth, int64_t width, Real* panels) {
  for (int64_t at = 0; at < width; at += kTile, b += kTile * kTile, panels += kTile * kTile) {
    add({.a = a,
         .a_row = a_row,
         .a_column = a_column,
         .b = b,
         .y = panels,
         .rows = rows,
         .depth = depth,
         .columns = std::min(kTile, width - at)});
  }
}

}  // namespace bindery::cpu
