// RowGradient: a table's gradient on one device, as the rows that the last backward touched there (docs/sparse.md).
#pragma once

#include <algorithm>
#include <memory>

#include "engine/engine.h"
#include "engine/kernels/row_sums.h"
#include "engine/memory/storage.h"

namespace bindery {

// Rows in a backward's own arrays, which live as long as they are held here, and change when it runs again.
struct HeldRows {
  std::shared_ptr<Chunk> numbers = nullptr, rows = nullptr;
  int64_t count = 0;

  RowsAt At() const {
    if (count == 0) return {};
    return {static_cast<const int64_t*>(numbers->data()), rows->data(), count};
  }
  // They belong to no row any more.
  void Clear() const {
    if (count > 0) std::fill_n(static_cast<int64_t*>(numbers->data()), count, int64_t{-1});
  }
};

struct RowGradient {
  VarPtr var;         // orders access to `now`, and to its arrays
  HeldRows now = {};  // as the last backward left them
};

}  // namespace bindery
