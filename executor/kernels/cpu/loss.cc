#include "symbol/ops/loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// (output, label) -> (output - label) grad_scale / (elements per sample), or the difference's sign
template <class T, bool kSign>
MaybeKernel MakeRegressionGrad(const KernelSpec& spec) {
  const ValueType& output = spec.inputs[0];
  const int64_t n = output.shape.Elements();
  const int64_t samples = output.shape.rank() == 0 ? 1 : output.shape[std::max(output.batch_axis, 0)];
  const double grad_scale = spec.attributes<LinearRegressionOutputAttrs>().grad_scale;
  const T factor = static_cast<T>(grad_scale / static_cast<double>(n / samples));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [=, dtype = spec.inputs[1].dtype](const Arguments& args) {
    const LoopsOf<T>& loops = BestLoops<T>();
    const Numbers label(dtype, args.inputs[1]);
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      constexpr int64_t kTile = 2048;  // the labels and the difference stay in the nearest cache
      T tile[kTile];
      for (int64_t at = begin; at < end; at += kTile) {
        const int64_t m = std::min(kTile, end - at);
        const T* targets = tile;
        if (dtype == kDTypeOf<T>) {
          targets = args.in<T>(1) + at;
        } else {
          for (int64_t i = 0; i < m; ++i) tile[i] = static_cast<T>(label[at + i]);
        }
        T* dx = args.out<T>(0) + at;
        loops.template BinaryOf<native::fn::Sub>()(args.in<T>(0) + at, targets, dx, m);
        if constexpr (kSign) loops.template UnaryOf<native::fn::Sign>()(dx, dx, m);
        loops.scale(dx, dx, m, factor);
      }
    });
  });
}

// (data, label: not read) -> 1 / (1 + e^-data)
template <class T>
MaybeKernel MakeLogisticRegressionOutput(const KernelSpec& spec) {
  constexpr size_t kSigmoid = native::ActivationFunctions::Find("sigmoid");
  const int64_t n = spec.outputs[0].shape.Elements();
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()), [n](const Arguments& args) {
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      BestLoops<T>().activation[kSigmoid](args.in<T>(0) + begin, args.out<T>(0) + begin, end - begin);
    });
  });
}

// (output, label) -> dx; a whole label that is no class is no class's.
template <class T>
MaybeKernel MakeSVMOutputGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SVMOutputAttrs>();
  const int64_t samples = spec.inputs[0].shape[0], classes = spec.inputs[0].shape.CountFrom(1);
  const T margin = static_cast<T>(attrs.margin);
  const T factor = static_cast<T>(attrs.regularization * (attrs.use_linear ? 1 : 2));
  return WithLoop(FlatKernel(spec, "loop", Format::Plain()),
                  [=, linear = attrs.use_linear, dtype = spec.inputs[1].dtype](const Arguments& args) {
                    const Numbers label(dtype, args.inputs[1]);
                    const auto slope = [=](T x) {  // of the hinge max(0, margin + x) or its square
                      const T h = margin + x;
                      return h > 0 ? (linear ? factor : factor * h) : T{0};
                    };
                    ParallelFor(samples, 1, kSerialElements / classes, [&](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) {
                        const T* x = args.in<T>(0) + i * classes;
                        T* dx = args.out<T>(0) + i * classes;
                        const double number = label[i];
                        if (number != std::floor(number)) {  // or NaN
                          Throw<DataError>("label {} of sample {} is not in 0..{}", number, i, classes - 1);
                        }
                        const bool is_class = number >= 0 && number < static_cast<double>(classes);
                        const int64_t own = is_class ? static_cast<int64_t>(number) : 0;
                        const T at_label = -slope(-x[own]);
                        for (int64_t k = 0; k < classes; ++k) dx[k] = slope(x[k]);
                        if (is_class) dx[own] = at_label;
                      }
                    });
                  });
}

// [valid count] -> grad_scale / divisor
MaybeKernel MakeMakeLossGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<MakeLossGradAttrs>();
  const DType valid_dtype = spec.inputs.empty() ? DType::kFloat32 : spec.inputs[0].dtype;
  Kernel kernel = PlainKernel(spec, "scalar");
  kernel.threads = 1;
  return WithLoop(std::move(kernel), [=, dtype = spec.outputs[0].dtype](const Arguments& args) {
    const void* valid = args.inputs.empty() ? nullptr : args.inputs[0];
    const double dx = attrs.grad_scale / DivisorOf(attrs.normalization, *args.step, valid_dtype, valid);
    Dispatch(dtype, [&]<class T>() { *args.out<T>(0) = StoreDouble<T>(dx); });
  });
}

MaybeKernel MakeLossScale(const KernelSpec& spec) {
  Kernel kernel = PlainKernel(spec, "scalar");
  kernel.threads = 1;
  return WithLoop(std::move(kernel), [dtype = spec.outputs[0].dtype](const Arguments& args) {
    Dispatch(dtype, [&]<class T>() { *args.out<T>(0) = StoreDouble<T>(args.step->loss_scale); });
  });
}

constexpr KernelEntry kEntries[] = {
    {"LinearRegressionOutputGrad", OfReals<MakeRegressionGrad<float, false>, MakeRegressionGrad<double, false>>},
    {"LogisticRegressionOutput", OfReals<MakeLogisticRegressionOutput<float>, MakeLogisticRegressionOutput<double>>},
    {"MAERegressionOutputGrad", OfReals<MakeRegressionGrad<float, true>, MakeRegressionGrad<double, true>>},
    {"SVMOutputGrad", OfReals<MakeSVMOutputGrad<float>, MakeSVMOutputGrad<double>>},
    {"MakeLossGrad", MakeMakeLossGrad},
    {"LossScale", MakeLossScale},
};

}  // namespace

KernelRows LossKernels() { return kEntries; }

}  // namespace bindery::cpu
