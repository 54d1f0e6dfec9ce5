// Normalisations.
#include <vector>

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/norm_args.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/normalize.h"

namespace bindery::cuda {
namespace {

Groups GroupsOfView(const GroupView& view) {
  return {view.channels, view.inner, view.groups_per_sample, view.by_position};
}

// (x [, gamma] [, beta]) -> y, mean, inverse
MaybeKernel MakeNormalize(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<NormalizeAttrs>();
  const GroupView view = GroupsOf(attrs, spec.inputs[0].shape);
  NormalizeArgs args{.rows = RowsOf(view.groups, view.elements()),
                     .groups = GroupsOfView(view),
                     .center = attrs.center,
                     .sum = attrs.sum,
                     .eps = attrs.eps};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    launches.Read({&args.x, &args.gamma, &args.beta});
    launches.Write({&args.y, &args.mean, &args.inverse});
    launches.AddRows(args);
  });
}

// (dy, x, mean, inverse [, gamma]) -> dx [, dgamma] [, dbeta]
MaybeKernel MakeNormalizeGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<NormalizeAttrs>();
  const GroupView view = GroupsOf(attrs, spec.inputs[1].shape);
  NormalizeGradArgs args{.rows = RowsOf(view.groups, view.elements()),
                         .groups = GroupsOfView(view),
                         .center = attrs.center,
                         .sum = attrs.sum};
  const int64_t count = view.parameters(), terms = count == 0 ? 0 : view.groups * view.elements() / count;
  ParameterGradArgs parameters{
      .rows = RowsOf(count, terms, view.by_position ? count : 1), .groups = args.groups, .terms = terms};
  return OwnKernel(spec, [args, parameters](Launches& launches) mutable {
    launches.Read({&args.dy, &args.x, &args.mean, &args.inverse, &args.gamma});
    launches.Read({&parameters.dy, &parameters.x, &parameters.mean, &parameters.inverse});
    launches.Write({&args.dx, &parameters.dgamma, &parameters.dbeta});
    if (args.dx.data) launches.AddRows(args);
    if (parameters.dgamma.data || parameters.dbeta.data) launches.AddRows(parameters);
  });
}

ChannelArgs ChannelsOf(const KernelSpec& spec, Channels what, const Shape& data) {
  const auto& attrs = spec.attributes<BatchNormAttrs>();
  const AxisView view = ViewAlong(data, static_cast<int>(attrs.axis));
  return {.what = what,
          .running = UsesRunningValues(spec),
          .fix_gamma = attrs.fix_gamma,
          .relu = attrs.relu,
          .eps = attrs.eps,
          .momentum = attrs.momentum,
          .rows = RowsOf(view.axis, view.outer * view.inner),
          .channels = view.axis,
          .outer = view.outer,
          .inner = view.inner,
          .per_inner = Divisor(view.inner),
          .compute = spec.inputs[0].dtype};
}

// With inputs in these places, in their order, and so many outputs.
Kernel ChannelKernel(const KernelSpec& spec, ChannelArgs args, std::vector<Source ChannelArgs::*> inputs,
                     size_t outputs = 1) {
  const bool has_sums = args.what == Channels::kBackward || args.what == Channels::kStatistics ||
                        args.what == Channels::kGradSums || (args.what == Channels::kForward && !args.running);
  const bool has_elements = has_sums || args.what == Channels::kForward || args.what == Channels::kNormalize ||
                            args.what == Channels::kGradInput;
  if (has_elements) SplitRows(&args, args.outer * args.inner);
  Kernel kernel = OwnKernel(spec, [=](Launches& launches) mutable {
    for (size_t i = 0; i < inputs.size(); ++i) args.*inputs[i] = launches.in(i);
    for (size_t o = 0; o < outputs; ++o) args.out[o] = launches.out(o);
    if (args.relu && args.what == Channels::kForward) args.state = static_cast<uint8_t*>(launches.out(3).data);
    if (args.relu && args.what == Channels::kBackward) {
      args.state = static_cast<uint8_t*>(const_cast<void*>(launches.in(5).data));
    }
    has_sums ? AddParts(launches, args) : launches.AddRows(args);
  });
  if (has_sums) kernel.scratch_bytes = ScratchOfParts(args);
  return kernel;
}

using Args = ChannelArgs;

// (data, gamma, beta, running_mean, running_var) -> y, mean, var [, state if relu]
MaybeKernel MakeBatchNorm(const KernelSpec& spec) {
  const Args args = ChannelsOf(spec, Channels::kForward, spec.inputs[0].shape);
  Kernel kernel = ChannelKernel(spec, args, {&Args::x, &Args::gamma, &Args::beta, &Args::mean, &Args::var}, 3);
  if (args.relu) kernel.output_formats[3] = StateFormat(spec.inputs[0].shape.Elements());
  return kernel;
}

