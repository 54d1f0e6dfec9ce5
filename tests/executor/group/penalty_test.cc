// A gradient inside of a net, as in a gradient penalty: made once, for a batch of any size, it is saved, loaded and
// bound on one device and on several with unequal shares.
#include <gtest/gtest.h>

#include "executor/data_parallel_executor_group.h"
#include "symbol/gradient.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

// (|d score / d data| - 1)^2 of each sample. Its parts ask for extents that a stride, a sum, an average, a stretched
// operand and Flatten have hidden.
Symbol Penalty() {
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 2, 7, 7}, .layout = "NCHW"});
  Symbol x = Tanh(Convolution(data, {.num_filter = 4, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, "conv"));
  x = Pooling(x, {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}}, "pool");
  x = Concat({Flatten(x), Mean(data, {.axes = {2, 3}}, "mean")});
  x = x * Variable("scale", {.shape = Shape{18}});
  const Symbol score = Sum(FullyConnected(Tanh(x), {.num_hidden = 3}, "fc"), {.axes = {1}}, "score");
  const Symbol slope = Gradient(MakeLoss(score), std::vector<std::string>{"data"}).gradients[0];
  const Symbol norm = Sqrt(Sum(Square(slope), {.axes = {1, 2, 3}}));
  return MakeLoss(Square(norm - 1.0), {}, "penalty");
}

TEST(GroupPenalty, OneGradientSymbolFitsEveryBatchAndShare) {
  const std::string file = SerializeModel({.symbol = Penalty()});
  const Symbol penalty = ParseModel(file).symbol;
  const std::vector<std::string> parameters = {"conv_weight", "conv_bias", "scale", "fc_weight"};
  for (const int64_t samples : {7, 12}) {
    const auto group = [&](std::vector<Device> devices, std::vector<double> workload) {
      return std::make_unique<DataParallelExecutorGroup>(
          penalty, GroupOptions{.devices = std::move(devices),
                                .workload = std::move(workload),
                                .data = {{"data", {samples, 2, 7, 7}, DType::kFloat32, "NCHW"}}});
    };
    const auto one = group({TestDevice(0)}, {}), two = group({TestDevice(0), TestDevice(1)}, {1, 3}),
               three = group({TestDevice(0), TestDevice(1), TestDevice(2)}, {3, 1, 2});
    InitialiseEqually({one.get(), two.get(), three.get()}, 5);
    const Batch batch{.data = {RandomTensor({samples, 2, 7, 7}, 3)}};
    for (DataParallelExecutorGroup* g : {one.get(), two.get(), three.get()}) {
      g->Forward(batch);
      g->Backward();
    }
    const HostTensor expected = one->Outputs()[0].ToHost();
    EXPECT_EQ(expected.shape(), Shape{samples});
    double largest = 0;
    for (const DataParallelExecutorGroup* g : {two.get(), three.get()}) {
      const HostTensor output = g->Outputs()[0].ToHost();
      ASSERT_EQ(output.shape(), expected.shape());
      for (int64_t i = 0; i < samples; ++i) EXPECT_NEAR(output.At(i), expected.At(i), 1e-5);
      for (const std::string& name : parameters) {
        const HostTensor whole = SumOfGradients(*one, name), sum = SumOfGradients(*g, name);
        for (int64_t i = 0; i < whole.elements(); ++i) {
          EXPECT_NEAR(sum.At(i), whole.At(i), 1e-4) << name;
          largest = std::max(largest, std::abs(whole.At(i)));
        }
      }
    }
    EXPECT_GT(largest, 1e-2);
  }
}

// A batch that the penalty's own parts are computed of: the mean over it.
TEST(GroupPenalty, AMeanOverTheBatchFollowsIt) {
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 3}, .layout = "NC"});
  const Symbol mean = MakeLoss(Mean(Square(data)), {}, "mean");
  const Symbol gradient = Gradient(mean, std::vector<std::string>{"data"}).gradients[0];
  for (const int64_t samples : {2, 5}) {
    DataParallelExecutorGroup group(
        gradient, {.devices = {TestDevice(0)}, .data = {{"data", {samples, 3}}}, .for_training = false});
    const HostTensor x = RandomTensor({samples, 3}, 1);
    group.Forward(Batch{.data = {x}});
    const HostTensor dx = group.Outputs()[0].ToHost();
    for (int64_t i = 0; i < x.elements(); ++i) {
      EXPECT_NEAR(dx.At(i), 2 * x.At(i) / static_cast<double>(3 * samples), 1e-6);
    }
  }
}

}  // namespace
}  // namespace bindery
