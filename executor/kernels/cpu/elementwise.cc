// Elementwise operators, each in its own element type: float in vectors (simd/loops.h), the others by loops over single
// numbers. Which function belongs to which operator is said by its name in executor/kernels/functions.h.
#include "symbol/ops/elementwise.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/native_functions.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {
namespace {

template <class T>
using UnaryLoop = void (*)(const T* x, T* y, int64_t n);
template <class T>
using BinaryLoop = void (*)(const T* a, const T* b, T* y, int64_t n);
// Both operands go along, or one stands still.
template <class T>
struct BinaryLoops {
  BinaryLoop<T> both, scalar_b, scalar_a;
};

template <class F, class T>
void NativeUnary(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = native::Call<F, T>(x[i]);
}
template <class F, class T, int kStrideA, int kStrideB>
void NativeBinary(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = native::Call<F, T>(a[i * kStrideA], b[i * kStrideB]);
}

// y = f(x) in memory order.
template <class T>
Kernel UnaryKernel(const KernelSpec& spec, UnaryLoop<T> loop, bool zero_to_zero) {
  const Format format = CommonFormat(spec, {0}, zero_to_zero);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = static_cast<const T*>(args.inputs[0]), y = static_cast<T*>(args.outputs[0])] {
      if (n <= kSerialElements) return loop(x, y, n);
      ParallelFor(n, kGrain, 0, [&](int64_t begin, int64_t end, int) { loop(x + begin, y + begin, end - begin); });
    };
  };
  return kernel;
}

// y = f(a, b) of equal shapes, in memory order.
template <class T>
Kernel FlatBinary(const KernelSpec& spec, BinaryLoop<T> loop, bool zero_to_zero) {
  const Format format = CommonFormat(spec, {0, 1}, zero_to_zero);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, a = static_cast<const T*>(args.inputs[0]), b = static_cast<const T*>(args.inputs[1]),
            y = static_cast<T*>(args.outputs[0])] {
      if (n <= kSerialElements) return loop(a, b, y, n);
      ParallelFor(n, kGrain, 0,
                  [&](int64_t begin, int64_t end, int) { loop(a + begin, b + begin, y + begin, end - begin); });
    };
  };
  return kernel;
}

// The axes of y, neighbours joined where both operands go on in the same way; per axis the operands' strides, 0 where
// they are stretched.
struct Broadcast {
  struct Axis {
    int64_t extent, a, b;
  };
  std::vector<Axis> axes;  // outermost first; at least one

  Broadcast(const Shape& y, const Shape& a, const Shape& b) {
    int64_t stride_a = 1, stride_b = 1;
    for (int i = 1; i <= y.rank(); ++i) {
      const int64_t in_a = i <= a.rank() ? a[-i] : 1, in_b = i <= b.rank() ? b[-i] : 1;
      const Axis axis{y[-i], in_a == 1 ? 0 : stride_a, in_b == 1 ? 0 : stride_b};
      stride_a *= in_a;
      stride_b *= in_b;
      if (axis.extent == 1) continue;
      if (!axes.empty() && Continues(axes.back().a, axes.back().extent, axis.a) &&
          Continues(axes.back().b, axes.back().extent, axis.b)) {
        axes.back().extent *= axis.extent;
      } else {
        axes.push_back(axis);
      }
    }
    if (axes.empty()) axes.push_back({1, 0, 0});
    axes = {axes.rbegin(), axes.rend()};
  }
  static bool Continues(int64_t inner_stride, int64_t extent, int64_t outer_stride) {
    return outer_stride == inner_stride * extent;
  }
};

// y = f(a, b) in plain order with stretched operands: an odometer over the outer axes, runs along the innermost, which
// is cut where it is so long that there may be fewer rows than threads.
template <class T>
Kernel BroadcastBinary(const KernelSpec& spec, const BinaryLoops<T>& loops) {
  Kernel kernel = FlatKernel(spec, "broadcast loop", Format::Plain());
  const Broadcast broadcast(spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape);
  const Broadcast::Axis& last = broadcast.axes.back();
  const BinaryLoop<T> run = last.a && last.b ? loops.both : last.a ? loops.scalar_b : loops.scalar_a;
  const int64_t inner = last.extent, rows = spec.outputs[0].shape.Elements() / inner;
  const int64_t length = std::min<int64_t>(inner, kRun), parts = CeilDiv(inner, length);
  kernel.bind = [=, axes = broadcast.axes](const KernelArgs& args) -> Call {
    return [=, a = static_cast<const T*>(args.inputs[0]), b = static_cast<const T*>(args.inputs[1]),
            y = static_cast<T*>(args.outputs[0])] {
      ParallelFor(rows * parts, 1, kSerialElements / length, [&](int64_t begin, int64_t end, int) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t row = unit / parts, first = unit % parts * length;
          int64_t at_a = first * axes.back().a, at_b = first * axes.back().b, rest = row;
          for (size_t i = axes.size() - 1; i-- > 0;) {
            const int64_t index = rest % axes[i].extent;
            rest /= axes[i].extent;
            at_a += index * axes[i].a;
            at_b += index * axes[i].b;
          }
          run(a + at_a, b + at_b, y + row * inner + first, std::min(length, inner - first));
        }
      });
    };
  };
  return kernel;
}

