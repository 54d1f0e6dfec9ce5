#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/gemm.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/reduce.h"

namespace bindery::cpu {
namespace {

// A matrix seen as (rows, columns), perhaps stored transposed.
dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, dnnl::memory::data_type::f32, strides};
}

// (M, K) x (K, N), each perhaps stored transposed; (K) x (K); and the latter's gradients, (1) x (K)^T and (K)^T x (1)
MaybeKernel MakeDot(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<DotAttrs>();
  const Shape &a = spec.inputs[0].shape, &b = spec.inputs[1].shape;
  const bool in_float64 = AllOf(spec, DType::kFloat64) && a.rank() == 2 && b.rank() == 2;
  if (!in_float64 && !AllFloat(spec)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "loop");
  if (a.rank() == 1) {
    kernel.threads = 1;
    if (attrs.transpose_a || attrs.transpose_b) {
      const int vector = attrs.transpose_a ? 0 : 1;
      kernel.bind = [k = spec.outputs[0].shape[0], vector](const KernelArgs& args) -> Call {
        return [k, x = In(args, vector), factor = In(args, 1 - vector), y = Out(args, 0)] {
          BestLoops().scale(x, y, k, *factor);
        };
      };
      return kernel;
    }
    kernel.bind = [k = a[0]](const KernelArgs& args) -> Call {
      return [k, x = In(args, 0), w = In(args, 1), y = Out(args, 0)] {
        *y = static_cast<float>(BestLoops().dot(x, w, k));
      };
    };
    return kernel;
  }
  if (a.rank() != 2 || b.rank() != 2) return std::nullopt;
  const int64_t m = a[attrs.transpose_a ? 1 : 0], k = a[attrs.transpose_a ? 0 : 1], n = b[attrs.transpose_b ? 0 : 1];
  if (in_float64) {
    const GemmOperand left{0, attrs.transpose_a ? 1 : k, attrs.transpose_a ? m : 1};
    return Float64Gemm(spec, m, n, k, left, {1, attrs.transpose_b ? 1 : n, attrs.transpose_b ? k : 1});
  }
  kernel.threads = ThreadsForWork(spec, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  const TeamScope team(kernel.threads);
  const auto left = Matrix(m, k, attrs.transpose_a), right = Matrix(k, n, attrs.transpose_b),
             product = Matrix(m, n, false);
  const dnnl::matmul::primitive_desc desc({left, right, product}, UserScratchpad(), Engine(), true);
  if (!desc) return std::nullopt;
  return WithDnnl(std::move(kernel), WhoOf(spec), dnnl::matmul(desc), desc,
                  {{DNNL_ARG_SRC, left, DnnlArgument::kInput, 0},
                   {DNNL_ARG_WEIGHTS, right, DnnlArgument::kInput, 1},
                   {DNNL_ARG_DST, product, DnnlArgument::kOutput, 0}});
}

constexpr KernelEntry kEntries[] = {
    {"Dot", MakeDot},
};

}  // namespace

KernelRows DotKernels() { return kEntries; }

}  // namespace bindery::cpu
