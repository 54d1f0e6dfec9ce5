// Operators that only move elements: every one copies boxes of elements between two strided places.
#include "symbol/ops/shape_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/resize.h"

namespace bindery::reference {
namespace {

// Copies a tensor of (outer, axis, inner) elements into a wider one, along its axis from `begin` on; or back.
struct Part {
  AxisView part, whole;
  int64_t begin;

  void Join(const std::byte* from, std::byte* to, int64_t size) const { Move(from, to, size, part, 0, whole, begin); }
  void Cut(const std::byte* from, std::byte* to, int64_t size) const { Move(from, to, size, whole, begin, part, 0); }

 private:
  void Move(const std::byte* from, std::byte* to, int64_t size, const AxisView& source, int64_t source_begin,
            const AxisView& target, int64_t target_begin) const {
    const size_t bytes = static_cast<size_t>(part.axis * part.inner * size);
    if (bytes == 0) return;
    for (int64_t o = 0; o < part.outer; ++o) {
      std::memcpy(to + (o * target.axis + target_begin) * target.inner * size,
                  from + (o * source.axis + source_begin) * source.inner * size, bytes);
    }
  }
};

// Where the tensors of `parts` lie, one after another, in the whole.
std::vector<Part> PartsOf(const std::vector<ValueType>& parts, const Shape& whole, int axis) {
  std::vector<Part> result;
  int64_t begin = 0;
  for (const ValueType& part : parts) {
    result.push_back({ViewAlong(part.shape, axis), ViewAlong(whole, axis), begin});
    begin += part.shape[axis];
  }
  return result;
}

// The equal parts of SliceChannel; squeezed ones lack the axis, but hold the same elements.
std::vector<Part> ChannelParts(const SliceChannelAttrs& attrs, const Shape& whole) {
  const AxisView view = ViewAlong(whole, static_cast<int>(attrs.axis));
  const int64_t extent = view.axis / attrs.num_outputs;
  std::vector<Part> result;
  for (int64_t i = 0; i < attrs.num_outputs; ++i) {
    result.push_back({{view.outer, extent, view.inner}, view, i * extent});
  }
  return result;
}

// A box of elements inside a plain tensor.
struct Box {
  Shape shape;
  int64_t first = 0;  // offset of the first element
  Strides strides;
  Box(const Shape& box, const std::vector<SliceRange>& ranges, const Shape& around)
      : shape(box), strides(PlainStrides(around)) {
    for (int axis = 0; axis < around.rank(); ++axis) {
      first += ranges[axis].begin * strides[axis];
      strides[axis] *= ranges[axis].step;
    }
  }
};

MaybeKernel MakeTranspose(const KernelSpec& spec) {
  const auto& axes = spec.attributes<TransposeAttrs>().axes;
  const Shape in = spec.inputs[0].shape, out = spec.outputs[0].shape;
  const Strides from = PlainStrides(in);
  Strides permuted{};
  for (int i = 0; i < in.rank(); ++i) {
    permuted[i] = from[axes.empty() ? in.rank() - 1 - i : in.Axis(static_cast<int>(axes[i]))];
  }
  return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype)](const Tensors& t) {
    CopyBox(out, size, t.raw_in[0], permuted, t.raw_out[0], PlainStrides(out));
  });
}

MaybeKernel MakeConcat(const KernelSpec& spec) {
  const int axis = static_cast<int>(spec.attributes<ConcatAttrs>().axis);
  const std::vector<Part> parts = PartsOf(spec.inputs, spec.outputs[0].shape, axis);
  return OnBytes(spec, [=, size = SizeOf(spec.outputs[0].dtype)](const Tensors& t) {
    for (size_t i = 0; i < parts.size(); ++i) parts[i].Join(t.raw_in[i], t.raw_out[0], size);
  });
}

MaybeKernel MakeSlice(const KernelSpec& spec) {
  const Shape& in = spec.inputs[0].shape;
  const Box box(spec.outputs[0].shape, SliceRanges(spec.attributes<SliceAttrs>(), in, spec.batch), in);
  return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype)](const Tensors& t) {
    if (box.shape.Elements() == 0) return;
    CopyBox(box.shape, size, t.raw_in[0] + box.first * size, box.strides, t.raw_out[0], PlainStrides(box.shape));
  });
}

MaybeKernel MakePad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PadAttrs>();
  const Shape& in = spec.inputs[0].shape;
  const Box box(in, PadRanges(attrs, in, spec.batch), spec.outputs[0].shape);
  const HostTensor value = HostTensor::Full(spec.inputs[0].dtype, {}, attrs.value);
  const int64_t n = spec.outputs[0].shape.Elements();
  return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype)](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(t.raw_out[0] + i * size, value.raw(), static_cast<size_t>(size));
    if (box.shape.Elements() == 0) return;
    CopyBox(box.shape, size, t.raw_in[0], PlainStrides(box.shape), t.raw_out[0] + box.first * size, box.strides);
  });
}

