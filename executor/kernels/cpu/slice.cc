#include <cstring>
#include <vector>

#include "base/host_tensor.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cpu {
namespace {

// A box of elements inside plain data: where its first element is there, and a walk over (data, box).
struct Box {
  int64_t first = 0;
  Walk<2> walk = {};

  Box() = default;
  Box(const std::vector<SliceRange>& ranges, const Shape& data, const Shape& box) {
    for (int axis = 0; axis < data.rank(); ++axis) {
      const int64_t stride = data.CountFrom(axis + 1);
      walk.Add(box[axis], {ranges[axis].step * stride, box.CountFrom(axis + 1)});
      first += ranges[axis].begin * stride;
    }
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
  return OfSize(SizeOf(spec.inputs[0].dtype), [&]<class T>() {
    return WithLoop(PlainKernel(spec, "copy"), [box](const Arguments& args) {
      const T* x = args.in<T>(0) + box.first;
      box.walk.ForRuns([&](const auto& at, const auto& steps, int64_t n) {
        CopyRun(x + at[0], steps[0], args.out<T>(0) + at[1], steps[1], n);
      });
    });
  });
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
  return TakeBox(spec, Box(ranges, data, spec.outputs[0].shape));
}

// data -> output, with a value around
MaybeKernel MakePad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PadAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape;
  const Box box(PadRanges(attrs, data, spec.batch), output, data);
  const HostTensor value = HostTensor::Full(spec.outputs[0].dtype, {}, attrs.value);
  return OfSize(SizeOf(value.dtype()), [&]<class T>() {
    T around;
    std::memcpy(&around, value.raw(), sizeof(T));
    return WithLoop(PlainKernel(spec, "copy"), [=, n = output.Elements()](const Arguments& args) {
      T* y = args.out<T>(0);
      ParallelFor(n, kGrain, kSerialElements,
                  [&](int64_t begin, int64_t end, int) { std::fill(y + begin, y + end, around); });
      box.walk.ForRuns([&](const auto& at, const auto& steps, int64_t m) {
        CopyRun(args.in<T>(0) + at[1], steps[1], y + box.first + at[0], steps[0], m);
      });
    });
  });
}

// data -> output, axis i of which is axis axes[i] of data
MaybeKernel MakeTranspose(const KernelSpec& spec) {
  const Shape &in = spec.inputs[0].shape, &out = spec.outputs[0].shape;
  const std::vector<int64_t>& order = spec.attributes<TransposeAttrs>().axes;
  Box box;
  dnnl::memory::dims strides;
  for (int i = 0; i < in.rank(); ++i) {
    const int axis = order.empty() ? in.rank() - 1 - i : in.Axis(static_cast<int>(order[i]));
    strides.push_back(in.CountFrom(axis + 1));
    box.walk.Add(out[i], {strides.back(), out.CountFrom(i + 1)});
  }
  if (SizeOf(spec.inputs[0].dtype) != sizeof(float) || box.walk.is_one_run()) return TakeBox(spec, box);
  // oneDNN's reorder of the same bytes seen with permuted strides is faster, by tiles.
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = out.Elements() <= kSerialElements ? 1 : spec.threads;
  const TeamScope team(kernel.threads);
  const dnnl::memory::desc source(Dims(out), dnnl::memory::data_type::f32, strides);
  const auto target = ToDesc(Format::Plain(), DType::kFloat32, out);
  const dnnl::reorder::primitive_desc desc(Engine(), source, Engine(), *target, UserScratchpad(), true);
  if (!desc) return TakeBox(spec, box);
  return WithDnnl(std::move(kernel), spec.Who(), dnnl::reorder(desc), desc,
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
