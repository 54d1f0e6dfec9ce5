#include "executor/kernels/cpu/bias_gradient.h"

#include <algorithm>

#include "executor/kernels/cpu/channel_passes.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

std::optional<Kernel> MakeBiasGradient(const KernelSpec& spec, int axis) {
  if (!AllFloat(spec) || spec.outputs.size() < 2 || !spec.output_used[1]) return std::nullopt;
  const Shape& shape = spec.inputs[0].shape;
  ChannelView view;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats = spec.input_formats;  // of the data: not read
  if (!ViewChannels(spec.input_formats[0], shape, axis, &view)) {
    kernel.input_formats[0] = Format::Plain();
    ViewChannels(Format::Plain(), shape, axis, &view);
  }
  const ChannelPasses passes(view, spec.threads);
  kernel.scratch_bytes = passes.scratch_bytes();
  kernel.bind = [passes](const KernelArgs& args) -> Call {
    return [passes, dy = In(args, 0), db = Out(args, 1), arrays = passes.In(args.scratch)] {
      const int64_t channels = passes.channels();
      std::fill_n(arrays.mean, channels, 0.0f);
      passes.GradSums(dy, dy, arrays, false);
      for (int64_t i = 0; i < channels; ++i) db[i] = static_cast<float>(arrays.first[i]);
    };
  };
  return kernel;
}

}  // namespace bindery::cpu