MaybeKernel MakeBroadcastTo(const KernelSpec& spec) {
  const Shape out = spec.outputs[0].shape;
  const Strides from = BroadcastStrides(spec.inputs[0].shape, out);
  return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype)](const Tensors& t) {
    CopyBox(out, size, t.raw_in[0], from, t.raw_out[0], PlainStrides(out));
  });
}

MaybeKernel MakeSliceChannel(const KernelSpec& spec) {
  const std::vector<Part> parts = ChannelParts(spec.attributes<SliceChannelAttrs>(), spec.inputs[0].shape);
  return OnBytes(spec, [=, size = SizeOf(spec.inputs[0].dtype)](const Tensors& t) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (t.raw_out[i]) parts[i].Cut(t.raw_in[0], t.raw_out[i], size);
    }
  });
}

MaybeKernel MakeCast(const KernelSpec& spec) {
  if (spec.inputs[0].dtype == spec.outputs[0].dtype) return Copy(spec);
  const int64_t n = spec.outputs[0].shape.Elements();
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  const bool cut = !IsFloat(to) && to != DType::kBool;
  if (cut && !IsFloat(from) && from != DType::kBool) {  // the low bits
    return OnBytes(spec, [=](const Tensors& t) {
      Dispatch(from, [&]<class From>() {
        Dispatch(to, [&]<class To>() {
          if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
            const auto* x = reinterpret_cast<const From*>(t.raw_in[0]);
            std::transform(x, x + n, reinterpret_cast<To*>(t.raw_out[0]),
                           [](From number) { return static_cast<To>(number); });
          }
        });
      });
    });
  }
  return InDouble(spec, [=](const Tensors& t) {
    std::transform(t.in[0], t.in[0] + n, t.out[0], [cut](double x) { return cut ? std::trunc(x) : x; });
  });
}

MaybeKernel MakeConstant(const KernelSpec& spec) {
  return OnBytes(spec, [value = ConstantOf(spec)](const Tensors& t) {
    if (value->bytes() > 0) std::memcpy(t.raw_out[0], value->raw(), static_cast<size_t>(value->bytes()));
  });
}

MaybeKernel MakeRange(const KernelSpec& spec) {
  const auto attrs = spec.attributes<RangeAttrs>();
  return InDouble(spec, [=, n = spec.outputs[0].shape.Elements()](const Tensors& t) {
    for (int64_t i = 0; i < n; ++i) t.out[0][i] = attrs.begin + static_cast<double>(i) * attrs.step;
  });
}

MaybeKernel MakeResample(const KernelSpec& spec) {
  const auto attrs = spec.attributes<ResampleAttrs>();
  const AxisView in = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  const int64_t count = std::ssize(attrs.starts) - 1;
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t row = 0; row < in.outer * count; ++row) {
      const int64_t begin = attrs.starts[row % count], end = attrs.starts[row % count + 1];
      for (int64_t j = 0; j < in.inner; ++j) {
        double& y = t.out[0][row * in.inner + j];
        if (begin == end) y = attrs.outside;
        for (int64_t k = begin; k < end; ++k) {
          const double x = t.in[0][(row / count * in.axis + attrs.indices[k]) * in.inner + j];
          y += attrs.weights.empty() ? x : attrs.weights[k] * x;
        }
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"Identity", Copy},
    {"BlockGrad", Copy},
    {"ScaleLoss", Copy},
    {"MakeLoss", Copy},
    {"LinearRegressionOutput", Copy},
    {"MAERegressionOutput", Copy},
    {"SVMOutput", Copy},
    {"Flatten", Copy},
    {"Reshape", Copy},
    {"SumOverDevices", Copy},  // of one device
    {"Transpose", MakeTranspose},
    {"Concat", MakeConcat},
    {"Slice", MakeSlice},
    {"Pad", MakePad},
    {"BroadcastTo", MakeBroadcastTo},
    {"SliceChannel", MakeSliceChannel},
    {"Cast", MakeCast},
    {"Constant", MakeConstant},
    {"Scalar", MakeConstant},
    // shape_of.h
    {"ShapeArray", MakeConstant},
    {"SizeArray", MakeConstant},
    {"Range", MakeRange},
    // resize.h
    {"Resample", MakeResample},
};

}  // namespace

KernelRows ShapeKernels() { return kEntries; }

}  // namespace bindery::reference
