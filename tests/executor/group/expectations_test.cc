// Published expectations that no other test names (docs/group.md).
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

HostTensor Rows(const Shape& shape, std::vector<float> values) { return HostTensor::From(shape, std::move(values)); }

void ExpectNear(const HostTensor& tensor, const std::vector<double>& expected) {
  ASSERT_EQ(tensor.elements(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(tensor.At(static_cast<int64_t>(i)), expected[i], 1e-6) << i;
}

TEST(Expectations, ATwoLayerSigmoidNet) {  // E14
  Symbol x = Sigmoid(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc0"));
  x = Sigmoid(FullyConnected(x, {.num_hidden = 2}, "fc1"));
  const Symbol net = LinearRegressionOutput(x, Variable("label"), {.grad_scale = 2}, "out");
  Executor executor(net, {.device = TestDevice(), .inputs = {{"data", {1, 2}}, {"label", {1, 2}}}});
  executor.SetParams({{"fc0_weight", Rows({2, 2}, {.15f, .20f, .25f, .30f})},
                      {"fc0_bias", Rows({2}, {.35f, .35f})},
                      {"fc1_weight", Rows({2, 2}, {.40f, .45f, .50f, .55f})},
                      {"fc1_bias", Rows({2}, {.60f, .60f})}});
  executor.Forward({{"data", Rows({1, 2}, {.05f, .10f})}, {"label", Rows({1, 2}, {.01f, .99f})}});
  executor.Backward();
  ExpectNear(executor.Output(0), {0.751365070, 0.772928465});
  ExpectNear(executor.Gradient("fc1_bias"), {0.138498562, -0.038098237});
  ExpectNear(executor.Gradient("fc1_weight"), {0.082167041, 0.082667628, -0.022602540, -0.022740242});
  ExpectNear(executor.Gradient("fc0_bias"), {0.008771355, 0.009954255});
  ExpectNear(executor.Gradient("fc0_weight"), {0.000438568, 0.000877135, 0.000497713, 0.000995425});
}

TEST(Expectations, PowersByMultiplication) {  // E33
  for (const GradReq request : {GradReq::kWrite, GradReq::kAdd}) {
    for (int n = 1; n <= 9; ++n) {
      const Symbol a = Variable("a");
      Symbol y = Variable("b");
      for (int i = 0; i < n; ++i) y = y * a;
      Executor executor(y, {.device = TestDevice(),
                            .inputs = {{"b", {1}}, {"a", {1}}},
                            .grad_req = std::map<std::string, GradReq>{{"a", request}}});
      executor.Forward({{"a", Rows({1}, {1})}, {"b", Rows({1}, {2})}});
      executor.Backward(Rows({1}, {1}));
      EXPECT_EQ(executor.Gradient("a").At(0), 2 * n);
    }
  }
}

TEST(Expectations, ConvolutionGradientsByAnyRequests) {  // E34
  const Symbol net =
      Convolution(Variable("x"), Variable("w"), Variable("b"), {.num_filter = 3, .kernel = {2, 2}}, "conv");
  const Shape shape = {2, 3, 4, 4};
  const HostTensor head = RandomTensor({2, 3, 3, 3}, 4);
  const auto run = [&](const std::map<std::string, GradReq>& requests) {
    auto executor = std::make_unique<Executor>(
        net, ExecutorOptions{.device = TestDevice(), .inputs = {{"x", shape}}, .grad_req = requests});
    executor->SetParams({{"w", RandomTensor({3, 3, 2, 2}, 2)}, {"b", RandomTensor({3}, 3)}});
    executor->Forward({{"x", RandomTensor(shape, 1)}});
    executor->Backward(head);
    return executor;
  };
  const auto all = run({{"x", GradReq::kWrite}, {"w", GradReq::kWrite}, {"b", GradReq::kWrite}});
  constexpr GradReq kRequests[] = {GradReq::kNull, GradReq::kWrite, GradReq::kAdd};
  for (int combination = 1; combination < 27; ++combination) {
    const std::map<std::string, GradReq> requests = {
        {"x", kRequests[combination % 3]}, {"w", kRequests[combination / 3 % 3]}, {"b", kRequests[combination / 9]}};
    const auto executor = run(requests);
    for (const auto& [name, request] : requests) {
      if (request == GradReq::kNull) {
        EXPECT_THROW(executor->Gradient(name), Error) << name;
      } else {
        EXPECT_LT(MaxAbsDiff(executor->Gradient(name), all->Gradient(name)), 1e-5) << name << " " << combination;
      }
    }
  }
}

}  // namespace
}  // namespace bindery
