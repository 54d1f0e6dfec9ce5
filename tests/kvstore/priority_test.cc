// Priorities of pushes and pulls: what order they have when devices are late, and that no sum depends on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <mutex>
#include <vector>

#include "base/philox.h"
#include "engine/sim/sim.h"
#include "kvstore/kvstore.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr int kKeys = 6;

class PriorityTest : public testing::Test {
 protected:
  void SetUp() override { sim::SetDelays(17, 300); }
  void TearDown() override {
    engine_->WaitAll();
    sim::Reset();
  }

  Tensor Make(Device device, double value) const {
    Tensor tensor(engine_, device, DType::kFloat32, {5});
    tensor.Fill(value);
    return tensor;
  }
  // Keeps the host's worker busy until all have counted down, from the first thing on that it does, however late it
  // wakes.
  void HoldHost(const std::shared_ptr<std::latch>& there) const {
    engine_->Push(
        {.name = "busy", .device = Cpu(), .run = [there](const OpContext&) { there->wait(); }, .priority = 1000});
  }
  // When all that was pushed before on this lane has been handed over.
  void CountDown(Device device, Lane lane, const std::shared_ptr<std::latch>& there) const {
    engine_->Push({.name = "reached",
                   .device = device,
                   .run = [there](const OpContext&) { there->count_down(); },
                   .lane = lane,
                   .priority = -1000});
  }

  const std::shared_ptr<Engine> engine_ = MakeThreadedEngine();
};

// Gradients on two late devices, the updater on the host: keys that were pushed while it was busy are updated by
// priority, as the first layers' are, which the next forward needs first.
TEST_F(PriorityTest, PushesThatWaitAreDoneByPriority) {
  const auto store = KVStore::Create(KVStoreType::kLocal, engine_);
  std::vector<int64_t> order;
  store->SetUpdater(
      [&](const Key& key, DType, const void*, void*, int64_t) { order.push_back(std::get<int64_t>(key)); });
  std::vector<std::vector<Tensor>> gradients;
  for (int64_t key = 0; key < kKeys; ++key) {
    store->Init(key, HostTensor(DType::kFloat32, {5}));
    gradients.push_back({Make(Accelerator(0), 1), Make(Accelerator(1), 2)});
  }
  const auto run = [&](const std::vector<int>& priorities) {
    engine_->WaitAll();
    order.clear();
    const auto there = std::make_shared<std::latch>(2);
    HoldHost(there);
    for (int64_t key = 0; key < kKeys; ++key) {
      store->Push(key, gradients[static_cast<size_t>(key)], priorities[static_cast<size_t>(key)]);
    }
    for (const Device& device : {Accelerator(0), Accelerator(1)}) CountDown(device, Lane::kCollective, there);
    engine_->WaitAll();
    return order;
  };
  using Order = std::vector<int64_t>;
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}), (Order{0, 1, 2, 3, 4, 5}));  // as they were made
  EXPECT_EQ(run({0, -1, -2, -3, -4, -5}), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(run({-5, -4, -3, -2, -1, 0}), (Order{5, 4, 3, 2, 1, 0}));  // backward's order, forward's need
  EXPECT_EQ(run({1, 9, 1, 9, 1, 9}), (Order{1, 3, 5, 0, 2, 4}));
  // Prepared pushes with the same tensors, and again without.
  EXPECT_EQ(run({0, 0, 0, 0, 0, 0}), (Order{0, 1, 2, 3, 4, 5}));
}

TEST_F(PriorityTest, PullsThatWaitAreDoneByPriority) {
  const auto store = KVStore::Create(KVStoreType::kLocal, engine_);
  std::vector<Tensor> outs;
  for (int64_t key = 0; key < 3; ++key) {
    store->Init(key, HostTensor::Full(DType::kFloat32, {5}, static_cast<double>(key)));
    outs.push_back(Make(Cpu(), -1));
  }
  engine_->WaitAll();
  const auto there = std::make_shared<std::latch>(1);
  HoldHost(there);
  std::vector<int64_t> order;
  for (int64_t key = 0; key < 3; ++key) {
    const Tensor& out = outs[static_cast<size_t>(key)];
    store->Pull(key, std::vector<Tensor>{out}, static_cast<int>(key));
    engine_->Push({.name = "seen",
                   .device = Cpu(),
                   .reads = {out.var()},
                   .run = [&order, key](const OpContext&) { order.push_back(key); },
                   .priority = static_cast<int>(key)});
  }
  there->count_down();
  engine_->WaitAll();
  EXPECT_EQ(order, (std::vector<int64_t>{2, 1, 0}));
  for (int64_t key = 0; key < 3; ++key) {
    EXPECT_EQ(outs[static_cast<size_t>(key)].ToHost(),
              HostTensor::Full(DType::kFloat32, {5}, static_cast<double>(key)));
  }
}

// Pushes and pulls of one key stay in their order, sums in that of their list.
TEST_F(PriorityTest, NoResultDependsOnThem) {
  std::vector<HostTensor> expected;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    sim::SetDelays(seed, 300);
    PhiloxStream random(seed, "priorities");
    const auto store = KVStore::Create(seed % 2 == 0 ? KVStoreType::kLocal : KVStoreType::kDevice, engine_);
    store->SetUpdater([](const Key&, DType, const void* sum, void* stored, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        static_cast<float*>(stored)[i] = static_cast<float*>(stored)[i] * 0.7F + static_cast<const float*>(sum)[i];
      }
    });
    const std::vector<Device> devices = {Accelerator(0), Cpu(0), Accelerator(1)};
    std::vector<std::vector<Tensor>> values(kKeys);
    for (int64_t key = 0; key < kKeys; ++key) {
      store->Init(key, HostTensor::Full(DType::kFloat32, {5}, 0.1));
      for (const Device& device : devices)
        values[static_cast<size_t>(key)].push_back(Make(device, 0.3 + 0.1 * device.index));
    }
    for (int step = 0; step < 5; ++step) {
      for (int64_t key = 0; key < kKeys; ++key) {
        const int priority = seed == 0 ? 0 : static_cast<int>(random.Below(7)) - 3;
        store->Push(key, values[static_cast<size_t>(key)], priority);
        store->Pull(key, values[static_cast<size_t>(key)], -priority);
      }
    }
    std::vector<HostTensor> found;
    for (const auto& of_key : values) {
      for (const Tensor& value : of_key) found.push_back(value.ToHost());
    }
    if (seed == 0) expected = found;
    EXPECT_EQ(found, expected) << seed;
  }
}

}  // namespace
}  // namespace bindery
