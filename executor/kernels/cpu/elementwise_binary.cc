#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {
namespace {

// y = f(a, b) of equal shapes, in memory order.
Kernel FlatBinary(const KernelSpec& spec, Binary op, bool zero_to_zero) {
  const Format format = CommonFormat(spec, {0, 1}, zero_to_zero);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  const auto loop = BestLoops().binary[static_cast<size_t>(op)];
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, a = In(args, 0), b = In(args, 1), y = Out(args, 0)] {
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

// A run of `n` elements of y: both operands go along, or one stands still.
using Run = void (*)(const Loops& loops, size_t op, const float* a, const float* b, float* y, int64_t n);
Run RunOf(const Broadcast::Axis& inner) {
  if (inner.a && inner.b)
    return [](const Loops& l, size_t op, const float* a, const float* b, float* y, int64_t n) {
      l.binary[op](a, b, y, n);
    };
  if (inner.a)
    return [](const Loops& l, size_t op, const float* a, const float* b, float* y, int64_t n) {
      l.binary_scalar_b[op](a, b, y, n);
    };
  return [](const Loops& l, size_t op, const float* a, const float* b, float* y, int64_t n) {
    l.binary_scalar_a[op](a, b, y, n);
  };
}

// y = f(a, b) in plain order with stretched operands: an odometer over the outer axes, runs along the innermost, which
// is cut where it is so long that there may be fewer rows than threads.
Kernel BroadcastBinary(const KernelSpec& spec, Binary op) {
  Kernel kernel = FlatKernel(spec, "broadcast loop", Format::Plain());
  const Broadcast broadcast(spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape);
  const Run run = RunOf(broadcast.axes.back());
  const int64_t inner = broadcast.axes.back().extent, rows = spec.outputs[0].shape.Elements() / inner;
  const int64_t length = std::min<int64_t>(inner, kRun), parts = CeilDiv(inner, length);
  kernel.bind = [=, axes = broadcast.axes](const KernelArgs& args) -> Call {
    return [=, a = In(args, 0), b = In(args, 1), y = Out(args, 0)] {
      const Loops& loops = BestLoops();
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
          run(loops, static_cast<size_t>(op), a + at_a, b + at_b, y + row * inner + first,
              std::min(length, inner - first));
        }
      });
    };
  };
  return kernel;
}

// (a, b) -> y; kZeroToZero: f(0, 0) = 0
template <Binary kOp, bool kZeroToZero>
MaybeKernel MakeBinary(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  if (spec.inputs[0].shape == spec.inputs[1].shape) return FlatBinary(spec, kOp, kZeroToZero);
  return BroadcastBinary(spec, kOp);
}

// (a, b) -> y
MaybeKernel MakeAddRelu(const KernelSpec& spec) {
  if (!AllFloat(spec) || spec.inputs[0].shape != spec.inputs[1].shape) return std::nullopt;
  return FlatBinary(spec, Binary::kAddRelu, true);
}

// (dy, y) -> dx. dy = 0 gives 0 whatever y is.
MaybeKernel MakeActivationGrad(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  switch (spec.attributes<ActivationAttrs>().type) {
    case ActivationType::kNone: return ViewKernel(spec);
    case ActivationType::kRelu: return FlatBinary(spec, Binary::kReluGrad, true);
    case ActivationType::kSigmoid: return FlatBinary(spec, Binary::kSigmoidGrad, true);
    case ActivationType::kTanh: return FlatBinary(spec, Binary::kTanhGrad, true);
    case ActivationType::kSoftRelu: return FlatBinary(spec, Binary::kSoftReluGrad, true);
    case ActivationType::kSoftSign: return FlatBinary(spec, Binary::kSoftSignGrad, true);
  }
  return std::nullopt;
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
  if (spec.inputs.size() == 2) return FlatBinary(spec, Binary::kAdd, true);
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
      const auto add = BestLoops().binary[static_cast<size_t>(Binary::kAdd)];
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
    {"Add", MakeBinary<Binary::kAdd, true>},
    {"Sub", MakeBinary<Binary::kSub, true>},
    {"Mul", MakeBinary<Binary::kMul, true>},
    {"Div", MakeBinary<Binary::kDiv, false>},
    {"Maximum", MakeBinary<Binary::kMaximum, true>},
    {"Minimum", MakeBinary<Binary::kMinimum, true>},
    {"GreaterEqual", MakeBinary<Binary::kGreaterEqual, false>},
    {"LessEqual", MakeBinary<Binary::kLessEqual, false>},
    {"AddRelu", MakeAddRelu},
    {"ActivationGrad", MakeActivationGrad},
    {"AddReluGrad", MakeAddReluGrad},
    {"AddN", MakeAddN},
};

}  // namespace

KernelRows BinaryKernels() { return kEntries; }

}  // namespace bindery::cpu
