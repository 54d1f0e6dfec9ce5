// DataParallelExecutorGroup: gradients that depend on how heads merge, that add up, and that are of inputs.
#include <gtest/gtest.h>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

const std::vector<Device> kTwo = {TestDevice(0), TestDevice(1)};

HostTensor Full(const Shape& shape, double value) { return HostTensor::Full(DType::kFloat32, shape, value); }

// y = Mean(x w) and its like: the gradient on two devices is that on one, by how the devices' values merge.
TEST(GroupGradients, AnUnbatchedHeadPassesOnWhatItsMergeImplies) {
  const Symbol product = Variable("data") * Variable("w", {.shape = Shape{1}});
  const HostTensor x = HostTensor::From({5, 1}, {1, 2, 3, 4, 10});
  const auto gradient = [&](const Symbol& head, const std::vector<Device>& devices) {
    DataParallelExecutorGroup group(head, {.devices = devices, .data = {{"data", {5, 1}}}, .inputs_need_grad = true});
    group.SetParams({{"w", Full({1}, 3)}}, {});
    group.Forward(Batch{.data = {x}});
    group.Backward(std::vector<HostTensor>{Full({}, 2)});
    return std::pair(SumOfGradients(group, "w").At(0), group.InputGradients()[0].ToHost());
  };
  const Symbol mean = Mean(product).WithAnnotation("merge", "mean"), sum = Sum(product).WithAnnotation("merge", "sum"),
               first = Sum(product).WithAnnotation("merge", "first");
  for (const std::vector<Device>& devices : {std::vector<Device>{TestDevice(0)}, kTwo}) {
    const auto [dw, dx] = gradient(mean, devices);
    EXPECT_NEAR(dw, 2 * 4, 1e-6);  // the mean of x is 4
    EXPECT_LT(MaxAbsDiff(dx, Full({5, 1}, 2 * 3 / 5.0)), 1e-6);
    EXPECT_NEAR(gradient(sum, devices).first, 2 * 20, 1e-6);
  }
  const auto [dw, dx] = gradient(first, kTwo);  // three samples are the first device's
  EXPECT_NEAR(dw, 2 * 6, 1e-6);
  EXPECT_EQ(dx, HostTensor::From({5, 1}, {6, 6, 6, 0, 0}));
}

TEST(GroupGradients, AnUnbatchedLossMergesBySum) {
  const auto bind = [](const std::string& merge, const std::vector<Device>& devices, bool for_training) {
    DataParallelExecutorGroup(MakeLoss(Mean(Variable("data")), {}, "loss").WithAnnotation("merge", merge),
                              {.devices = devices,
                               .data = {{"data", {4, 2}}},
                               .for_training = for_training,
                               .inputs_need_grad = for_training});
  };
  for (const std::string merge : {"mean", "first"}) {
    EXPECT_NE(MessageOf([&] { bind(merge, kTwo, true); }).find("is a loss without batch axis"), std::string::npos);
    EXPECT_NO_THROW(bind(merge, kTwo, false));
    EXPECT_NO_THROW(bind(merge, {TestDevice(0)}, true));
  }
  EXPECT_NO_THROW(bind("sum", kTwo, true));
}

// z = sum of x v over all samples, plus w, so that the gradient of w is what the devices exchange for that of x: it is
// read before whatever comes later writes it.
TEST(GroupGradients, WhatDevicesExchangeIsReadBeforeLaterWrites) {
  const Symbol sum = SumOverDevices(Sum(Variable("data") * Variable("v", {.shape = Shape{4}}), {.axes = {0}}));
  const Symbol z = Square(sum + Variable("w", {.shape = Shape{4}})) * 0.5;
  DataParallelExecutorGroup group(
      MakeLoss(z, {}, "loss").WithAnnotation("merge", "sum"),
      {.devices = kTwo, .data = {{"data", {4, 4}}}, .inputs_need_grad = true, .fixed_params = {"v"}});
  group.SetParams({{"v", Full({4}, 1)}, {"w", Full({4}, 2)}}, {});
  const auto gradient = [&](const auto& write) {
    group.Forward(Batch{.data = {RandomTensor({4, 4}, 1)}});
    group.Backward();
    write();
    return group.InputGradients()[0].ToHost();
  };
  const HostTensor expected = gradient([] {});
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(gradient([&] {
                for (const ReplicatedParam& p : group.params())
                  for (const Tensor& gradients : p.grads) gradients.Fill(0);
              }),
              expected);
  }
}

TEST(GroupGradients, WhatDevicesExchangeOfParametersAndDataIsThatOfTheirStep) {
  const Symbol w = SumOverDevices(Variable("w", {.shape = Shape{4}})), x = SumOverDevices(Variable("data"));
  DataParallelExecutorGroup group(Group({w.WithAnnotation("merge", "first"), x.WithAnnotation("merge", "first")}),
                                  {.devices = kTwo, .data = {{"data", {2, 400}}}, .for_training = false});
  for (int round = 0; round < 50; ++round) {
    group.SetParams({{"w", Full({4}, round)}}, {});
    group.Forward(Batch{.data = {Full({2, 400}, round)}});
    const std::vector<Tensor> outputs = group.Outputs();
    group.SetParams({{"w", Full({4}, -7)}}, {});
    group.Forward(Batch{.data = {Full({2, 400}, -7)}});
    EXPECT_EQ(outputs[0].ToHost(), Full({4}, 2 * round));
    EXPECT_EQ(outputs[1].ToHost(), Full({1, 400}, 2 * round));
  }
}

