// Convolutions by cuDNN: what it is asked for, which engines are taken, and what becomes of them where it has none;
// over its fake.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/cuda/cublaslt_api.h"
#include "engine/cuda/library.h"
#include "engine/cuda/recording.h"
#include "engine/memory/storage.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;
using Engines = std::vector<int>;

constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kGradData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kGradWeight = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;

class CudaLibraryConvolutionTest : public testing::Test {
 protected:
  CudaLibraryConvolutionTest() {
    fake::TakeConvolutions();
    fake::TakeEnginesRun();
  }
  ~CudaLibraryConvolutionTest() override {
    cuda::UseCudnn(fake::Cudnn());
    cuda::UseTf32(false);
    cuda::UseGraphs(true);
    fake::OfferEngines(fake::UsualEngines());
    SetLogCallback({});
  }
};

// What a network of one input gives, forward.
HostTensor Forward(const Symbol& network, const HostTensor& x, const HostTensorMap& params, Device device = Cuda(0)) {
  Executor executor(network, {.device = device, .inputs = {{"x", x.shape(), x.dtype()}}, .for_training = false});
  executor.SetParams(params);
  executor.Forward({{"x", x}});
  return executor.Output(0);
}

// What is asked for when a network of one input is bound, with gradients or without.
std::map<cudnnBackendDescriptorType_t, fake::ConvolutionSeen> AskedFor(const Symbol& network, const Shape& x,
                                                                       DType dtype = DType::kFloat32,
                                                                       bool trains = true) {
  fake::TakeConvolutions();
  ExecutorOptions options{.device = Cuda(0), .inputs = {{"x", x, dtype}}, .for_training = trains};
  if (trains) options.grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}, {"y_weight", GradReq::kWrite}};
  Executor executor(trains ? MakeLoss(network) : network, options);
  std::map<cudnnBackendDescriptorType_t, fake::ConvolutionSeen> asked;
  for (const fake::ConvolutionSeen& seen : fake::TakeConvolutions()) asked[seen.what] = seen;
  return asked;
}

