// The makers of the fast kernels, in the order of symbol/ops.h. A maker declines (nullopt) what it is not made for; the
// reference kernel takes that. None is asked about values without elements.
#pragma once

#include <optional>

#include "executor/kernel.h"

namespace bindery::cpu {

using MaybeKernel = std::optional<Kernel>;

// elementwise_unary.cc, elementwise_binary.cc
MaybeKernel MakeActivation(const KernelSpec& spec);
MaybeKernel MakeActivationGrad(const KernelSpec& spec);
// batch_norm.cc
MaybeKernel MakeBatchNorm(const KernelSpec& spec);
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec);
MaybeKernel MakeBatchNormStatistics(const KernelSpec& spec);
MaybeKernel MakeBatchNormNormalize(const KernelSpec& spec);
MaybeKernel MakeBatchNormGradSums(const KernelSpec& spec);
MaybeKernel MakeBatchNormGradInput(const KernelSpec& spec);
// convolution.cc
MaybeKernel MakeConvolution(const KernelSpec& spec);
MaybeKernel MakeConvolutionGradData(const KernelSpec& spec);
MaybeKernel MakeConvolutionGradWeight(const KernelSpec& spec);
// dropout.cc
MaybeKernel MakeDropout(const KernelSpec& spec);
MaybeKernel MakeDropoutGrad(const KernelSpec& spec);
// elementwise_binary.cc
MaybeKernel MakeBinary(const KernelSpec& spec);  // Add to LessEqual
MaybeKernel MakeAddN(const KernelSpec& spec);
MaybeKernel MakeAddRelu(const KernelSpec& spec);
MaybeKernel MakeAddReluGrad(const KernelSpec& spec);
// elementwise_unary.cc
MaybeKernel MakeUnary(const KernelSpec& spec);  // AddScalar to Sign
// fully_connected.cc
MaybeKernel MakeFullyConnected(const KernelSpec& spec);
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec);
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec);
// dot.cc
MaybeKernel MakeDot(const KernelSpec& spec);
// softmax.cc
MaybeKernel MakeSoftmax(const KernelSpec& spec);
MaybeKernel MakeSoftmaxGrad(const KernelSpec& spec);
// softmax_output.cc
MaybeKernel MakeSoftmaxOutput(const KernelSpec& spec);
MaybeKernel MakeSoftmaxOutputGrad(const KernelSpec& spec);
// loss.cc
MaybeKernel MakeCountValid(const KernelSpec& spec);
MaybeKernel MakeCountAbove(const KernelSpec& spec);
MaybeKernel MakeLinearRegressionOutputGrad(const KernelSpec& spec);
MaybeKernel MakeMakeLossGrad(const KernelSpec& spec);
// pooling.cc
MaybeKernel MakePooling(const KernelSpec& spec);
MaybeKernel MakePoolingGrad(const KernelSpec& spec);
// reduce.cc
MaybeKernel MakeReduce(const KernelSpec& spec);      // Sum, Mean, Max
MaybeKernel MakeReduceGrad(const KernelSpec& spec);  // SumGrad, MeanGrad
MaybeKernel MakeSumLike(const KernelSpec& spec);
// shape_ops.cc
MaybeKernel MakeView(const KernelSpec& spec);  // every operator that is the identity on its elements
MaybeKernel MakeTranspose(const KernelSpec& spec);
MaybeKernel MakeZerosLike(const KernelSpec& spec);
MaybeKernel MakeConstant(const KernelSpec& spec);
// slice.cc
MaybeKernel MakeSlice(const KernelSpec& spec);
MaybeKernel MakeSliceGrad(const KernelSpec& spec);
// concat.cc
MaybeKernel MakeConcat(const KernelSpec& spec);
MaybeKernel MakeConcatGrad(const KernelSpec& spec);
MaybeKernel MakeSliceChannel(const KernelSpec& spec);
MaybeKernel MakeSliceChannelGrad(const KernelSpec& spec);
// cast.cc
MaybeKernel MakeCast(const KernelSpec& spec);  // and CastLike

}  // namespace bindery::cpu
