// Convolutions with something added, which predictions make by fusion: by cuDNN in one graph, by it and an own kernel
// behind it, and by own kernels; over its fake.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/cuda/cudnn_api.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;
using Engines = std::vector<int>;

class CudaConvolutionAddTest : public testing::Test {
 protected:
  CudaConvolutionAddTest() { Forget(); }
  ~CudaConvolutionAddTest() override {
    cuda::UseCudnn(fake::Cudnn());
    fake::OfferEngines(fake::UsualEngines());
  }
  static void Forget() {
    fake::TakeConvolutions();
    fake::TakeEnginesRun();
  }
};

// f(convolution of x + z), of x (2, 4, 6, 5) and z (2, 6, 6, 5).
Symbol Network(ActivationType activation, bool no_bias = false) {
  Symbol y = Convolution(Variable("x"),
                         {.num_filter = 6, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2, .no_bias = no_bias}, "y");
  y = Add(Variable("z"), y);
  return activation == ActivationType::kNone ? y : Activation(y, {activation});
}

HostTensorMap Params(bool no_bias = false) {
  HostTensorMap params = {{"y_weight", Uniform({6, 2, 3, 3}).Cast(DType::kFloat32)}};
  if (!no_bias) params["y_bias"] = Uniform({6}).Cast(DType::kFloat32);
  return params;
}

HostTensorMap Inputs() {
  return {{"x", Uniform({2, 4, 6, 5}).Cast(DType::kFloat32)}, {"z", Uniform({2, 6, 6, 5}).Cast(DType::kFloat32)}};
}

HostTensor Predicted(const Symbol& network, const HostTensorMap& inputs, const HostTensorMap& params,
                     Device device = Cuda(0)) {
  ExecutorOptions options{.device = device, .for_training = false};
  for (const auto& [name, value] : inputs) options.inputs.push_back({name, value.shape()});
  Executor executor(network, options);
  executor.SetParams(params);
  executor.Forward(inputs);
  return executor.Output(0);
}

// The addend's elements and the bias's are added in the graph where nothing comes behind them, and the sum is rounded
// once; the convolution alone is asked for else.
TEST_F(CudaConvolutionAddTest, WhatItIsAskedFor) {
  const fake::TensorSeen y = {CUDNN_DATA_FLOAT, 16, {2, 6, 6, 5}, {180, 30, 5, 1}};
  const fake::ConvolutionSeen alone = {.what = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                       .compute = CUDNN_DATA_FLOAT,
                                       .mode = CUDNN_CROSS_CORRELATION,
                                       .before = {1, 1},
                                       .after = {1, 1},
                                       .stride = {1, 1},
                                       .dilate = {1, 1},
                                       .x = {CUDNN_DATA_FLOAT, 16, {2, 4, 6, 5}, {120, 30, 5, 1}},
                                       .w = {CUDNN_DATA_FLOAT, 16, {6, 2, 3, 3}, {18, 9, 3, 1}},
                                       .y = y};
  for (const bool no_bias : {false, true}) {
    fake::ConvolutionSeen whole = alone;
    whole.added = {y};
    if (!no_bias) whole.added.push_back({CUDNN_DATA_FLOAT, 16, {1, 6, 1, 1}, {6, 1, 1, 1}});
    Predicted(Network(ActivationType::kNone, no_bias), Inputs(), Params(no_bias));
    EXPECT_EQ(fake::TakeConvolutions(), std::vector{whole});
    Predicted(Network(ActivationType::kRelu, no_bias), Inputs(), Params(no_bias));
    EXPECT_EQ(fake::TakeConvolutions(), std::vector{alone});
  }
}

// In one graph; where no engine adds, by the one that convolves and an own kernel; without the library.
TEST_F(CudaConvolutionAddTest, GivesWhatCpusGive) {
  const HostTensorMap inputs = Inputs();
  for (const ActivationType activation : {ActivationType::kNone, ActivationType::kRelu, ActivationType::kTanh}) {
    for (const bool no_bias : {false, true}) {
      SCOPED_TRACE(no_bias);
      const HostTensorMap params = Params(no_bias);
      const Symbol network = Network(activation, no_bias);
      const HostTensor expected = Predicted(network, inputs, params, Cpu());
      for (const bool adds : {true, false}) {
        Forget();
        fake::OfferEngines({{.adds = adds}, {.adds = false}});
        ExpectNear(Predicted(network, inputs, params), expected, 1e-5, adds ? "in one graph" : "behind it");
        EXPECT_EQ(fake::TakeEnginesRun(), Engines{0});
        const size_t graphs = activation == ActivationType::kNone && !adds ? 2 : 1;
        EXPECT_EQ(fake::TakeConvolutions().size(), graphs);
      }
      fake::OfferEngines({});
      ExpectNear(Predicted(network, inputs, params), expected, 1e-5, "without an engine");
      cuda::UseCudnn(nullptr);
      ExpectNear(Predicted(network, inputs, params), expected, 1e-5, "without the library");
      cuda::UseCudnn(fake::Cudnn());
      EXPECT_TRUE(fake::TakeEnginesRun().empty());
    }
  }
}

TEST_F(CudaConvolutionAddTest, NaNPasses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const HostTensorMap inputs = {{"x", Values({1, 1, 1, 4}, {-1, nan, 2, 3}).Cast(DType::kFloat32)},
                                {"z", Values({1, 1, 1, 4}, {-1, 1, nan, -1}).Cast(DType::kFloat32)}};
  const HostTensorMap params = {{"y_weight", Values({1, 1, 1, 1}, {1}).Cast(DType::kFloat32)}};
  Symbol sum =
      Add(Convolution(Variable("x"), {.num_filter = 1, .kernel = {1, 1}, .no_bias = true}, "y"), Variable("z"));
  for (const bool by_library : {true, false}) {
    if (!by_library) cuda::UseCudnn(nullptr);
    for (const Symbol& network : {sum, Relu(sum)}) {
      const HostTensor y = Predicted(network, inputs, params).Cast(DType::kFloat64);
      EXPECT_EQ(y.At(0), network.entries() == sum.entries() ? -2 : 0);
      EXPECT_TRUE(std::isnan(y.At(1)));
      EXPECT_TRUE(std::isnan(y.At(2)));
      EXPECT_EQ(y.At(3), 2);
    }
  }
}

// What trains has a gradient, so nothing is joined there.
TEST_F(CudaConvolutionAddTest, InPredictionsAlone) {
  Executor executor(MakeLoss(Network(ActivationType::kNone)),
                    {.device = Cuda(0), .inputs = {{"x", {2, 4, 6, 5}}, {"z", {2, 6, 6, 5}}}});
  for (const fake::ConvolutionSeen& seen : fake::TakeConvolutions()) EXPECT_TRUE(seen.added.empty());
}

}  // namespace
}  // namespace bindery
