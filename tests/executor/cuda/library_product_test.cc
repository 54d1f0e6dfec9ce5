// Products by cuBLASLt: what it is asked for, and what becomes of them where it has no answer; over its fake.
#include "executor/kernels/cuda/library_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/cuda/recording.h"
#include "engine/memory/storage.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/cuda/cublaslt_fixture.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

constexpr uint64_t kSmallWorkspace = 1 << 20;

class CudaLibraryProductTest : public CublasLtTest {};

// What a network of one input gives, forward.
HostTensor Forward(const Symbol& network, const HostTensor& x, const HostTensorMap& params, Device device = Cuda(0)) {
  Executor executor(network, {.device = device, .inputs = {{"x", x.shape(), x.dtype()}}, .for_training = false});
  executor.SetParams(params);
  executor.Forward({{"x", x}});
  return executor.Output(0);
}

fake::LayoutSeen Layout(cudaDataType_t type, uint64_t rows, uint64_t columns, int32_t batch = 1, int64_t stride = 0) {
  return {type, rows, columns, static_cast<int64_t>(rows), batch, stride};
}

void ExpectPlan(const fake::PlanSeen& plan, cublasComputeType_t compute, int32_t transpose_a, int32_t transpose_b,
                const fake::LayoutSeen& a, const fake::LayoutSeen& b, const fake::LayoutSeen& d, bool bias) {
  EXPECT_EQ(plan.operation.compute, compute);
  EXPECT_EQ(plan.operation.scale, compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F);
  EXPECT_EQ(plan.operation.transpose_a, transpose_a);
  EXPECT_EQ(plan.operation.transpose_b, transpose_b);
  EXPECT_EQ(plan.operation.epilogue, uint32_t{bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT});
  EXPECT_EQ(plan.operation.bias != nullptr, bias);
  EXPECT_EQ(plan.a, a);
  EXPECT_EQ(plan.b, b);
  EXPECT_EQ(plan.c, d);
  EXPECT_EQ(plan.d, d);
  EXPECT_EQ(plan.preference,
            (fake::PreferenceSeen{kSmallWorkspace, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, {64, 64, 64, 64}}));
}

struct Computed {
  DType dtype;
  cudaDataType_t type;
  cublasComputeType_t compute;
  bool tf32 = false;
};
constexpr Computed kAll[] = {
    {DType::kFloat32, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {DType::kFloat32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, true},
    {DType::kBFloat16, CUDA_R_16BF, CUBLAS_COMPUTE_32F, true},
    {DType::kFloat16, CUDA_R_16F, CUBLAS_COMPUTE_32F},
    {DType::kFloat64, CUDA_R_64F, CUBLAS_COMPUTE_64F, true},
};

// y (5, 3) = x (5, 4) w (3, 4)^T + b, and its gradients: by columns y^T = w x^T.
TEST_F(CudaLibraryProductTest, PlansOfFullyConnected) {
  for (const Computed& c : kAll) {
    SCOPED_TRACE(ToString(c.dtype));
    cuda::UseTf32(c.tf32);
    const Symbol y = FullyConnected(Variable("x"), {.num_hidden = 3}, "y");
    Executor executor(MakeLoss(y),
                      {.device = Cuda(0),
                       .inputs = {{"x", {5, 4}, c.dtype}},
                       .grad_req = std::map<std::string, GradReq>{
                           {"x", GradReq::kWrite}, {"y_weight", GradReq::kWrite}, {"y_bias", GradReq::kWrite}}});
    const std::vector<fake::PlanSeen> plans = fake::TakePlans();
    ASSERT_EQ(plans.size(), 3u);
    const auto x = Layout(c.type, 4, 5), w = Layout(c.type, 4, 3), of_y = Layout(c.type, 3, 5);
    int seen = 0;
    for (const fake::PlanSeen& plan : plans) {
      if (plan.d == of_y) {
        seen |= 1;
        ExpectPlan(plan, c.compute, CUBLAS_OP_T, CUBLAS_OP_N, w, x, of_y, c.dtype != DType::kFloat64);
      } else if (plan.d == x) {
        seen |= 2;
        ExpectPlan(plan, c.compute, CUBLAS_OP_N, CUBLAS_OP_N, w, of_y, x, false);
      } else {
        seen |= 4;
        ExpectPlan(plan, c.compute, CUBLAS_OP_N, CUBLAS_OP_T, x, of_y, w, false);
      }
    }
    EXPECT_EQ(seen, 7);
  }
}

TEST_F(CudaLibraryProductTest, PlansOfMatMul) {
  const Symbol x = Variable("x"), w = Variable("w");
  const auto plans_of = [](const Symbol& y, const Shape& a, const Shape& b) {
    Executor executor(
        y,
        {.device = Cuda(0), .inputs = {{"x", a, DType::kFloat32}, {"w", b, DType::kFloat32}}, .for_training = false});
    return fake::TakePlans();
  };
  const auto layout = [](uint64_t rows, uint64_t columns, int32_t batch, int64_t stride) {
    return Layout(CUDA_R_32F, rows, columns, batch, stride);
  };
  const bool kBoth[] = {false, true};
  for (const bool ta : kBoth) {
    for (const bool tb : kBoth) {
      const auto plans =
          plans_of(MatMul(x, w, {.transpose_a = ta, .transpose_b = tb}), ta ? Shape{2, 3, 4, 5} : Shape{2, 3, 5, 4},
                   tb ? Shape{2, 3, 7, 4} : Shape{2, 3, 4, 7});
      ASSERT_EQ(plans.size(), 1u);
      ExpectPlan(plans[0], CUBLAS_COMPUTE_32F, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                 tb ? layout(4, 7, 6, 28) : layout(7, 4, 6, 28), ta ? layout(5, 4, 6, 20) : layout(4, 5, 6, 20),
                 layout(7, 5, 6, 35), false);
    }
  }
  // One a for all.
  const auto plans = plans_of(MatMul(x, w), {5, 4}, {6, 4, 7});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].b, layout(4, 5, 6, 0));
  // Strides that are not one.
  EXPECT_TRUE(plans_of(MatMul(x, w), {2, 1, 5, 4}, {1, 3, 4, 7}).empty());
}

