// Recomputation: the same bits in less memory, whatever the graph and however little is kept.
#include "executor/plan/mirror.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "symbol/passes/recompute.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/initializer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 8, kWidth = 12;

// All that a step gives.
struct StepValues {
  std::vector<HostTensor> outputs;
  HostTensorMap gradients, statistics;
  bool operator==(const StepValues&) const = default;
};

// Layers of all kinds in an order by `seed`, with branches that meet again.
Symbol RandomNet(uint64_t seed) {
  PhiloxStream random(seed, "mirror");
  std::vector<Symbol> values = {Variable("data")};
  const auto draw = [&](size_t n) { return static_cast<size_t>(random.Below(n)); };
  for (int i = 0; i < 14; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const Symbol x = values[values.size() - 1 - draw(std::min<size_t>(3, values.size()))];
    const Symbol y = values[draw(values.size())];
    Symbol z;
    switch (draw(11)) {
      case 0: z = FullyConnected(x, {.num_hidden = kWidth}, name); break;
      case 1: z = Tanh(x, name); break;
      case 2: z = Relu(FullyConnected(x, {.num_hidden = kWidth}, name), name + "_relu"); break;
      case 3: z = Dropout(x, {.p = 0.4}, name); break;
      case 4: z = BatchNorm(x, {.fix_gamma = false}, name); break;
      case 5: z = Relu(BatchNorm(x, {}, name), name + "_relu"); break;
      case 6: z = LayerNorm(x, -1, 1e-5, name); break;
      case 7: z = Add(x, y, name); break;
      case 8: z = Mul(Sigmoid(x, name + "_gate"), y, name); break;
      case 9: z = Softmax(x, {}, name); break;
      default:  // a view on the way
        z = Reshape(Exp(Tanh(Reshape(x, {.shape = {-1, 3, 4}}, name + "_out"), name + "_tanh"), name),
                    {.shape = {-1, kWidth}}, name + "_back");
    }
    values.push_back(z);
  }
  return SoftmaxOutput(FullyConnected(values.back(), {.num_hidden = 3}, "scores"), {}, "softmax");
}

Executor Bound(const Symbol& net, const Mirror& mirror, CompileSwitches switches = {}) {
  return Executor(net, {.device = TestDevice(1),
                        .inputs = {{"data", {kSamples, kWidth}}, {"softmax_label", {kSamples}}},
                        .mirror = mirror,
                        .threads = 1,
                        .seed = 5,
                        .switches = switches});
}

// Two steps, so that what the first leaves in memory would show in the second.
StepValues Train(Executor& net) {
  Initialise(&net, 3);
  StepValues values;
  for (uint64_t step = 0; step < 2; ++step) {
    const Batch batch = RandomBatch(kSamples, kWidth, 3, 7 + step);
    net.Forward({{"data", batch.data[0]}, {"softmax_label", batch.label[0]}}, Mode::kTrain);
    net.Backward();
  }
  values.outputs = net.Outputs();
  for (const std::string& name : net.param_names()) values.gradients[name] = net.Gradient(name);
  HostTensorMap args;
  net.GetParams(&args, &values.statistics);
  return values;
}

int CallsAgain(const Plan& plan) { return static_cast<int>(std::ranges::count(plan.calls, true, &PlanCall::again)); }

TEST(MirrorTest, RandomGraphsGiveTheSameBits) {
  int again = 0, smaller = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Symbol net = RandomNet(seed);
    for (const CompileSwitches& switches : {CompileSwitches{}, CompileSwitches{.policy = KernelPolicy::kReference},
                                            CompileSwitches{.fusion = false, .inplace = false}}) {
      Executor plain = Bound(net, {}, switches);
      const StepValues expected = Train(plain);
      const int64_t without = plain.plan().arena_bytes;
      EXPECT_EQ(CallsAgain(plain.plan()), 0);
      Executor least = Bound(net, {.least = true}, switches);
      EXPECT_EQ(Train(least), expected) << seed;
      const int64_t with = least.plan().arena_bytes;
      EXPECT_LE(with, without);
      again += CallsAgain(least.plan());
      smaller += with < without;
      const int64_t between = (with + without) / 2;
      Executor some = Bound(net, {.bytes = between}, switches);
      EXPECT_EQ(Train(some), expected) << seed;
      EXPECT_LE(some.plan().arena_bytes, between);
      EXPECT_LE(CallsAgain(some.plan()), CallsAgain(least.plan())) << seed;
    }
  }
  EXPECT_GT(again, 100);
  EXPECT_GT(smaller, 45);  // of 90
}