// Every operand and result has one type; f of it, or nothing where F is not made for it.
template <class F, class Make>
MaybeKernel InItsType(const KernelSpec& spec, const Make& make) {
  const DType dtype = spec.outputs[0].dtype;
  for (const ValueType& input : spec.inputs) {
    if (input.dtype != dtype) return std::nullopt;
  }
  return Dispatch(dtype, [&]<class T>() -> MaybeKernel {
    if constexpr (native::kTakes<F, T>) {
      return make.template operator()<T>();
    } else {
      return std::nullopt;
    }
  });
}

// Is padding still zero afterwards? -0 is not.
template <class F>
bool KeepsZero(const KernelSpec& spec) {
  return (F::kFlags & kZeroKept) || (spec.op->zero_to_zero && std::string_view(F::kName) != "Negative");
}

// data -> output. `loop` is the vectors' one.
template <class F>
MaybeKernel MakeUnary(const KernelSpec& spec, Loops::UnaryLoop loop) {
  return InItsType<F>(spec, [&]<class T>() {
    UnaryLoop<T> own = NativeUnary<F, T>;
    if constexpr (std::is_same_v<T, float>) own = loop;
    return UnaryKernel<T>(spec, own, KeepsZero<F>(spec));
  });
}
template <class F>
MaybeKernel MakeUnary(const KernelSpec& spec) {
  return MakeUnary<F>(spec, BestLoops().UnaryOf<F>());
}

// (a, b) -> y
template <class F>
MaybeKernel MakeBinary(const KernelSpec& spec) {
  return InItsType<F>(spec, [&]<class T>() {
    BinaryLoops<T> loops = {NativeBinary<F, T, 1, 1>, NativeBinary<F, T, 1, 0>, NativeBinary<F, T, 0, 1>};
    if constexpr (std::is_same_v<T, float>) {
      constexpr size_t kIndex = native::BinaryFunctions::Find(F::kName);
      const Loops& best = BestLoops();
      loops = {best.binary[kIndex], best.binary_scalar_b[kIndex], best.binary_scalar_a[kIndex]};
    }
    if (spec.inputs[0].shape != spec.inputs[1].shape) return BroadcastBinary<T>(spec, loops);
    return FlatBinary<T>(spec, loops.both, KeepsZero<F>(spec));
  });
}

// f(x, c) or f(c, x) with the scalar of the operator's attributes. 0 * c and 0 / c are +0 for finite, positive c.
template <class F, bool kFirst = false>
MaybeKernel MakeScalar(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const float c = static_cast<float>(spec.attributes<ScalarAttrs>().scalar);
  const Format format = CommonFormat(spec, {0}, spec.op->zero_to_zero && c >= 0 && c - c == 0);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  constexpr size_t kIndex = native::BinaryFunctions::Find(F::kName);
  const auto loop = kFirst ? BestLoops().binary_scalar_a[kIndex] : BestLoops().binary_scalar_b[kIndex];
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0)] {
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        loop(kFirst ? &c : x + begin, kFirst ? x + begin : &c, y + begin, end - begin);
      });
    };
  };
  return kernel;
}

template <class... F>
MaybeKernel MakeActivationOf(const KernelSpec& spec, size_t which, FunctionList<F...>) {
  static constexpr MaybeKernel (*kMakers[])(const KernelSpec&, Loops::UnaryLoop) = {MakeUnary<F>...};
  return kMakers[which](spec, BestLoops().activation[which]);
}

// data -> output
MaybeKernel MakeActivation(const KernelSpec& spec) {
  const ActivationType type = spec.attributes<ActivationAttrs>().type;
  if (type == ActivationType::kNone) return ViewKernel(spec);
  return MakeActivationOf(spec, static_cast<size_t>(type) - 1, native::ActivationFunctions());
}

