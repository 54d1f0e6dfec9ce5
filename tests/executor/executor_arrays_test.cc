// The arrays of an executor: on its device, made by it or given to it.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

Tensor On(Device device, const HostTensor& value) {
  const Tensor tensor(device, value.dtype(), value.shape());
  tensor.CopyFrom(value);
  return tensor;
}

// Two executors on one weight and one gradient, in arrays of the caller's; what one of them writes, the other reads,
// and nobody waits.
TEST(ExecutorArrays, ThatExistAreUsedWhereTheyAre) {
  const Device device = TestDevice(1);
  const HostTensor x = RandomTensor({3, 4}, 1), w = RandomTensor({1, 4}, 2);
  const HostTensor ones = HostTensor::Full(DType::kFloat32, {3, 4}, 1);
  const Tensor weight = On(device, w), gradient(device, DType::kFloat32, {1, 4});
  const auto bind = [&](GradReq request) {
    return std::make_unique<Executor>(Variable("x") * Variable("w"),
                                      ExecutorOptions{.device = device,
                                                      .inputs = {{"x", {3, 4}}},
                                                      .arguments = {{"w", weight}},
                                                      .gradients = {{"w", gradient}},
                                                      .grad_req = std::map<std::string, GradReq>{{"w", request}}});
  };
  const auto writes = bind(GradReq::kWrite), adds = bind(GradReq::kAdd);
  EXPECT_EQ(writes->ArgumentArray("w").address(), weight.address());
  EXPECT_EQ(adds->GradientArray("w").address(), gradient.address());
  writes->Forward({{"x", x}});
  const Tensor product = writes->OutputArray(0);
  writes->Backward(On(device, ones));
  adds->SetInput("x", product);
  adds->Forward();
  adds->Backward(ones);
  weight.Fill(2);
  writes->Forward();
  HostTensor expected(DType::kFloat32, {1, 4});
  for (int64_t i = 0; i < 12; ++i) expected.Set(i % 4, expected.At(i % 4) + x.At(i) + x.At(i) * w.At(i % 4));
  EXPECT_LE(MaxAbsDiff(gradient.ToHost(), expected), 1e-5);
  const HostTensor twice = writes->Output(0);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(twice.At(i), 2 * x.At(i));
  writes->ZeroGradients();
  EXPECT_EQ(gradient.ToHost(), HostTensor(DType::kFloat32, {1, 4}));
}

// A training forward commits the states; a prediction by the same executor reads them.
TEST(ExecutorArrays, StatesAreSomeToo) {
  const Device device = TestDevice(0);
  const Tensor mean(device, DType::kFloat32, {3}), var = On(device, HostTensor::Full(DType::kFloat32, {3}, 1));
  Executor e(
      BatchNorm(Variable("x"), {.momentum = 0.5, .fix_gamma = false}, "bn"),
      {.device = device, .inputs = {{"x", {4, 3}}}, .auxiliary = {{"bn_running_mean", mean}, {"bn_running_var", var}}});
  EXPECT_EQ(e.AuxiliaryArray("bn_running_mean").address(), mean.address());
  e.ArgumentArray("bn_gamma").Fill(1);
  e.Forward({{"x", HostTensor::Full(DType::kFloat32, {4, 3}, 8)}});
  EXPECT_EQ(mean.ToHost(), HostTensor::Full(DType::kFloat32, {3}, 4));
  EXPECT_EQ(var.ToHost(), HostTensor::Full(DType::kFloat32, {3}, 0.5));
  e.Forward({{"x", HostTensor::Full(DType::kFloat32, {4, 3}, 4)}}, Mode::kPredict);
  EXPECT_EQ(e.Output(0), HostTensor(DType::kFloat32, {4, 3}));
  EXPECT_EQ(mean.ToHost(), HostTensor::Full(DType::kFloat32, {3}, 4));
  EXPECT_THROW(e.Backward(HostTensor(DType::kFloat32, {4, 3})), Error);  // that was a prediction
}

TEST(ExecutorArrays, AFailedInputHarmsNothingElse) {
  const Device device = TestDevice(0);
  Executor e(FullyConnected(Variable("x"), {.num_hidden = 2}, "fc"), {.device = device, .inputs = {{"x", {3, 4}}}});
  Initialise(&e, 1);
  const HostTensor x = RandomTensor({3, 4}, 1), ones = HostTensor::Full(DType::kFloat32, {3, 2}, 1);
  const auto run = [&] {
    e.Forward({{"x", x}});
    e.Backward(ones);
    return std::pair(e.Output(0), e.Gradient("fc_weight"));
  };
  const auto good = run();
  const auto broken = [&](const Shape& shape) {
    const Tensor tensor(device, DType::kFloat32, shape);
    DefaultEngine()->Push({.name = "break", .device = device, .writes = {tensor.var()}, .run = [](const OpContext&) {
                             throw NumericError("broken on purpose");
                           }});
    return tensor;
  };
  e.SetInput("x", broken({3, 4}));
  e.Forward();
  EXPECT_NE(MessageOf([&] { e.Output(0); }).find("broken on purpose"), std::string::npos);
  EXPECT_EQ(run(), good);
  e.Forward();
  const Tensor output = e.OutputArray(0);
  e.Backward(broken({3, 2}));
  EXPECT_EQ(output.ToHost(), good.first);
  EXPECT_NE(MessageOf([&] { e.Gradient("fc_weight"); }).find("broken on purpose"), std::string::npos);
  EXPECT_EQ(run(), good);
  EXPECT_THROW(DefaultEngine()->WaitAll(), NumericError);
}

