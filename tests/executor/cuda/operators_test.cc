// The operators' kernels for GPUs, bound and launched as on a GPU, run by their bodies for CPUs: the answers of the
// reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

// Millions of small pieces of work: nothing is gained by threads that hand them on.
[[maybe_unused]] const bool kAtOnce = (cuda::fake::RunAtOnce(), true);

void Check(const std::vector<OperatorCase>& cases) {
  for (const OperatorCase& c : cases) {
    try {
      CheckKernelsOn(Cuda(0), c);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "case " << c.name << ": " << e.what();
    }
  }
}

// By cuBLASLt where that can be, and by own kernels.
void CheckBoth(const std::vector<OperatorCase>& cases) {
  const int64_t before = cuda::fake::Matmuls();
  Check(cases);
  const int64_t after = cuda::fake::Matmuls();
  EXPECT_GT(after, before);
  cuda::UseCublasLt(nullptr);
  Check(cases);
  EXPECT_EQ(cuda::fake::Matmuls(), after);
  cuda::UseCublasLt(cuda::fake::CublasLt());
}

// The same by cuDNN.
void CheckConvolutions(const std::vector<OperatorCase>& cases) {
  cuda::fake::TakeEnginesRun();
  Check(cases);
  EXPECT_FALSE(cuda::fake::TakeEnginesRun().empty());
  cuda::UseCudnn(nullptr);
  Check(cases);
  EXPECT_TRUE(cuda::fake::TakeEnginesRun().empty());
  cuda::UseCudnn(cuda::fake::Cudnn());
}

TEST(CudaOperatorsTest, Activation) { Check(ActivationCases()); }
TEST(CudaOperatorsTest, Arrange) { Check(ArrangeCases()); }
TEST(CudaOperatorsTest, Attention) { CheckBoth(AttentionCases()); }
TEST(CudaOperatorsTest, BatchNorm) { Check(BatchNormCases()); }
TEST(CudaOperatorsTest, Binary) { Check(BinaryCases()); }
TEST(CudaOperatorsTest, Convolution) { CheckConvolutions(ConvolutionCases()); }
TEST(CudaOperatorsTest, CTC) { Check(CTCCases()); }
TEST(CudaOperatorsTest, CrossEntropy) { Check(CrossEntropyCases()); }
TEST(CudaOperatorsTest, Dropout) { Check(DropoutCases()); }
TEST(CudaOperatorsTest, FullyConnected) { CheckBoth(FullyConnectedCases()); }
TEST(CudaOperatorsTest, Indexing) { Check(IndexingCases()); }
TEST(CudaOperatorsTest, Loss) { Check(LossCases()); }
TEST(CudaOperatorsTest, MatMul) { CheckBoth(MatMulCases()); }
TEST(CudaOperatorsTest, Measure) { Check(MeasureCases()); }
TEST(CudaOperatorsTest, Normalize) { Check(NormalizeCases()); }
TEST(CudaOperatorsTest, Order) { Check(OrderCases()); }
TEST(CudaOperatorsTest, Pooling) { Check(PoolingCases()); }
TEST(CudaOperatorsTest, Random) { Check(RandomCases()); }
TEST(CudaOperatorsTest, Recurrent) { CheckBoth(RecurrentCases()); }
TEST(CudaOperatorsTest, Reduce) { Check(ReduceCases()); }
TEST(CudaOperatorsTest, Shape) { Check(ShapeCases()); }
TEST(CudaOperatorsTest, Softmax) { Check(SoftmaxCases()); }
TEST(CudaOperatorsTest, Unary) { Check(UnaryCases()); }

// Kernels made for floats decline integers.
TEST(CudaOperatorsTest, IntegersAsTheReferenceOrNotAtAll) {
  std::set<DType> taken;
  for (const OperatorCase& c : AllOperatorCases()) {
    if (!c.large) taken.merge(CheckNativeKernels(c, Cuda(0)));
  }
  EXPECT_EQ(taken.size(), 9U);
  const HostTensor x = HostTensor::From({1, 1, 2, 2}, {1, 9, 3, 4}).Cast(DType::kUInt8);
  EXPECT_EQ(RunGraph(Pooling(Variable("x"), {.kernel = {2, 2}}), {{"x", x}}, {.device = Cuda(0)}).outputs[0].At(0), 9);
  EXPECT_THROW(RunGraph(Dropout(Variable("x"), {}), {{"x", x}}, {.device = Cuda(0)}), Error);
}

