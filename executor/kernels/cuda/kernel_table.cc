// The kernels of operators for GPUs. There is no reference to fall back to: binding names the operators without one.
#include "executor/kernel_table.h"

#include "executor/kernels/chain.h"

namespace bindery {
namespace cuda {

KernelRows ArrangeKernels();
KernelRows AttentionKernels();
KernelRows BinaryKernels();
KernelRows CTCKernels();
KernelRows ElementwiseKernels();
KernelRows LayoutKernels();
KernelRows NormKernels();
KernelRows OrderKernels();
KernelRows PredicateKernels();
KernelRows ProductKernels();
KernelRows RandomKernels();
KernelRows RecurrentKernels();
KernelRows ReduceKernels();
KernelRows RelationKernels();
KernelRows SoftmaxKernels();
KernelRows UnaryKernels();
MaybeKernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads);
extern const ChainKernels kFusedChains;  // fused.cc

}  // namespace cuda

const KernelTable& CudaKernels() {
  using namespace cuda;  // NOLINT: the table is nothing but its names
  static const KernelTable table(
      {
          ArrangeKernels(),
          AttentionKernels(),
          BinaryKernels(),
          CTCKernels(),
          ElementwiseKernels(),
          LayoutKernels(),
          NormKernels(),
          OrderKernels(),
          PredicateKernels(),
          ProductKernels(),
          RandomKernels(),
          RecurrentKernels(),
          ReduceKernels(),
          RelationKernels(),
          SoftmaxKernels(),
          UnaryKernels(),
      },
      cuda::MakeReorder, nullptr, nullptr, &kFusedChains);
  return table;
}

}  // namespace bindery
