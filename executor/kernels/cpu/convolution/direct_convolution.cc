#include "executor/kernels/cpu/convolution/direct_convolution.h"

#include <utility>

#include "executor/kernels/cpu/convolution/direct_sums.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {

MaybeKernel DirectConvolution(const KernelSpec& spec, int addend) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  const Shape &data = spec.inputs[0].shape, &output = spec.outputs[0].shape, &weight = spec.inputs[1].shape;
  if (!AllFloat(spec)) return std::nullopt;
  if (addend >= 0 && output[1] % BestLoops().lanes != 0)
    return std::nullopt;  // vectors that overlap would add it twice
  const ActivationFormats preferred = PreferredActivationFormats(DType::kFloat32, data, output, attrs.groups);
  Kernel kernel = PlainKernel(spec, "direct");
  const Format x = AsGivenOr(preferred.input, spec.input_formats[0], data);
  kernel.input_formats[0] = Canonical(x, data);
  kernel.output_formats[0] = Canonical(preferred.output, output);
  if (addend >= 0) {
    kernel.input_formats[static_cast<size_t>(addend)] = kernel.output_formats[0];
    kernel.inplace = {{addend, 0}};
  }
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(output, weight));
  const Format own = TapsByFilters(weight.rank());
  for (const Format& format : {spec.input_is_open[1] ? own : spec.input_formats[1], own}) {
    kernel.input_formats[1] = Canonical(format, weight);
    DirectWindows direct;
    if (!direct.Init(attrs, data, x, output, preferred.output, weight, format)) continue;
    const bool has_bias = !attrs.no_bias;
    return WithLoop(std::move(kernel), [sums = DirectSums(std::move(direct), attrs.activation, kernel.threads),
                                        has_bias, addend](const Arguments& args) {
      sums({.x = args.in(0),
            .w = args.in(1),
            .bias = has_bias ? args.in(2) : nullptr,
            .addend = addend < 0 ? nullptr : args.in(addend),
            .y = args.out(0)});
    });
  }
  return std::nullopt;
}

}  // namespace bindery::cpu
