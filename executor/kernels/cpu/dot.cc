#include "executor/kernel_table.h"
#include "executor/kernels/cpu/gemm.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/reduce.h"

namespace bindery::cpu {
namespace {

// (M, K) x (K, N), each perhaps stored transposed; (K) x (K); and the latter's gradients, (1) x (K)^T and (K)^T x (1)
MaybeKernel MakeDot(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DotAttrs>();
  const auto [m, k, n] = ProductSizes(attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  if (!AllFloat(spec) || spec.inputs[0].shape.rank() == 2) {
    return Gemm(spec, {.m = m,
                       .n = n,
                       .k = k,
                       .a = {0, attrs.transpose_a ? 1 : k, attrs.transpose_a ? m : 1},
                       .b = {1, attrs.transpose_b ? 1 : n, attrs.transpose_b ? k : 1}});
  }
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.threads = 1;
  if (attrs.transpose_a || attrs.transpose_b) {
    return WithLoop(std::move(kernel),
                    [length = spec.outputs[0].shape[0], vector = attrs.transpose_a ? 0 : 1](const Arguments& args) {
                      BestLoops().scale(args.in(vector), args.out(0), length, *args.in(1 - vector));
                    });
  }
  return WithLoop(std::move(kernel), [length = spec.inputs[0].shape[0]](const Arguments& args) {
    *args.out(0) = static_cast<float>(BestLoops().dot(args.in(0), args.in(1), length));
  });
}

constexpr KernelEntry kEntries[] = {
    {"Dot", MakeDot},
};

}  // namespace

KernelRows DotKernels() { return kEntries; }

}  // namespace bindery::cpu
