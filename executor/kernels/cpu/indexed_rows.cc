#include "executor/kernels/cpu/indexed_rows.h"

namespace bindery::cpu {

Rows RowsAt(const TakenRows& taken, DType dtype, const Counting& counting) {
  Rows rows{taken.batches * taken.outer, taken.outer, taken.count, taken.extent, taken.inner, {}};
  rows.resolve = Dispatch(dtype, [&]<class T>() -> decltype(rows.resolve) {
    return [counting, extents = taken.extents, inner = taken.inner](const void* indices, int64_t begin, int64_t end,
                                                                    int64_t* offsets) {
      const auto* index = static_cast<const T*>(indices) + begin * static_cast<int64_t>(extents.size());
      for (int64_t c = begin; c < end; ++c, ++offsets) {
        *offsets = 0;
        for (const int64_t extent : extents) {
          const int64_t place = counting.PlaceOf(*index++, extent);
          *offsets = place < 0 || *offsets < 0 ? kNowhere : *offsets * extent + place;
        }
        if (*offsets > 0) *offsets *= inner;
      }
    };
  });
  return rows;
}

Rows ElementsAt(const Shape& data, const Shape& indices, int64_t along, DType dtype, const Counting& counting) {
  const int axis = data.Axis(static_cast<int>(along)), last = data.rank() - 1;
  int shared = 0;
  while (shared < axis && data[shared] == indices[shared]) ++shared;
  const int64_t slabs = data.CountTo(shared);
  Rows rows{slabs, 1, indices.Elements() / slabs, data.Elements() / slabs, 1, {}};
  rows.resolve = Dispatch(dtype, [&]<class T>() -> decltype(rows.resolve) {
    return [=, extent = data[axis], stride = data.CountFrom(axis + 1)](const void* from, int64_t begin, int64_t end,
                                                                       int64_t* offsets) {
      const int64_t length = indices[last];
      for (int64_t at = begin; at < end;) {  // run by run along the last axis
        int64_t base = 0, row = at / length, step = 1;
        for (int i = last; i-- > 0; row /= indices[i]) {
          step *= data[i + 1];
          if (i >= shared && i != axis) base += row % indices[i] * step;
        }
        const int64_t first = at % length, n = std::min(length - first, end - at);
        const T* index = static_cast<const T*>(from) + at;
        const int64_t next = axis == last ? 0 : 1;
        const bool inside = counting.AreInside(index, n, extent, offsets);
        if (inside && stride == 1) {
          for (int64_t i = 0; i < n; ++i) offsets[i] += base;
        } else if (inside) {
          for (int64_t i = 0; i < n; ++i) offsets[i] = base + (first + i) * next + offsets[i] * stride;
        } else {
          for (int64_t i = 0; i < n; ++i) {
            const int64_t place = counting.PlaceOf(index[i], extent);
            offsets[i] = place < 0 ? kNowhere : base + (first + i) * next + place * stride;
          }
        }
        at += n;
        offsets += n;
      }
    };
  });
  return rows;
}

}  // namespace bindery::cpu
