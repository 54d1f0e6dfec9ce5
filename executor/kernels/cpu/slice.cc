#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cpu {
namespace {

// A box of 4-byte elements inside plain data: runs along the last axis, whole inner axes joined to it.
struct Box {
  struct Axis {
    int64_t count, stride;  // of indices taken; in the data, in elements, negative if they go backward
  };
  std::vector<Axis> outer;
  Axis inner{1, 1};
  int64_t first = 0, rows = 1;

  Box(const SliceAttrs& attrs, const Shape& data) {
    const std::vector<SliceRange> ranges = SliceRanges(attrs, data);
    int64_t stride = 1;
    bool joins = true;  // may the next axis outward become part of the run?
    for (int axis = data.rank() - 1; axis >= 0; stride *= data[axis--]) {
      const SliceRange& range = ranges[axis];
      first += range.begin * stride;
      if (joins && range.step == 1) {
        inner.count *= range.count;
        joins = range.count == data[axis];
      } else if (joins && inner.count == 1) {
        inner = {range.count, range.step * stride};
        joins = false;
      } else {
        outer.insert(outer.begin(), {range.count, range.step * stride});
        joins = false;
      }
    }
    for (const Axis& axis : outer) rows *= axis.count;
  }

  int64_t RowOffset(int64_t row) const {
    int64_t offset = first;
    for (size_t i = outer.size(); i-- > 0; row /= outer[i].count) offset += row % outer[i].count * outer[i].stride;
    return offset;
  }

  // f(offset in the data, offset in the box) per row, by the team.
  template <class F>
  void ForRows(const F& f) const {
    ParallelFor(rows, 1, rows * inner.count <= kSerialElements ? rows : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) f(RowOffset(row), row * inner.count);
    });
  }
};

void CopyRun(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(uint32_t));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// data -> output
MaybeKernel MakeSlice(const KernelSpec& spec) {
  if (SizeOf(spec.inputs[0].dtype) != sizeof(uint32_t)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "copy");
  const Box box(spec.attributes<SliceAttrs>(), spec.inputs[0].shape);
  kernel.bind = [box](const KernelArgs& args) -> Call {
    return [box, x = static_cast<const uint32_t*>(args.inputs[0]), y = static_cast<uint32_t*>(args.outputs[0])] {
      box.ForRows([&](int64_t in_data, int64_t in_box) {
        CopyRun(x + in_data, box.inner.stride, y + in_box, 1, box.inner.count);
      });
    };
  };
  return kernel;
}

// (dy, data: shape only) -> dx, zero outside the slice
MaybeKernel MakeSliceGrad(const KernelSpec& spec) {
  if (SizeOf(spec.outputs[0].dtype) != sizeof(uint32_t)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "copy");
  const Box box(spec.attributes<SliceAttrs>(), spec.outputs[0].shape);
  const int64_t n = spec.outputs[0].shape.Elements();
  kernel.bind = [box, n](const KernelArgs& args) -> Call {
    return [box, n, dy = static_cast<const uint32_t*>(args.inputs[0]), dx = static_cast<uint32_t*>(args.outputs[0])] {
      ParallelFor(n, kGrain, kSerialElements,
                  [&](int64_t begin, int64_t end, int) { std::fill(dx + begin, dx + end, 0u); });
      box.ForRows([&](int64_t in_data, int64_t in_box) {
        CopyRun(dy + in_box, 1, dx + in_data, box.inner.stride, box.inner.count);
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Slice", MakeSlice},
    {"SliceGrad", MakeSliceGrad},
};

}  // namespace

KernelRows SliceKernels() { return kEntries; }

}  // namespace bindery::cpu
