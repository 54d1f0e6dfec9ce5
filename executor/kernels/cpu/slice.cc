#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "base/host_tensor.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cpu {
namespace {

// A box of elements inside plain data: runs along the last axis, and outer axes that go on in the same way joined to
// it.
struct Box {
  struct Axis {
    int64_t count, stride;  // of indices taken; in the data, in elements, negative if they go backward
  };
  std::vector<Axis> axes;  // outermost first; at least one
  int64_t first = 0;       // where the first element is

  Box(const std::vector<Axis>& all, int64_t begin) : first(begin) {
    for (const Axis& axis : all) {
      if (axis.count == 1) continue;
      if (!axes.empty() && axes.back().stride == axis.count * axis.stride) {
        axes.back() = {axes.back().count * axis.count, axis.stride};
      } else {
        axes.push_back(axis);
      }
    }
    if (axes.empty()) axes.push_back({1, 1});
  }
  static Box Of(const std::vector<SliceRange>& ranges, const Shape& data) {
    std::vector<Axis> axes;
    int64_t first = 0;
    for (int axis = 0; axis < data.rank(); ++axis) {
      const int64_t stride = data.CountFrom(axis + 1);
      axes.push_back({ranges[axis].count, ranges[axis].step * stride});
      first += ranges[axis].begin * stride;
    }
    return Box(axes, first);
  }

  // run(offset in the data, offset in the box, stride in the data, number of elements), by the team.
  template <class F>
  void ForRuns(const F& run) const {
    const auto [inner, stride] = axes.back();
    const int64_t length = std::min(inner, kRun), parts = CeilDiv(inner, length);
    int64_t units = parts;
    for (size_t i = 0; i + 1 < axes.size(); ++i) units *= axes[i].count;
    ParallelFor(units, 1, kSerialElements / length,
                [&, inner = inner, stride = stride](int64_t begin, int64_t end, int) {
                  for (int64_t unit = begin; unit < end; ++unit) {
                    const int64_t at = unit % parts * length;
                    int64_t offset = first + at * stride, row = unit / parts;
                    for (size_t i = axes.size() - 1; i-- > 0; row /= axes[i].count)
                      offset += row % axes[i].count * axes[i].stride;
                    run(offset, unit / parts * inner + at, stride, std::min(length, inner - at));
                  }
                });
  }
};

template <class T>
void CopyRun(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Output 0 = the box in input 0.
Kernel TakeBox(const KernelSpec& spec, const Box& box) {
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [box, size = SizeOf(spec.inputs[0].dtype)](const KernelArgs& args) -> Call {
    return OfSize(size, [&]<class T>() -> Call {
      return [box, x = static_cast<const T*>(args.inputs[0]), y = static_cast<T*>(args.outputs[0])] {
        box.ForRuns(
            [&](int64_t from, int64_t to, int64_t stride, int64_t n) { CopyRun(x + from, stride, y + to, 1, n); });
      };
    });
  };
  return kernel;
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
  return TakeBox(spec, Box::Of(ranges, data));
}

// data -> output, with a value around
MaybeKernel MakePad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PadAttrs>();
  const Box box = Box::Of(PadRanges(attrs, spec.inputs[0].shape, spec.batch), spec.outputs[0].shape);
  const HostTensor value = HostTensor::Full(spec.outputs[0].dtype, {}, attrs.value);
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [box, value, n = spec.outputs[0].shape.Elements()](const KernelArgs& args) -> Call {
    return OfSize(SizeOf(value.dtype()), [&]<class T>() -> Call {
      T around;
      std::memcpy(&around, value.raw(), sizeof(T));
      return [=, x = static_cast<const T*>(args.inputs[0]), y = static_cast<T*>(args.outputs[0])] {
        ParallelFor(n, kGrain, kSerialElements,
                    [&](int64_t begin, int64_t end, int) { std::fill(y + begin, y + end, around); });
        box.ForRuns(
            [&](int64_t to, int64_t from, int64_t stride, int64_t n) { CopyRun(x + from, 1, y + to, stride, n); });
      };
    });
  };
  return kernel;
}

// data -> output, axis i of which is axis axes[i] of data
MaybeKernel MakeTranspose(const KernelSpec& spec) {
  const Shape &in = spec.inputs[0].shape, &out = spec.outputs[0].shape;
  const std::vector<int64_t>& order = spec.attributes<TransposeAttrs>().axes;
  std::vector<Box::Axis> axes;
  for (int i = 0; i < in.rank(); ++i) {
    const int axis = order.empty() ? in.rank() - 1 - i : in.Axis(static_cast<int>(order[i]));
    axes.push_back({out[i], in.CountFrom(axis + 1)});
  }
  const Box box(axes, 0);
  if (SizeOf(spec.inputs[0].dtype) != sizeof(float) || box.axes.size() == 1) return TakeBox(spec, box);
  // oneDNN's reorder of the same bytes seen with permuted strides is faster, by tiles.
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = out.Elements() <= kSerialElements ? 1 : spec.threads;
  const TeamScope team(kernel.threads);
  dnnl::memory::dims strides;
  for (const Box::Axis& axis : axes) strides.push_back(axis.stride);
  const dnnl::memory::desc source(Dims(out), dnnl::memory::data_type::f32, strides);
  const auto target = ToDesc(Format::Plain(), DType::kFloat32, out);
  const dnnl::reorder::primitive_desc desc(Engine(), source, Engine(), *target, UserScratchpad(), true);
  if (!desc) return TakeBox(spec, box);
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::reorder(desc), desc,
                  {{DNNL_ARG_FROM, source, DnnlArgument::kInput, 0}, {DNNL_ARG_TO, *target, DnnlArgument::kOutput, 0}});
}

constexpr KernelEntry kEntries[] = {
    {"Slice", MakeSlice},
    {"Pad", MakePad},
    {"Transpose", MakeTranspose},
};

}  // namespace

KernelRows SliceKernels() { return kEntries; }

}  // namespace bindery::cpu
