// Batch normalisation with loops of our own: one pass for the statistics, one to normalise; two backward. relu costs no
// mask in memory: its state is a copy of beta, from which the gradient finds again, bit for bit, what was cut off.
#include "symbol/ops/batch_norm.h"

#include <cmath>
#include <cstring>

#include "executor/kernel_table.h"
#include "executor/kernels/cpu/channel_passes.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

constexpr const char* kFamily = "cpu:beta";

// The format of `input` if its channels can be walked there, else plain.
Format ChannelFormat(const KernelSpec& spec, int input, int axis, ChannelView* view) {
  const Shape& shape = spec.inputs[input].shape;
  if (ViewChannels(spec.input_formats[input], shape, axis, view)) return spec.input_formats[input];
  ViewChannels(Format::Plain(), shape, axis, view);
  return Format::Plain();
}

double InverseDeviation(float var, double eps) { return 1 / std::sqrt(static_cast<double>(var) + eps); }

// (data, gamma, beta, running_mean, running_var) -> y, mean, var [, state if relu]
MaybeKernel MakeBatchNorm(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (spec.inputs[0].dtype != DType::kFloat32 || spec.inputs[1].dtype != DType::kFloat32) return std::nullopt;
  const int axis = spec.inputs[0].shape.Axis(static_cast<int>(attrs.axis));
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  const Format format = ChannelFormat(spec, 0, axis, &view);
  const ChannelPasses passes(view, spec.threads);
  const int64_t channels = passes.channels();
  kernel.input_formats[0] = kernel.output_formats[0] = format;
  if (attrs.relu) kernel.output_formats[3] = Format::Opaque(channels * static_cast<int64_t>(sizeof(float)), kFamily);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.inplace = {{0, 0}};
  const bool running = UsesRunningValues(spec);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const ChannelPasses::Arrays arrays = passes.In(args.scratch);
    const float* gamma = attrs.fix_gamma ? nullptr : In(args, 1);
    float* state = attrs.relu ? Out(args, 3) : nullptr;
    const auto prepare = [=, beta = In(args, 2), running_mean = In(args, 3), running_var = In(args, 4),
                          mean_out = Out(args, 1), var_out = Out(args, 2)] {
      for (int64_t i = 0; i < channels; ++i) {
        const float mean = running ? running_mean[i] : static_cast<float>(arrays.first[i]);
        const float var = running ? running_var[i] : static_cast<float>(arrays.second[i] / passes.count());
        if (mean_out) mean_out[i] = mean;
        if (var_out) var_out[i] = var;
        arrays.mean[i] = mean;
        arrays.scale[i] = static_cast<float>((gamma ? gamma[i] : 1) * InverseDeviation(var, attrs.eps));
        arrays.beta[i] = beta[i];
      }
      if (state) std::memcpy(state, beta, static_cast<size_t>(channels) * sizeof(float));
    };
    return [=, x = In(args, 0), y = Out(args, 0)] {
      if (!running) passes.Moments(x, arrays);
      prepare();
      if (y) passes.Normalize(x, y, arrays, attrs.relu);  // else somebody asked for the statistics only
    };
  };
  return kernel;
}

// (dy, data, mean, var, gamma [, state if relu]) -> dx, dgamma, dbeta
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (spec.inputs[0].dtype != DType::kFloat32 || spec.inputs[2].dtype != DType::kFloat32) return std::nullopt;
  const int axis = spec.inputs[1].shape.Axis(static_cast<int>(attrs.axis));
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  const Format format = ChannelFormat(spec, 1, axis, &view);
  const ChannelPasses passes(view, spec.threads);
  const int64_t channels = passes.channels();
  kernel.input_formats[0] = kernel.input_formats[1] = kernel.output_formats[0] = format;
  if (attrs.relu) {
    kernel.input_formats[5] = Format::Opaque(channels * static_cast<int64_t>(sizeof(float)), kFamily);
    if (spec.input_formats[5] != kernel.input_formats[5]) return std::nullopt;
  }
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.inplace = {{0, 0}};
  const bool running = UsesRunningValues(spec);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const ChannelPasses::Arrays arrays = passes.In(args.scratch);
    const float* gamma = attrs.fix_gamma ? nullptr : In(args, 4);
    const float* beta = attrs.relu ? In(args, 5) : nullptr;
    const auto prepare = [=, mean = In(args, 2), var = In(args, 3)] {
      for (int64_t i = 0; i < channels; ++i) {
        arrays.mean[i] = mean[i];
        arrays.scale[i] = static_cast<float>((gamma ? gamma[i] : 1) * InverseDeviation(var[i], attrs.eps));
        arrays.beta[i] = beta ? beta[i] : 0;
        arrays.b[i] = arrays.c[i] = 0;
      }
    };
    const auto finish = [=, var = In(args, 3), dgamma = Out(args, 1), dbeta = Out(args, 2)] {
      for (int64_t i = 0; i < channels; ++i) {
        const double inverse = InverseDeviation(var[i], attrs.eps);
        if (dgamma) dgamma[i] = gamma ? static_cast<float>(arrays.second[i] * inverse) : 0;
        if (dbeta) dbeta[i] = static_cast<float>(arrays.first[i]);
        if (running) continue;
        arrays.b[i] = static_cast<float>(-arrays.scale[i] * inverse * inverse * arrays.second[i] / passes.count());
        arrays.c[i] = static_cast<float>(-arrays.scale[i] * arrays.first[i] / passes.count());
      }
    };
    return [=, dy = In(args, 0), x = In(args, 1), dx = Out(args, 0), relu = attrs.relu] {
      prepare();
      passes.GradSums(dy, x, arrays, relu);
      finish();
      if (dx) passes.GradInput(dy, x, dx, arrays, relu);
    };
  };
  return kernel;
}

