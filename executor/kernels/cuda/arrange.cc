// Sequences, triangles, quantised numbers, sparse sums along an axis, grids.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/arrange_args.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/grid.h"
#include "symbol/ops/order.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/sequence.h"

namespace bindery::cuda {
namespace {

Kernel Arranged(const KernelSpec& spec, ArrangeArgs args, double value) {
  const ValueType& out = spec.outputs[0];
  const HostTensor bits = HostTensor::Full(out.dtype, {}, value);
  std::memcpy(&args.value, bits.raw(), static_cast<size_t>(bits.bytes()));
  if (IsFloat(out.dtype)) {
    std::memcpy(&args.fault, HostTensor::Full(out.dtype, {}, NAN).raw(), static_cast<size_t>(bits.bytes()));
  }
  args.unit = static_cast<int32_t>(SizeOf(out.dtype));
  args.n = out.shape.Elements();
  return OwnKernel(spec, [args, has_lengths = spec.inputs.size() > 1](Launches& launches) mutable {
    args.in = launches.in(0).data;
    if (has_lengths) {
      args.lengths = launches.in(1);
      args.faults = launches.faults();
    }
    args.out = launches.out(0).data;
    launches.Add(args, args.n);
  });
}

// (data, lengths) -> Y
template <Arrange kWhat, class Attrs>
MaybeKernel MakeSequence(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<Attrs>();
  const Shape& data = kWhat == Arrange::kLastGrad ? spec.outputs[0].shape : spec.inputs[0].shape;
  const SequenceAxes axes = AxesOf(attrs, data);
  double value = 0;
  if constexpr (requires { attrs.value; }) value = attrs.value;
  return Arranged(spec,
                  {.what = kWhat,
                   .steps = data[axes.steps],
                   .step_stride = data.CountFrom(axes.steps + 1),
                   .samples = data[axes.samples],
                   .sample_stride = data.CountFrom(axes.samples + 1)},
                  value);
}

MaybeKernel MakeTrilu(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<TriluAttrs>();
  const Shape& shape = spec.inputs[0].shape;
  return Arranged(
      spec,
      {.what = Arrange::kTrilu, .upper = attrs.upper, .steps = shape[-2], .samples = shape[-1], .diagonal = attrs.k},
      0);
}

template <class Attrs>
MaybeKernel MakeQuantize(const KernelSpec& spec) {
  const QuantizedView view =
      bindery::ChannelsOf(spec.attributes<Attrs>().axis, spec.inputs[0].shape, spec.inputs[1].shape);
  QuantizeArgs args{.back = std::is_same_v<Attrs, DequantizeAttrs>,
                    .n = spec.outputs[0].shape.Elements(),
                    .channels = view.channels,
                    .inner = view.inner};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.in, &args.scale, &args.zero});
    args.out = launches.out(0);
    launches.Add(args, args.n);
  });
}

MaybeKernel MakeResample(const KernelSpec& spec) {
  const auto attrs = spec.attributes<ResampleAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  ResampleArgs args{.n = spec.outputs[0].shape.Elements(),
                    .axis = view.axis,
                    .count = std::ssize(attrs.starts) - 1,
                    .inner = view.inner,
                    .outside = attrs.outside};
  return OwnKernel(spec, [args, attrs](Launches& launches) mutable {
    args.starts = launches.Constant(attrs.starts);
    args.indices = launches.Constant(attrs.indices);
    args.weights = launches.Constant(attrs.weights);
    args.in = launches.in(0);
    args.out = launches.out(0);
    launches.Add(args, args.n);
  });
}

// Of data, of a grid and of an output of these shapes and types.
GridArgs SampledGrid(GridPart part, const GridSampleAttrs& attrs, const ValueType& data, const ValueType& output) {
  GridArgs args{.part = part,
                .sampling = static_cast<Sampling>(attrs.mode),
                .space = data.shape.rank() - 2,
                .unit = static_cast<int32_t>(SizeOf(data.dtype)),
                .samples = data.shape[0],
                .channels = data.shape[1],
                .plane = data.shape.CountFrom(2),
                .places = output.shape.CountFrom(2)};
  for (int axis = 0; axis < args.space; ++axis) {
    args.axes[axis] = {data.shape[2 + axis], static_cast<Outside>(attrs.padding), attrs.align_corners};
  }
  return args;
}

MaybeKernel MakeGridSample(const KernelSpec& spec) {
  const ValueType &data = spec.inputs[0], &output = spec.outputs[0];
  GridArgs args = SampledGrid(GridPart::kSample, spec.attributes<GridSampleAttrs>(), data, output);
  return OwnKernel(spec, [args, n = output.shape.Elements()](Launches& launches) mutable {
    launches.Read({&args.data, &args.grid});
    args.out = launches.out(0);
    launches.Add(args, n);
  });
}

MaybeKernel MakeGridSampleGradData(const KernelSpec& spec) {
  const ValueType &output = spec.inputs[0], &data = spec.outputs[0];
  GridArgs args = SampledGrid(GridPart::kGradData, spec.attributes<GridSampleGradAttrs>(), data, output);
  const DType sums = ValueOf(data.dtype);
  const int64_t n = data.shape.Elements(), rows = n / std::max<int64_t>(1, data.shape[-1]);
  Kernel kernel = OwnKernel(spec, [=](Launches& launches) mutable {
    launches.Read({&args.dy, &args.grid});
    args.out = sums == data.dtype ? launches.out(0) : Target{launches.scratch(), sums};
    launches.Add(args, rows);
    if (sums != data.dtype) launches.Cast({args.out.data, sums}, launches.out(0), n);
  });
  if (sums != data.dtype) kernel.scratch_bytes = n * SizeOf(sums);
  return kernel;
}

MaybeKernel MakeGridSampleGradGrid(const KernelSpec& spec) {
  const ValueType &output = spec.inputs[0], &data = spec.inputs[1];
  GridArgs args = SampledGrid(GridPart::kGradGrid, spec.attributes<GridSampleAttrs>(), data, output);
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.dy, &args.data, &args.grid});
    args.out = launches.out(0);
    launches.Add(args, args.samples * args.places);
  });
}

constexpr KernelEntry kEntries[] = {
    {"SequenceMask", MakeSequence<Arrange::kMask, SequenceMaskAttrs>},
    {"SequenceReverse", MakeSequence<Arrange::kReverse, SequenceAttrs>},
    {"SequenceLast", MakeSequence<Arrange::kLast, SequenceAttrs>},
    {"SequenceLastGrad", MakeSequence<Arrange::kLastGrad, SequenceLastGradAttrs>},
    {"Trilu", MakeTrilu},
    {"QuantizeLinear", MakeQuantize<QuantizeAttrs>},
    {"DequantizeLinear", MakeQuantize<DequantizeAttrs>},
    {"Resample", MakeResample},
    {"GridSample", MakeGridSample},
    {"GridSampleGradData", OfFloats<MakeGridSampleGradData>},
    {"GridSampleGradGrid", OfFloats<MakeGridSampleGradGrid>},
};

}  // namespace

KernelRows ArrangeKernels() { return kEntries; }

}  // namespace bindery::cuda
