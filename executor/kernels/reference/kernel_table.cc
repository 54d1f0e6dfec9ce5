// The reference kernels: every operator. A test walks symbol/ops.cc's table and misses none here.
#include "executor/kernel_table.h"

namespace bindery {
namespace reference {

KernelRows ActivationKernels();
KernelRows AttentionKernels();
KernelRows BatchNormKernels();
KernelRows CTCKernels();
KernelRows ConvolutionKernels();
KernelRows CrossEntropyKernels();
KernelRows DropoutKernels();
KernelRows ElementwiseKernels();
KernelRows FullyConnectedKernels();
KernelRows GridKernels();
KernelRows IndexingKernels();
KernelRows LossKernels();
KernelRows MatMulKernels();
KernelRows MeasureKernels();
KernelRows NormalizeKernels();
KernelRows OrderKernels();
KernelRows PoolingKernels();
KernelRows QuantizeKernels();
KernelRows QuantizedKernels();
KernelRows RandomKernels();
KernelRows RecurrentKernels();
KernelRows ReduceKernels();
KernelRows SequenceKernels();
KernelRows ShapeKernels();
KernelRows SoftmaxKernels();
KernelRows SoftmaxOutputKernels();
KernelRows SyncBatchNormKernels();
MaybeKernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads);

}  // namespace reference

const KernelTable& ReferenceKernels() {
  using namespace reference;  // NOLINT: the table is nothing but its names
  static const KernelTable table(
      {
          ActivationKernels(),     AttentionKernels(),     BatchNormKernels(),     CTCKernels(),
          ConvolutionKernels(),    CrossEntropyKernels(),  DropoutKernels(),       ElementwiseKernels(),
          FullyConnectedKernels(), GridKernels(),          IndexingKernels(),      LossKernels(),
          MatMulKernels(),         MeasureKernels(),       NormalizeKernels(),     OrderKernels(),
          PoolingKernels(),        QuantizeKernels(),      QuantizedKernels(),     RandomKernels(),
          RecurrentKernels(),      ReduceKernels(),        SequenceKernels(),      ShapeKernels(),
          SoftmaxKernels(),        SoftmaxOutputKernels(), SyncBatchNormKernels(),
      },
      reference::MakeReorder);
  return table;
}

}  // namespace bindery
