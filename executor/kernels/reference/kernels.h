// The makers of the reference kernels, in the order of symbol/ops.h. Each loop is the formula of its operator.
#pragma once

#include <optional>

#include "executor/kernel.h"

namespace bindery::reference {

using MaybeKernel = std::optional<Kernel>;

// activation.cc
MaybeKernel MakeActivation(const KernelSpec& spec);
MaybeKernel MakeActivationGrad(const KernelSpec& spec);
// batch_norm.cc
MaybeKernel MakeBatchNorm(const KernelSpec& spec);
MaybeKernel MakeBatchNormGrad(const KernelSpec& spec);
// sync_batch_norm.cc
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
MaybeKernel MakeAdd(const KernelSpec& spec);
MaybeKernel MakeSub(const KernelSpec& spec);
MaybeKernel MakeMul(const KernelSpec& spec);
MaybeKernel MakeDiv(const KernelSpec& spec);
MaybeKernel MakeMaximum(const KernelSpec& spec);
MaybeKernel MakeMinimum(const KernelSpec& spec);
MaybeKernel MakeGreaterEqual(const KernelSpec& spec);
MaybeKernel MakeLessEqual(const KernelSpec& spec);
MaybeKernel MakeAddN(const KernelSpec& spec);
MaybeKernel MakeAddRelu(const KernelSpec& spec);
MaybeKernel MakeAddReluGrad(const KernelSpec& spec);
MaybeKernel MakeSumLike(const KernelSpec& spec);
// elementwise_unary.cc
MaybeKernel MakeAddScalar(const KernelSpec& spec);
MaybeKernel MakeSubScalar(const KernelSpec& spec);
MaybeKernel MakeRSubScalar(const KernelSpec& spec);
MaybeKernel MakeMulScalar(const KernelSpec& spec);
MaybeKernel MakeDivScalar(const KernelSpec& spec);
MaybeKernel MakeRDivScalar(const KernelSpec& spec);
MaybeKernel MakeNegative(const KernelSpec& spec);
MaybeKernel MakeExp(const KernelSpec& spec);
MaybeKernel MakeLog(const KernelSpec& spec);
MaybeKernel MakeSquare(const KernelSpec& spec);
MaybeKernel MakeSqrt(const KernelSpec& spec);
MaybeKernel MakeAbs(const KernelSpec& spec);
MaybeKernel MakeSign(const KernelSpec& spec);
// fully_connected.cc
MaybeKernel MakeFullyConnected(const KernelSpec& spec);
MaybeKernel MakeFullyConnectedGradData(const KernelSpec& spec);
MaybeKernel MakeFullyConnectedGradWeight(const KernelSpec& spec);
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
MaybeKernel MakeSum(const KernelSpec& spec);
MaybeKernel MakeMean(const KernelSpec& spec);
MaybeKernel MakeMax(const KernelSpec& spec);
MaybeKernel MakeSumGrad(const KernelSpec& spec);
MaybeKernel MakeMeanGrad(const KernelSpec& spec);
MaybeKernel MakeMaxGrad(const KernelSpec& spec);
MaybeKernel MakeDot(const KernelSpec& spec);
// shape_ops.cc
MaybeKernel MakeView(const KernelSpec& spec);  // every operator that is the identity on its elements
MaybeKernel MakeTranspose(const KernelSpec& spec);
MaybeKernel MakeConcat(const KernelSpec& spec);
MaybeKernel MakeConcatGrad(const KernelSpec& spec);
MaybeKernel MakeSlice(const KernelSpec& spec);
MaybeKernel MakeSliceGrad(const KernelSpec& spec);
MaybeKernel MakeSliceChannel(const KernelSpec& spec);
MaybeKernel MakeSliceChannelGrad(const KernelSpec& spec);
MaybeKernel MakeCast(const KernelSpec& spec);  // and CastLike
MaybeKernel MakeZerosLike(const KernelSpec& spec);
MaybeKernel MakeConstant(const KernelSpec& spec);
// softmax.cc
MaybeKernel MakeSoftmax(const KernelSpec& spec);
MaybeKernel MakeSoftmaxGrad(const KernelSpec& spec);

}  // namespace bindery::reference
