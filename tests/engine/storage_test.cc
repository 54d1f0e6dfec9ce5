#include "engine/memory/storage.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/cpu/pages.h"

namespace bindery {
namespace {

TEST(StorageTest, PiecesAreAlignedUsableAndApart) {
  const auto storage = MakeStorage();
  std::vector<std::shared_ptr<Chunk>> chunks;
  const std::vector<int64_t> sizes = {0, 1, 63, 64, 65, 1000, 4096, 65535, 65536, 65537, 1 << 20, (3 << 20) + 5};
  for (int64_t bytes : sizes) {
    chunks.push_back(storage->Allocate(Cpu(0), bytes));
    EXPECT_EQ(chunks.back()->bytes(), bytes);
    EXPECT_EQ(chunks.back()->device(), Cpu(0));
    ASSERT_NE(chunks.back()->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(chunks.back()->data()) % 64, 0u);
    std::memset(chunks.back()->data(), static_cast<int>(chunks.size()), bytes);
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(chunks[i]->data());
    for (int64_t k = 0; k < sizes[i]; ++k) ASSERT_EQ(bytes[k], i + 1);
  }
}

TEST(StorageTest, PoolsBySizeAndCounts) {
  const auto storage = MakeStorage();
  EXPECT_EQ(storage->Stats(Cpu(0)).allocations, 0);
  auto a = storage->Allocate(Cpu(0), 1000);
  const int64_t size = storage->Stats(Cpu(0)).in_use;
  EXPECT_GE(size, 1000);
  EXPECT_LE(size, 1125);
  const void* const address = a->data();
  a.reset();
  EXPECT_EQ(storage->Stats(Cpu(0)).in_use, 0);
  EXPECT_EQ(storage->Stats(Cpu(0)).pooled, size);
  a = storage->Allocate(Cpu(0), 990);  // the same class
  EXPECT_EQ(a->data(), address);
  auto b = storage->Allocate(Cpu(0), 2000);
  const StorageStats stats = storage->Stats(Cpu(0));
  EXPECT_EQ(stats.allocations, 3);
  EXPECT_EQ(stats.pool_hits, 1);
  EXPECT_EQ(stats.pooled, 0);
  EXPECT_EQ(stats.peak_in_use, stats.in_use);
  EXPECT_GE(stats.in_use, 2990);
  EXPECT_EQ(storage->Stats(Cpu(1)).allocations, 0);  // each device has its own

  a.reset();
  b.reset();
  EXPECT_EQ(storage->Stats(Cpu(0)).pooled, stats.in_use);
  EXPECT_EQ(storage->Stats(Cpu(0)).peak_in_use, stats.peak_in_use);
  storage->ReleasePool();
  EXPECT_EQ(storage->Stats(Cpu(0)).pooled, 0);
}

TEST(StorageTest, WastesAtMostAnEighth) {
  const auto storage = MakeStorage();
  for (int64_t bytes = 512; bytes < (int64_t{8} << 20); bytes = bytes * 9 / 8 + 1) {
    const auto chunk = storage->Allocate(Cpu(0), bytes);
    EXPECT_GE(storage->Stats(Cpu(0)).in_use, bytes);
    EXPECT_LE(storage->Stats(Cpu(0)).in_use, bytes + bytes / 8 + 64);
  }
}

// Of which a process may have 65530.
TEST(StorageTest, ThousandsOfPiecesAreFewMappings) {
  const auto storage = MakeStorage();
  const auto mappings = [] {
    std::ifstream file("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  const int64_t before = mappings();
  std::vector<std::shared_ptr<Chunk>> chunks;
  for (int i = 0; i < 500; ++i) chunks.push_back(storage->Allocate(Cpu(0), 64 << 10));
  EXPECT_LT(mappings() - before, 100);
}

// Where a process has all of them, none can be made two: the memory goes back all the same.
TEST(StorageTest, MemoryGoesBackWhereMappingsAreShort) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "their own mappings would find no room";
#endif
  int64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most > 200'000) GTEST_SKIP() << most << " mappings take long to make";
  const int64_t page = PageBytes();
  char* const pieces = ReservePages(3 * page);
  ASSERT_TRUE(CommitPages(pieces, 3 * page, 1));
  char* const rest = ReservePages(2 * most * page);  // every other page gets a mapping, as long as there are any
  int64_t made = 0;
  while (made < most && mprotect(rest + 2 * made * page, page, PROT_READ) == 0) ++made;
  ReleasePages(pieces + page, page);
  unsigned char is_there = 0;
  const bool is_mapped = mincore(pieces + page, page, &is_there) == 0;
  munmap(rest, 2 * most * page);
  munmap(pieces, 3 * page);
  EXPECT_LT(made, most);
  EXPECT_TRUE(is_mapped);
  EXPECT_EQ(is_there & 1, 0);
}

TEST(StorageTest, LimitCountsThePoolAndReleasesItFirst) {
  const auto storage = MakeStorage();
  storage->SetLimit(Cpu(0), 1 << 20);
  auto a = storage->Allocate(Cpu(0), 512 << 10);
  a.reset();
  auto b = storage->Allocate(Cpu(0), 768 << 10);  // only without the pooled piece
  EXPECT_EQ(storage->Stats(Cpu(0)).pooled, 0);
  try {
    storage->Allocate(Cpu(0), 300 << 10);
    FAIL() << "beyond the limit";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "DeviceError: cpu:0: cannot allocate 307200 bytes: 786432 in use, limit 1048576");
  }
  EXPECT_NO_THROW(storage->Allocate(Cpu(1), 300 << 10));
  EXPECT_NO_THROW(storage->Allocate(Cpu(0), 100 << 10));
  storage->SetLimit(Cpu(0), 0);
  EXPECT_NO_THROW(storage->Allocate(Cpu(0), 2 << 20));
}

TEST(StorageTest, OutOfMemoryIsAnErrorAndTheStorageStaysUsable) {
  const auto storage = MakeStorage();
  const auto a = storage->Allocate(Cpu(0), 100);
  const StorageStats before = storage->Stats(Cpu(0));
  // More than the address space, more than any machine's memory, more than an int64 holds when rounded up.
  for (int64_t bytes : {int64_t{1} << 50, int64_t{1} << 45, INT64_MAX}) {
    try {
      storage->Allocate(Cpu(0), bytes);
      FAIL() << bytes;
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("cpu:0: cannot allocate " + std::to_string(bytes)), std::string::npos);
    }
    EXPECT_EQ(storage->Stats(Cpu(0)).in_use, before.in_use);
    EXPECT_EQ(storage->Stats(Cpu(0)).peak_in_use, before.peak_in_use);
  }
  EXPECT_NO_THROW(storage->Allocate(Cpu(0), 1 << 20));
}

TEST(StorageTest, RejectsInvalidArguments) {
  const auto storage = MakeStorage();
  EXPECT_THROW(storage->Allocate(Cpu(0), -1), Error);
  EXPECT_THROW(storage->Allocate(Cpu(-1), 1), DeviceError);
  EXPECT_THROW(storage->Allocate(Cuda(999), 1), DeviceError);
  EXPECT_THROW(storage->SetLimit(Cpu(0), -1), Error);
}

TEST(StorageTest, ChunksMayOutliveTheStorage) {
  auto storage = MakeStorage();
  const auto small = storage->Allocate(Cpu(0), 100);
  const auto large = storage->Allocate(Cpu(0), 100 << 10);
  storage->Allocate(Cpu(0), 200);
  storage.reset();
  std::memset(small->data(), 1, 100);
  std::memset(large->data(), 1, 100 << 10);
}

TEST(StorageTest, ManyThreads) {
  const auto storage = MakeStorage();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::shared_ptr<Chunk>> held;
      for (int i = 0; i < 500; ++i) {
        auto chunk = storage->Allocate(Cpu(i % 2), 1 + (i * 7919 + t * 31) % 100000);
        std::memset(chunk->data(), t, chunk->bytes());
        held.push_back(std::move(chunk));
        if (held.size() > 10) held.erase(held.begin());
        if (i % 100 == t) storage->ReleasePool();
      }
      for (const auto& chunk : held) {
        const auto* bytes = static_cast<const unsigned char*>(chunk->data());
        for (int64_t k = 0; k < chunk->bytes(); ++k) ASSERT_EQ(bytes[k], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int device : {0, 1}) {
    EXPECT_EQ(storage->Stats(Cpu(device)).in_use, 0);
    EXPECT_EQ(storage->Stats(Cpu(device)).allocations, 1000);
  }
}

TEST(StorageTest, DefaultIsOneObject) {
  EXPECT_EQ(DefaultStorage(), DefaultStorage());
  EXPECT_NE(DefaultStorage(), nullptr);
}

}  // namespace
}  // namespace bindery
