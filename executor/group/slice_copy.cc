#include "executor/group/slice_copy.h"

#include "engine/kernels/flat.h"

namespace bindery {
namespace {

// A slice is `outer` runs of `run` elements, `stride` apart in the full tensor.
struct Runs {
  int64_t outer = 1, run = 0, stride = 0, first = 0;
};
Runs RunsOf(const Shape& shape, int axis, int64_t begin, int64_t end) {
  if (axis < 0) return {1, shape.Elements(), 0, 0};
  const int64_t inner = shape.CountFrom(axis + 1);
  return {shape.CountTo(axis), (end - begin) * inner, shape[axis] * inner, begin * inner};
}

}  // namespace

void CopySlice(DType dtype, const Shape& shape, const void* in, int axis, int64_t begin, int64_t end, DType out_dtype,
               void* out) {
  const Runs r = RunsOf(shape, axis, begin, end);
  for (int64_t i = 0; i < r.outer; ++i) {
    const char* from = static_cast<const char*>(in) + (i * r.stride + r.first) * SizeOf(dtype);
    char* to = static_cast<char*>(out) + i * r.run * SizeOf(out_dtype);
    if (dtype == out_dtype) {
      flat::Copy(from, to, r.run * SizeOf(dtype));
    } else {
      flat::Cast(dtype, from, out_dtype, to, r.run);
    }
  }
}

void PasteSlice(const FlatKernels& flat, Stream& stream, DType dtype, const Shape& shape, void* out, int axis,
                int64_t begin, int64_t end, const void* in) {
  const Runs r = RunsOf(shape, axis, begin, end);
  const int64_t size = SizeOf(dtype);
  flat.CopyRows(stream, in, r.run * size, static_cast<char*>(out) + r.first * size, r.stride * size, r.outer,
                r.run * size);
}

}  // namespace bindery
