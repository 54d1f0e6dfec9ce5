#include <string_view>

#include "engine/team.h"
#include "executor/kernels/cpu/makers.h"
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

struct UnaryEntry {
  std::string_view op;
  Unary loop;
  bool has_scalar;
};
constexpr UnaryEntry kUnaryEntries[] = {
    {"AddScalar", Unary::kAddScalar, true},
    {"SubScalar", Unary::kAddScalar, true},
    {"RSubScalar", Unary::kRSubScalar, true},
    {"MulScalar", Unary::kMulScalar, true},
    {"DivScalar", Unary::kDivScalar, true},
    {"RDivScalar", Unary::kRDivScalar, true},
    {"Negative", Unary::kNegative, false},
    {"Exp", Unary::kExp, false},
    {"Log", Unary::kLog, false},
    {"Square", Unary::kSquare, false},
    {"Sqrt", Unary::kSqrt, false},
    {"Abs", Unary::kAbs, false},
    {"Sign", Unary::kSign, false},
};

}  // namespace

// data -> output
MaybeKernel MakeUnary(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  for (const UnaryEntry& entry : kUnaryEntries) {
    if (entry.op != spec.op->name) continue;
    float c = entry.has_scalar ? static_cast<float>(spec.attributes<ScalarAttrs>().scalar) : 0;
    if (entry.op == "SubScalar") c = -c;
    // Padding must stay +0: 0 * c and 0 / c are so for finite, positive c; -0 is not.
    const bool keeps_zero = spec.op->zero_to_zero && entry.loop != Unary::kNegative && c >= 0 && c - c == 0;
    return UnaryKernel(spec, entry.loop, c, keeps_zero);
  }
  return std::nullopt;
}

// data -> output
MaybeKernel MakeActivation(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  switch (spec.attributes<ActivationAttrs>().type) {
    case ActivationType::kNone: return MakeView(spec);
    case ActivationType::kRelu: return UnaryKernel(spec, Unary::kRelu, 0, true);
    case ActivationType::kSigmoid: return UnaryKernel(spec, Unary::kSigmoid, 0, false);
    case ActivationType::kTanh: return UnaryKernel(spec, Unary::kTanh, 0, true);
    case ActivationType::kSoftRelu: return UnaryKernel(spec, Unary::kSoftRelu, 0, false);
    case ActivationType::kSoftSign: return UnaryKernel(spec, Unary::kSoftSign, 0, true);
  }
  return std::nullopt;
}

}  // namespace bindery::cpu