TEST(CudaOperatorsTest, IgnoredSamplesHaveNoGradient) {
  const SoftmaxOutputAttrs attrs{.use_ignore = true, .ignore_label = 1, .out_grad = true};
  const GradientResult gradient = Gradient(SoftmaxOutput(Variable("x"), Variable("label"), attrs, "y"),
                                           std::vector<std::string>{"x"}, {.shapes = {{"x", {2, 3}}, {"label", {2}}}});
  const HostTensorMap inputs = {{"x", HostTensor::Full(DType::kFloat32, {2, 3}, 0.5)},
                                {"label", HostTensor::From({2}, {1, 2})},
                                {gradient.head_gradients[0], HostTensor::Full(DType::kFloat32, {2, 3}, NAN)}};
  const HostTensor dx = RunGraph(gradient.gradients[0], inputs, {.device = Cuda(0)}).outputs[0];
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(dx.At(i), 0);
  for (int64_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(dx.At(i)));
}

// Of an operator's results the one that nobody reads is nowhere; what its gradient wants is written all the same.
TEST(CudaOperatorsTest, GradientsAlone) {
  const Symbol x = Variable("x");
  const HostTensorMap images = {{"x", Uniform({2, 2, 5, 6}).Cast(DType::kFloat32)}};
  HostTensorMap rows = {{"x", Uniform({4, 70}).Cast(DType::kFloat32)}};
  for (const char* const name : {"norm_gamma", "norm_beta"}) rows[name] = Uniform({70}).Cast(DType::kFloat32);
  const std::pair<Symbol, HostTensorMap> cases[] = {{Dropout(x, {}, "dropout"), images},
                                                    {Dropout(x, {.axes = {1}}, "dropout of channels"), images},
                                                    {LayerNorm(x, -1, 1e-5, "norm"), rows},
                                                    {Pooling(x, {.kernel = {2, 2}}, "pooling"), images}};
  for (const auto& [y, inputs] : cases) {
    SCOPED_TRACE(y.name());
    ShapeMap shapes;
    for (const auto& [name, value] : inputs) shapes[name] = value.shape();
    const GradientResult gradient = Gradient(y, std::vector<std::string>{"x"}, {.shapes = shapes});
    const Shape head = RunGraph(y, inputs, {.watch = false}).outputs[0].shape();
    HostTensorMap all = inputs;
    all[gradient.head_gradients[0]] = Uniform(head).Cast(DType::kFloat32);
    const HostTensor expected =
        RunGraph(gradient.gradients[0], all, {.policy = KernelPolicy::kReference, .watch = false}).outputs[0];
    const HostTensor dx = RunGraph(gradient.gradients[0], all, {.device = Cuda(0)}).outputs[0];
    ExpectNear(dx, expected, 1e-5 * MaxAbs(expected), "dx");
  }
}

OperatorCase Long(const std::string& name, const Symbol& symbol, HostTensorMap inputs, double terms) {
  return {.name = name,
          .symbol = symbol,
          .inputs = std::move(inputs),
          .test_dtypes = {DType::kFloat32, DType::kFloat64},
          .terms = terms,
          .magnitude = 1,
          .large = true};
}

HostTensorMap Channels(const HostTensor& x) {
  return {{"x", x},
          {"y_gamma", HostTensor::From({2}, {0.5, 2})},
          {"y_beta", HostTensor::From({2}, {-1, 1})},
          {"y_running_mean", HostTensor::From({2}, {0.25, -0.5})},
          {"y_running_var", HostTensor::From({2}, {2, 0.5})}};
}

