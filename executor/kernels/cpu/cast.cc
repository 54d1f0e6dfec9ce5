#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// Rounded to nearest even once; what an integer cannot hold becomes the nearest that it can, as in the reference.
template <class To, class From>
To Converted(From x) {
  constexpr bool kFromInteger = std::is_integral_v<From>;
  if constexpr (kFromInteger && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    using Limits = std::numeric_limits<To>;
    return static_cast<To>(std::clamp<int64_t>(x, Limits::min(), Limits::max()));
  } else if constexpr ((kFromInteger && std::is_floating_point_v<To>) || std::is_same_v<From, float> ||
                       std::is_same_v<To, float>) {
    if constexpr (std::is_integral_v<To>) {
      return StoreDouble<To>(static_cast<double>(x));
    } else {
      return static_cast<To>(x);
    }
  } else {
    return StoreDouble<To>(LoadDouble(x));
  }
}

template <class From, class To>
void Convert(const void* x, void* y, int64_t begin, int64_t end) {
  const auto* from = static_cast<const From*>(x);
  auto* to = static_cast<To*>(y);
  for (int64_t i = begin; i < end; ++i) to[i] = Converted<To>(from[i]);
}

using Loop = void (*)(const void* x, void* y, int64_t begin, int64_t end);

Loop LoopOf(DType from, DType to) {
  return Dispatch(from,
                  [to]<class From>() { return Dispatch(to, []<class To>() -> Loop { return Convert<From, To>; }); });
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
