// The reference kernels: every operator. A test walks symbol/ops.cc's table and misses none here.
#include "executor/kernel_table.h"

namespace bindery {
namespace reference {

KernelRows ActivationKernels();
KernelRows BatchNormKernels();
KernelRows BinaryKernels();
KernelRows ConvolutionKernels();
KernelRows DropoutKernels();
KernelRows FullyConnectedKernels();
KernelRows LossKernels();
KernelRows PoolingKernels();
KernelRows ReduceKernels();
KernelRows ShapeKernels();
KernelRows SoftmaxKernels();
KernelRows SoftmaxOutputKernels();
KernelRows SyncBatchNormKernels();
KernelRows UnaryKernels();
MaybeKernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads);

}  // namespace reference

const KernelTable& ReferenceKernels() {
  using namespace reference;  // NOLINT: the table is nothing but its names
  static const KernelTable table(
      {ActivationKernels(), BatchNormKernels(), BinaryKernels(), ConvolutionKernels(), DropoutKernels(),
       FullyConnectedKernels(), LossKernels(), PoolingKernels(), ReduceKernels(), ShapeKernels(), SoftmaxKernels(),
       SoftmaxOutputKernels(), SyncBatchNormKernels(), UnaryKernels()},
      reference::MakeReorder);
  return table;
}

}  // namespace bindery
