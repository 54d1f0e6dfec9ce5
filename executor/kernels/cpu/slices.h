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

// f(outer index, first column, columns) by the team: whole outer indices, or columns where they are many.
template <class F>
void ForSlices(const AxisView& view, const F& f) {
  const int64_t parts = CeilDiv(view.inner, kSliceColumns);
  const int64_t units = view.outer * parts, elements = view.outer * view.axis * view.inner;
  ParallelFor(units, 1, elements <= kSerialExponentials ? units : 0, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % parts * kSliceColumns;
      f(unit / parts, first, std::min(kSliceColumns, view.inner - first));
    }
  });
}

}  // namespace bindery::cpu
