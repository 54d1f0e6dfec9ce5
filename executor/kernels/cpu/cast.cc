#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// Element by element, rounded to nearest even once.
template <class From, class To>
void Convert(const void* x, void* y, int64_t begin, int64_t end) {
  const auto* from = static_cast<const From*>(x);
  auto* to = static_cast<To*>(y);
  for (int64_t i = begin; i < end; ++i) to[i] = static_cast<To>(from[i]);
}

using Loop = void (*)(const void* x, void* y, int64_t begin, int64_t end);

// Between float32 and what a processor converts in a vector; everything else is the reference's.
Loop LoopOf(DType from, DType to) {
  if (from == DType::kFloat32) {
    switch (to) {
      case DType::kFloat64: return Convert<float, double>;
      case DType::kBFloat16: return Convert<float, bfloat16>;
      default: return nullptr;
    }
  }
  if (to != DType::kFloat32) return nullptr;
  switch (from) {
    case DType::kFloat64: return Convert<double, float>;
    case DType::kBFloat16: return Convert<bfloat16, float>;
    case DType::kInt32: return Convert<int32_t, float>;
    case DType::kInt64: return Convert<int64_t, float>;
    case DType::kInt8: return Convert<int8_t, float>;
    case DType::kUInt8: return Convert<uint8_t, float>;
    default: return nullptr;
  }
}

// data -> output, in whatever format the data are
MaybeKernel MakeCast(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  if (from == to) return ViewKernel(spec);
  const Loop loop = LoopOf(from, to);
  if (!loop) return std::nullopt;
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
