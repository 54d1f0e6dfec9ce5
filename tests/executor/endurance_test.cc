// Memory of a process that binds, reshapes and unbinds for a long time. A short form, and with BINDERY_TEST_ENDURANCE=full in
// the environment the whole of it: docs/group.md says how to run that.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>

#include "base/files.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

int Cycles(int in_short, int in_full) {
  const char* const form = std::getenv("BINDERY_TEST_ENDURANCE");
  return form && std::string_view(form) == "full" ? in_full : in_short;
}

struct MemoryInUse {
  int64_t devices = INT64_MAX;   // of the storage, in pieces that somebody has
  int64_t heap = INT64_MAX;      // that malloc has handed out
  int64_t resident = INT64_MAX;  // of the process
};

// The least of several looks. Streams let go of what they kept when they are waited for, workers of their last operation
// a moment later.
MemoryInUse Look() {
  MemoryInUse least;
  for (int i = 0; i < 20; ++i) {
    DefaultEngine()->WaitAll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const struct mallinfo2 heap = mallinfo2();
    const std::string statm = ReadFile("/proc/self/statm");  // all pages, resident ones
    int64_t devices = 0;
    for (int d = 0; d < 2; ++d) devices += DefaultStorage()->Stats(TestDevice(d)).in_use;
    least.devices = std::min(least.devices, devices);
    least.heap = std::min(least.heap, static_cast<int64_t>(heap.uordblks + heap.hblkhd));
    least.resident =
        std::min(least.resident, static_cast<int64_t>(std::stoll(statm.substr(statm.find(' '))) * getpagesize()));
  }
  return least;
}

// Runs `cycle(i)` so often, and asks that what is in use after the first fifth is all that is ever in use. The heap has
// some room for what threads keep of freed pieces, and for what happens to be in flight at once.
void ExpectNoGrowth(int cycles, const std::function<void(int)>& cycle) {
  constexpr int64_t kHeapRoom = int64_t{256} << 10, kResidentRoom = int64_t{4} << 20;
  int i = 0;
  for (; i < cycles / 5; ++i) cycle(i);
  const MemoryInUse before = Look();
  for (; i < cycles; ++i) cycle(i);
  const MemoryInUse after = Look();
  EXPECT_EQ(after.devices, before.devices);
// Sanitizers have a malloc of their own, which keeps what is freed, and find leaks themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (TestDevices() == "cuda") return;  // a fake of the driver, which remembers what it was asked for
  EXPECT_LE(after.heap, before.heap + kHeapRoom);
  EXPECT_LE(after.resident, before.resident + kResidentRoom);
#endif
}

constexpr int64_t kFeatures = 6, kClasses = 3;

GroupOptions Options(int64_t batch) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .data = {{"data", {batch, kFeatures}}},
          .labels = {{"softmax_label", {batch}}}};
}

TEST(Endurance, ReshapesOverFiftyShapes) {
  constexpr int64_t kShapes = 50;
  DataParallelExecutorGroup group(SmallNet(kClasses), Options(kShapes));
  InitialiseEqually({&group}, 1);
  std::vector<Batch> batches;
  for (int64_t n = 1; n <= kShapes; ++n) batches.push_back(RandomBatch(n, kFeatures, kClasses, 2));
  const HostTensor expected = [&] {
    group.Forward(batches.back());
    return group.Outputs()[0].ToHost();
  }();
  ExpectNoGrowth(Cycles(1'000, 10'000), [&](int i) {
    const int64_t n = 1 + int64_t{i} * 17 % kShapes;  // all of them, and neighbours are far from each other
    group.Reshape({{"data", {n, kFeatures}}}, {{"softmax_label", {n}}});
    group.ForwardBackward(std::make_shared<const Batch>(batches[static_cast<size_t>(n - 1)]));
    if (i % 10 == 9) group.engine()->WaitAll();  // what is in flight takes memory, too
  });
  group.Forward(batches.back());
  EXPECT_EQ(group.Outputs()[0].ToHost(), expected);
  EXPECT_LE(group.programs().misses(), 4 * kShapes);  // none is made again: by shares and modes
}

TEST(Endurance, BindsAndUnbinds) {
  const Symbol net = SmallNet(kClasses);
  const auto batch = std::make_shared<const Batch>(RandomBatch(8, kFeatures, kClasses, 2));
  ExpectNoGrowth(Cycles(300, 100'000), [&](int) {
    DataParallelExecutorGroup group(net, Options(8));
    group.ForwardBackward(batch);
  });
}

// As servers do whose weights change.
TEST(Endurance, BindsAndUnbindsExecutors) {
  const Symbol net = SmallNet(kClasses);
  ExpectNoGrowth(Cycles(500, 100'000), [&](int) {
    Executor executor(net, {.device = TestDevice(1), .inputs = {{"data", {8, kFeatures}}, {"softmax_label", {8}}}});
    executor.Forward();
    executor.Backward();
  });
}

}  // namespace
}  // namespace bindery