struct Computed {
  DType dtype;
  cudnnDataType_t type, compute;
  bool tf32 = false;
};
constexpr Computed kAll[] = {
    {DType::kFloat32, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {DType::kFloat32, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, true},
    {DType::kBFloat16, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT},
    {DType::kFloat16, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT},
    {DType::kFloat64, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE},
};

// y (2, 6, 6, 3) of x (2, 4, 9, 8) in two groups, and the gradients by the same terms.
TEST_F(CudaLibraryConvolutionTest, GraphsOfTheThree) {
  const Symbol y = Convolution(Variable("x"),
                               {.num_filter = 6,
                                .kernel = {3, 2},
                                .stride = {2, 3},
                                .pad = {2, 1},
                                .dilate = {1, 2},
                                .groups = 2,
                                .no_bias = true},
                               "y");
  for (const Computed& c : kAll) {
    SCOPED_TRACE(ToString(c.dtype));
    cuda::UseTf32(c.tf32);
    const auto asked = AskedFor(y, {2, 4, 9, 8}, c.dtype);
    ASSERT_EQ(asked.size(), 3u);
    for (const auto what : {kForward, kGradData, kGradWeight}) {
      const fake::ConvolutionSeen expected = {.what = what,
                                              .compute = c.compute,
                                              .mode = CUDNN_CROSS_CORRELATION,
                                              .before = {2, 1},
                                              .after = {2, 1},
                                              .stride = {2, 3},
                                              .dilate = {1, 2},
                                              .x = {c.type, 16, {2, 4, 9, 8}, {288, 72, 8, 1}},
                                              .w = {c.type, 16, {6, 2, 3, 2}, {12, 6, 2, 1}},
                                              .y = {c.type, 16, {2, 6, 6, 3}, {108, 18, 3, 1}}};
      EXPECT_EQ(asked.at(what), expected) << what;
    }
  }
}

TEST_F(CudaLibraryConvolutionTest, OneAxisIsTwoAndThreeAreThree) {
  const Symbol x = Variable("x");
  const auto line = AskedFor(Convolution(x, {.num_filter = 3, .kernel = {5}, .pad = {2}}, "y"), {2, 4, 20});
  ASSERT_EQ(line.size(), 3u);
  EXPECT_EQ(line.at(kForward).x.extents, (std::vector<int64_t>{2, 4, 1, 20}));
  EXPECT_EQ(line.at(kGradData).w.extents, (std::vector<int64_t>{3, 4, 1, 5}));
  EXPECT_EQ(line.at(kGradWeight).y.extents, (std::vector<int64_t>{2, 3, 1, 20}));
  EXPECT_EQ(line.at(kForward).before, (std::vector<int64_t>{0, 2}));
  const auto room = AskedFor(Convolution(x, {.num_filter = 3, .kernel = {2, 1, 3}}, "y"), {2, 4, 5, 6, 7});
  ASSERT_EQ(room.size(), 3u);
  EXPECT_EQ(room.at(kGradData).x.extents, (std::vector<int64_t>{2, 4, 5, 6, 7}));
  EXPECT_EQ(room.at(kForward).y.extents, (std::vector<int64_t>{2, 3, 4, 6, 5}));
}

// Padding on both sides alike, or such that it makes no difference; operands of one type.
TEST_F(CudaLibraryConvolutionTest, WhatItIsNotAskedFor) {
  const Symbol x = Variable("x");
  const auto padded = [&](const std::vector<int64_t>& pad, int64_t stride) {
    return AskedFor(
        Convolution(x, {.num_filter = 3, .kernel = {3, 3}, .stride = {stride, stride}, .pad = pad, .no_bias = true},
                    "y"),
        {2, 4, 8, 8});
  };
  EXPECT_TRUE(padded({0, 0, 1, 1}, 1).empty());
  EXPECT_TRUE(padded({1, 0, 1, 1}, 1).empty());
  // Of (8 + 1 - 3) / 2 the last row is left out, as with nothing at the end.
  ASSERT_EQ(padded({1, 1, 0, 0}, 2).size(), 3u);
  EXPECT_EQ(padded({1, 1, 0, 0}, 2).at(kForward).after, (std::vector<int64_t>{1, 1}));
  Executor executor(Convolution(Cast(x, {.dtype = DType::kFloat32}), {.num_filter = 3, .kernel = {3, 3}}, "y"),
                    {.device = Cuda(0), .inputs = {{"x", {2, 4, 8, 8}, DType::kFloat16}}, .for_training = false});
  EXPECT_EQ(fake::TakeConvolutions().size(), 1u);
}

// Which of those that are offered is taken, by what their notes say; -1: none, so it is by own kernels.
TEST_F(CudaLibraryConvolutionTest, EnginesByTheirNotes) {
  const auto runs = [](DType dtype, std::vector<fake::EngineOffered> engines) {
    fake::OfferEngines(std::move(engines));
    fake::TakeEnginesRun();
    const Symbol y = Convolution(Variable("x"), {.num_filter = 3, .kernel = {3, 3}, .no_bias = true}, "y");
    const HostTensor x = Uniform({2, 2, 5, 6}).Cast(dtype), w = Uniform({3, 2, 3, 3}).Cast(dtype);
    const HostTensor result = Forward(y, x, {{"y_weight", w}});
    ExpectNear(result, Forward(y, x, {{"y_weight", w}}, Cpu()), 40 * EpsilonOf(dtype), "convolution");
    const Engines run = fake::TakeEnginesRun();
    return run.empty() ? -1 : run[0];
  };
  constexpr DType kFloat = DType::kFloat32, kHalf = DType::kFloat16, kDouble = DType::kFloat64;
  const fake::EngineOffered plain, cores{.notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}};
  const fake::EngineOffered compiled{.behavior = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}};
  EXPECT_EQ(runs(kFloat, {plain, plain}), 0);
  // Tensor cores take TF32 of float32 alone.
  EXPECT_EQ(runs(kFloat, {cores, plain}), 1);
  EXPECT_EQ(runs(kHalf, {cores, plain}), 0);
  EXPECT_EQ(runs(kDouble, {cores, plain}), 0);
  for (const auto note : {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                          CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) {
    for (const DType dtype : {kFloat, kHalf, kDouble}) {
      EXPECT_EQ(runs(dtype, {{.notes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, note}}, plain}), 1) << note;
      EXPECT_EQ(runs(dtype, {{.notes = {note}}}), -1) << note;
    }
  }
  EXPECT_EQ(runs(kFloat, {{.notes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}}, plain}), 0);
  // What must be compiled comes after what need not be, and what is for want of anything else after both.
  EXPECT_EQ(runs(kFloat, {compiled, plain}), 1);
  EXPECT_EQ(runs(kFloat, {compiled, cores}), 0);
  const fake::EngineOffered last{.mode = CUDNN_HEUR_MODE_FALLBACK};
  EXPECT_EQ(runs(kFloat, {last, compiled}), 1);
  EXPECT_EQ(runs(kFloat, {last, cores}), 0);
  // Plans that this GPU cannot have, or that need more than there is: 1 MiB, and of 16 bits what operands take.
  EXPECT_EQ(runs(kFloat, {{.status = CUDNN_STATUS_NOT_SUPPORTED}, {.status = CUDNN_STATUS_INTERNAL_ERROR}, plain}), 2);
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(runs(kFloat, {{.workspace = kMiB + 1}, {.workspace = kMiB}}), 1);
  EXPECT_EQ(runs(kHalf, {{.workspace = kMiB + 1024}, {.workspace = kMiB + 512}}), 1);
  EXPECT_EQ(runs(kFloat, {}), -1);
}

