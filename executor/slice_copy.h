// Cutting batches: rows begin..end-1 of a tensor along its batch axis, to and from contiguous memory, with a cast.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"

namespace bindery {

// out, in C order: `shape` with `axis` replaced by end - begin, of `out_dtype`. axis -1: everything. Allocates nothing.
void CopySlice(DType dtype, const Shape& shape, const void* in, int axis, int64_t begin, int64_t end, DType out_dtype,
               void* out);

// The other way: `in` (rows begin..end-1, contiguous) goes to its place in `out` of the full `shape`. One dtype.
void PasteSlice(DType dtype, const Shape& shape, void* out, int axis, int64_t begin, int64_t end, const void* in);

}  // namespace bindery