TEST(GroupGradients, AHeadListedTwiceTakesAGradientEach) {
  const Symbol y = Variable("data") * 3.0;
  DataParallelExecutorGroup group(Group({y, y}),
                                  {.devices = kTwo, .data = {{"data", {3, 2}}}, .inputs_need_grad = true});
  group.Forward(Batch{.data = {Full({3, 2}, 1)}});
  EXPECT_NE(MessageOf([&] {
              group.Backward({{group.output_names()[0], Full({3, 2}, 1)}});
            }).find("by position"),
            std::string::npos);
  group.Backward(std::vector<HostTensor>{Full({3, 2}, 1), Full({3, 2}, 10)});
  EXPECT_EQ(group.InputGradients()[0].ToHost(), Full({3, 2}, 33));
}

TEST(GroupGradients, OfInputsAddUpUntilZeroedOrTheBatchIsAnother) {
  DataParallelExecutorGroup group(
      Variable("data") * 3.0,
      {.devices = kTwo, .data = {{"data", {4, 2}}}, .inputs_need_grad = true, .grad_req = GradReq::kAdd});
  const auto step = [&](int64_t samples) {
    group.Forward(Batch{.data = {Full({samples, 2}, 1)}});
    group.Backward(std::vector<HostTensor>{Full({samples, 2}, 1)});
    return group.InputGradients()[0].ToHost();
  };
  EXPECT_EQ(step(4), Full({4, 2}, 3));
  EXPECT_EQ(step(4), Full({4, 2}, 6));
  group.ZeroGradients();
  EXPECT_EQ(step(4), Full({4, 2}, 3));
  EXPECT_EQ(step(2), Full({2, 2}, 3));
  EXPECT_EQ(step(2), Full({2, 2}, 6));
  EXPECT_EQ(step(9), Full({9, 2}, 3));
  EXPECT_EQ(step(4), Full({4, 2}, 3));
}

TEST(GroupGradients, OfLabelsAndStatesAreReadByName) {
  const Symbol net = Variable("data") * Variable("label") * Variable("state");
  GroupOptions options{
      .devices = kTwo,
      .data = {{"data", {3, 1}}},
      .labels = {{"label", {3, 1}}},
      .states = {{"state", {3, 1}}},
      .grad_req = std::map<std::string, GradReq>{{"label", GradReq::kWrite}, {"state", GradReq::kWrite}}};
  DataParallelExecutorGroup group(net, options);
  group.SetStates(2);
  group.Forward(Batch{.data = {HostTensor::From({3, 1}, {1, 2, 3})}, .label = {HostTensor::From({3, 1}, {5, 6, 7})}});
  EXPECT_NE(MessageOf([&] { group.GetGradient("state", 0); }).find("call Backward first"), std::string::npos);
  group.Backward(std::vector<HostTensor>{Full({3, 1}, 1)});
  EXPECT_EQ(group.GetGradient("state", 0), HostTensor::From({2, 1}, {5, 12}));
  EXPECT_EQ(group.GetGradient("state", 1), HostTensor::From({1, 1}, {21}));
  EXPECT_EQ(group.GetGradient("label", 1), HostTensor::From({1, 1}, {6}));
  EXPECT_THROW(group.GetGradient("data", 0), Error);  // none is asked for
  EXPECT_THROW(group.GetGradient("label", 2), Error);
  EXPECT_THROW(group.GetGradient("lable", 0), Error);
}

// Its gradient is zero on the device that sits out, but only where requests say write.
TEST(GroupGradients, AnIdleDeviceKeepsWhatAddsUp) {
  const Symbol net = Variable("data") * Variable("w", {.shape = Shape{1}}) + Variable("b", {.shape = Shape{1}});
  DataParallelExecutorGroup group(
      net,
      {.devices = kTwo, .data = {{"data", {2, 1}}}, .grad_req = std::map<std::string, GradReq>{{"b", GradReq::kAdd}}});
  for (const int64_t samples : {2, 1}) {
    group.Forward(Batch{.data = {Full({samples, 1}, 5)}});
    group.Backward(std::vector<HostTensor>{Full({samples, 1}, 1)});
  }
  EXPECT_EQ(group.GetGradient("w", 0), Full({1}, 5));
  EXPECT_EQ(group.GetGradient("w", 1), Full({1}, 0));
  EXPECT_EQ(group.GetGradient("b", 0), Full({1}, 2));
  EXPECT_EQ(group.GetGradient("b", 1), Full({1}, 1));
}

TEST(GroupGradients, EachPredictionDrawsItsOwnMask) {
  const Symbol net = Dropout(Variable("data"), {.p = 0.5, .mode = DropoutMode::kAlways}, "drop");
  DataParallelExecutorGroup group(net, {.devices = kTwo, .data = {{"data", {4, 50}}}});
  const Batch ones{.data = {Full({4, 50}, 1)}};
  const auto draw = [&](Mode mode) {
    group.Forward(ones, mode);
    return group.Outputs()[0].ToHost();
  };
  group.SetStep({.step = 7});
  const HostTensor trained = draw(Mode::kTrain), first = draw(Mode::kPredict), second = draw(Mode::kPredict);
  EXPECT_NE(first, trained);
  EXPECT_NE(second, first);
  EXPECT_NE(second, trained);
  group.SetStep({.step = 7});  // as after a resume
  EXPECT_EQ(draw(Mode::kPredict), first);
  EXPECT_EQ(draw(Mode::kPredict), second);
  EXPECT_EQ(draw(Mode::kTrain), trained);

  Executor alone(net, {.inputs = {{"data", {4, 50}}}, .for_training = false});
  alone.Forward({{"data", ones.data[0]}});
  const HostTensor before = alone.Output(0);
  alone.Forward();
  EXPECT_NE(alone.Output(0), before);
}

}  // namespace
}  // namespace bindery