// Rounded operands show in the answers, and only where that was asked for.
TEST_F(CudaLibraryConvolutionTest, Tf32IsOffUnlessAskedFor) {
  const Symbol y = Convolution(Variable("x"), {.num_filter = 1, .kernel = {1, 1}, .no_bias = true}, "y");
  const double fine = 1 + std::ldexp(1, -20);
  const HostTensor x = Values({1, 1, 1, 1}, {fine}).Cast(DType::kFloat32);
  const HostTensor w = Values({1, 1, 1, 1}, {1}).Cast(DType::kFloat32);
  for (const bool tf32 : {false, true}) {
    cuda::UseTf32(tf32);
    ExpectNear(Forward(y, x, {{"y_weight", w}}), Values({1, 1, 1, 1}, {tf32 ? 1 : fine}), 0, "convolution");
  }
  EXPECT_EQ(fake::TakeEnginesRun(), (Engines{3, 0}));
}

TEST_F(CudaLibraryConvolutionTest, NaNPassesActivations) {
  const HostTensor x = Values({1, 1, 1, 3}, {-1, std::numeric_limits<double>::quiet_NaN(), 2}).Cast(DType::kFloat32);
  const HostTensor one = Values({1, 1, 1, 1}, {1}).Cast(DType::kFloat32),
                   half = Values({1}, {0.5}).Cast(DType::kFloat32);
  for (const bool no_bias : {false, true}) {
    const Symbol y =
        Convolution(Variable("x"),
                    {.num_filter = 1, .kernel = {1, 1}, .no_bias = no_bias, .activation = ActivationType::kRelu}, "y");
    HostTensorMap params = {{"y_weight", one}};
    if (!no_bias) params["y_bias"] = half;
    const HostTensor result = Forward(y, x, params).Cast(DType::kFloat64);
    EXPECT_EQ(fake::TakeEnginesRun(), Engines{3});
    EXPECT_EQ(result.At(0), 0);
    EXPECT_TRUE(std::isnan(result.At(1)));
    EXPECT_EQ(result.At(2), no_bias ? 2 : 2.5);
  }
}

// No library, and no engine: own kernels.
TEST_F(CudaLibraryConvolutionTest, OwnKernelsWhereItCannot) {
  const Symbol y =
      Convolution(Variable("x"), {.num_filter = 3, .kernel = {3, 3}, .activation = ActivationType::kTanh}, "y");
  const HostTensor x = Uniform({2, 4, 7, 6}).Cast(DType::kFloat32);
  const HostTensorMap params = {{"y_weight", Uniform({3, 4, 3, 3}).Cast(DType::kFloat32)},
                                {"y_bias", Uniform({3}).Cast(DType::kFloat32)}};
  const HostTensor by_library = Forward(y, x, params, Cuda(5));
  EXPECT_EQ(fake::TakeEnginesRun(), Engines{3});
  fake::OfferEngines({});
  const HostTensor refused = Forward(y, x, params, Cuda(5));
  cuda::UseCudnn(nullptr);
  const HostTensor without = Forward(y, x, params, Cuda(5));
  EXPECT_TRUE(fake::TakeEnginesRun().empty());
  EXPECT_EQ(refused, without);
  ExpectNear(by_library, without, 1e-5, "by the library");
}

