// Cutting batches: rows begin..end-1 of a tensor along its batch axis, to and from contiguous memory.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"
#include "engine/kernels/flat_kernels.h"

namespace bindery {

// On the host. out, in C order: `shape` with `axis` replaced by end - begin, of `out_dtype`. axis -1: everything.
// Allocates nothing.
void CopySlice(DType dtype, const Shape& shape, const void* in, int axis, int64_t begin, int64_t end, DType out_dtype,
               void* out);

// The other way, on a device: `in` (rows begin..end-1, contiguous) goes to its place in `out` of the full `shape`.
void PasteSlice(const FlatKernels& flat, Stream& stream, DType dtype, const Shape& shape, void* out, int axis,
                int64_t begin, int64_t end, const void* in);

}  // namespace bindery