// Convolutions, batch-norm and sums; dropout; attention: on two devices.
struct ZooNet {
  std::string model;
  Shape data, label;
};
std::vector<ZooNet> ZooNets() {
  return {{"lenet", {6, 1, 28, 28}, {6}},
          {"resnet20", {6, 3, 32, 32}, {6}},
          {"gpt(layers=2, width=16, heads=2, classes=20, context=12)", {4, 12}, {4, 12}}};
}

std::unique_ptr<DataParallelExecutorGroup> GroupOf(const ZooNet& net, const Mirror& mirror) {
  return std::make_unique<DataParallelExecutorGroup>(ModelByName(net.model, {.dropout = 0.3}),
                                                     GroupOptions{.devices = {TestDevice(0), TestDevice(1)},
                                                                  .workload = {1, 2},
                                                                  .data = {{"data", net.data}},
                                                                  .labels = {{"softmax_label", net.label}},
                                                                  .mirror = mirror,
                                                                  .threads_per_device = 1,
                                                                  .seed = 11});
}

// Halfway, on the device that can spare least, to the least working memory, as a share of that without.
double HalfwayShare(const ZooNet& net) {
  const auto plain = GroupOf(net, {}), least = GroupOf(net, {.least = true});
  double share = 0;
  for (int d = 0; d < 2; ++d) {
    share = std::max(share,
                     static_cast<double>(least->plan(d).arena_bytes) / static_cast<double>(plain->plan(d).arena_bytes));
  }
  return (1 + share) / 2;
}

TEST(MirrorTest, NetworksGiveTheSameBitsInLessMemory) {
  for (const ZooNet& net : ZooNets()) {
    const double limit = HalfwayShare(net);
    EXPECT_LT(limit, net.model == "resnet20" ? 0.9 : 1) << net.model;
    const auto plain = GroupOf(net, {}), mirrored = GroupOf(net, {.share = limit});
    InitialiseEqually({plain.get(), mirrored.get()}, 2);
    Batch batch{.data = {RandomTensor(net.data, 1)}, .label = {HostTensor(DType::kFloat32, net.label)}};
    PhiloxStream random(4, "classes");
    if (net.data.rank() == 2) {
      for (float& v : batch.data[0].data<float>()) v = static_cast<float>(random.Below(20));
    }
    for (float& v : batch.label[0].data<float>()) v = static_cast<float>(random.Below(10));
    for (int step = 0; step < 2; ++step) {
      for (auto* group : {plain.get(), mirrored.get()}) group->ForwardBackward(std::make_shared<const Batch>(batch));
    }
    for (const std::string& name : plain->param_names()) {
      for (int d = 0; d < 2; ++d) EXPECT_EQ(mirrored->GetGradient(name, d), plain->GetGradient(name, d)) << name;
    }
    EXPECT_EQ(mirrored->Outputs()[0].ToHost(), plain->Outputs()[0].ToHost());
    HostTensorMap args, statistics, mirrored_args, mirrored_statistics;
    plain->GetParams(&args, &statistics);
    mirrored->GetParams(&mirrored_args, &mirrored_statistics);
    EXPECT_EQ(mirrored_statistics, statistics);  // moved once
    for (int d = 0; d < 2; ++d) {
      const double share =
          static_cast<double>(mirrored->plan(d).arena_bytes) / static_cast<double>(plain->plan(d).arena_bytes);
      EXPECT_LE(share, limit) << net.model;
      EXPECT_GT(CallsAgain(mirrored->plan(d)), 0) << net.model;
      EXPECT_EQ(mirrored->memory(d).arena, mirrored->plan(d).arena_bytes);
    }
  }
}

TEST(MirrorTest, WhatIsPlannedIsBound) {
  const ZooNet net = ZooNets()[1];
  const auto bound = GroupOf(net, {.share = HalfwayShare(net)});
  const std::vector<DevicePlan> plans = DataParallelExecutorGroup::MakePlans(bound->symbol(), bound->options());
  ASSERT_EQ(plans.size(), 2u);
  for (int d = 0; d < 2; ++d) EXPECT_EQ(plans[static_cast<size_t>(d)].plan, bound->plan(d));
}