TEST_F(CudaLibraryConvolutionTest, ALibraryThatIsNotThereSaysWhy) {
  const std::string message = MessageOf<DeviceError>([] { cuda::OpenCudnn("libnosuchthing.so.9"); });
  EXPECT_NE(message.find("libnosuchthing.so.9"), std::string::npos) << message;
  EXPECT_EQ(MessageOf<DeviceError>([] { cuda::OpenCudnn("libm.so.6"); }), "DeviceError: libm.so.6 has no cudnnCreate");
}

// As of all libraries (engine/cuda/library.h).
TEST_F(CudaLibraryConvolutionTest, TheSwitch) {
  std::vector<std::string> lines;
  SetLogCallback([&](LogLevel, const std::string& line) { lines.push_back(line); });
  cuda::ChosenLibrary<cuda::CudnnApi> library({.name = "BINDERY_CUDNN", .file = "libm.so.6", .without = "no cuDNN"});
  for (const char* const choice : {"no", "yes", ""}) {
    ::setenv("BINDERY_CUDNN", choice, 1);
    EXPECT_EQ(library.Get(), nullptr);
    EXPECT_EQ(lines.empty(), choice == std::string("no"));
  }
  EXPECT_EQ(lines, std::vector<std::string>{"no cuDNN: libm.so.6 has no cudnnCreate"});
  library.Use(fake::Cudnn());
  EXPECT_EQ(library.Get(), fake::Cudnn());
  ::setenv("BINDERY_CUDNN", "no", 1);
  EXPECT_EQ(library.Get(), nullptr);
  EXPECT_EQ(cuda::Cudnn(), nullptr);
  EXPECT_EQ(cuda::CublasLt(), fake::CublasLt());
  ::setenv("BINDERY_CUDNN", "perhaps", 1);
  EXPECT_EQ(MessageOf<Error>([&] { library.Get(); }), "Error: BINDERY_CUDNN must be yes or no, got \"perhaps\"");
  ::unsetenv("BINDERY_CUDNN");
}

// Convolutions among kernels, captured: the same bits, step by step, and one call for all steps but the first.
TEST_F(CudaLibraryConvolutionTest, GraphsGiveTheSame) {
  Symbol x = Convolution(
      Variable("x"), {.num_filter = 4, .kernel = {3, 3}, .pad = {1, 1}, .activation = ActivationType::kRelu}, "first");
  const Symbol network = Convolution(Tanh(x), {.num_filter = 2, .kernel = {2, 2}}, "last");
  std::vector<HostTensor> batches, results[2];
  for (int step = 0; step < 4; ++step) batches.push_back(Uniform({2, 3, 6, 5}).Cast(DType::kFloat32));
  const HostTensorMap params = {{"first_weight", Uniform({4, 3, 3, 3}).Cast(DType::kFloat32)},
                                {"first_bias", Uniform({4}).Cast(DType::kFloat32)},
                                {"last_weight", Uniform({2, 4, 2, 2}).Cast(DType::kFloat32)},
                                {"last_bias", Uniform({2}).Cast(DType::kFloat32)}};
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    Executor executor(network, {.device = Cuda(4), .inputs = {{"x", {2, 3, 6, 5}}}, .for_training = false});
    executor.SetParams(params);
    const int64_t launches = fake::GraphLaunches();
    for (const HostTensor& batch : batches) {
      executor.Forward({{"x", batch}});
      results[graphs].push_back(executor.Output(0));
    }
    EXPECT_EQ(fake::TakeEnginesRun(), Engines(graphs ? 2 * 2 : 4 * 2, 3));
    EXPECT_EQ(fake::GraphLaunches() - launches, graphs ? 3 : 0);
  }
  EXPECT_EQ(results[0], results[1]);
}

// NVIDIA's own library, which judges descriptors without a GPU, but for the handle, which since 9.8 it need not be told.
// Nothing is executed.
struct Judge {
  static inline cuda::CudnnPtr library;
  static inline std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t> types;
  static inline std::map<cudnnBackendDescriptorType_t, int> taken;
  static inline std::vector<std::string> refused;

