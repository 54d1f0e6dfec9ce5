#include "engine/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/error.h"

namespace bindery {
namespace {

struct Part {
  int64_t begin = -1, end = -1;
  int calls = 0;
};

std::vector<Part> PartsOf(int64_t n, int64_t grain, int64_t serial_below) {
  std::vector<Part> parts(TeamSize());
  ParallelFor(n, grain, serial_below, [&](int64_t begin, int64_t end, int thread) {
    parts.at(thread) = {begin, end, parts.at(thread).calls + 1};
  });
  return parts;
}

TEST(TeamTest, EveryElementOnceInOrderedPartsOfWholeGrains) {
  for (int team = 1; team <= 8; ++team) {
    const TeamScope scope(team);
    ASSERT_EQ(TeamSize(), team);
    for (int64_t grain : {1, 3, 64, 1000}) {
      for (int64_t n : {1, 2, 7, 8, 63, 64, 65, 1000, 4097}) {
        const std::vector<Part> parts = PartsOf(n, grain, 0);
        int64_t expected_begin = 0, least = n, most = 0;
        for (const Part& part : parts) {
          EXPECT_EQ(part.calls, 1);
          EXPECT_EQ(part.begin, expected_begin);
          EXPECT_TRUE(part.end % grain == 0 || part.end == n);
          expected_begin = part.end;
          least = std::min(least, part.end - part.begin);
          most = std::max(most, part.end - part.begin);
        }
        EXPECT_EQ(expected_begin, n);
        EXPECT_LE(most - least, grain) << "n " << n << ", grain " << grain << ", team " << team;
      }
    }
  }
}

TEST(TeamTest, SerialBelowTheThreshold) {
  const TeamScope scope(4);
  for (int64_t n : {0, 1, 99, 100}) {
    const std::vector<Part> parts = PartsOf(n, 1, 100);
    EXPECT_EQ(parts[0].calls, 1);
    EXPECT_EQ(parts[0].begin, 0);
    EXPECT_EQ(parts[0].end, n);
    EXPECT_EQ(parts[1].calls + parts[2].calls + parts[3].calls, 0);
  }
  EXPECT_EQ(PartsOf(101, 1, 100)[3].calls, 1);
}

TEST(TeamTest, ScopesNestAndBelongToTheirThread) {
  EXPECT_EQ(TeamSize(), 1);
  {
    const TeamScope outer(3);
    {
      const TeamScope inner(2);
      EXPECT_EQ(TeamSize(), 2);
      EXPECT_EQ(PartsOf(10, 1, 0).size(), 2u);
    }
    EXPECT_EQ(TeamSize(), 3);
    EXPECT_EQ(PartsOf(10, 1, 0)[2].calls, 1);
  }
  EXPECT_EQ(TeamSize(), 1);
  EXPECT_GE(NumCores(), 1);
}

TEST(TeamTest, LoopInsideALoopIsSerial) {
  const TeamScope scope(3);
  std::vector<int> counts(300);
  ParallelFor(3, 1, 0, [&](int64_t begin, int64_t end, int) {
    EXPECT_EQ(TeamSize(), 1);
    for (int64_t i = begin; i < end; ++i) {
      ParallelFor(100, 1, 0, [&](int64_t b, int64_t e, int thread) {
        EXPECT_EQ(thread, 0);
        for (int64_t k = b; k < e; ++k) ++counts[i * 100 + k];
      });
    }
  });
  EXPECT_EQ(counts, std::vector<int>(300, 1));
  EXPECT_EQ(TeamSize(), 3);
}

TEST(TeamTest, ExceptionOfTheLowestPartIsRethrownAfterAllParts) {
  for (int team : {1, 2, 4}) {
    const TeamScope scope(team);
    std::atomic<int> finished{0};
    try {
      ParallelFor(4 * team, 1, 0, [&](int64_t, int64_t, int thread) {
        ++finished;
        if (thread == team - 1) throw std::runtime_error("last");
        if (thread >= team / 2) throw DataError("middle");
      });
      FAIL() << "nothing was thrown";
    } catch (const std::exception& error) {
      EXPECT_STREQ(error.what(), team == 1 ? "last" : team == 2 ? "last" : "DataError: middle");
    }
    EXPECT_EQ(finished, team);
    EXPECT_EQ(TeamSize(), team);
    EXPECT_EQ(PartsOf(100, 1, 0).back().end, 100);  // still usable
  }
}

TEST(TeamTest, RejectsInvalidArguments) {
  EXPECT_THROW(TeamScope(0), Error);
  EXPECT_THROW(TeamScope(-2), Error);
  EXPECT_EQ(TeamSize(), 1);
  EXPECT_THROW(ParallelFor(10, 0, 0, [](int64_t, int64_t, int) {}), Error);
}

}  // namespace
}  // namespace bindery
