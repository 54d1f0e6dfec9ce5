#include "base/dtype.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

template <class From, class To>
void ConvertAll(const void* x, void* y, int64_t begin, int64_t end) {
  const auto* from = static_cast<const From*>(x);
  auto* to = static_cast<To*>(y);
  for (int64_t i = begin; i < end; ++i) to[i] = Convert<To>(from[i]);
}

using Loop = void (*)(const void* x, void* y, int64_t begin, int64_t end);

Loop LoopOf(DType from, DType to) {
  return Dispatch(from,
                  [to]<class From>() { return Dispatch(to, []<class To>() -> Loop { return ConvertAll<From, To>; }); });
}

// data -> output, in whatever format the data are
MaybeKernel MakeCast(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  if (from == to) return ViewKernel(spec);
  const Loop loop = LoopOf(from, to);
  const Format format = CommonFormat(spec, {0}, true);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = kernel.output_formats[0] = format;
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = args.inputs[0], y = args.outputs[0]] {
      ParallelFor(n, 4 * kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) { loop(x, y, begin, end); });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Cast", MakeCast},
};

}  // namespace

KernelRows CastKernels() { return kEntries; }

}  // namespace bindery::cpu
