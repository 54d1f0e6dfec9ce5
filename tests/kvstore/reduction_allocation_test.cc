// A prepared reduction allocates nothing when it runs: the whole program's operator new is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kvstore/prepared_reduction.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Allocate(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace bindery {
namespace {

TEST(ReductionAllocation, NoneWhenItRunsAgain) {
  for (const bool threaded : {false, true}) {
    const std::shared_ptr<Engine> engine = threaded ? MakeThreadedEngine() : MakeInlineEngine();
    for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
      for (const bool with_function : {false, true}) {
        Bucket bucket;
        for (int d = 0; d < 3; ++d) {
          bucket.sources.emplace_back(engine, Cpu(d), DType::kFloat32, Shape{50000});
          bucket.replicas.emplace_back(engine, Cpu(d), DType::kFloat32, Shape{50000});
        }
        RangeFunction function;
        if (with_function) function = [](int, int64_t, int64_t, auto, auto) {};
        const PreparedReduction reduction(engine, KVStore::Create(type, engine)->MakeReduction({bucket}, function, 2));
        for (int i = 0; i < 3; ++i) {
          reduction.Run();
          engine->WaitAll();
        }
        const int64_t before = allocations;
        for (int i = 0; i < 50; ++i) {
          reduction.Run();
          engine->WaitAll();
        }
        EXPECT_EQ(allocations - before, 0) << engine->name() << " " << ToString(type) << " " << with_function;
      }
    }
  }
}

TEST(ReductionAllocation, CounterCounts) {
  const int64_t before = allocations;
  ::operator delete(::operator new(8));
  EXPECT_EQ(allocations - before, 1);
}

}  // namespace
}  // namespace bindery
