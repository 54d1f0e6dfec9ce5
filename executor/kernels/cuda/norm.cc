// Normalisations.
#include <functional>

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
  return OwnKernel(spec, [args, scale = attrs.scale, shift = attrs.shift](Launches& launches) mutable {
    args.x = launches.in(0);
    if (scale) args.gamma = launches.in(1);
    if (shift) args.beta = launches.in(scale ? 2 : 1);
    args.y = launches.out(0);
    args.mean = launches.out(1);
    args.inverse = launches.out(2);
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
  return OwnKernel(spec, [args, parameters, scale = attrs.scale, shift = attrs.shift](Launches& launches) mutable {
    args.dy = parameters.dy = launches.in(0);
    args.x = parameters.x = launches.in(1);
    args.mean = parameters.mean = launches.in(2);
    args.inverse = parameters.inverse = launches.in(3);
    if (scale) args.gamma = launches.in(4);
    args.dx = launches.out(0);
    if (args.dx.data) launches.AddRows(args);
    if (scale) parameters.dgamma = launches.out(1);
    if (shift) parameters.dbeta = launches.out(scale ? 2 : 1);
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

// Of `outputs` outputs. `bind` adds the inputs.
Kernel ChannelKernel(const KernelSpec& spec, ChannelArgs args, size_t outputs,
                     std::function<void(Launches&, ChannelArgs*)> bind) {
  const bool has_sums = args.what == Channels::kBackward || args.what == Channels::kStatistics ||
                        args.what == Channels::kGradSums || (args.what == Channels::kForward && !args.running);
  const bool has_elements = has_sums || args.what == Channels::kForward || args.what == Channels::kNormalize ||
                            args.what == Channels::kGradInput;
  if (has_elements) SplitRows(&args, args.outer * args.inner);
  Kernel kernel = OwnKernel(spec, [=](Launches& launches) mutable {
    for (size_t o = 0; o < outputs; ++o) args.out[o] = launches.out(o);
    bind(launches, &args);
    has_sums ? AddParts(launches, args) : launches.AddRows(args);
  });
  if (has_sums) kernel.scratch_bytes = ScratchOfParts(args);
  return kernel;
}

// (data, gamma, beta, running_mean, running_var) -> y, mean, var [, state if relu]
MaybeKernel MakeBatchNorm(const KernelSpec& spec) {
  const ChannelArgs args = ChannelsOf(spec, Channels::kForward, spec.inputs[0].shape);
  Kernel kernel = ChannelKernel(spec, args, 3, [](Launches& launches, ChannelArgs* args) {
    args->x = launches.in(0);
    args->gamma = launches.in(1);
    args->beta = launches.in(2);
    if (args->running) {
      args->mean = launches.in(3);
      args->var = launches.in(4);
    }
    if (args->relu) args->state = static_cast<uint8_t*>(launches.out(3).data);
  });
  if (args.relu) kernel.output_formats[3] = StateFormat(spec.inputs[0].shape.Elements());
  return kernel;
}

// (dy, data, mean, var, gamma [, state if relu]) -> dx, dgamma, dbeta
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec) {
  const ChannelArgs args = ChannelsOf(spec, Channels::kBackward, spec.inputs[1].shape);
  if (args.relu && !IsState(spec.input_formats[5])) return std::nullopt;
  return ChannelKernel(spec, args, 3, [](Launches& launches, ChannelArgs* args) {
    args->dy = launches.in(0);
    args->x = launches.in(1);
    args->mean = launches.in(2);
    args->var = launches.in(3);
    args->gamma = launches.in(4);
    if (args->relu) args->state = static_cast<uint8_t*>(const_cast<void*>(launches.in(5).data));
  });
}

MaybeKernel MakeStatistics(const KernelSpec& spec) {
  const ChannelArgs args = ChannelsOf(spec, Channels::kStatistics, spec.inputs[0].shape);
  return ChannelKernel(spec, args, 1, [](Launches& launches, ChannelArgs* args) { args->x = launches.in(0); });
}

// (data, gamma, beta, statistics, running_mean, running_var) -> y, mean, var
MaybeKernel MakeBatchNormNormalize(const KernelSpec& spec) {
  const ChannelArgs args = ChannelsOf(spec, Channels::kNormalize, spec.inputs[0].shape);
  return ChannelKernel(spec, args, 3, [](Launches& launches, ChannelArgs* args) {
    args->x = launches.in(0);
    args->gamma = launches.in(1);
    args->beta = launches.in(2);
    args->statistics = launches.in(3);
    args->mean = launches.in(4);
    args->var = launches.in(5);
  });
}

// (dy, data, statistics) -> sums
MaybeKernel MakeGradSums(const KernelSpec& spec) {
  ChannelArgs args = ChannelsOf(spec, Channels::kGradSums, spec.inputs[1].shape);
  args.running = 0;
  return ChannelKernel(spec, args, 1, [](Launches& launches, ChannelArgs* args) {
    args->dy = launches.in(0);
    args->x = launches.in(1);
    args->statistics = launches.in(2);
  });
}

// (dy, data, gamma, statistics, sums) -> dx
MaybeKernel MakeGradInput(const KernelSpec& spec) {
  ChannelArgs args = ChannelsOf(spec, Channels::kGradInput, spec.inputs[1].shape);
  args.running = 0;
  return ChannelKernel(spec, args, 1, [](Launches& launches, ChannelArgs* args) {
    args->dy = launches.in(0);
    args->x = launches.in(1);
    args->gamma = launches.in(2);
    args->statistics = launches.in(3);
    args->sums = launches.in(4);
  });
}

// statistics of one device or, along a new axis 0, of several -> statistics
MaybeKernel MakeMergeStatistics(const KernelSpec& spec) {
  const Shape& out = spec.outputs[0].shape;
  ChannelArgs args{.what = Channels::kMerge, .rows = {out[1]}, .channels = out[1], .compute = spec.inputs[0].dtype};
  args.outer = spec.inputs[0].shape.Elements() / std::max<int64_t>(out.Elements(), 1);
  return ChannelKernel(spec, args, 1, [](Launches& launches, ChannelArgs* args) { args->x = launches.in(0); });
}

// (mean, var) -> statistics
MaybeKernel MakeBatchStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[0].shape[0];
  const ChannelArgs args{.what = Channels::kCount,
                         .rows = {channels},
                         .channels = channels,
                         .inner = spec.attributes<BatchStatisticsAttrs>().count,
                         .compute = spec.inputs[0].dtype};
  return ChannelKernel(spec, args, 1, [](Launches& launches, ChannelArgs* args) {
    args->mean = launches.in(0);
    args->var = launches.in(1);
  });
}

// (statistics, running_mean, running_var) -> running_mean, running_var
MaybeKernel MakeMoveStatistics(const KernelSpec& spec) {
  const int64_t channels = spec.inputs[1].shape[0];
  const ChannelArgs args{.what = Channels::kMove,
                         .momentum = spec.attributes<BatchNormAttrs>().momentum,
                         .rows = {channels},
                         .channels = channels,
                         .compute = spec.inputs[0].dtype};
  return ChannelKernel(spec, args, 2, [](Launches& launches, ChannelArgs* args) {
    args->statistics = launches.in(0);
    args->mean = launches.in(1);
    args->var = launches.in(2);
  });
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