// Rounded operands show in the answers, and only where that was asked for.
TEST_F(CudaLibraryProductTest, Tf32IsOffUnlessAskedFor) {
  const Symbol y = FullyConnected(Variable("x"), {.num_hidden = 1, .no_bias = true}, "y");
  const double fine = 1 + std::ldexp(1, -20);
  const HostTensor x = Values({1, 1}, {fine}).Cast(DType::kFloat32), w = Values({1, 1}, {1}).Cast(DType::kFloat32);
  for (const bool tf32 : {false, true}) {
    cuda::UseTf32(tf32);
    ExpectNear(Forward(y, x, {{"y_weight", w}}), Values({1, 1}, {tf32 ? 1 : fine}), 0, "product");
  }
}

// It is asked when a kernel is made, and then the kernel keeps to it, as convolutions do.
TEST_F(CudaLibraryProductTest, Tf32IsAskedForOnce) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const ValueType type = {.dtype = dtype, .shape = Shape{4, 4}};
    const KernelSpec spec{.inputs = {type, type}, .outputs = {type}};
    cuda::ProductArgs args{.m = 4, .n = 4, .k = 4, .out = {nullptr, dtype}};
    for (cuda::Matrix* matrix : {&args.a, &args.b, &args.c}) matrix->row_stride = 4;
    for (const bool tf32 : {false, true}) {
      cuda::UseTf32(tf32);
      const std::optional<cuda::PlainProduct> product = cuda::PlainProductOf(args, spec);
      ASSERT_TRUE(product.has_value());
      EXPECT_EQ(product->tf32, tf32 && dtype == DType::kFloat32);
    }
  }
}

TEST_F(CudaLibraryProductTest, BatchesOfSoManyMatrices) {
  const ValueType type = {.dtype = DType::kFloat32, .shape = Shape{2, 4, 4}};
  const KernelSpec spec{.inputs = {type, type}, .outputs = {type}};
  for (const int64_t matrices : {cuda::kMostOfBatch, cuda::kMostOfBatch + 1}) {
    cuda::ProductArgs args{.m = 4, .n = 4, .k = 4, .products = cuda::GridOf({matrices}), .out = {nullptr, type.dtype}};
    for (cuda::Matrix* matrix : {&args.a, &args.b, &args.c}) matrix->row_stride = 4;
    for (cuda::Strides* strides : {&args.a_strides, &args.b_strides, &args.c_strides}) strides->of[0] = 16;
    EXPECT_EQ(cuda::PlainProductOf(args, spec).has_value(), matrices == cuda::kMostOfBatch);
  }
}

TEST_F(CudaLibraryProductTest, NaNPassesActivations) {
  const Symbol y = FullyConnected(Variable("x"), {.num_hidden = 1, .activation = ActivationType::kRelu}, "y");
  const HostTensor x = Values({3, 1}, {-1, std::numeric_limits<double>::quiet_NaN(), 2}).Cast(DType::kFloat32);
  const HostTensor one = Values({1, 1}, {1}).Cast(DType::kFloat32), half = Values({1}, {0.5}).Cast(DType::kFloat32);
  const int64_t before = fake::Matmuls();
  const HostTensor result = Forward(y, x, {{"y_weight", one}, {"y_bias", half}}).Cast(DType::kFloat64);
  EXPECT_EQ(fake::Matmuls() - before, 1);
  EXPECT_EQ(result.At(0), 0);
  EXPECT_TRUE(std::isnan(result.At(1)));
  EXPECT_EQ(result.At(2), 2.5);
}

