// What the reference kernels compute: every operator. A test walks symbol/ops.cc's table and misses none here.
#include "executor/kernels/reference/kernels.h"

namespace bindery {
namespace {

using namespace reference;  // NOLINT: the table is nothing but its names

constexpr KernelEntry kReferenceKernels[] = {
    {"Activation", MakeActivation},
    {"ActivationGrad", MakeActivationGrad},
    {"BatchNorm", MakeBatchNorm},
    {"BatchNormGrad", MakeBatchNormGrad},
    {"BatchNormStatistics", MakeBatchNormStatistics},
    {"MergeStatistics", MakeView},  // of one device
    {"BatchNormNormalize", MakeBatchNormNormalize},
    {"BatchNormGradSums", MakeBatchNormGradSums},
    {"BatchNormGradInput", MakeBatchNormGradInput},
    {"Convolution", MakeConvolution},
    {"ConvolutionGradData", MakeConvolutionGradData},
    {"ConvolutionGradWeight", MakeConvolutionGradWeight},
    {"Dropout", MakeDropout},
    {"DropoutGrad", MakeDropoutGrad},
    {"Add", MakeAdd},
    {"Sub", MakeSub},
    {"Mul", MakeMul},
    {"Div", MakeDiv},
    {"Maximum", MakeMaximum},
    {"Minimum", MakeMinimum},
    {"GreaterEqual", MakeGreaterEqual},
    {"LessEqual", MakeLessEqual},
    {"AddScalar", MakeAddScalar},
    {"SubScalar", MakeSubScalar},
    {"RSubScalar", MakeRSubScalar},
    {"MulScalar", MakeMulScalar},
    {"DivScalar", MakeDivScalar},
    {"RDivScalar", MakeRDivScalar},
    {"Negative", MakeNegative},
    {"Exp", MakeExp},
    {"Log", MakeLog},
    {"Square", MakeSquare},
    {"Sqrt", MakeSqrt},
    {"Abs", MakeAbs},
    {"Sign", MakeSign},
    {"AddN", MakeAddN},
    {"AddRelu", MakeAddRelu},
    {"AddReluGrad", MakeAddReluGrad},
    {"SumLike", MakeSumLike},
    {"ZerosLike", MakeZerosLike},
    {"Constant", MakeConstant},
    {"FullyConnected", MakeFullyConnected},
    {"FullyConnectedGradData", MakeFullyConnectedGradData},
    {"FullyConnectedGradWeight", MakeFullyConnectedGradWeight},
    {"SoftmaxOutput", MakeSoftmaxOutput},
    {"SoftmaxOutputGrad", MakeSoftmaxOutputGrad},
    {"CountValid", MakeCountValid},
    {"SumOverDevices", MakeView},  // of one device
    {"LinearRegressionOutput", MakeView},
    {"LinearRegressionOutputGrad", MakeLinearRegressionOutputGrad},
    {"MakeLoss", MakeView},
    {"MakeLossGrad", MakeMakeLossGrad},
    {"CountAbove", MakeCountAbove},
    {"BlockGrad", MakeView},
    {"Pooling", MakePooling},
    {"PoolingGrad", MakePoolingGrad},
    {"Sum", MakeSum},
    {"Mean", MakeMean},
    {"Max", MakeMax},
    {"SumGrad", MakeSumGrad},
    {"MeanGrad", MakeMeanGrad},
    {"MaxGrad", MakeMaxGrad},
    {"Dot", MakeDot},
    {"Identity", MakeView},
    {"Flatten", MakeView},
    {"Reshape", MakeView},
    {"Transpose", MakeTranspose},
    {"Concat", MakeConcat},
    {"Slice", MakeSlice},
    {"SliceChannel", MakeSliceChannel},
    {"Cast", MakeCast},
    {"ReshapeLike", MakeView},
    {"ConcatGrad", MakeConcatGrad},
    {"SliceGrad", MakeSliceGrad},
    {"SliceChannelGrad", MakeSliceChannelGrad},
    {"CastLike", MakeCast},
    {"Softmax", MakeSoftmax},
    {"SoftmaxGrad", MakeSoftmaxGrad},
};

}  // namespace

std::span<const KernelEntry> ReferenceKernels() { return kReferenceKernels; }

}  // namespace bindery