TEST(ExecutorArrays, WhatDoesNotFitIsRefused) {
  const Device device = TestDevice(0);
  const auto message = [&](const std::function<void(ExecutorOptions*)>& change) {
    ExecutorOptions options{.device = device, .inputs = {{"x", {3, 4}}}};
    change(&options);
    return MessageOf([&] { Executor(FullyConnected(Variable("x"), {.num_hidden = 2}, "fc"), options); });
  };
  const auto zeros = [&](const Shape& shape) { return Tensor(device, DType::kFloat32, shape); };
  const Tensor weight = zeros({2, 4});
  EXPECT_EQ(message([&](auto* o) { o->arguments["fc_weight"] = weight; }), "nothing was thrown");
  EXPECT_EQ(message([&](auto* o) { o->arguments["fc_weighs"] = weight; }),
            "Error: argument \"fc_weighs\" is not an argument of the symbol; did you mean \"fc_weight\"?");
  EXPECT_EQ(message([&](auto* o) { o->arguments["x"] = weight; }),
            "ShapeError: the array given for \"x\": expected float32 (3, 4), got float32 (2, 4)");
  EXPECT_EQ(message([&](auto* o) { o->gradients["fc_bias"] = weight; }),
            "ShapeError: the array given for the gradient of \"fc_bias\": expected float32 (2), got float32 (2, 4)");
  EXPECT_EQ(
      message([&](auto* o) {
        o->gradients["fc_weight"] = zeros({3, 4}).Slice(0, 2);
      }),
      "Error: the array given for the gradient of \"fc_weight\" is a part of another tensor, which backward would "
      "make whole");
  EXPECT_EQ(message([&](auto* o) { o->arguments["fc_weight"] = o->gradients["fc_weight"] = weight; }),
            "Error: the arrays given for gradient \"fc_weight\" and argument \"fc_weight\" overlap, and the first is "
            "written");
  EXPECT_EQ(message([&](auto* o) {
              o->gradients["fc_weight"] = zeros({64, 4});
              o->arguments["fc_bias"] = o->gradients["fc_weight"].Slice(32, 40).Reshape({32});
            }),
            "Error: the arrays given for gradient \"fc_weight\" and argument \"fc_bias\" overlap, and the first is "
            "written");
  EXPECT_EQ(message([&](auto* o) { o->arguments["fc_weight"] = zeros({9, 4}).Slice(4, 6); }), "nothing was thrown");
  EXPECT_EQ(message([&](auto* o) {
              o->arguments["fc_weight"] = zeros({9, 4}).Slice(1, 3);
            }),
            "Error: the array given for \"fc_weight\" must begin at a multiple of 64 bytes, as whole tensors do");
  EXPECT_EQ(message([&](auto* o) { o->arguments["fc_weight"] = weight.For(MakeInlineEngine()); }),
            "Error: the array given for \"fc_weight\" belongs to another engine");
  EXPECT_NE(message([&](auto* o) {
              o->arguments["fc_weight"] = Tensor(Sim(9), DType::kFloat32, {2, 4});  // no TestDevice
            }).find("the executor is bound to"),
            std::string::npos);
  EXPECT_EQ(message([&](auto* o) { o->auxiliary["mean"] = weight; }),
            "Error: \"mean\" is not an auxiliary state; there are none");

  Executor e(FullyConnected(Variable("x"), {.num_hidden = 2}, "fc"), {.device = device, .inputs = {{"x", {3, 4}}}});
  EXPECT_EQ(MessageOf([&] { e.OutputArray(0); }), "Error: outputs: nothing has run yet; call Forward first");
  e.Forward();
  EXPECT_EQ(MessageOf([&] { e.Backward(); }),
            "Error: Backward: head \"fc_output\" is not a loss, so its gradient must be given (or make it a loss with "
            "MakeLoss)");
  EXPECT_EQ(MessageOf([&] {
              e.Backward(zeros({2, 2}));
            }),
            "ShapeError: Backward: gradient of head \"fc_output\": expected (3, 2), got (2, 2)");
  EXPECT_EQ(MessageOf([&] { e.GradientArray("x"); }), "Error: \"x\" has no gradient: its gradient request is null");
  e.Backward(zeros({3, 2}));
  EXPECT_NE(MessageOf([&] { e.Backward(zeros({3, 2})); }).find("used up"), std::string::npos);
}

}  // namespace
}  // namespace bindery