TEST(MirrorTest, PredictionsComputeNothingAgain) {
  const auto group = GroupOf(ZooNets()[1], {.least = true});
  group->Forward(Batch{.data = {RandomTensor({6, 3, 32, 32}, 1)}}, Mode::kPredict);
  for (int d = 0; d < 2; ++d) EXPECT_EQ(CallsAgain(group->plan(d)), 0);
}

// Statistics of all devices: exchanges stay where they are.
TEST(MirrorTest, SynchronisedBatchNormGivesTheSameBits) {
  const auto net = [] {
    Symbol x = Variable("data");
    for (int i = 0; i < 3; ++i) {
      x = FullyConnected(x, {.num_hidden = 40}, "fc" + std::to_string(i));
      x = Relu(BatchNorm(x, {.fix_gamma = false, .sync = true}, "norm" + std::to_string(i)),
               "relu" + std::to_string(i));
    }
    return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "scores"), {}, "softmax");
  };
  std::vector<std::unique_ptr<DataParallelExecutorGroup>> groups;
  for (const Mirror& mirror : {Mirror{}, Mirror{.least = true}}) {
    groups.push_back(std::make_unique<DataParallelExecutorGroup>(
        net(), GroupOptions{.devices = {TestDevice(0), TestDevice(1), TestDevice(2)},
                            .data = {{"data", {24, 5}}},
                            .labels = {{"softmax_label", {24}}},
                            .mirror = mirror,
                            .threads_per_device = 1}));
  }
  InitialiseEqually({groups[0].get(), groups[1].get()}, 4);
  const auto batch = std::make_shared<const Batch>(RandomBatch(24, 5, 3, 6));
  for (const auto& group : groups) group->ForwardBackward(batch);
  for (const std::string& name : groups[0]->param_names()) {
    for (int d = 0; d < 3; ++d) EXPECT_EQ(groups[1]->GetGradient(name, d), groups[0]->GetGradient(name, d)) << name;
  }
  EXPECT_GT(CallsAgain(groups[1]->plan()), 0);
  EXPECT_LT(groups[1]->plan().arena_bytes, groups[0]->plan().arena_bytes);
}

TEST(MirrorTest, AnnotationsDecideAboutSingleNodes) {
  const auto net = [](const char* force, const char* key) {
    const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 50}, "fc1");
    Symbol y = Tanh(x, "tanh");
    if (force) y = y.WithAnnotation(key, force);
    return SoftmaxOutput(FullyConnected(y, {.num_hidden = 3}, "fc2"), {}, "softmax");
  };
  const CompileSwitches apart{.fusion = false};
  const auto again = [&](const char* force, const Mirror& mirror, const char* key = "force_mirroring") {
    Executor bound = Bound(net(force, key), mirror, apart);
    Train(bound);
    std::vector<std::string> nodes;
    for (const PlanCall& call : bound.plan().calls) {
      if (call.again) nodes.push_back(call.node);
    }
    return nodes;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(again(nullptr, {}), Names());
  EXPECT_EQ(again("True", {}), (Names{"fc1", "tanh"}));                         // of the first layer nothing is kept
  EXPECT_EQ(again("True", {}, "__force_mirroring__"), (Names{"fc1", "tanh"}));  // of a file of MXNet
  EXPECT_EQ(again("False", {.least = true}), Names());
}

TEST(MirrorTest, WhatCannotBeKeptIsAnError) {
  const Symbol net = RandomNet(1);
  Executor least = Bound(net, {.least = true});
  Train(least);
  const std::string message = MessageOf<DeviceError>([&] {
    Executor bound = Bound(net, {.bytes = 100});
    Train(bound);
  });
  EXPECT_NE(message.find("mirror: 100 bytes of working memory are too few: "), std::string::npos) << message;
  EXPECT_NE(message.find(fmt::format("{} at least with it", least.plan().arena_bytes)), std::string::npos) << message;
  const auto bind = [&](const Mirror& mirror) {
    return MessageOf([&] {
      Executor bound = Bound(net, mirror);
      Train(bound);
    });
  };
  EXPECT_EQ(bind({.bytes = -2}), "Error: mirror: expected bytes of working memory, got -2");
  EXPECT_NE(bind({.share = 0}).find("expected a share of the working memory above 0 and up to 1"), std::string::npos);
  EXPECT_NE(bind({.bytes = Mirror::kAutomatic}).find("found out by whoever trains"), std::string::npos);
}

}  // namespace
}  // namespace bindery
