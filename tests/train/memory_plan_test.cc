// What is planned of memory is what is bound; how many micro-batches there are where memory decides.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/log_lines.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/memory.h"
#include "train/trainer.h"

namespace bindery {
namespace {

// 26 samples in batches of 8.
ArrayIter Points() { return ArrayIter(Sines({26, 4}), ClassesInTurn(26, 3), {.batch_size = 8}); }

// A wide layer, so that what grows with the batch counts.
Symbol Wide() {
  const Symbol x = Tanh(FullyConnected(Variable("data"), {.num_hidden = 500}, "fc1"), "tanh1");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc2"), {}, "softmax");
}

GroupOptions GroupOf(const ArrayIter& data, int devices) {
  return {.devices = TestDeviceList(devices),
          .data = data.ProvideData(),
          .labels = data.ProvideLabel(),
          .threads_per_device = 1,
          .seed = 3};
}

TEST(MemoryPlan, TheLargestNumberThatFits) {
  for (const int64_t largest : {0, 1, 2, 3, 7, 8, 9, 100}) {
    int asked = 0;
    const int64_t found = LargestThatFits(100, [&](int64_t n) { return ++asked, n <= largest; });
    EXPECT_EQ(found, largest);
    EXPECT_LE(asked, 14);
  }
}

TEST(MemoryPlan, IsWhatIsBound) {
  ArrayIter data = Points();
  const GroupOptions options = GroupOf(data, 3);
  const Optimizer adam = *MakeOptimizer("adam");
  const std::vector<MemoryNeed> needs = PlanMemory(Wide(), options, &adam);
  DataParallelExecutorGroup group(Wide(), options);
  ASSERT_EQ(needs.size(), 3u);
  int64_t states = 0;
  for (size_t d = 0; d < 3; ++d) {
    const MemoryReport bound = group.memory(static_cast<int>(d));
    EXPECT_EQ(needs[d].program.total(), bound.total()) << d;
    EXPECT_EQ(needs[d].program.arena, bound.arena) << d;
    EXPECT_EQ(needs[d].samples, group.slices()[d].size());
    states += needs[d].optimizer;
  }
  // Two states, on the host; by the devices: new weights and states besides.
  const int64_t trained = group.memory().parameters;
  EXPECT_EQ(states, OnCpusOnly() ? 2 * trained : 3 * 2 * trained + 3 * CeilDiv(4 * trained, 3));
  EXPECT_EQ(PlanMemory(Wide(), options, nullptr)[0].optimizer, 0);
}

TEST(MemoryPlan, SaysWhatIsShort) {
  const std::vector<MemoryNeed> needs = {{.device = Cpu(0), .program = {.arena = 3 << 20}},
                                         {.device = Sim(1), .program = {.arena = 2 << 20}, .optimizer = 2 << 20}};
  EXPECT_EQ(WhatIsShort(needs, 4 << 20), "");
  EXPECT_EQ(WhatIsShort(needs, (4 << 20) - 1), "sim:1 needs 4.0 MiB and has 4.0 MiB");
  EXPECT_EQ(WhatIsShort(needs, 1 << 20), "cpu:0 needs 3.0 MiB and has 1.0 MiB");
  EXPECT_EQ(WhatIsShort(needs, 0), "");
  const std::vector<MemoryNeed> much = {{.device = Cpu(0), .program = {.arena = int64_t{1} << 59}},
                                        {.device = Cpu(1), .program = {.arena = int64_t{1} << 59}}};
  EXPECT_NE(WhatIsShort(much, 0).find("cpu:0, cpu:1 together needs"), std::string::npos);
}

TEST(MemoryPlan, ChoosesTheFewestMicroBatches) {
  ArrayIter data = Points();
  const auto options = [&](int64_t limit) {
    return TrainerOptions{.devices = GroupOf(data, 2).devices,
                          .optimizer = "sgd(lr=0.2, momentum=0.9)",
                          .micro_batches = MicroBatches::kAutomatic,
                          .memory_limit = limit,
                          .seed = 3,
                          .threads_per_device = 1};
  };
  const Optimizer sgd = *MakeOptimizer(options(0).optimizer);
  const auto need = [&](int64_t samples) {
    const GroupOptions group = GroupOf(data, 2);
    int64_t most = 0;
    for (const MemoryNeed& n : PlanMemory(Wide(), samples == 8 ? group : ForMicroBatches(group, samples), &sgd)) {
      most = std::max(most, n.total());
    }
    return most;
  };
  const auto fewest = [&](int64_t limit) {
    int64_t largest = 8;
    while (need(largest) > limit) --largest;
    return CeilDiv(8, largest);
  };
  ASSERT_LT(need(2), need(4));
  ASSERT_LT(need(4), need(8));
  for (const int64_t limit : {need(8), need(8) - 1, need(4), need(2)}) {
    const int64_t pieces = fewest(limit);
    Trainer trainer(Wide(), options(limit));
    const LogLines log;
    trainer.Fit(data, {});
    const std::vector<std::string> lines = log.lines();
    EXPECT_EQ(trainer.micro_batches(), pieces) << limit;
    EXPECT_EQ(lines.empty(), pieces == 1);
    for (const std::string& line : lines) {
      EXPECT_NE(line.find(fmt::format("a batch of 8 samples is computed in {} micro-batches of up to {}: at once ",
                                      pieces, CeilDiv(8, pieces))),
                std::string::npos)
          << line;
    }
  }
  Trainer unlimited(Wide(), options(0));
  unlimited.Fit(data, {});
  EXPECT_EQ(unlimited.micro_batches(), 1);
  const std::string message = MessageOf<DeviceError>([&] { Trainer(Wide(), options(1000)).Fit(data, {}); });
  EXPECT_NE(message.find("not even one sample at a time can be trained on: "), std::string::npos) << message;
  EXPECT_NE(message.find(fmt::format("it takes a limit of {} bytes at least", std::min(need(1), need(8)))),
            std::string::npos)
      << message;
}

// A mirror changes no bit, so it comes before micro-batches.
TEST(MemoryPlan, AMirrorComesBeforeMicroBatches) {
  ArrayIter data = Points();
  Symbol net = Variable("data");
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    net = Tanh(FullyConnected(net, {.num_hidden = 300}, "fc" + number), "tanh" + number);
  }
  net = SoftmaxOutput(FullyConnected(net, {.num_hidden = 3}, "scores"), {}, "softmax");
  const auto options = [&](const Mirror& mirror, int64_t pieces, int64_t limit) {
    return TrainerOptions{.devices = GroupOf(data, 2).devices,
                          .optimizer = "sgd(lr=0.2, momentum=0.9)",
                          .micro_batches = pieces,
                          .mirror = mirror,
                          .memory_limit = limit,
                          .seed = 3,
                          .threads_per_device = 1};
  };
  const Mirror automatic{.bytes = Mirror::kAutomatic};
  const Optimizer sgd = *MakeOptimizer(options({}, 1, 0).optimizer);
  const auto need = [&](const Mirror& mirror, int64_t samples) {
    GroupOptions group = GroupOf(data, 2);
    group.mirror = mirror;
    int64_t most = 0;
    for (const MemoryNeed& n : PlanMemory(net, samples == 8 ? group : ForMicroBatches(group, samples), &sgd)) {
      most = std::max(most, n.total());
    }
    return most;
  };
  const auto train = [&](const TrainerOptions& o) {
    ArrayIter points = Points();
    Trainer trainer(net, o);
    trainer.Fit(points, {.epochs = 2});
    return std::tuple(trainer.ToModel().params, trainer.micro_batches(), trainer.group()->options().mirror.bytes);
  };
  const int64_t whole = need({}, 8), least = need({.least = true}, 8);
  ASSERT_LT(least, whole);
  const auto [expected, one, none] = train(options({}, 1, 0));
  // It fits as it is; it fits with a mirror; it does not.
  EXPECT_EQ(train(options(automatic, 1, whole)), std::tuple(expected, 1, 0));
  const auto [params, pieces, bytes] = train(options(automatic, MicroBatches::kAutomatic, (whole + least) / 2));
  EXPECT_EQ(params, expected);
  EXPECT_EQ(pieces, 1);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(std::get<1>(train(options(automatic, MicroBatches::kAutomatic, least))), 1);
  const std::string message = MessageOf<DeviceError>([&] { train(options(automatic, 1, least - 1000)); });
  EXPECT_NE(message.find("cannot be trained on, whatever is computed again: "), std::string::npos) << message;
  EXPECT_NE(MessageOf([&] { train(options({}, 1, whole)); }).find("memory_limit is for "), std::string::npos);
}

}  // namespace
}  // namespace bindery
