// Softmax and the losses that are made of it.
#include "symbol/ops/softmax.h"

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/softmax_args.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/cross_entropy.h"
#include "symbol/ops/loss.h"

namespace bindery::cuda {
namespace {

// All inputs are of one type.
Kernel RowsAlong(const KernelSpec& spec, RowKind what, const AxisView& view, double temperature, size_t inputs) {
  SoftmaxArgs args{.what = what,
                   .rows = RowsOf(view.outer * view.inner, view.axis, view.inner),
                   .axis = view.axis,
                   .inner = view.inner,
                   .temperature = temperature};
  SplitRows(&args, view.axis);
  Kernel kernel = OwnKernel(spec, [args, inputs](Launches& launches) mutable {
    for (size_t i = 0; i < inputs; ++i) args.in[i] = launches.in(i);
    args.out = launches.out(0);
    AddParts(launches, args);
  });
  kernel.scratch_bytes = ScratchOfParts(args);
  return kernel;
}

template <RowKind kWhat, class Attrs>
MaybeKernel MakeRows(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<Attrs>();
  double temperature = 1;
  if constexpr (requires { attrs.temperature; }) temperature = attrs.temperature;
  return RowsAlong(spec, kWhat, ViewAlong(spec.outputs[0].shape, static_cast<int>(attrs.axis)), temperature,
                   spec.inputs.size());
}

// (data, label: not read) -> probabilities
MaybeKernel MakeSoftmaxOutput(const KernelSpec& spec) {
  const AxisView view = ClassesOf(spec.attributes<SoftmaxOutputAttrs>(), spec.inputs[0].shape);
  return RowsAlong(spec, RowKind::kSoftmax, view, 1, 1);
}

// (p, label [, valid count] [, head gradient]) -> dx
Kernel OutputGrad(const KernelSpec& spec, OutputGradArgs args) {
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.p, &args.label, &args.valid, &args.head});
    args.out = launches.out(0);
    args.step = launches.step();
    args.faults = launches.faults();
    launches.Add(args, args.n);
  });
}

// dx = (p - target) grad_scale / divisor
MaybeKernel MakeSoftmaxOutputGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SoftmaxOutputAttrs>();
  const AxisView view = ClassesOf(attrs, spec.inputs[0].shape);
  const bool valid = attrs.normalization == Normalization::kValid;
  OutputGradArgs args{.use_ignore = attrs.use_ignore,
                      .distribution = spec.inputs[1].shape == spec.inputs[0].shape,
                      .by_batch = attrs.normalization == Normalization::kBatch,
                      .ignore_label = attrs.ignore_label,
                      .smooth = attrs.smooth_alpha,
                      .scale = attrs.grad_scale,
                      .n = spec.inputs[0].shape.Elements(),
                      .axis = view.axis,
                      .inner = view.inner};
  if (!valid && attrs.multi_output) args.positions = static_cast<double>(view.inner);
  return OutputGrad(spec, args);
}

// (output, label) -> dx
MaybeKernel MakeSVMOutputGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SVMOutputAttrs>();
  OutputGradArgs args{.svm = 1,
                      .use_linear = attrs.use_linear,
                      .scale = attrs.regularization,
                      .margin = attrs.margin,
                      .n = spec.inputs[0].shape.Elements(),
                      .axis = spec.inputs[0].shape.CountFrom(1)};
  return OutputGrad(spec, args);
}

// [valid count] -> grad_scale / divisor
MaybeKernel MakeMakeLossGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<MakeLossGradAttrs>();
  StepNumberArgs args{.by_batch = attrs.normalization == Normalization::kBatch, .scale = attrs.grad_scale};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.valid});
    args.out = launches.out(0);
    args.step = launches.step();
    launches.Add(args, 1);
  });
}
MaybeKernel MakeLossScale(const KernelSpec& spec) {
  return OwnKernel(spec, [](Launches& launches) {
    launches.Add(StepNumberArgs{.loss_scale = 1, .out = launches.out(0), .step = launches.step()}, 1);
  });
}

CrossEntropyArgs ArgsOf(const KernelSpec& spec, const Shape& data) {
  const auto& attrs = spec.attributes<CrossEntropyAttrs>();
  const AxisView view = ViewAlong(data, static_cast<int>(attrs.axis));
  return {.use_ignore = attrs.use_ignore,
          .log_input = attrs.log_input,
          .ignore_label = attrs.ignore_label,
          .smoothing = attrs.label_smoothing,
          .rows = RowsOf(view.outer * view.inner, view.axis, view.inner),
          .axis = view.axis,
          .inner = view.inner};
}

// (data, label [, class_weight]) -> loss, weight [, maximum, log_sum]
MaybeKernel MakeCrossEntropy(const KernelSpec& spec) {
  return OwnKernel(spec, [args = ArgsOf(spec, spec.inputs[0].shape)](Launches& launches) mutable {
    launches.Read({&args.data, &args.label, &args.weights});
    launches.Write({&args.out[0], &args.out[1], &args.out[2], &args.out[3]});
    args.faults = launches.faults();
    launches.AddRows(args);
  });
}

// (dy, data, label [, class_weight] [, maximum, log_sum]) -> dx
MaybeKernel MakeCrossEntropyGrad(const KernelSpec& spec) {
  CrossEntropyArgs args = ArgsOf(spec, spec.inputs[1].shape);
  args.backward = 1;
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.dy, &args.data, &args.label, &args.weights, &args.maximum, &args.log_sum});
    args.out[0] = launches.out(0);
    args.faults = launches.faults();
    launches.AddRows(args);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Softmax", OfFloats<MakeRows<RowKind::kSoftmax, SoftmaxAttrs>>},
    {"SoftmaxGrad", OfFloats<MakeRows<RowKind::kSoftmaxGrad, SoftmaxAttrs>>},
    {"LogSoftmax", OfFloats<MakeRows<RowKind::kLogSoftmax, LogSoftmaxAttrs>>},
    {"LogSoftmaxGrad", OfFloats<MakeRows<RowKind::kLogSoftmaxGrad, LogSoftmaxAttrs>>},
    {"Hardmax", OfFloats<MakeRows<RowKind::kHardmax, LogSoftmaxAttrs>>},
    {"SoftmaxOutput", OfFloats<MakeSoftmaxOutput>},
    {"SoftmaxOutputGrad", OfFloats<MakeSoftmaxOutputGrad>},
    {"SVMOutputGrad", OfFloats<MakeSVMOutputGrad>},
    {"MakeLossGrad", MakeMakeLossGrad},
    {"LossScale", MakeLossScale},
    {"CrossEntropy", OfFloats<MakeCrossEntropy>},
    {"CrossEntropyGrad", OfFloats<MakeCrossEntropyGrad>},
};

}  // namespace

KernelRows SoftmaxKernels() { return kEntries; }

}  // namespace bindery::cuda
