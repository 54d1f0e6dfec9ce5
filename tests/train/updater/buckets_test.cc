// Gradients are reduced bucket by bucket while backward runs: that changes when things happen, and nothing else.
#include <gtest/gtest.h>

#include "engine/sim/sim.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

using Devices = std::vector<Device>;

class BucketsTest : public testing::TestWithParam<std::string> {
 protected:
  ~BucketsTest() override { sim::Reset(); }

  static Devices Group() {
    if (GetParam() == "cpus") return {Cpu(0), Cpu(1)};
    if (GetParam() == "accelerator") return {Accelerator(0)};
    if (GetParam() == "accelerators") return {Accelerator(0), Accelerator(1), Accelerator(2)};
    return {Accelerator(0), Cpu(0), Cpu(1)};
  }
};
INSTANTIATE_TEST_SUITE_P(Groups, BucketsTest, testing::Values("cpus", "accelerator", "accelerators", "mixed"),
                         [](const auto& info) { return info.param; });

Checkpoint Train(const Devices& devices, std::optional<int64_t> bucket_bytes) {
  const HostTensor data = Sines({20, 5}), labels = ClassesInTurn(20, 3);
  ArrayIter train(data, labels, {.batch_size = 7, .shuffle = true, .seed = 5});
  Symbol x = Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 9}, "fc1"), {.sync = true}, "bn1"));
  x = Tanh(FullyConnected(Dropout(x, {.p = 0.25}, "drop"), {.num_hidden = 20}, "fc2"));
  x = FullyConnected(x, {.num_hidden = 3}, "fc3");
  Trainer trainer(SoftmaxOutput(x, {}, "softmax"), {.devices = devices,
                                                    .optimizer = "adam(lr=0.01, wd=1e-3)",
                                                    .metrics = "cross-entropy",
                                                    .engine = MakeThreadedEngine(),
                                                    .bucket_bytes = bucket_bytes});
  trainer.Fit(train, {.epochs = 2});
  return trainer.ToCheckpoint(&train);
}

TEST_P(BucketsTest, AnySizeGivesTheSameBits) {
  const Checkpoint whole = Train(Group(), 0);
  uint64_t seed = 0;
  for (const std::optional<int64_t> bytes : std::vector<std::optional<int64_t>>{1, 200, 1'000, std::nullopt}) {
    SCOPED_TRACE(bytes.value_or(-1));
    sim::SetDelays(++seed, 100);
    const Checkpoint found = Train(Group(), bytes);
    sim::Reset();
    EXPECT_EQ(found.model.params, whole.model.params);
    EXPECT_EQ(found.model.aux, whole.model.aux);
    EXPECT_EQ(found.optimizer_state, whole.optimizer_state);
  }
}

TEST_P(BucketsTest, MicroBatchesAddUpInThem) {
  const auto train = [&](int64_t bytes) {
    DataParallelExecutorGroup group(SmallNet(), {.devices = Group(),
                                                 .data = {{"data", {6, 4}}},
                                                 .labels = {{"softmax_label", {6}}},
                                                 .grad_req = GradReq::kAdd,
                                                 .bucket_bytes = bytes});
    InitialiseEqually({&group}, 3);
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
    for (uint64_t step = 0; step < 3; ++step) {
      std::vector<BatchPtr> batches;
      for (const int64_t samples : {6, 1, 4}) {  // with one sample, devices sit out
        batches.push_back(std::make_shared<const Batch>(RandomBatch(samples, 4, 3, 10 * step + batches.size())));
      }
      updater.Update(batches);
    }
    HostTensorMap params, aux;
    group.GetParams(&params, &aux);
    return params;
  };
  EXPECT_EQ(train(1), train(0));
}

TEST(Buckets, LieInTheOrderInWhichBackwardFinishesThem) {
  const auto blocks = [](int64_t bytes) {
    DataParallelExecutorGroup group(SmallNet(), {.devices = {Cpu(0), Cpu(1)},
                                                 .data = {{"data", {6, 4}}},
                                                 .labels = {{"softmax_label", {6}}},
                                                 .bucket_bytes = bytes});
    std::vector<std::string> names;
    for (const ParameterStore::Block& block : group.store().blocks()) {
      std::string& all = names.emplace_back();
      for (const int p : block.parameters) all += group.store().parameters()[p].name.substr(0, 4);
    }
    return names;
  };
  EXPECT_EQ(blocks(0).size(), 1u);
  EXPECT_EQ(blocks(1), (std::vector<std::string>{"fc2_", "fc2_", "fc1_", "fc1_"}));
  EXPECT_EQ(blocks(1 << 20), (std::vector<std::string>{"fc2_fc2_fc1_fc1_"}));
  EXPECT_NE(MessageOf([&] { blocks(-1); }).find("bucket_bytes must be >= 0, got -1"), std::string::npos);
}

// The last kernel of backward hangs: all buckets but the last are there.
TEST(Buckets, AreThereBeforeBackwardIsOver) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine({.hang_milliseconds = 500});
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Sim(0), Sim(1)},
                                               .data = {{"data", {6, 4}}},
                                               .labels = {{"softmax_label", {6}}},
                                               .engine = engine,
                                               .bucket_bytes = 1});
  InitialiseEqually({&group}, 3);
  const auto batch = std::make_shared<const Batch>(RandomBatch(6, 4, 3, 1));
  int64_t kernels = 0;  // of one run
  for (int i = 0; i < 2; ++i) {
    const int64_t before = sim::KernelsRun(Sim(0));
    group.ForwardBackward(batch);
    engine->WaitAll();
    kernels = sim::KernelsRun(Sim(0)) - before;
  }
  sim::HangKernel(Sim(0), kernels);
  group.ForwardBackward(batch);
  const std::vector<ParameterStore::Block>& blocks = group.store().blocks();
  EXPECT_NO_THROW(blocks.front().gradients[0].Wait());
  EXPECT_THROW(blocks.back().gradients[0].Wait(), HangError);
  sim::Release(Sim(0));
  engine->WaitAll();
  sim::Reset();
}

}  // namespace
}  // namespace bindery
