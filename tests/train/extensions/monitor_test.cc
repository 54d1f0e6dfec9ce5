// A monitor's records of the two-layer sigmoid net whose numbers are worked out by hand, and of a training.
#include "train/loop/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// x = (0.05, 0.1) -> W x + b -> sigmoid -> W x + b -> sigmoid -> (y - (0.01, 0.99))^2, its gradient times 2.
Symbol Net() {
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc_0");
  x = Sigmoid(x, "act_0");
  x = Sigmoid(FullyConnected(x, {.num_hidden = 2}, "fc_1"), "act_1");
  return LinearRegressionOutput(x, Variable("softmax_label"), {.grad_scale = 2}, "softmax");
}
const HostTensorMap& Params() {
  static const HostTensorMap params = {{"fc_0_weight", HostTensor::From({2, 2}, {0.15F, 0.2F, 0.25F, 0.3F})},
                                       {"fc_0_bias", HostTensor::From({2}, {0.35F, 0.35F})},
                                       {"fc_1_weight", HostTensor::From({2, 2}, {0.4F, 0.45F, 0.5F, 0.55F})},
                                       {"fc_1_bias", HostTensor::From({2}, {0.6F, 0.6F})}};
  return params;
}
Batch TheBatch() {
  return {.data = {HostTensor::From({1, 2}, {0.05F, 0.1F})},
          .label = {HostTensor::From({1, 2}, {0.01F, 0.99F})},
          .samples = 1};
}

double Root(double a, double b) { return std::sqrt((a * a + b * b) / 2); }
double Root(double a, double b, double c, double d) { return std::sqrt((a * a + b * b + c * c + d * d) / 4); }

TEST(MonitorTest, RecordsWhatWasWorkedOutByHand) {
  DataParallelExecutorGroup group(
      Net(), {.devices = {TestDevice(0)}, .data = {{"data", {1, 2}}}, .labels = {{"softmax_label", {1, 2}}}});
  group.SetParams(Params(), {});
  Monitor monitor({.arguments = true});
  ASSERT_TRUE(monitor.Begin(&group, 1));
  group.Forward(TheBatch());
  group.Backward();
  std::map<std::string, double> values;
  for (const MonitorRecord& record : monitor.End(&group)) {
    EXPECT_EQ(record.step, 1);
    EXPECT_TRUE(values.emplace(record.name, record.value).second) << record.name;
  }
  const std::map<std::string, double> expected = {
      {"fc_0_output", Root(0.3775, 0.3925)},
      {"act_0_output", Root(0.593269992, 0.596884378)},
      {"fc_1_output", Root(1.105905967, 1.224921404)},
      {"act_1_output", Root(0.751365070, 0.772928465)},
      {"softmax_output", Root(0.751365070, 0.772928465)},
      {"fc_0_weight", Root(0.15, 0.2, 0.25, 0.3)},
      {"fc_1_bias", 0.6},
      {"fc_1_bias_grad", Root(0.138498562, -0.038098237)},
      {"fc_1_weight_grad", Root(0.082167041, 0.082667628, -0.022602540, -0.022740242)},
      {"fc_0_bias_grad", Root(0.008771355, 0.009954255)},
      {"fc_0_weight_grad", Root(0.000438568, 0.000877135, 0.000497713, 0.000995425)}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(values.contains(name)) << name;
    EXPECT_NEAR(values.at(name), value, 2e-7) << name;
  }
  EXPECT_EQ(group.watch(), "") << "the next step is as if there were no monitor";
}