// (dy, data, mean, var, gamma [, state if relu]) -> dx, dgamma, dbeta
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec) {
  const Args args = ChannelsOf(spec, Channels::kBackward, spec.inputs[1].shape);
  if (args.relu && !IsState(spec.input_formats[5])) return std::nullopt;
  return ChannelKernel(spec, args, {&Args::dy, &Args::x, &Args::mean, &Args::var, &Args::gamma}, 3);
}

MaybeKernel MakeStatistics(const KernelSpec& spec) {
  return ChannelKernel(spec, ChannelsOf(spec, Channels::kStatistics, spec.inputs[0].shape), {&Args::x});
}

// (data, gamma, beta, statistics, running_mean, running_var) -> y, mean, var
MaybeKernel MakeBatchNormNormalize(const KernelSpec& spec) {
  return ChannelKernel(spec, ChannelsOf(spec, Channels::kNormalize, spec.inputs[0].shape),
                       {&Args::x, &Args::gamma, &Args::beta, &Args::statistics, &Args::mean, &Args::var}, 3);
}

// (dy, data, statistics) -> sums
MaybeKernel MakeGradSums(const KernelSpec& spec) {
  Args args = ChannelsOf(spec, Channels::kGradSums, spec.inputs[1].shape);
  args.running = 0;
  return ChannelKernel(spec, args, {&Args::dy, &Args::x, &Args::statistics});
}

// (dy, data, gamma, statistics, sums) -> dx
MaybeKernel MakeGradInput(const KernelSpec& spec) {
  Args args = ChannelsOf(spec, Channels::kGradInput, spec.inputs[1].shape);
  args.running = 0;
  return ChannelKernel(spec, args, {&Args::dy, &Args::x, &Args::gamma, &Args::statistics, &Args::sums});
}

// statistics of one device or, along a new axis 0, of several -> statistics
MaybeKernel MakeMergeStatistics(const KernelSpec& spec) {
  const Shape& out = spec.outputs[0].shape;
  Args args{.what = Channels::kMerge, .rows = {out[1]}, .channels = out[1], .compute = spec.inputs[0].dtype};
  args.outer = spec.inputs[0].shape.Elements() / std::max<int64_t>(out.Elements(), 1);
  return ChannelKernel(spec, args, {&Args::x});
}

// (mean, var) -> statistics
MaybeKernel MakeBatchStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[0].shape[0];
  const Args args{.what = Channels::kCount,
                  .rows = {channels},
                  .channels = channels,
                  .inner = spec.attributes<BatchStatisticsAttrs>().count,
                  .compute = spec.inputs[0].dtype};
  return ChannelKernel(spec, args, {&Args::mean, &Args::var});
}

// (statistics, running_mean, running_var) -> running_mean, running_var
MaybeKernel MakeMoveStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[1].shape[0];
  const Args args{.what = Channels::kMove,
                  .momentum = spec.attributes<BatchNormAttrs>().momentum,
                  .rows = {channels},
                  .channels = channels,
                  .compute = spec.inputs[0].dtype};
  return ChannelKernel(spec, args, {&Args::statistics, &Args::mean, &Args::var}, 2);
}

// x -> y, or (dy, x) -> dx
MaybeKernel MakeLRN(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<LRNAttrs>();
  const AxisView view = ViewAlong(spec.outputs[0].shape, 1);
  LRNArgs args{.n = spec.outputs[0].shape.Elements(),
               .channels = view.axis,
               .inner = view.inner,
               .size = std::min(attrs.size, 2 * view.axis + 1),
               .factor = attrs.alpha / static_cast<double>(attrs.size),
               .beta = attrs.beta,
               .bias = attrs.bias};
  return OwnKernel(spec, [args, inputs = spec.inputs.size()](Launches& launches) mutable {
    if (inputs == 2) args.dy = launches.in(0);
    args.x = launches.in(inputs - 1);
    args.out = launches.out(0);
    launches.Add(args, args.n);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Normalize", OfFloats<MakeNormalize>},
    {"NormalizeGrad", OfFloats<MakeNormalizeGrad>},
    {"BatchNorm", OfFloats<MakeBatchNorm>},
    {"BatchNormGrad", OfFloats<MakeBatchNormGrad>},
    {"BatchNormStatistics", OfFloats<MakeStatistics>},
    {"MergeStatistics", OfFloats<MakeMergeStatistics>},
    {"BatchStatistics", OfFloats<MakeBatchStatistics>},
    {"MoveStatistics", OfFloats<MakeMoveStatistics>},
    {"BatchNormNormalize", OfFloats<MakeBatchNormNormalize>},
    {"BatchNormGradSums", OfFloats<MakeGradSums>},
    {"BatchNormGradInput", OfFloats<MakeGradInput>},
    {"LRN", OfFloats<MakeLRN>},
    {"LRNGrad", OfFloats<MakeLRN>},
};

}  // namespace

KernelRows NormKernels() { return kEntries; }

}  // namespace bindery::cuda