// What is split among blocks, or takes another way, because it is long.
TEST(CudaOperatorsTest, Long) {
  const Symbol x = Variable("x"), w = Variable("w");
  const HostTensor rows = Uniform({3, 20011}), line = Uniform({2, 5003}), images = Uniform({3, 2, 80, 101});
  std::vector<OperatorCase> cases = {
      Long("long fully connected", FullyConnected(x, {.num_hidden = 5}, "y"),
           {{"x", Uniform({3, 2500})}, {"y_weight", Uniform({5, 2500})}, {"y_bias", Uniform({5})}}, 2500),
      Long("fully connected of many", FullyConnected(x, {.num_hidden = 3}, "y"),
           {{"x", Uniform({2500, 4})}, {"y_weight", Uniform({3, 4})}, {"y_bias", Uniform({3})}}, 2500),
      Long("convolution of many positions", Convolution(x, {.num_filter = 3, .kernel = {3, 3}}, "y"),
           {{"x", Uniform({2, 2, 40, 41})}, {"y_weight", Uniform({3, 2, 3, 3})}, {"y_bias", Uniform({3})}},
           2 * 38 * 39),
      Long("long products", MatMul(x, w, {.transpose_b = true}, "y"),
           {{"x", Uniform({2, 3, 2200})}, {"w", Uniform({2, 4, 2200})}}, 2200),
      Long("long sums", Sum(x, {.axes = {1}}, "y"), {{"x", rows}}, 20011),
      Long("one sum", Mean(x, {}, "y"), {{"x", rows}}, 3 * 20011),
      Long("long maxima", Max(x, {.axes = {1}}, "y"), {{"x", rows}}, 1),
      Long("long norms", L2Norm(x, {.axes = {1}}, "y"), {{"x", rows}}, 20011),
      Long("long logsumexp", LogSumExp(x, {.axes = {1}}, "y"), {{"x", rows}}, 20011),
      Long("long scan", CumSum(x, {.axis = 1}, "y"), {{"x", line}}, 5003),
      Long("long scan, exclusive, reverse", CumSum(x, {.axis = 1, .exclusive = true, .reverse = true}, "y"),
           {{"x", line}}, 5003),
      Long("long scan of products", CumProd(x, {.axis = 0}, "y"), {{"x", Uniform({4100, 2}, 0.99, 1.01)}}, 4100),
      Long("sorted columns", TopK(x, {.k = 40, .axis = 0}, "y"), {{"x", Distinct({3001, 2})}}, 1),
      Long("long softmax", Softmax(x, {.temperature = 0.5}, "y"), {{"x", rows}}, 20011),
      Long("long softmax of columns", LogSoftmax(x, {.axis = 0}, "y"), {{"x", Uniform({20011, 2})}}, 20011),
      Long("transpose by tiles", Transpose(x, {.axes = {2, 1, 0}}, "y"), {{"x", Uniform({33, 2, 70})}}, 1),
      Long("transpose of planes by tiles", Transpose(x, {.axes = {0, 2, 1}}, "y"), {{"x", Uniform({3, 17, 40})}}, 1),
      Long("sorted short rows", TopK(x, {.k = 20}, "y"), {{"x", Distinct({11, 100})}}, 1),
      Long("sorted rows", TopK(x, {.largest = false}, "y"), {{"x", Distinct({2, 1500})}}, 1),
  };
  cases.push_back(Long("long place", ArgMax(x, {.axis = 1}, "y"), {{"x", rows}}, 1));
  cases.back().wrt.emplace();
  const auto add_norm = [&](const std::string& name, const HostTensor& data, const BatchNormAttrs& attrs) {
    cases.push_back(Long(name, BatchNorm(x, attrs, "y"), Channels(data), static_cast<double>(data.elements()) / 2));
    cases.back().tolerance = 4;  // as in BatchNormCases
  };
  add_norm("batch norm of many", images, {.fix_gamma = false});
  add_norm("batch norm of many, relu", images, {.fix_gamma = false, .relu = true});
  add_norm("batch norm of many, sync", images, {.fix_gamma = false, .sync = true});
  add_norm("batch norm of many, given values", images, {.fix_gamma = false, .use_global_stats = true});
  add_norm("batch norm of many, last axis", Uniform({130, 127, 2}), {.fix_gamma = false, .axis = -1});
  cases.push_back(Long("many rows put back", Take(x, w, {.axis = 0}, "y"),
                       {{"x", Uniform({40, 3})}, {"w", Integers({5000}, 0, 39)}}, 200));
  cases.back().dtypes = {{"w", DType::kInt64}};
  cases.back().test_dtypes.push_back(DType::kBFloat16);
  cases.push_back(Long("products of integers", MatMul(x, w, {}, "y"),
                       {{"x", Integers({3, 5}, -9, 9)}, {"w", Integers({5, 4}, -9, 9)}}, 5));
  cases.back().dtypes = {{"x", DType::kInt32}, {"w", DType::kInt32}};
  cuda::UseCublasLt(nullptr);  // which would do what is split
  cuda::UseCudnn(nullptr);
  Check(cases);
  cuda::UseCublasLt(cuda::fake::CublasLt());
  cuda::UseCudnn(cuda::fake::Cudnn());
}

