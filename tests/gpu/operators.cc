// The operators' kernels on a GPU: the answers of the reference kernels. The same on a fake, for machines without one:
// tests/executor/cuda/operators_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

void Check(const std::vector<OperatorCase>& cases) {
  const auto is_there = [](const std::string& op) { return HasKernel(op, TestDevice().kind); };
  for (const OperatorCase& c : cases) {
    // Of what fusion makes for CPUs alone there is none.
    if (!std::ranges::all_of(OperatorsIn(c), is_there)) continue;
    try {
      CheckKernelsOn(TestDevice(), c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
}

// Each family is a suite, which gpu_check.sh runs in a process of its own: a kernel that makes the process lose its GPU
// takes no other family with it. Quantized layers are of CPUs alone.
TEST(GpuOperatorsActivation, AnswerAsTheReferenceDoes) { Check(ActivationCases()); }
TEST(GpuOperatorsArrange, AnswerAsTheReferenceDoes) { Check(ArrangeCases()); }
TEST(GpuOperatorsAttention, AnswerAsTheReferenceDoes) { Check(AttentionCases()); }
TEST(GpuOperatorsBatchNorm, AnswerAsTheReferenceDoes) { Check(BatchNormCases()); }
TEST(GpuOperatorsBinary, AnswerAsTheReferenceDoes) { Check(BinaryCases()); }
TEST(GpuOperatorsConvolution, AnswerAsTheReferenceDoes) { Check(ConvolutionCases()); }
TEST(GpuOperatorsCTC, AnswerAsTheReferenceDoes) { Check(CTCCases()); }
TEST(GpuOperatorsCrossEntropy, AnswerAsTheReferenceDoes) { Check(CrossEntropyCases()); }
TEST(GpuOperatorsDropout, AnswerAsTheReferenceDoes) { Check(DropoutCases()); }
TEST(GpuOperatorsFullyConnected, AnswerAsTheReferenceDoes) { Check(FullyConnectedCases()); }
TEST(GpuOperatorsIndexing, AnswerAsTheReferenceDoes) { Check(IndexingCases()); }
TEST(GpuOperatorsLarge, AnswerAsTheReferenceDoes) { Check(LargeCases()); }
TEST(GpuOperatorsLoss, AnswerAsTheReferenceDoes) { Check(LossCases()); }
TEST(GpuOperatorsMatMul, AnswerAsTheReferenceDoes) { Check(MatMulCases()); }
TEST(GpuOperatorsMeasure, AnswerAsTheReferenceDoes) { Check(MeasureCases()); }
TEST(GpuOperatorsNormalize, AnswerAsTheReferenceDoes) { Check(NormalizeCases()); }
TEST(GpuOperatorsOrder, AnswerAsTheReferenceDoes) { Check(OrderCases()); }
TEST(GpuOperatorsPooling, AnswerAsTheReferenceDoes) { Check(PoolingCases()); }
TEST(GpuOperatorsRandom, AnswerAsTheReferenceDoes) { Check(RandomCases()); }
TEST(GpuOperatorsRecurrent, AnswerAsTheReferenceDoes) { Check(RecurrentCases()); }
TEST(GpuOperatorsReduce, AnswerAsTheReferenceDoes) { Check(ReduceCases()); }
TEST(GpuOperatorsShape, AnswerAsTheReferenceDoes) { Check(ShapeCases()); }
TEST(GpuOperatorsSoftmax, AnswerAsTheReferenceDoes) { Check(SoftmaxCases()); }
TEST(GpuOperatorsUnary, AnswerAsTheReferenceDoes) { Check(UnaryCases()); }

// What NVRTC compiled, beside the kernels that nvcc compiled.
TEST(GpuOperatorsChains, GiveWhatOperatorsGive) {
  const Symbol x = Variable("x"), row = Variable("row");
  const Symbol y = Exp(Curve(Tanh(x * row) - 0.25, {.type = CurveType::kGelu})) / (1.5 + Square(x));
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    const HostTensorMap inputs = {{"x", Uniform({37, 129}).Cast(dtype)}, {"row", Uniform({1, 129}).Cast(dtype)}};
    ExecutorOptions options{.device = TestDevice(), .for_training = false};
    for (const auto& [name, value] : inputs) {
      options.inputs.push_back({.name = name, .shape = value.shape(), .dtype = dtype, .layout = "HW"});
    }
    Executor fused(y, options);
    if (std::ranges::count(fused.plan().calls, "fused", &PlanCall::implementation) == 0) GTEST_SKIP() << "no chains";
    options.switches.fusion = false;
    Executor one_by_one(y, options);
    fused.Forward(inputs);
    one_by_one.Forward(inputs);
    const HostTensor expected = one_by_one.Output(0);
    ExpectNear(fused.Output(0), expected, 4 * EpsilonOf(dtype) * MaxAbs(expected), ToString(dtype));
  }
}

}  // namespace
}  // namespace bindery
