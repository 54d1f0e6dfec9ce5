// What a step does all the time allocates nothing once it is warm. This binary counts calls of operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_rules.h"
#include "engine/team.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}

// noinline: or the compiler sees malloc and free behind its own new and delete, and warns.
[[gnu::noinline]] void* operator new(size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace bindery {
namespace {

void PushManyTimes(Engine& engine) {
  const VarPtr data = engine.NewVar(), weight = engine.NewVar(), out = engine.NewVar();
  int sum = 0;
  const PreparedPtr forward =
      engine.Prepare({"forward", Cpu(0), {data, weight}, {out}, {}, [&sum](const OpContext& context) {
                        sum += *static_cast<const int*>(context.payload);
                      }});
  const PreparedPtr update = engine.Prepare({"update", Cpu(1), {out}, {}, {weight}, [](const OpContext&) {}});
  const auto payload = std::make_shared<int>(1);
  const auto round = [&] {
    for (int i = 0; i < 100; ++i) {
      engine.Push(forward, payload);
      engine.Push(update);
    }
    engine.Wait(weight);
  };
  // How many runs are in flight at a time depends on the scheduler, so hold the first ones back until all are pushed.
  std::atomic<bool> go{false};
  if (std::string(engine.name()) == "threaded") {
    engine.Push({"hold", Cpu(0), {}, {data}, {}, [&go](const OpContext&) {
                   while (!go) {
                   }
                 }});
  }
  for (int i = 0; i < 100; ++i) {
    engine.Push(forward, payload);
    engine.Push(update);
  }
  go = true;
  engine.Wait(weight);

  const int64_t before = g_allocations;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(g_allocations - before, 0);
  EXPECT_EQ(sum, 5100);
}

TEST(AllocationTest, ThreadedPushOfPreparedAllocatesNothing) { PushManyTimes(*MakeThreadedEngine()); }
TEST(AllocationTest, InlinePushOfPreparedAllocatesNothing) { PushManyTimes(*MakeInlineEngine()); }

TEST(AllocationTest, ParallelLoopsAllocateNothing) {
  const TeamScope scope(3);
  std::vector<float> a(100'000, 1), b(100'000, 2), w(100'000, 3);
  std::vector<int64_t> sums(3);
  const auto loops = [&] {
    ParallelFor(100'000, 64, 0, [&](int64_t begin, int64_t end, int thread) { sums[thread] += end - begin; });
    const void* const grads[] = {a.data(), b.data()};
    BuiltInKernelOf<update_rules::Sgd>()(
        DType::kFloat32, {}, {.gradients = grads, .weight = w.data(), .new_weight = w.data(), .elements = 100'000});
    flat::Sum(DType::kFloat32, grads, w.data(), 100'000);
    flat::Scale(DType::kFloat32, w.data(), 100'000, 0.5);
    return flat::SumOfSquares(DType::kFloat32, w.data(), 100'000) + flat::AllFinite(DType::kFloat32, w.data(), 100'000);
  };
  loops();
  const int64_t before = g_allocations;
  for (int i = 0; i < 20; ++i) loops();
  EXPECT_EQ(g_allocations - before, 0);
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 2'100'000);
}

TEST(AllocationTest, TheCounterCounts) {
  const int64_t before = g_allocations;
  const auto value = std::make_shared<int>(1);
  EXPECT_GT(g_allocations - before, 0);
}

}  // namespace
}  // namespace bindery
