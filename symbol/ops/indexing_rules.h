// What the operators that take by index and those that put by index have in common. Private to symbol/ops.
#pragma once

#include "symbol/ops/indexing.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {

inline constexpr int kReduced = -1;

// How the axes of data, indices and rows lie: data (b.., o.., n.., i..), indices (b.., j.. [, k]), rows
// (b.., o.., j.., i..).
struct IndexedAxes {
  int batch, first, last;  // of data: the indexed axes are [first, last)
  int lead;                // of indices: j.. are [batch, lead)

  int rank_change() const { return lead - batch - (last - first); }  // from data to rows
  int RowOfData(int axis) const { return axis < first ? axis : axis < last ? kReduced : axis + rank_change(); }
  int RowOfIndices(int axis) const { return axis < batch ? axis : axis < lead ? first + axis - batch : kReduced; }
  int DataOfRow(int axis) const {
    return axis < first ? axis : axis < first + lead - batch ? kReduced : axis - rank_change();
  }
};

// Nothing while k is not known. Throws ShapeError.
std::optional<IndexedAxes> AxesOf(const TakeAttrs& attrs, bool tuples, const Shape& data, const Shape& indices);

// data, indices, rows: of a gather the output, of a scatter the updates.
std::optional<IndexedAxes> InferRows(const TakeAttrs& attrs, bool tuples, Value data, Value indices, Value rows);
// The same along the axis `along`, with indices and elements of one shape.
void InferElements(IndexMode mode, int64_t along, Value data, Value indices, Value elements);

void CheckIndexedAxes(int64_t axis, int64_t batch_dims);  // attributes; ModelError

}  // namespace bindery::rule
