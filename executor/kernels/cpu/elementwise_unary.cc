#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/elementwise.h"

namespace bindery::cpu {
namespace {

// y = f(x, c), in place if wanted.
Kernel UnaryKernel(const KernelSpec& spec, Unary op, float c, bool zero_to_zero) {
  const Format format = CommonFormat(spec, {0}, zero_to_zero);
  Kernel kernel = FlatKernel(spec, "loop", format);
  const int64_t n = StorageElements(format, spec.outputs[0].shape);
  const auto loop = BestLoops().unary[static_cast<size_t>(op)];
  kernel.bind = [=](const KernelArgs& args) -> Call {
    return [=, x = In(args, 0), y = Out(args, 0)] {
      if (n <= kSerialElements) return loop(x, y, n, c);
      ParallelFor(n, kGrain, 0, [&](int64_t begin, int64_t end, int) { loop(x + begin, y + begin, end - begin, c); });
    };
  };
  return kernel;
}

// data -> output. Padding must stay +0: 0 * c and 0 / c are so for finite, positive c; -0 is not.
template <Unary kOp>
MaybeKernel MakeUnary(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  return UnaryKernel(spec, kOp, 0, spec.op->zero_to_zero && kOp != Unary::kNegative);
}

// The same with the scalar of the operator's attributes, or its negative.
template <Unary kOp, int kSign = 1>
MaybeKernel MakeScalar(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const float c = kSign * static_cast<float>(spec.attributes<ScalarAttrs>().scalar);
  return UnaryKernel(spec, kOp, c, spec.op->zero_to_zero && c >= 0 && c - c == 0);
}

// data -> output
MaybeKernel MakeActivation(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  switch (spec.attributes<ActivationAttrs>().type) {
    case ActivationType::kNone: return ViewKernel(spec);
    case ActivationType::kRelu: return UnaryKernel(spec, Unary::kRelu, 0, true);
    case ActivationType::kSigmoid: return UnaryKernel(spec, Unary::kSigmoid, 0, false);
    case ActivationType::kTanh: return UnaryKernel(spec, Unary::kTanh, 0, true);
    case ActivationType::kSoftRelu: return UnaryKernel(spec, Unary::kSoftRelu, 0, false);
    case ActivationType::kSoftSign: return UnaryKernel(spec, Unary::kSoftSign, 0, true);
  }
  return std::nullopt;
}

constexpr KernelEntry kEntries[] = {
    {"AddScalar", MakeScalar<Unary::kAddScalar>},
    {"SubScalar", MakeScalar<Unary::kAddScalar, -1>},
    {"RSubScalar", MakeScalar<Unary::kRSubScalar>},
    {"MulScalar", MakeScalar<Unary::kMulScalar>},
    {"DivScalar", MakeScalar<Unary::kDivScalar>},
    {"RDivScalar", MakeScalar<Unary::kRDivScalar>},
    {"Negative", MakeUnary<Unary::kNegative>},
    {"Exp", MakeUnary<Unary::kExp>},
    {"Log", MakeUnary<Unary::kLog>},
    {"Square", MakeUnary<Unary::kSquare>},
    {"Sqrt", MakeUnary<Unary::kSqrt>},
    {"Abs", MakeUnary<Unary::kAbs>},
    {"Sign", MakeUnary<Unary::kSign>},
    {"Activation", MakeActivation},
};

}  // namespace

KernelRows UnaryKernels() { return kEntries; }

}  // namespace bindery::cpu
