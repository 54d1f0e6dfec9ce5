#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "engine/isa.h"
#include "engine/team.h"
#include "executor/kernels/cpu/convolution/winograd.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/recurrent_panels.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// How many neighbours along an axis lie equally far apart.
int64_t EvenRun(const Format& format, const Shape& shape, int axis) {
  int64_t run = shape[axis];
  if (format.kind != Format::Kind::kStrided) return run;
  for (int i = 0; i < format.num_blocks; ++i) {  // the last block of an axis is its innermost
    if (format.block_axis[i] == axis) run = format.block_size[i];
  }
  return run;
}

// Elements of any size, in runs along the axis where they are longest.
Kernel OwnReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads) {
  int axis = 0;
  int64_t length = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t run = std::min(EvenRun(from, shape, i), EvenRun(to, shape, i));
    if (run >= length) {
      axis = i;
      length = run;
    }
  }
  std::array<int64_t, Shape::kMaxRank> next{};
  next[axis] = length > 1 ? 1 : 0;
  const int64_t from_step = ElementOffset(from, shape, next.data()), to_step = ElementOffset(to, shape, next.data());
  const Shape runs = shape.With(axis, CeilDiv(shape[axis], length));  // run by run
  Kernel kernel{.implementation = "loop", .input_formats = {from}, .output_formats = {to}, .threads = threads};
  const int64_t bytes = IsPadded(to, shape) ? StorageBytes(to, dtype, shape) : 0;
  return OfSize(SizeOf(dtype), [&]<class T>() {
    return WithLoop(std::move(kernel), [=](const Arguments& args) {
      const T* source = args.in<T>(0);
      T* target = args.out<T>(0);
      if (bytes > 0) std::memset(target, 0, static_cast<size_t>(bytes));
      ParallelFor(runs.Elements(), 1, kSerialElements / length, [&](int64_t begin, int64_t end, int) {
        for (int64_t run = begin; run < end; ++run) {
          std::array<int64_t, Shape::kMaxRank> index{};
          int64_t rest = run;
          for (int i = shape.rank() - 1; i >= 0; rest /= runs[i--]) index[i] = rest % runs[i];
          index[axis] *= length;
          const T* x = source + ElementOffset(from, shape, index.data());
          T* y = target + ElementOffset(to, shape, index.data());
          const int64_t n = std::min(length, shape[axis] - index[axis]);
          for (int64_t i = 0; i < n; ++i) y[i * to_step] = x[i * from_step];
        }
      });
    });
  });
}

}  // namespace

// Equal bytes are copied; what oneDNN can do it does. It knows no 8-byte elements, and its reorders of bfloat16 may
// change bits: without AVX-512 any, with it those of denormal numbers, which become 0. Small integers and the smallest
// numbers of float16 have such bits.
MaybeKernel MakeFastReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads) {
  if (to.kind == Format::Kind::kOpaque) {
    MaybeKernel weights = WinogradWeights(dtype, shape, from, to, threads);
    return weights ? std::move(weights) : RecurrentWeights(dtype, shape, from, to, threads);
  }
  if (Canonical(from, shape) == Canonical(to, shape)) {
    return CopyKernel(StorageBytes(from, dtype, shape), from, to, threads);
  }
  // Only where elements lie matters: the type that travels is any of the same size.
  const int64_t size = SizeOf(dtype);
  const bool keeps_bits = size != 2 || (dtype == DType::kBFloat16 && MachineIsa() == Isa::kAvx512);
  if (size == 8 || !keeps_bits) return OwnReorder(dtype, shape, from, to, threads);
  const DType carrier = size == 4 ? DType::kFloat32 : size == 2 ? DType::kBFloat16 : DType::kUInt8;
  const auto source = ToDesc(from, carrier, shape);
  const auto target = ToDesc(to, carrier, shape);
  if (!source || !target) return OwnReorder(dtype, shape, from, to, threads);

  const int64_t elements = shape.Elements();
  Kernel kernel{.input_formats = {from}, .output_formats = {to}};
  kernel.threads = elements <= kSerialElements ? 1 : threads;
  const TeamScope team(kernel.threads);
  const dnnl::reorder::primitive_desc desc(Engine(), *source, Engine(), *target, UserScratchpad(), true);
  if (!desc) return OwnReorder(dtype, shape, from, to, threads);
  return WithDnnl(
      std::move(kernel), "Reorder", dnnl::reorder(desc), desc,
      {{DNNL_ARG_FROM, *source, DnnlArgument::kInput, 0, from}, {DNNL_ARG_TO, *target, DnnlArgument::kOutput, 0, to}});
}

}  // namespace bindery::cpu