TEST(MonitorTest, PatternIntervalOrderAndStatistic) {
  DataParallelExecutorGroup group(
      Net(), {.devices = {TestDevice(0)}, .data = {{"data", {1, 2}}}, .labels = {{"softmax_label", {1, 2}}}});
  group.SetParams(Params(), {});
  std::vector<MonitorRecord> given;
  Monitor monitor({.pattern = "^(softmax|act_.)_output$|bias$",
                   .interval = 3,
                   .arguments = true,
                   .sorted = true,
                   .statistic = [](const HostTensor& value) { return value.At(0); },
                   .sink = [&](const std::vector<MonitorRecord>& records) { given = records; }});
  std::vector<int64_t> watched;
  for (int64_t step = 1; step <= 7; ++step) {
    const bool is_watched = monitor.Begin(&group, step);
    group.Forward(TheBatch());
    group.Backward();
    if (!is_watched) continue;
    watched.push_back(step);
    const std::vector<MonitorRecord> records = monitor.End(&group);
    std::vector<std::string> names;
    for (const MonitorRecord& record : records) names.push_back(record.name);
    EXPECT_EQ(names,
              (std::vector<std::string>{"act_0_output", "act_1_output", "fc_0_bias", "fc_1_bias", "softmax_output"}));
    EXPECT_NEAR(records[0].value, 0.593269992, 1e-6);
    EXPECT_EQ(records[0].device, TestDevice(0));
    EXPECT_FALSE(records[2].device) << "parameters are the same on all devices";
    EXPECT_EQ(given.size(), records.size());
  }
  EXPECT_EQ(watched, (std::vector<int64_t>{1, 4, 7}));
  EXPECT_NE(MessageOf<Error>([] { Monitor({.pattern = "("}); }).find("not a regular expression"), std::string::npos);
  EXPECT_NE(MessageOf<Error>([] { Monitor({.interval = 0}); }).find("at least 1"), std::string::npos);
}

TEST(MonitorTest, FitIsWatchedAndTrainsTheSame) {
  HostTensor data(DType::kFloat32, {20, 2}), label(DType::kFloat32, {20, 2});
  for (int64_t i = 0; i < 40; ++i) {
    data.Set(i, std::sin(static_cast<double>(i)));
    label.Set(i, 0.5 + 0.4 * std::cos(static_cast<double>(i)));
  }
  const TrainerOptions options{
      .devices = {TestDevice(0), TestDevice(1)}, .optimizer = "sgd(lr=0.5, momentum=0.9)", .metrics = "mse"};
  ArrayIter plain(data, label, {.batch_size = 4}), watched(data, label, {.batch_size = 4});
  const Model start{.symbol = Net(), .params = Params()};
  Trainer without(start, options), with(start, options);
  without.Fit(plain, {.epochs = 3});
  std::map<int64_t, std::vector<MonitorRecord>> records;
  Monitor monitor(
      {.pattern = "^act_1_output$|^fc_1_weight$", .interval = 4, .arguments = true, .sink = [&](const auto& r) {
         records[r.at(0).step] = r;
       }});
  std::map<int64_t, double> weights;  // the same, as they are after each step
  with.Fit(watched, {.epochs = 3,
                     .on_batch =
                         [&](const BatchReport& report) {
                           if ((report.step - 1) % 4 != 0) return;
                           HostTensorMap params;
                           with.group()->GetParams(&params, nullptr);
                           weights[report.step] = RootMeanSquare(params.at("fc_1_weight"));
                         },
                     .monitor = &monitor});
  // Up to rounding: what is kept is not fused into what follows.
  const HostTensorMap a = with.ToModel().params, b = without.ToModel().params;
  for (const auto& [name, value] : b) EXPECT_LE(MaxAbsDiff(a.at(name), value), 1e-6) << name;
  ASSERT_EQ(records.size(), 4u);  // of 15 steps
  for (const auto& [step, list] : records) {
    EXPECT_EQ((step - 1) % 4, 0);
    ASSERT_EQ(list.size(), 3u);  // an output of each device, and the parameter
    EXPECT_EQ(list[0].device, TestDevice(0));
    EXPECT_EQ(list[1].device, TestDevice(1));
    EXPECT_EQ(list[2].value, weights.at(step));
  }
}

// The step's own error, as without a monitor.
TEST(MonitorTest, AStepThatDivergesIsExplainedAsEver) {
  HostTensor data(DType::kFloat32, {4, 2}), label(DType::kFloat32, {4, 2});
  data.Set(0, NAN);
  Monitor monitor;
  const auto fit = [&](Monitor* m) {
    ArrayIter bad(data, label, {.batch_size = 4});
    Trainer trainer(Model{.symbol = Net(), .params = Params()}, {.devices = {TestDevice(0)}, .metrics = "mse"});
    const std::string message = MessageOf<NumericError>([&] { trainer.Fit(bad, {.epochs = 1, .monitor = m}); });
    EXPECT_EQ(trainer.group()->watch(), "");
    return message;
  };
  EXPECT_EQ(fit(&monitor), fit(nullptr));
  EXPECT_NE(fit(&monitor).find("the data are not finite"), std::string::npos);
}

}  // namespace
}  // namespace bindery
