#include "executor/kernels/cpu/bias_gradient.h"

#include <algorithm>

#include "engine/team.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/channel_passes.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

namespace {

template <class T>
Kernel BiasGradient(const KernelSpec& spec, int axis) {
  auto [kernel, passes] = MakeOverChannels<T>(spec, axis, {0}, false);
  kernel.input_formats[1] = spec.input_formats[1];  // of the data: not read
  return WithLoop(std::move(kernel), [passes = passes](const Arguments& args) {
    const auto arrays = passes.In(args.scratch);
    const int64_t channels = passes.channels();
    std::fill_n(arrays.mean, 5 * channels, T{0});
    passes.GradSums(args.in<T>(0), args.in<T>(0), arrays, false);
    for (int64_t i = 0; i < channels; ++i) args.out<T>(1)[i] = static_cast<T>(arrays.first[i]);
  });
}

template <class T>
Kernel IntegerBiasGradient(const KernelSpec& spec, int axis) {
  const AxisView view = ViewAlong(spec.inputs[0].shape, axis);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[1] = spec.input_formats[1];
  return WithLoop(std::move(kernel), [view](const Arguments& args) {
    const int64_t serial = kSerialElements / std::max<int64_t>(view.outer * view.inner, 1);
    ParallelFor(view.axis, 1, serial, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; ++c) {
        Accumulator<T> sum{};
        for (int64_t o = 0; o < view.outer; ++o) {
          const T* run = args.in<T>(0) + (o * view.axis + c) * view.inner;
          for (int64_t i = 0; i < view.inner; ++i) sum = Sum(sum, Widened(run[i]));
        }
        args.out<T>(1)[c] = Narrowed<T>(sum);
      }
    });
  });
}

}  // namespace

MaybeKernel MakeBiasGradient(const KernelSpec& spec, int axis) {
  if (spec.outputs.size() < 2 || !spec.output_used[1]) return std::nullopt;
  return Dispatch(spec.outputs[1].dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (std::is_floating_point_v<T>) return BiasGradient<T>(spec, axis);
    if constexpr (std::is_integral_v<T>) return IntegerBiasGradient<T>(spec, axis);
    return std::nullopt;
  });
}

MaybeKernel WithBiasGradient(MaybeKernel weight, const KernelSpec& spec, int axis) {
  KernelSpec plain = spec;
  plain.input_formats.assign(spec.inputs.size(), Format::Plain());
  const MaybeKernel bias = MakeBiasGradient(plain, axis);
  if (!weight || !bias) return weight;
  weight->scratch_bytes = std::max(weight->scratch_bytes, bias->scratch_bytes);
  weight->bind = [first = weight->bind, second = bias->bind](const KernelArgs& args) -> Call {
    return [dw = first(args), db = second(args)] {
      dw();
      db();
    };
  };
  return weight;
}

}  // namespace bindery::cpu
