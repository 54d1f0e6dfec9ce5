// The fast kernels by operator.
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/makers.h"

namespace bindery {
namespace {

using cpu::MaybeKernel;

// What all makers have in common: values without elements are the reference's, and oneDNN's errors become ours.
template <MaybeKernel (*kMake)(const KernelSpec&)>
MaybeKernel Guarded(const KernelSpec& spec) {
  for (const ValueType& input : spec.inputs) {
    if (input.shape.Elements() == 0) return std::nullopt;
  }
  for (const ValueType& output : spec.outputs) {
    if (output.shape.Elements() == 0) return std::nullopt;
  }
  try {
    return kMake(spec);
  } catch (const dnnl::error& e) {
    Throw<DeviceError>("{}: oneDNN failed with status {} ({})", cpu::WhoOf(spec), static_cast<int>(e.status), e.what());
  }
}

constexpr KernelEntry kEntries[] = {
    {"Activation", Guarded<cpu::MakeActivation>},
    {"ActivationGrad", Guarded<cpu::MakeActivationGrad>},
    {"BatchNorm", Guarded<cpu::MakeBatchNorm>},
    {"BatchNormGrad", Guarded<cpu::MakeBatchNormGrad>},
    {"BatchNormStatistics", Guarded<cpu::MakeBatchNormStatistics>},
    {"BatchNormNormalize", Guarded<cpu::MakeBatchNormNormalize>},
    {"BatchNormGradSums", Guarded<cpu::MakeBatchNormGradSums>},
    {"BatchNormGradInput", Guarded<cpu::MakeBatchNormGradInput>},
    {"Convolution", Guarded<cpu::MakeConvolution>},
    {"ConvolutionGradData", Guarded<cpu::MakeConvolutionGradData>},
    {"ConvolutionGradWeight", Guarded<cpu::MakeConvolutionGradWeight>},
    {"Dropout", Guarded<cpu::MakeDropout>},
    {"DropoutGrad", Guarded<cpu::MakeDropoutGrad>},
    {"Add", Guarded<cpu::MakeBinary>},
    {"Sub", Guarded<cpu::MakeBinary>},
    {"Mul", Guarded<cpu::MakeBinary>},
    {"Div", Guarded<cpu::MakeBinary>},
    {"Maximum", Guarded<cpu::MakeBinary>},
    {"Minimum", Guarded<cpu::MakeBinary>},
    {"GreaterEqual", Guarded<cpu::MakeBinary>},
    {"LessEqual", Guarded<cpu::MakeBinary>},
    {"AddScalar", Guarded<cpu::MakeUnary>},
    {"SubScalar", Guarded<cpu::MakeUnary>},
    {"RSubScalar", Guarded<cpu::MakeUnary>},
    {"MulScalar", Guarded<cpu::MakeUnary>},
    {"DivScalar", Guarded<cpu::MakeUnary>},
    {"RDivScalar", Guarded<cpu::MakeUnary>},
    {"Negative", Guarded<cpu::MakeUnary>},
    {"Exp", Guarded<cpu::MakeUnary>},
    {"Log", Guarded<cpu::MakeUnary>},
    {"Square", Guarded<cpu::MakeUnary>},
    {"Sqrt", Guarded<cpu::MakeUnary>},
    {"Abs", Guarded<cpu::MakeUnary>},
    {"Sign", Guarded<cpu::MakeUnary>},
    {"AddN", Guarded<cpu::MakeAddN>},
    {"AddRelu", Guarded<cpu::MakeAddRelu>},
    {"AddReluGrad", Guarded<cpu::MakeAddReluGrad>},
    {"SumLike", Guarded<cpu::MakeSumLike>},
    {"FullyConnected", Guarded<cpu::MakeFullyConnected>},
    {"FullyConnectedGradData", Guarded<cpu::MakeFullyConnectedGradData>},
    {"FullyConnectedGradWeight", Guarded<cpu::MakeFullyConnectedGradWeight>},
    {"Softmax", Guarded<cpu::MakeSoftmax>},
    {"SoftmaxGrad", Guarded<cpu::MakeSoftmaxGrad>},
    {"SoftmaxOutput", Guarded<cpu::MakeSoftmaxOutput>},
    {"SoftmaxOutputGrad", Guarded<cpu::MakeSoftmaxOutputGrad>},
    {"CountValid", Guarded<cpu::MakeCountValid>},
    {"CountAbove", Guarded<cpu::MakeCountAbove>},
    {"LinearRegressionOutputGrad", Guarded<cpu::MakeLinearRegressionOutputGrad>},
    {"MakeLossGrad", Guarded<cpu::MakeMakeLossGrad>},
    {"Pooling", Guarded<cpu::MakePooling>},
    {"PoolingGrad", Guarded<cpu::MakePoolingGrad>},
    {"Sum", Guarded<cpu::MakeReduce>},
    {"Mean", Guarded<cpu::MakeReduce>},
    {"Max", Guarded<cpu::MakeReduce>},
    {"SumGrad", Guarded<cpu::MakeReduceGrad>},
    {"MeanGrad", Guarded<cpu::MakeReduceGrad>},
    {"Dot", Guarded<cpu::MakeDot>},
    {"Identity", Guarded<cpu::MakeView>},
    {"BlockGrad", Guarded<cpu::MakeView>},
    {"MakeLoss", Guarded<cpu::MakeView>},
    {"LinearRegressionOutput", Guarded<cpu::MakeView>},
    {"Flatten", Guarded<cpu::MakeView>},
    {"Reshape", Guarded<cpu::MakeView>},
    {"ReshapeLike", Guarded<cpu::MakeView>},
    {"SumOverDevices", Guarded<cpu::MakeView>},
    {"MergeStatistics", Guarded<cpu::MakeView>},
    {"Transpose", Guarded<cpu::MakeTranspose>},
    {"Concat", Guarded<cpu::MakeConcat>},
    {"ConcatGrad", Guarded<cpu::MakeConcatGrad>},
    {"Slice", Guarded<cpu::MakeSlice>},
    {"SliceGrad", Guarded<cpu::MakeSliceGrad>},
    {"SliceChannel", Guarded<cpu::MakeSliceChannel>},
    {"SliceChannelGrad", Guarded<cpu::MakeSliceChannelGrad>},
    {"Cast", Guarded<cpu::MakeCast>},
    {"CastLike", Guarded<cpu::MakeCast>},
    {"ZerosLike", Guarded<cpu::MakeZerosLike>},
    {"Constant", Guarded<cpu::MakeConstant>},
};

}  // namespace

std::span<const KernelEntry> CpuKernels() { return kEntries; }

}  // namespace bindery
