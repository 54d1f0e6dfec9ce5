#include "symbol/ops/loss.h"

#include <algorithm>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

template <class F>
MaybeKernel CountIf(const KernelSpec& spec, F counts) {
  if (!AllFloatButLabel(spec, 0)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.threads = 1;
  const int64_t n = spec.inputs[0].shape.Elements();
  kernel.bind = [=, dtype = spec.inputs[0].dtype](const KernelArgs& args) -> Call {
    return [=, x = Labels{args.inputs[0], dtype}, y = Out(args, 0)] {
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) count += counts(x[i]);
      *y = static_cast<float>(count);
    };
  };
  return kernel;
}

// label -> (1)
MaybeKernel MakeCountValid(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<CountValidAttrs>();
  return CountIf(
      spec, [use = attrs.use_ignore, ignored = attrs.ignore_label](double label) { return !use || label != ignored; });
}

// data -> (1)
MaybeKernel MakeCountAbove(const KernelSpec& spec) {
  return CountIf(spec, [t = spec.attributes<CountAboveAttrs>().threshold](double x) { return x > t; });
}

// (output, label) -> (output - label) grad_scale / (elements per sample)
MaybeKernel MakeLinearRegressionOutputGrad(const KernelSpec& spec) {
  if (!AllFloatButLabel(spec, 1)) return std::nullopt;
  Kernel kernel = FlatKernel(spec, "loop", Format::Plain());
  const ValueType& output = spec.inputs[0];
  const int64_t n = output.shape.Elements();
  const int64_t samples = output.shape.rank() == 0 ? 1 : output.shape[std::max(output.batch_axis, 0)];
  const double grad_scale = spec.attributes<LinearRegressionOutputAttrs>().grad_scale;
  const float factor = static_cast<float>(grad_scale / static_cast<double>(n / samples));
  kernel.bind = [=, dtype = spec.inputs[1].dtype](const KernelArgs& args) -> Call {
    return [=, y = In(args, 0), label = Labels{args.inputs[1], dtype}, dx = Out(args, 0)] {
      const Loops& loops = BestLoops();
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        constexpr int64_t kTile = 2048;  // the labels and the difference stay in the nearest cache
        float tile[kTile];
        for (int64_t at = begin; at < end; at += kTile) {
          const int64_t m = std::min(kTile, end - at);
          const float* targets = tile;
          if (label.dtype == DType::kFloat32) {
            targets = static_cast<const float*>(label.data) + at;
          } else {
            for (int64_t i = 0; i < m; ++i) tile[i] = static_cast<float>(label[at + i]);
          }
          loops.BinaryOf<native::fn::Sub>()(y + at, targets, dx + at, m);
          loops.scale(dx + at, dx + at, m, factor);
        }
      });
    };
  };
  return kernel;
}

// [valid count] -> grad_scale / divisor
MaybeKernel MakeMakeLossGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<MakeLossGradAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "scalar");
  kernel.threads = 1;
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const float* valid = attrs.normalization == Normalization::kValid ? In(args, 0) : nullptr;
    return [=, dx = Out(args, 0), step = args.step] {
      double divisor = 1;
      if (attrs.normalization == Normalization::kBatch) divisor = static_cast<double>(step->batch_size);
      if (valid) divisor = std::max(1.0, static_cast<double>(*valid));
      *dx = static_cast<float>(attrs.grad_scale / divisor);
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"CountValid", MakeCountValid},
    {"CountAbove", MakeCountAbove},
    {"LinearRegressionOutputGrad", MakeLinearRegressionOutputGrad},
    {"MakeLossGrad", MakeMakeLossGrad},
};

}  // namespace

KernelRows LossKernels() { return kEntries; }

}  // namespace bindery::cpu
