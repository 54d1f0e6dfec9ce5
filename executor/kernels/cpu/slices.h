// Work along one axis of (outer, axis, inner), in columns.
#pragma once

#include <algorithm>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/rules.h"

namespace bindery::cpu {

// An exponential is worth some ten simple operations.
inline constexpr int64_t kSerialExponentials = kSerialElements / 8;
inline constexpr int64_t kSliceColumns = 512;

// Some neighbouring columns at one outer index.
struct Slice {
  int64_t start, position, columns;  // the first element; the same in what has no such axis
  int thread;
};

// f(slice) by the team, for slices of up to `most` columns: narrower ones if there is not one for every thread, so it
// must not matter how columns are cut. Serially for so few elements.
template <class F>
void ForSlices(const AxisView& view, int64_t serial_below, const F& f, int64_t most = kSliceColumns) {
  int64_t width = most;
  while (width > 32 && view.outer * CeilDiv(view.inner, width) < TeamSize()) width /= 2;
  const int64_t parts = CeilDiv(view.inner, width), units = view.outer * parts;
  const bool is_small = view.outer * view.axis * view.inner <= serial_below;
  ParallelFor(units, 1, is_small ? units : 0, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t outer = unit / parts, first = unit % parts * width;
      f(Slice{.start = outer * view.axis * view.inner + first,
              .position = outer * view.inner + first,
              .columns = std::min(width, view.inner - first),
              .thread = thread});
    }
  });
}

// Rows shorter than some vectors go side by side, as columns: a tile of them is transposed. Whether they do depends on
// their length alone, so that a row's result does not depend on what is beside it.
inline constexpr int64_t kShortRow = 32, kTileRows = 64;
template <class T>
using TileOfRows = T[kShortRow * kTileRows];

// Element k of row i, rows[i * n + k], to or from columns[k * kTileRows + i].
template <class T>
void ToColumns(const T* rows, int64_t count, int64_t n, T* columns) {
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i < count; ++i) columns[k * kTileRows + i] = rows[i * n + k];
  }
}
template <class T>
void ToRows(const T* columns, int64_t count, int64_t n, T* rows) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < n; ++k) rows[i * n + k] = columns[k * kTileRows + i];
  }
}

// f(first row, rows) by the team, for tiles of rows.
template <class F>
void ForTiles(int64_t rows, int64_t n, int64_t serial_below, const F& f) {
  const int64_t tiles = CeilDiv(rows, kTileRows);
  ParallelFor(tiles, 1, rows * n <= serial_below ? tiles : 0, [&](int64_t begin, int64_t end, int) {
    for (int64_t first = begin * kTileRows; first < std::min(end * kTileRows, rows); first += kTileRows) {
      f(first, std::min(kTileRows, rows - first));
    }
  });
}

}  // namespace bindery::cpu
