#include "executor/kernels/cpu/copy.h"

#include <cstring>

#include "engine/team.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {

void ParallelCopy(void* target, const void* source, int64_t bytes) {
  if (target == source || bytes == 0) return;
  constexpr int64_t kPage = 4096;
  ParallelFor(bytes, kPage, 16 * kPage, [=](int64_t begin, int64_t end, int) {
    if (begin < end)
      std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin, end - begin);
  });
}

Kernel CopyKernel(int64_t bytes, const Format& from, const Format& to, int threads) {
  Kernel kernel{.implementation = "copy", .input_formats = {from}, .output_formats = {to}};
  kernel.threads = threads;
  if (from == to) kernel.inplace = {{0, 0}};
  kernel.bind = [bytes](const KernelArgs& args) -> Call {
    return [target = args.outputs[0], source = args.inputs[0], bytes] { ParallelCopy(target, source, bytes); };
  };
  return kernel;
}

MaybeKernel ViewKernel(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype ||
      spec.inputs[0].shape.Elements() != spec.outputs[0].shape.Elements())
    return std::nullopt;
  const bool same_shape = spec.inputs[0].shape == spec.outputs[0].shape;
  const Format format =
      same_shape && spec.input_formats[0].kind != Format::Kind::kOpaque ? spec.input_formats[0] : Format::Plain();
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats[0] = kernel.output_formats[0] = format;
  kernel.inplace = {{0, 0}};
  const int64_t bytes = StorageBytes(format, spec.inputs[0].dtype, spec.inputs[0].shape);
  kernel.bind = [bytes](const KernelArgs& args) -> Call {
    return [bytes, x = args.inputs[0], y = args.outputs[0]] { ParallelCopy(y, x, bytes); };
  };
  return kernel;
}

}  // namespace bindery::cpu