// data -> statistics (3, C): count, mean, M2
MaybeKernel MakeBatchNormStatistics(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = ChannelFormat(
      spec, 0, spec.inputs[0].shape.Axis(static_cast<int>(spec.attributes<BatchNormAttrs>().axis)), &view);
  const ChannelPasses passes(view, spec.threads);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.bind = [passes](const KernelArgs& args) -> Call {
    return [passes, x = In(args, 0), statistics = Out(args, 0), arrays = passes.In(args.scratch)] {
      passes.Moments(x, arrays);
      const int64_t channels = passes.channels();
      for (int64_t i = 0; i < channels; ++i) {
        statistics[i] = static_cast<float>(passes.count());
        statistics[channels + i] = static_cast<float>(arrays.first[i]);
        statistics[2 * channels + i] = static_cast<float>(arrays.second[i]);
      }
    };
  };
  return kernel;
}

// (data, gamma, beta, statistics, running_mean, running_var) -> y, mean, var
MaybeKernel MakeBatchNormNormalize(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = kernel.output_formats[0] =
      ChannelFormat(spec, 0, spec.inputs[0].shape.Axis(static_cast<int>(attrs.axis)), &view);
  const ChannelPasses passes(view, spec.threads);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.inplace = {{0, 0}};
  const bool running = UsesRunningValues(spec);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const ChannelPasses::Arrays arrays = passes.In(args.scratch);
    const auto prepare = [=, gamma = In(args, 1), beta = In(args, 2), statistics = In(args, 3),
                          running_mean = In(args, 4), running_var = In(args, 5), mean_out = Out(args, 1),
                          var_out = Out(args, 2)] {
      const int64_t channels = passes.channels();
      for (int64_t i = 0; i < channels; ++i) {
        const float mean = running ? running_mean[i] : statistics[channels + i];
        const float var = running ? running_var[i] : statistics[2 * channels + i] / statistics[i];
        if (mean_out) mean_out[i] = mean;
        if (var_out) var_out[i] = var;
        arrays.mean[i] = mean;
        arrays.scale[i] = static_cast<float>((attrs.fix_gamma ? 1 : gamma[i]) * InverseDeviation(var, attrs.eps));
        arrays.beta[i] = beta[i];
      }
    };
    return [=, x = In(args, 0), y = Out(args, 0)] {
      prepare();
      if (y) passes.Normalize(x, y, arrays, false);
    };
  };
  return kernel;
}

// (dy, data, statistics) -> sums (2, C): sum dy, sum dy x^
MaybeKernel MakeBatchNormGradSums(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = kernel.input_formats[1] =
      ChannelFormat(spec, 1, spec.inputs[1].shape.Axis(static_cast<int>(attrs.axis)), &view);
  const ChannelPasses passes(view, spec.threads);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.bind = [passes, attrs](const KernelArgs& args) -> Call {
    return [passes, attrs, dy = In(args, 0), x = In(args, 1), statistics = In(args, 2), sums = Out(args, 0),
            arrays = passes.In(args.scratch)] {
      const int64_t channels = passes.channels();
      for (int64_t i = 0; i < channels; ++i) {
        arrays.mean[i] = statistics[channels + i];
        arrays.scale[i] = arrays.beta[i] = arrays.b[i] = arrays.c[i] = 0;
      }
      passes.GradSums(dy, x, arrays, false);
      for (int64_t i = 0; i < channels; ++i) {
        const float var = statistics[2 * channels + i] / statistics[i];
        sums[i] = static_cast<float>(arrays.first[i]);
        sums[channels + i] = static_cast<float>(arrays.second[i] * InverseDeviation(var, attrs.eps));
      }
    };
  };
  return kernel;
}

// (dy, data, gamma, statistics, sums) -> dx
MaybeKernel MakeBatchNormGradInput(const KernelSpec& spec) {
  const auto attrs = spec.attributes<BatchNormAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = kernel.input_formats[1] = kernel.output_formats[0] =
      ChannelFormat(spec, 1, spec.inputs[1].shape.Axis(static_cast<int>(attrs.axis)), &view);
  const ChannelPasses passes(view, spec.threads);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.inplace = {{0, 0}};
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const ChannelPasses::Arrays arrays = passes.In(args.scratch);
    const auto prepare = [=, gamma = In(args, 2), statistics = In(args, 3), sums = In(args, 4)] {
      const int64_t channels = passes.channels();
      for (int64_t i = 0; i < channels; ++i) {
        const double n = statistics[i];
        const double inverse = InverseDeviation(statistics[2 * channels + i] / statistics[i], attrs.eps);
        const double scale = (attrs.fix_gamma ? 1 : gamma[i]) * inverse;
        arrays.mean[i] = statistics[channels + i];
        arrays.scale[i] = static_cast<float>(scale);
        arrays.beta[i] = 0;
        arrays.b[i] = static_cast<float>(-scale * inverse * sums[channels + i] / n);
        arrays.c[i] = static_cast<float>(-scale * sums[i] / n);
      }
    };
    return [=, dy = In(args, 0), x = In(args, 1), dx = Out(args, 0)] {
      prepare();
      passes.GradInput(dy, x, dx, arrays, false);
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"BatchNorm", MakeBatchNorm},
    {"BatchNormGrad", MakeBatchNormGrad},
    {"BatchNormStatistics", MakeBatchNormStatistics},
    {"BatchNormNormalize", MakeBatchNormNormalize},
    {"BatchNormGradSums", MakeBatchNormGradSums},
    {"BatchNormGradInput", MakeBatchNormGradInput},
};

}  // namespace

KernelRows BatchNormKernels() { return kEntries; }

}  // namespace bindery::cpu
