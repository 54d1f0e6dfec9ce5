// Workloads that follow how fast devices are.
#include "train/balance.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "executor/custom_operator.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_folder.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// Takes its time for every sample: on a simulated device, which has the reference kernel, four times that of a CPU.
constexpr int kMicroseconds = 750;  // a sample; threads may be kept waiting for some milliseconds

std::atomic<std::thread::id> slow_worker;  // of a CPU that is as slow, if there is one

void Rest(int64_t samples, int factor) {
  if (std::this_thread::get_id() == slow_worker.load()) factor = 4;
  std::this_thread::sleep_for(std::chrono::microseconds(samples * factor * kMicroseconds));
}

void MakeSlow(Device device) {
  const VarPtr done = DefaultEngine()->NewVar();
  DefaultEngine()->Push({.name = "slow", .device = device, .writes = {done}, .run = [](const OpContext&) {
                           slow_worker = std::this_thread::get_id();
                         }});
  DefaultEngine()->Wait(done);
}

MaybeKernel MakeSlower(const KernelSpec& spec) {
  return InDouble(spec, [shape = spec.outputs[0].shape](const Tensors& t) {
    for (int64_t i = 0; i < shape.Elements(); ++i) t.out[0][i] = t.in[0][i];
    Rest(shape[0], 4);
  });
}

MaybeKernel MakeFaster(const KernelSpec& spec) {
  return WithLoop(PlainKernel(spec, "slow"), [shape = spec.outputs[0].shape](const Arguments& a) {
    for (int64_t i = 0; i < shape.Elements(); ++i) a.out(0)[i] = a.in(0)[i];
    Rest(shape[0], 1);
  });
}

const OpDef& SlowOp() {
  static const OpDef& op = [&]() -> const OpDef& {
    AddReferenceKernel("Slow", MakeSlower);
    AddKernel("Slow", MakeFaster);
    return AddOp({.name = "Slow",
                  .doc = "y = x, later",
                  .infer = rule::Like(0),
                  .gradient = [](const GradientContext& g) -> std::vector<Symbol> { return {g.output_grad(0)}; }});
  }();
  return op;
}

Symbol Net() {
  const Symbol x = Apply(SlowOp(), {}, {Variable("data")}, "slow");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc"), {}, "softmax");
}

ArrayIter Points() { return ArrayIter(Sines({40, 4}), ClassesInTurn(40, 3), {.batch_size = 20}); }

TrainerOptions On(const std::string& balance, int64_t block = 0) {
  return {.devices = {Sim(0), Cpu(0)},
          .optimizer = "sgd(lr=0.1, momentum=0.9)",
          .reproducible_block = block,
          .balance = balance,
          .threads_per_device = 1};
}

TEST(Balance, ReadsAndWritesText) {
  EXPECT_FALSE(ParseBalancing("").has_value());
  EXPECT_EQ(*ParseBalancing("measured"), Balancing());
  const Balancing some = {.every = 7, .first = 2, .damping = 0.25, .gain = 0, .until = 100};
  EXPECT_EQ(*ParseBalancing("measured(7, 0.25, 0, first=2, until=100)"), some);
  EXPECT_EQ(*ParseBalancing(some.Text()), some);
  for (const auto& [text, message] : {std::pair("guessed", "unknown balance \"guessed\""),
                                      {"measured(every=0)", "every must be >= 1"},
                                      {"measured(damping=0)", "damping must be in (0, 1]"},
                                      {"measured(gain=1)", "gain must be in [0, 1)"},
                                      {"measured(first=0)", "first must be >= 1"},
                                      {"measured(until=-1)", "until must be >= 0"}}) {
    EXPECT_NE(MessageOf<Error>([&, t = text] { ParseBalancing(t); }).find(message), std::string::npos) << text;
  }
}

TEST(Balance, SpeedsFollowMeasurementsByTheirDamping) {
  std::vector<double> speeds = {0, 0, 0};
  MoveSpeeds({10, 20, 0}, {1, 1, 0.5}, 0.5, &speeds);
  EXPECT_EQ(speeds, (std::vector<double>{10, 20, 15}));  // of the last nothing is known but what the others do
  MoveSpeeds({10, 20, 0}, {0.5, 2, 0.5}, 0.5, &speeds);
  EXPECT_EQ(speeds, (std::vector<double>{15, 15, 15}));
  MoveSpeeds({10, 20, 3}, {1, 1, 0.1}, 1, &speeds);
  EXPECT_EQ(speeds, (std::vector<double>{10, 20, 30}));
}

