// The fast kernels: the lists at the end of the files of this folder.
#include "executor/kernel_table.h"

#include "executor/kernels/chain.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/through_float.h"

namespace bindery {
namespace cpu {

KernelRows AttentionKernels();
KernelRows BatchNormKernels();
KernelRows BinaryKernels();
KernelRows CTCKernels();
KernelRows ConcatKernels();
KernelRows ConvolutionKernels();
KernelRows CopyKernels();
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
KernelRows PredicateKernels();
KernelRows QuantizeKernels();
KernelRows QuantizedKernels();
KernelRows RandomKernels();
KernelRows RecurrentGradKernels();
KernelRows RecurrentKernels();
KernelRows ReduceKernels();
KernelRows RelationKernels();
KernelRows ResampleKernels();
KernelRows SequenceKernels();
KernelRows SliceKernels();
KernelRows SoftmaxKernels();
KernelRows UnaryKernels();
MaybeKernel MakeFastReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads);
extern const ChainKernels kTiledChains;  // chain.cc

// oneDNN's errors become ours.
void Translate(const KernelSpec& spec) {
  try {
    throw;
  } catch (const dnnl::error& e) {
    Throw<DeviceError>("{}: oneDNN failed with status {} ({})", spec.Who(), static_cast<int>(e.status), e.what());
  } catch (...) {
  }
}

}  // namespace cpu

const KernelTable& CpuKernels() {
  using namespace cpu;  // NOLINT: the table is nothing but its names
  static const KernelTable table(
      {
          AttentionKernels(), BatchNormKernels(),   BinaryKernels(),         CTCKernels(),
          ConcatKernels(),    ConvolutionKernels(), CopyKernels(),           CrossEntropyKernels(),
          DropoutKernels(),   ElementwiseKernels(), FullyConnectedKernels(), GridKernels(),
          IndexingKernels(),  LossKernels(),        MatMulKernels(),         MeasureKernels(),
          NormalizeKernels(), OrderKernels(),       PoolingKernels(),        PredicateKernels(),
          QuantizeKernels(),  QuantizedKernels(),   RandomKernels(),         RecurrentGradKernels(),
          RecurrentKernels(), ReduceKernels(),      RelationKernels(),       ResampleKernels(),
          SequenceKernels(),  SliceKernels(),       SoftmaxKernels(),        UnaryKernels(),
      },
      MakeFastReorder, ThroughFloat, Translate, &kTiledChains);
  return table;
}

}  // namespace bindery