// No library, and no algorithm: own kernels.
TEST_F(CudaLibraryProductTest, OwnKernelsWhereItCannot) {
  const Symbol y = FullyConnected(Variable("x"), {.num_hidden = 3, .activation = ActivationType::kTanh}, "y");
  const HostTensor x = Uniform({5, 40}).Cast(DType::kFloat32);
  const HostTensorMap params = {{"y_weight", Uniform({3, 40}).Cast(DType::kFloat32)},
                                {"y_bias", Uniform({3}).Cast(DType::kFloat32)}};
  const int64_t before = fake::Matmuls();
  const HostTensor by_library = Forward(y, x, params);
  EXPECT_EQ(fake::Matmuls() - before, 1);
  fake::FindNoAlgorithm(true);
  const HostTensor refused = Forward(y, x, params);
  cuda::UseCublasLt(nullptr);
  const HostTensor without = Forward(y, x, params);
  EXPECT_EQ(fake::Matmuls() - before, 1);
  EXPECT_EQ(refused, without);
  ExpectNear(by_library, without, 1e-5, "by the library");
}

TEST_F(CudaLibraryProductTest, ALibraryThatIsNotThereSaysWhy) {
  try {
    cuda::OpenCublasLt("libnosuchthing.so.13");
    ADD_FAILURE() << "it was opened";
  } catch (const DeviceError& error) {
    EXPECT_NE(error.message().find("libnosuchthing.so.13"), std::string::npos) << error.message();
  }
  try {
    cuda::OpenCublasLt("libm.so.6");
    ADD_FAILURE() << "it was opened";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.message(), "libm.so.6 has no cublasLtCreate");
  }
}

// A product among kernels, captured: the same bits, step by step, and one call for all steps but the first.
TEST_F(CudaLibraryProductTest, GraphsGiveTheSame) {
  Symbol x = FullyConnected(Variable("x"), {.num_hidden = 7, .activation = ActivationType::kSigmoid}, "hidden");
  const Symbol network = FullyConnected(Tanh(x), {.num_hidden = 5}, "last");
  std::vector<HostTensor> batches, results[2];
  for (int step = 0; step < 4; ++step) batches.push_back(Uniform({6, 40}).Cast(DType::kFloat32));
  const HostTensorMap params = {{"hidden_weight", Uniform({7, 40}).Cast(DType::kFloat32)},
                                {"hidden_bias", Uniform({7}).Cast(DType::kFloat32)},
                                {"last_weight", Uniform({5, 7}).Cast(DType::kFloat32)},
                                {"last_bias", Uniform({5}).Cast(DType::kFloat32)}};
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    Executor executor(network, {.device = Cuda(4), .inputs = {{"x", {6, 40}}}, .for_training = false});
    executor.SetParams(params);
    const int64_t before = fake::Matmuls(), launches = fake::GraphLaunches();
    for (const HostTensor& batch : batches) {
      executor.Forward({{"x", batch}});
      results[graphs].push_back(executor.Output(0));
    }
    EXPECT_EQ(fake::Matmuls() - before, graphs ? 2 * 2 : 4 * 2);
    EXPECT_EQ(fake::GraphLaunches() - launches, graphs ? 3 : 0);
  }
  EXPECT_EQ(results[0], results[1]);
}

// What a plan holds goes with the executor and its engine.
TEST_F(CudaLibraryProductTest, DescriptorsGo) {
  const int before = fake::LiveDescriptors();
  {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    Executor executor(FullyConnected(Variable("x"), {.num_hidden = 3}, "y"),
                      {.device = Cuda(0), .inputs = {{"x", {5, 4}}}, .for_training = false, .engine = engine});
    executor.SetParams(
        {{"y_weight", Uniform({3, 4}).Cast(DType::kFloat32)}, {"y_bias", Uniform({3}).Cast(DType::kFloat32)}});
    for (int step = 0; step < 3; ++step) executor.Forward({{"x", Uniform({5, 4}).Cast(DType::kFloat32)}});
    executor.Output(0);
    EXPECT_GT(fake::LiveDescriptors(), before);
  }
  EXPECT_EQ(fake::LiveDescriptors(), before);
}

}  // namespace
}  // namespace bindery
