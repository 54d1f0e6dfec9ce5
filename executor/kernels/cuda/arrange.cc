// Sequences, triangles, quantised numbers, sparse sums along an axis.
#include <cmath>
#include <cstring>

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/arrange_args.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/rules.h"
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
  return OwnKernel(spec, [args, inputs = spec.inputs.size()](Launches& launches) mutable {
    args.in = launches.in(0);
    args.scale = launches.in(1);
    if (inputs > 2) args.zero = launches.in(2);
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

constexpr KernelEntry kEntries[] = {
    {"SequenceMask", MakeSequence<Arrange::kMask, SequenceMaskAttrs>},
    {"SequenceReverse", MakeSequence<Arrange::kReverse, SequenceAttrs>},
    {"SequenceLast", MakeSequence<Arrange::kLast, SequenceAttrs>},
    {"SequenceLastGrad", MakeSequence<Arrange::kLastGrad, SequenceLastGradAttrs>},
    {"Trilu", MakeTrilu},
    {"QuantizeLinear", MakeQuantize<QuantizeAttrs>},
    {"DequantizeLinear", MakeQuantize<DequantizeAttrs>},
    {"Resample", MakeResample},
};

}  // namespace

KernelRows ArrangeKernels() { return kEntries; }

}  // namespace bindery::cuda
