// The operators' kernels for GPUs, bound and launched as on a GPU, run by their bodies for CPUs: the answers of the
// reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

// Operators that have no kernel for GPUs yet (docs/cuda.md).
const std::set<std::string> kWithout = {
    "CTCLoss",
    "CTCLossGrad",
};

bool HasKernels(const OperatorCase& c) {
  return std::ranges::none_of(OperatorsIn(c), [](const std::string& op) { return kWithout.contains(op); });
}

// Millions of small pieces of work: nothing is gained by threads that hand them on.
[[maybe_unused]] const bool kAtOnce = (cuda::fake::RunAtOnce(), true);

void Check(const std::vector<OperatorCase>& cases) {
  for (const OperatorCase& c : cases) {
    if (!HasKernels(c)) continue;
    try {
      CheckKernelsOn(Cuda(0), c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
}

TEST(CudaOperatorsTest, Activation) { Check(ActivationCases()); }
TEST(CudaOperatorsTest, Arrange) { Check(ArrangeCases()); }
TEST(CudaOperatorsTest, Attention) { Check(AttentionCases()); }
TEST(CudaOperatorsTest, BatchNorm) { Check(BatchNormCases()); }
TEST(CudaOperatorsTest, Binary) { Check(BinaryCases()); }
TEST(CudaOperatorsTest, Convolution) { Check(ConvolutionCases()); }
TEST(CudaOperatorsTest, CrossEntropy) { Check(CrossEntropyCases()); }
TEST(CudaOperatorsTest, Dropout) { Check(DropoutCases()); }
TEST(CudaOperatorsTest, FullyConnected) { Check(FullyConnectedCases()); }
TEST(CudaOperatorsTest, Indexing) { Check(IndexingCases()); }
TEST(CudaOperatorsTest, Loss) { Check(LossCases()); }
TEST(CudaOperatorsTest, MatMul) { Check(MatMulCases()); }
TEST(CudaOperatorsTest, Measure) { Check(MeasureCases()); }
TEST(CudaOperatorsTest, Normalize) { Check(NormalizeCases()); }
TEST(CudaOperatorsTest, Order) { Check(OrderCases()); }
TEST(CudaOperatorsTest, Pooling) { Check(PoolingCases()); }
TEST(CudaOperatorsTest, Random) { Check(RandomCases()); }
TEST(CudaOperatorsTest, Recurrent) { Check(RecurrentCases()); }
TEST(CudaOperatorsTest, Reduce) { Check(ReduceCases()); }
TEST(CudaOperatorsTest, Shape) { Check(ShapeCases()); }
TEST(CudaOperatorsTest, Softmax) { Check(SoftmaxCases()); }
TEST(CudaOperatorsTest, Unary) { Check(UnaryCases()); }

// Blocks that are no whole number of warps, and divide nothing.
TEST(CudaOperatorsTest, BlocksOfAnySize) {
  cuda::fake::SetThreads(7);
  Check(IndexingCases());
  cuda::fake::SetThreads(70);
  Check(CrossEntropyCases());
  Check(NormalizeCases());
  Check(ReduceCases());
  Check(SoftmaxCases());
  cuda::fake::SetThreads(0);
}

}  // namespace
}  // namespace bindery