TEST(Balance, GainIsThatOfTheSlowestDevice) {
  EXPECT_DOUBLE_EQ(GainOf({10, 10}, {1, 1}), 0);
  EXPECT_DOUBLE_EQ(GainOf({10, 10}, {4, 1}), 1 - 4.0 / 10);  // 16 and 4
  EXPECT_DOUBLE_EQ(GainOf({16, 4}, {4, 1}), 0);
  EXPECT_LT(GainOf({1, 1}, {1.4, 1}), 0.3);  // one sample each is all that there is
}

// Noise around equal speeds moves nothing that would have to be bound again.
TEST(Balance, NoiseDoesNotSwingIt) {
  std::vector<double> speeds = {0, 0};
  for (int i = 0; i < 100; ++i) {
    const double noise = 1 + 0.08 * std::sin(i * i);
    MoveSpeeds({32, 32}, {0.01 * noise, 0.01 / noise}, 0.5, &speeds);
    EXPECT_LT(GainOf({32, 32}, speeds), 0.08) << i;
  }
}

TEST(Balance, TheSlowDeviceGetsLess) {
  ArrayIter plain_data = Points(), data = Points();
  Trainer plain(Net(), On("")), balanced(Net(), On("measured(every=3, gain=0.02)"));
  plain.Fit(plain_data, {.epochs = 12});
  const LogLines log;
  balanced.Fit(data, {.epochs = 12});
  const std::vector<std::string> lines = log.lines();
  EXPECT_EQ(plain.workload(), (std::vector<double>{1, 1}));
  EXPECT_EQ(plain.group()->slices()[0].size(), 10);
  // Of 20 samples, by speeds of 1 to 4, it would be 4.
  EXPECT_LE(balanced.group()->slices()[0].size(), 6);
  EXPECT_GE(balanced.group()->slices()[0].size(), 1);
  EXPECT_EQ(balanced.workload()[1], 1);
  EXPECT_LT(balanced.workload()[0], 0.45);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines[0].starts_with("balance: sim:0 10 samples in ")) << lines[0];
  EXPECT_NE(lines[0].find(" ms, cpu:0 10 samples in "), std::string::npos) << lines[0];
  EXPECT_LT(lines.size(), 6u);  // it has settled
  EXPECT_LT(MostDifferent(balanced.ToModel().params, plain.ToModel().params), 1e-5);
}

TEST(Balance, IsInCheckpoints) {
  const TestFolder made;
  const std::string& folder = made.path();
  ArrayIter data = Points(), again = Points(), frozen = Points();
  const std::string balance = "measured(every=2, gain=0.02)";
  Trainer first(Net(), On(balance)), second(Net(), On(balance)), third(Net(), On(balance));
  first.Fit(data, {.epochs = 6, .checkpoints = folder});
  const std::vector<double> workload = first.workload();
  EXPECT_LT(workload[0], 0.6);
  second.Fit(again, {.epochs = 7, .checkpoints = folder, .resume = true});
  EXPECT_LT(second.group()->slices()[0].size(), 8);
  second.FreezeWorkload();
  const std::vector<double> kept = second.workload();
  second.Fit(again, {.epochs = 9, .checkpoints = folder});
  EXPECT_EQ(second.workload(), kept);
  third.Fit(frozen, {.epochs = 12, .checkpoints = folder, .resume = true});
  EXPECT_EQ(third.workload(), kept);
  EXPECT_EQ(third.group()->options().workload, kept);
  // Without a balance, the options' workload counts; of other devices, none.
  ArrayIter others = Points();
  Trainer fixed(Net(), On(""));
  fixed.Fit(others, {.epochs = 13, .checkpoints = folder, .resume = true});
  EXPECT_EQ(fixed.workload(), (std::vector<double>{1, 1}));
}

