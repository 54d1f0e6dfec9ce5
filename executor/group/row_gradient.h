// RowGradient: a table's gradient on one device, as the rows that the last backward touched there (docs/sparse.md).
#pragma once

#include "engine/engine.h"
#include "engine/kernels/row_sums.h"

namespace bindery {

struct RowGradient {
  VarPtr var;       // orders access to `now`, and to what it points to
  RowsAt now = {};  // the backward's own memory, until it runs again
};

}  // namespace bindery