// By threads that wait for each other where a GPU's do: a sanitizer sees where they should and do not.
TEST(CudaOperatorsTest, RealThreads) {
  const Symbol x = Variable("x"), w = Variable("w");
  cuda::UseCublasLt(nullptr);
  cuda::fake::UseRealThreads(true);
  cuda::fake::SetThreads(32);
  std::vector<OperatorCase> cases = {
      Long("softmax", Softmax(x, {}, "y"), {{"x", Uniform({2, 80})}}, 80),
      Long("norm", LayerNorm(x, -1, 1e-5, "y"),
           {{"x", Uniform({2, 80})}, {"y_gamma", Uniform({80})}, {"y_beta", Uniform({80})}}, 80),
      Long("products", MatMul(x, w, {}, "y"), {{"x", Uniform({3, 40})}, {"w", Uniform({40, 5})}}, 40),
      Long("attention", Attention(x, x, x, {}, "y"), {{"x", Uniform({1, 2, 5, 4})}}, 20),
      Long("sorted", TopK(x, {}, "y"), {{"x", Distinct({70})}}, 1),
      Long("parts of a row", Softmax(x, {}, "y"), {{"x", Uniform({1, 16384})}}, 16384),
      Long("tiles", Transpose(x, {}, "y"), {{"x", Uniform({40, 35})}}, 1),
      Long("dropped", Dropout(x, {}, "y"), {{"x", Uniform({7, 30})}}, 1),
      Long("put back", GatherND(x, w, {}, "y"), {{"x", Uniform({4, 3})}, {"w", Integers({6, 1}, 0, 3)}}, 6),
  };
  cases.back().dtypes = {{"w", DType::kInt64}};
  cases.push_back(Long("categories", Multinomial(x, {.sample_size = 3}, "y"), {{"x", Uniform({2, 80}, 0, 1)}}, 1));
  cases.back().wrt.emplace();
  for (OperatorCase& c : cases) c.test_dtypes = {DType::kFloat32};
  Check(cases);
  cuda::fake::SetThreads(0);
  cuda::fake::UseRealThreads(false);
  cuda::UseCublasLt(cuda::fake::CublasLt());
}

// In float32 where they may be: the other types differ in nothing that goes by threads.
std::vector<OperatorCase> InFloat32(std::vector<OperatorCase> cases) {
  for (OperatorCase& c : cases) {
    if (std::ranges::count(c.test_dtypes, DType::kFloat32) > 0) c.test_dtypes = {DType::kFloat32};
  }
  return cases;
}

// Blocks that are no whole number of warps, and divide nothing: of all kernels but that of products, whose tiles take
// 256 threads (what ends long ones takes any).
TEST(CudaOperatorsTest, BlocksOfAnySize) {
  for (const int threads : {7, 70}) {
    SCOPED_TRACE(threads);
    cuda::fake::SetThreads(threads);
    for (const auto make :
         {ActivationCases,   ArrangeCases,   BatchNormCases,      BinaryCases,   ConvolutionCases, CTCCases,
          CrossEntropyCases, DropoutCases,   FullyConnectedCases, IndexingCases, LossCases,        MatMulCases,
          MeasureCases,      NormalizeCases, OrderCases,          PoolingCases,  RandomCases,      ReduceCases,
          ShapeCases,        SoftmaxCases,   UnaryCases}) {
      Check(InFloat32(make()));
    }
    for (const auto make : {AttentionCases, RecurrentCases}) CheckBoth(InFloat32(make()));
  }
  cuda::fake::SetThreads(0);
}

}  // namespace
}  // namespace bindery
