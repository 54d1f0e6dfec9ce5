#include "executor/kernels/cpu/copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/host_tensor.h"
#include "engine/kernels/flat.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/elementwise.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_of.h"

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
  return WithLoop(std::move(kernel),
                  [bytes](const Arguments& args) { ParallelCopy(args.outputs[0], args.inputs[0], bytes); });
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
  return WithLoop(std::move(kernel),
                  [bytes = StorageBytes(format, spec.inputs[0].dtype, spec.inputs[0].shape)](const Arguments& args) {
                    ParallelCopy(args.outputs[0], args.inputs[0], bytes);
                  });
}

namespace {

MaybeKernel MakeConstant(const KernelSpec& spec) {
  return WithLoop(PlainKernel(spec, "copy"), [value = ConstantOf(spec)](const Arguments& args) {
    ParallelCopy(args.outputs[0], value->raw(), value->bytes());
  });
}

// Of integers the low bits; of other numbers what is before the point, within the bounds of the type, and of NaN 0.
template <class To, class From>
To Cut(From number) {
  if constexpr (std::is_integral_v<From>) return static_cast<To>(number);
  const double value = LoadDouble(number);
  using Limits = std::numeric_limits<To>;
  constexpr double kEnd = 2.0 * static_cast<double>(Limits::max() / 2 + 1);  // the highest int64 is not a double
  if (value >= kEnd) return Limits::max();
  if (value >= static_cast<double>(Limits::min())) return static_cast<To>(value);
  return std::isnan(value) ? To{0} : Limits::min();
}

// To integers, n at once.
void CutAll(DType from, const void* in, DType to, void* out, int64_t n) {
  Dispatch(from, [&]<class From>() {
    Dispatch(to, [&]<class To>() {
      if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool> && !std::is_same_v<From, bool>) {
        const From* x = static_cast<const From*>(in);
        To* y = static_cast<To*>(out);
        ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) y[i] = Cut<To>(x[i]);
        });
      }
    });
  });
}

using CastAll = void (*)(DType from, const void* in, DType to, void* out, int64_t n);
CastAll CastOf(DType from, DType to) {
  return IsFloat(to) || from == DType::kBool || to == DType::kBool ? flat::Cast : CutAll;
}

// data -> output, in whatever format the data are
MaybeKernel MakeCast(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  if (from == to) return ViewKernel(spec);
  const Format format = CommonFormat(spec, {0}, true);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.input_formats[0] = kernel.output_formats[0] = format;
  return WithLoop(std::move(kernel),
                  [=, cast = CastOf(from, to), n = StorageElements(format, spec.outputs[0].shape)](
                      const Arguments& args) { cast(from, args.inputs[0], to, args.outputs[0], n); });
}

MaybeKernel MakeRange(const KernelSpec& spec) {
  const auto attrs = spec.attributes<RangeAttrs>();
  return Dispatch(attrs.dtype, [&]<class T>() {
    return WithLoop(PlainKernel(spec, "loop"), [=, n = spec.outputs[0].shape.Elements()](const Arguments& args) {
      T* y = args.out<T>(0);
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        constexpr int kPiece = 1024;  // numbers of 32 bits become doubles in vectors
        for (int64_t i = begin; i < end; i += kPiece) {
          const auto first = static_cast<double>(i);
          const auto count = static_cast<int>(std::min<int64_t>(kPiece, end - i));
          for (int j = 0; j < count; ++j) y[i + j] = Stored<T>(attrs.begin + (first + j) * attrs.step);
        }
      });
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Identity", ViewKernel},
    {"BlockGrad", ViewKernel},
    {"ScaleLoss", ViewKernel},
    {"MakeLoss", ViewKernel},
    {"LinearRegressionOutput", ViewKernel},
    {"MAERegressionOutput", ViewKernel},
    {"SVMOutput", ViewKernel},
    {"Flatten", ViewKernel},
    {"Reshape", ViewKernel},
    {"SumOverDevices", ViewKernel},  // of one device
    {"Cast", MakeCast},
    {"Constant", MakeConstant},
    {"Scalar", MakeConstant},
    // shape_of.h
    {"ShapeArray", MakeConstant},
    {"SizeArray", MakeConstant},
    {"Range", MakeRange},
};

}  // namespace

KernelRows CopyKernels() { return kEntries; }

MaybeLoop CastLoop(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  if (from == to) return std::nullopt;
  const Run run = [=, cast = CastOf(from, to)](const Operands& x, void* y, int64_t n) { cast(from, x[0], to, y, n); };
  return ElementLoop{[run](unsigned) { return run; }, true};
}

}  // namespace bindery::cpu