  static cudnnStatus_t Note(cudnnBackendDescriptor_t descriptor, const char* call, cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) {
      refused.push_back(fmt::format("{} of {}: {}", call, int{types[descriptor]}, library->get_error_string(status)));
    }
    return status;
  }
  static cudnnStatus_t Create(cudnnHandle_t* handle) {
    *handle = reinterpret_cast<cudnnHandle_t>(&library);
    return CUDNN_STATUS_SUCCESS;
  }
  static cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    const cudnnStatus_t status = library->create_descriptor(type, descriptor);
    types[*descriptor] = type;
    return Note(*descriptor, "create", status);
  }
  static cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
    if (type == CUDNN_TYPE_HANDLE) return CUDNN_STATUS_SUCCESS;
    return Note(descriptor, "set", library->set_attribute(descriptor, name, type, count, elements));
  }
  static cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
    const cudnnStatus_t status = library->finalize(descriptor);
    taken[types[descriptor]] += status == CUDNN_STATUS_SUCCESS;
    // Plans are of GPUs.
    return types[descriptor] == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? status : Note(descriptor, "finalize", status);
  }
};

TEST_F(CudaLibraryConvolutionTest, NvidiasOwnTakesTheDescriptors) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "it leaks memory of its own";
#endif
  try {
    Judge::library = cuda::OpenCudnn("libcudnn.so.9");
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.message();
  }
  auto api = std::make_shared<cuda::CudnnApi>(*Judge::library);
  api->create = &Judge::Create;
  api->create_descriptor = &Judge::CreateDescriptor;
  api->set_attribute = &Judge::SetAttribute;
  api->finalize = &Judge::Finalize;
  cuda::UseCudnn(api);
  const Symbol x = Variable("x");
  for (const Computed& c : kAll) {
    AskedFor(Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "y"), {2, 4, 9, 8}, c.dtype);
    AskedFor(Convolution(x, {.num_filter = 6, .kernel = {3, 2}, .stride = {2, 3}, .dilate = {1, 2}, .groups = 2}, "y"),
             {2, 4, 9, 8}, c.dtype);
    AskedFor(Convolution(x, {.num_filter = 8, .kernel = {5}}, "y"), {2, 4, 20}, c.dtype);
    AskedFor(Convolution(x, {.num_filter = 8, .kernel = {2, 1, 3}}, "y"), {2, 4, 5, 6, 7}, c.dtype);
  }
  for (const auto type : {kForward, kGradData, kGradWeight}) EXPECT_EQ(Judge::taken[type], 4 * 5);
  EXPECT_EQ(Judge::taken[CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR], 3 * 4 * 5);
  EXPECT_GE(Judge::taken[CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR], 3 * 4 * 5);
  // With an addend and a bias behind it, and, since without a GPU there is no plan, alone.
  Executor sum(Add(Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "y"), Variable("z")),
               {.device = Cuda(0), .inputs = {{"x", {2, 4, 9, 8}}, {"z", {2, 8, 9, 8}}}, .for_training = false});
  EXPECT_EQ(Judge::taken[CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR], 2);
  EXPECT_EQ(Judge::taken[CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR], 3 * 4 * 5 + 2);
  EXPECT_EQ(Judge::refused, std::vector<std::string>());
}

// What a plan holds goes with the executor and its engine.
TEST_F(CudaLibraryConvolutionTest, DescriptorsGo) {
  // Those of the executors before go when their engine gets to it.
  for (int i = 0; i < 1000 && fake::LiveCudnnDescriptors() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(fake::LiveCudnnDescriptors(), 0);
  {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    Executor executor(Convolution(Variable("x"), {.num_filter = 3, .kernel = {3, 3}, .no_bias = true}, "y"),
                      {.device = Cuda(0), .inputs = {{"x", {1, 2, 5, 5}}}, .for_training = false, .engine = engine});
    executor.SetParams({{"y_weight", Uniform({3, 2, 3, 3}).Cast(DType::kFloat32)}});
    for (int step = 0; step < 3; ++step) executor.Forward({{"x", Uniform({1, 2, 5, 5}).Cast(DType::kFloat32)}});
    executor.Output(0);
    EXPECT_GT(fake::LiveCudnnDescriptors(), 0);
  }
  EXPECT_EQ(fake::LiveCudnnDescriptors(), 0);
}

}  // namespace
}  // namespace bindery
