#include <algorithm>
#include <cstring>
#include <vector>

#include "base/host_tensor.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
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

  Box(const std::vector<SliceRange>& ranges, const Shape& data) {
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
  const Shape& data = spec.inputs[0].shape;
  const std::vector<SliceRange> ranges = SliceRanges(spec.attributes<SliceAttrs>(), data, spec.batch);
  // A part along one axis, as the gradient of Concat takes, is cut out in the format in which the data come.
  int cuts = 0, cut_axis = 0;
  for (int axis = 0; axis < data.rank(); ++axis) {
    if (ranges[axis].count == data[axis] && ranges[axis].step == 1) continue;
    ++cuts;
    cut_axis = axis;
  }
  if (cuts == 1 && ranges[cut_axis].step == 1) return PartKernel(spec, cut_axis, ranges[cut_axis].begin);
  if (SizeOf(spec.inputs[0].dtype) != sizeof(uint32_t)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [box = Box(ranges, data)](const KernelArgs& args) -> Call {
    return [box, x = static_cast<const uint32_t*>(args.inputs[0]), y = static_cast<uint32_t*>(args.outputs[0])] {
      box.ForRows([&](int64_t in_data, int64_t in_box) {
        CopyRun(x + in_data, box.inner.stride, y + in_box, 1, box.inner.count);
      });
    };
  };
  return kernel;
}

// data -> output, with a value around
MaybeKernel MakePad(const KernelSpec& spec) {
  if (SizeOf(spec.outputs[0].dtype) != sizeof(uint32_t)) return std::nullopt;
  const auto& attrs = spec.attributes<PadAttrs>();
  const Box box(PadRanges(attrs, spec.inputs[0].shape, spec.batch), spec.outputs[0].shape);
  uint32_t value;
  std::memcpy(&value, HostTensor::Full(spec.outputs[0].dtype, {}, attrs.value).raw(), sizeof(value));
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [box, value, n = spec.outputs[0].shape.Elements()](const KernelArgs& args) -> Call {
    return [=, x = static_cast<const uint32_t*>(args.inputs[0]), y = static_cast<uint32_t*>(args.outputs[0])] {
      ParallelFor(n, kGrain, kSerialElements,
                  [&](int64_t begin, int64_t end, int) { std::fill(y + begin, y + end, value); });
      box.ForRows([&](int64_t in_output, int64_t in_box) {
        CopyRun(x + in_box, 1, y + in_output, box.inner.stride, box.inner.count);
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Slice", MakeSlice},
    {"Pad", MakePad},
};

}  // namespace

KernelRows SliceKernels() { return kEntries; }

}  // namespace bindery::cpu