TEST(Balance, TextThatIsNoBalanceIsRefused) {
  Balancer balancer(Balancing(), {1, 2}, 2), other(Balancing(), {}, 3);
  EXPECT_EQ(balancer.workload(), (std::vector<double>{1, 2}));
  Balancer read(Balancing(), {}, 2);
  read.Set(balancer.Text());
  EXPECT_EQ(read.workload(), balancer.workload());
  EXPECT_FALSE(read.frozen());
  balancer.Freeze();
  read.Set(balancer.Text());
  EXPECT_TRUE(read.frozen());
  other.Set(balancer.Text());  // of two devices
  EXPECT_EQ(other.workload(), (std::vector<double>{1, 1, 1}));
  EXPECT_FALSE(other.frozen());
  for (const char* text : {"", "1:2", "1:2 1:1", "1:2 1:x frozen", "0:0 1:1 frozen", "1:2 1 measured", "1:2 1:2 thawed",
                           "1:-2 1:2 frozen", "1:nan 1:2 frozen"}) {
    EXPECT_NE(MessageOf<CheckpointError>([&] { read.Set(text); }), "nothing was thrown") << text;
  }
  EXPECT_EQ(read.workload(), (std::vector<double>{1, 2}));
}

TEST(Balance, StopsWhereItIsTold) {
  Balancer balancer(ParseBalancing("measured(every=4, first=2, until=8)"), {}, 2);
  std::vector<int> due;
  for (int step = 1; step <= 20; ++step) {
    if (balancer.IsDue()) due.push_back(step);
    balancer.BeginStep(nullptr);
  }
  EXPECT_EQ(due, (std::vector<int>{2, 6}));
  EXPECT_FALSE(Balancer(ParseBalancing("measured(first=1)"), {}, 1).IsDue());
  EXPECT_FALSE(Balancer().IsDue());
}

// Whole blocks are shared out, and the bits stay those of any other workload.
TEST(Balance, OfBlocksChangesNoBit) {
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax");
  HostTensorMap expected;
  for (const char* balance : {"", "measured(every=1, first=1, gain=0, damping=1)"}) {
    ArrayIter data = Points();
    TrainerOptions options = On(balance, 3);
    options.devices = {Cpu(0), Cpu(1)};
    Trainer trainer(net, options);
    trainer.Fit(data, {.epochs = 10});
    if (expected.empty()) expected = trainer.ToModel().params;
    EXPECT_EQ(trainer.ToModel().params, expected);
  }
  ArrayIter data = Points();
  MakeSlow(Cpu(0));
  TrainerOptions options = On("measured(every=2, gain=0.02)", 2);
  options.devices = {Cpu(0), Cpu(1)};
  Trainer slow(Net(), options);
  slow.Fit(data, {.epochs = 10});
  slow_worker = std::thread::id();
  EXPECT_LT(slow.workload()[0], 0.5);
  EXPECT_EQ(slow.updater()->workload(), slow.workload());
}

TEST(Balance, OfGroupsWhoseWorkloadIsSet) {
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax");
  const HostTensor data = HostTensor::Full(DType::kFloat32, {8, 4}, 0.5);
  DataParallelExecutorGroup group(net,
                                  {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {8, 4}}}, .for_training = false});
  const auto predict = [&] {
    group.Forward(Batch{.data = {data}});
    return group.Outputs()[0].ToHost();
  };
  const HostTensor before = predict();
  group.SetWorkload({3, 1});
  EXPECT_NE(MessageOf<Error>([&] { group.Outputs(); }).find("nothing has run yet"), std::string::npos);
  EXPECT_EQ(group.slices()[0].size(), 6);
  EXPECT_EQ(predict(), before);
  EXPECT_EQ(group.slices()[0].size(), 6);
  group.SetWorkload({0, 1});
  EXPECT_EQ(predict(), before);
  EXPECT_EQ(group.slices()[0].size(), 0);
  for (const std::vector<double>& bad : {std::vector<double>{1}, {1, -1}, {0, 0}}) {
    EXPECT_NE(MessageOf<Error>([&] { group.SetWorkload(bad); }), "nothing was thrown");
  }
  EXPECT_EQ(group.options().workload, (std::vector<double>{0, 1}));
  EXPECT_EQ(predict(), before);
}

}  // namespace
}  // namespace bindery
