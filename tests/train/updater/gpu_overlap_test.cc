// Gradients are summed bucket by bucket while backward runs, on GPUs, over the fake of their driver.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "engine/cuda/nccl_api.h"
#include "engine/cuda/recording.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/nccl.h"
#include "tests/executor/group_helpers.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

// By NCCL or by copies, with graphs or without.
class GpuOverlapTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  GpuOverlapTest() {
    cuda::UseNccl(by_nccl() ? fake::Nccl() : nullptr);
    cuda::UseGraphs(graphs());
  }
  ~GpuOverlapTest() override {
    cuda::UseNccl(fake::Nccl());
    cuda::UseGraphs(true);
    for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  }
  static bool by_nccl() { return std::get<0>(GetParam()); }
  static bool graphs() { return std::get<1>(GetParam()); }

  static bool ComesTo(const std::function<bool()>& done) {
    for (int i = 0; i < 1000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return done();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, GpuOverlapTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "nccl" : "copies") +
                                  (std::get<1>(info.param) ? "_graphs" : "_one_by_one");
                         });

// The call that ends backward on GPU 0 hangs, and with it the gradients of one layer: all others are summed by then, on
// both GPUs.
TEST_P(GpuOverlapTest, BucketsAreSummedBeforeBackwardIsOver) {
  constexpr int kWarm = 3;
  const std::shared_ptr<Engine> engine = MakeThreadedEngine({.hang_milliseconds = 500});
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Cuda(0), Cuda(1)},
                                               .data = {{"data", {6, 4}}},
                                               .labels = {{"softmax_label", {6}}},
                                               .engine = engine,
                                               .bucket_bytes = 1});
  InitialiseEqually({&group}, 3);
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const auto batch = std::make_shared<const Batch>(RandomBatch(6, 4, 3, 1));
  const int64_t launches = fake::GraphLaunches();
  for (int step = 1; step <= kWarm; ++step) {
    updater.Update(batch);
    updater.WaitFor(step);
  }
  engine->WaitAll();
  EXPECT_EQ(fake::GraphLaunches() > launches, graphs());

  const std::vector<ParameterStore::Block>& blocks = group.store().blocks();
  ASSERT_EQ(blocks.size(), 4u);  // a weight and a bias of each layer, which are finished together
  const std::string names[] = {"bindery_sum", "NCCL"};
  int64_t before[2][2];
  const auto done = [&](int gpu, int name) { return fake::CountDone(gpu, names[name]) - before[gpu][name]; };
  for (const int gpu : {0, 1}) {
    for (const int name : {0, 1}) before[gpu][name] = fake::CountDone(gpu, names[name]);
  }
  fake::HangWriter(0, blocks.back().gradients[0].address());
  updater.Update(batch);
  for (const int gpu : {0, 1}) {
    EXPECT_TRUE(ComesTo([&] { return done(gpu, 0) == 2 && (!by_nccl() || done(gpu, 1) == 2); }))
        << "cuda:" << gpu << ": " << done(gpu, 0) << " sums, " << done(gpu, 1) << " exchanges";
  }
  EXPECT_THROW(updater.WaitFor(kWarm + 1), HangError);
  for (const int gpu : {0, 1}) EXPECT_LE(done(gpu, 0), 2) << "cuda:" << gpu;
  fake::Release(0);
  updater.WaitFor(kWarm + 1);
  engine->WaitAll();
  for (const int gpu : {0, 1}) EXPECT_EQ(done(gpu, 0), 4) << "cuda:" << gpu;
}

}  // namespace
}  // namespace bindery