template <class F>
MaybeKernel MakeGradient(const KernelSpec& spec, Loops::BinaryLoop loop) {
  return InItsType<F>(spec, [&]<class T>() {
    BinaryLoop<T> own = NativeBinary<F, T, 1, 1>;
    if constexpr (std::is_same_v<T, float>) own = loop;
    return FlatBinary<T>(spec, own, true);
  });
}

template <class... F>
MaybeKernel MakeActivationGradOf(const KernelSpec& spec, size_t which, FunctionList<F...>) {
  static constexpr MaybeKernel (*kMakers[])(const KernelSpec&, Loops::BinaryLoop) = {MakeGradient<F>...};
  return kMakers[which](spec, BestLoops().activation_grad[which]);
}

// (dy, y) -> dx. dy = 0 gives 0 whatever y is.
MaybeKernel MakeActivationGrad(const KernelSpec& spec) {
  const ActivationType type = spec.attributes<ActivationAttrs>().type;
  if (type == ActivationType::kNone) return ViewKernel(spec);
  return MakeActivationGradOf(spec, static_cast<size_t>(type) - 1, native::ActivationGradFunctions());
}

// (g0, g1, y) -> (g0 + g1) [y > 0]
MaybeKernel MakeAddReluGrad(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const Format format = CommonFormat(spec, {2, 0, 1}, true);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  kernel.bind = [n](const KernelArgs& args) -> Call {
    return [n, g0 = In(args, 0), g1 = In(args, 1), y = In(args, 2), dx = Out(args, 0)] {
      const auto loop = BestLoops().add_relu_grad;
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        loop(g0 + begin, g1 + begin, y + begin, dx + begin, end - begin);
      });
    };
  };
  return kernel;
}

// arg0, arg1, ... -> their sum, in order. A tile of the result stays in the nearest cache while they are added.
MaybeKernel MakeAddN(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  if (spec.inputs.size() == 1) return ViewKernel(spec);
  if (spec.inputs.size() == 2) return FlatBinary<float>(spec, BestLoops().BinaryOf<native::fn::Add>(), true);
  Format format = Format::Plain();
  for (int i = static_cast<int>(spec.inputs.size()) - 1; i >= 0; --i) {
    if (const Format f = CommonFormat(spec, {i}, true); !f.is_plain()) format = f;
  }
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  kernel.bind = [n](const KernelArgs& args) -> Call {
    const std::vector<void*> inputs(args.inputs.begin(), args.inputs.end());
    return [=, y = Out(args, 0)] {
      constexpr int64_t kTile = 2048;
      const auto add = BestLoops().BinaryOf<native::fn::Add>();
      ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
        for (int64_t at = begin; at < end; at += kTile) {
          const int64_t m = std::min(kTile, end - at);
          const float* sum = static_cast<const float*>(inputs[0]) + at;
          for (size_t i = 1; i < inputs.size(); ++i, sum = y + at) {
            add(sum, static_cast<const float*>(inputs[i]) + at, y + at, m);
          }
        }
      });
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"AddScalar", MakeScalar<native::fn::Add>},
    {"SubScalar", MakeScalar<native::fn::Sub>},
    {"RSubScalar", MakeScalar<native::fn::Sub, true>},
    {"MulScalar", MakeScalar<native::fn::Mul>},
    {"DivScalar", MakeScalar<native::fn::Div>},
    {"RDivScalar", MakeScalar<native::fn::Div, true>},
    {"Activation", MakeActivation},
    {"ActivationGrad", MakeActivationGrad},
    {"AddReluGrad", MakeAddReluGrad},
    {"AddN", MakeAddN},
};

template <class... F>
KernelRows UnaryRows(FunctionList<F...>) {
  static constexpr KernelEntry kRows[] = {{F::kName, MakeUnary<F>}...};
  return kRows;
}
template <class... F>
KernelRows BinaryRows(FunctionList<F...>) {
  static constexpr KernelEntry kRows[] = {{F::kName, MakeBinary<F>}...};
  return kRows;
}

}  // namespace

KernelRows ElementwiseKernels() { return kEntries; }
KernelRows UnaryKernels() { return UnaryRows(native::UnaryFunctions()); }
KernelRows BinaryKernels() { return BinaryRows(native::BinaryFunctions()); }

}  // namespace bindery::cpu
