#include "engine/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cpu/pages.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

std::shared_ptr<Arena> MakeArena(int64_t reserve = int64_t{1} << 40) {
  return Arena::Make(Cpu(0), MakeInlineEngine(), reserve);
}

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Not through the sanitizers' shadow memory, which has page faults of its own.
__attribute__((no_sanitize("address", "thread", "undefined"))) void TouchEveryPage(char* begin, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(begin)[i] = 1;
}

TEST(ArenaTest, GrowsInPlaceAndKeepsContent) {
  const auto arena = MakeArena();
  EXPECT_EQ(arena->device(), Cpu(0));
  EXPECT_NE(arena->var(), nullptr);
  EXPECT_EQ(arena->committed(), 0);
  char* const base = arena->base();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0u);
  int64_t next = 0;
  for (const auto& [bytes, threads] : {std::pair<int64_t, int>{1, 1}, {100'000, 1}, {5 << 20, 3}, {33 << 20, 2}}) {
    arena->Grow(bytes, threads);
    EXPECT_EQ(arena->base(), base);
    EXPECT_GE(arena->committed(), bytes);
    for (; next < bytes; next += 509) {
      ASSERT_EQ(base[next], 0) << next;
      base[next] = static_cast<char>(next % 127 + 1);
    }
    for (int64_t i = 0; i < bytes; i += 509) ASSERT_EQ(base[i], static_cast<char>(i % 127 + 1)) << i;
  }
  const int64_t committed = arena->committed();
  arena->Grow(1);
  EXPECT_EQ(arena->committed(), committed);
}

TEST(ArenaTest, NoPageFaultsAfterGrow) {
  const auto arena = MakeArena();
  arena->Grow(24 << 20, 2);
  const int64_t before = MinorFaults();
  TouchEveryPage(arena->base(), 24 << 20);
  EXPECT_LE(MinorFaults() - before, 4);  // 6144 pages
}

TEST(ArenaTest, LimitIsAnErrorAndKeepsWhatWasUsable) {
  const auto arena = MakeArena();
  arena->SetLimit(3'000'000);
  arena->Grow(2'000'000);
  const int64_t committed = arena->committed();
  std::memset(arena->base(), 7, 2'000'000);
  try {
    arena->Grow(3'000'001);
    FAIL() << "beyond the limit";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.message(), "cpu:0: cannot grow the arena from " + std::to_string(committed) +
                                   " to 3000001 bytes: its limit is 3000000");
  }
  EXPECT_EQ(arena->committed(), committed);
  EXPECT_EQ(arena->base()[1'999'999], 7);
  arena->Grow(3'000'000);
  EXPECT_GE(arena->committed(), 3'000'000);
  EXPECT_LT(arena->committed(), 3'000'000 + 4096);
  arena->SetLimit(0);
  arena->Grow(3'000'001);
  EXPECT_THROW(arena->SetLimit(-1), Error);
}

TEST(ArenaTest, OutOfMemoryIsAnErrorAndKeepsWhatWasUsable) {
  const auto arena = MakeArena();
  arena->Grow(1000);
  arena->base()[999] = 5;
  const int64_t committed = arena->committed();
  EXPECT_THROW(arena->Grow(AvailableMemory() + (int64_t{1} << 30)), DeviceError);
  EXPECT_THROW(arena->Grow(int64_t{1} << 44), DeviceError);  // beyond the reserved address space
  EXPECT_EQ(arena->committed(), committed);
  EXPECT_EQ(arena->base()[999], 5);
  arena->Grow(5 << 20);
  EXPECT_EQ(arena->base()[999], 5);
}

// Of both versions at once, as hybrid systems have them, and of the groups around a process' own.
TEST(PagesTest, ControlGroupsLimitMemory) {
  const TestFolder folder;
  const std::string root = folder.path() + "/cgroup", own = folder.path() + "/own";
  const auto put = [&](const std::string& group, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(root + group);
    std::ofstream(root + group + file) << text;
  };
  const auto available = [&] { return AvailableInControlGroups(root, own); };
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max());
  std::ofstream(own) << "12:pids:/other\n4:cpu,memory:/a/b:c\n1:name=systemd:/\n0::/d\n";
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max());
  put("/memory", "/memory.limit_in_bytes", "9223372036854771712\n");
  put("/memory", "/memory.usage_in_bytes", "5000\n");
  put("/memory/a", "/memory.limit_in_bytes", "1000\n");
  put("/memory/a", "/memory.usage_in_bytes", "300\n");
  EXPECT_EQ(available(), 700);
  put("/memory/a/b:c", "/memory.limit_in_bytes", "800\n");
  put("/memory/a/b:c", "/memory.usage_in_bytes", "250\n");
  put("/memory/a/b:c", "/memory.stat", "cache 90\ninactive_file 7\ntotal_inactive_file 50\n");
  EXPECT_EQ(available(), 600);
  put("", "/memory.max", "400\n");  // of a container that sees its own group as the root
  put("", "/memory.current", "100\n");
  EXPECT_EQ(available(), 300);
  put("/d", "/memory.max", "200\n");
  put("/d", "/memory.current", "150\n");
  put("/d", "/memory.stat", "inactive_file 20\n");
  EXPECT_EQ(available(), 70);
  put("/d", "/memory.max", "max\n");
  EXPECT_EQ(available(), 300);
}

TEST(ArenaTest, RejectsInvalidArguments) {
  EXPECT_THROW(Arena::Make(Cpu(0), nullptr), Error);
  EXPECT_THROW(Arena::Make(Cpu(0), MakeInlineEngine(), 0), Error);
  EXPECT_THROW(Arena::Make(Cuda(999), MakeInlineEngine()), DeviceError);
  EXPECT_NO_THROW(MakeArena(int64_t{1} << 60));  // never more than the machine has
  EXPECT_THROW(MakeArena()->Grow(1, 0), Error);
  EXPECT_THROW(MakeArena(1000)->Grow(3 << 20), DeviceError);
}

TEST(ArenaTest, GenerationsCountUp) {
  const auto arena = MakeArena();
  const uint64_t first = arena->generation();
  EXPECT_EQ(arena->NextGeneration(), first + 1);
  EXPECT_EQ(arena->generation(), first + 1);
}

TEST(ArenaTest, ManyArenasFitTheAddressSpace) {
  std::vector<std::shared_ptr<Arena>> arenas;
  for (int i = 0; i < 16; ++i) arenas.push_back(MakeArena());
  for (const auto& arena : arenas) arena->Grow(1);
}

}  // namespace
}  // namespace bindery
