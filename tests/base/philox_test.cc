#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/error.h"

namespace bindery {
namespace {

// The three vectors for philox4x32-10 in kat_vectors of Random123.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// FNV-1a of the eight zero bytes, computed by its definition in 128-bit arithmetic.
TEST(PhiloxTest, StreamKeyIsFnv1a) {
  const auto fnv = [](const std::vector<int>& bytes) {
    unsigned __int128 hash = 14695981039346656037u;
    for (int byte : bytes)
      hash = (hash ^ static_cast<unsigned>(byte)) * 1099511628211u % (static_cast<unsigned __int128>(1) << 64);
    return PhiloxKey{static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
  };
  EXPECT_EQ(StreamKey(0, ""), fnv({0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(StreamKey(0x0102030405060708, "fc\xff"), fnv({8, 7, 6, 5, 4, 3, 2, 1, 'f', 'c', 0xff}));
}

TEST(PhiloxTest, SeedsAndNamesGiveOtherStreams) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0u, 1u, 2u, 256u}) {
    for (const char* name : {"", "a", "b", "ab", "ba", "dropout1", "dropout2"}) {
      const PhiloxKey key = StreamKey(seed, name);
      keys.insert(uint64_t{key.k1} << 32 | key.k0);
    }
  }
  EXPECT_EQ(keys.size(), 4u * 7u);
}

TEST(PhiloxTest, DrawsAreTheWordsOfConsecutiveBlocks) {
  PhiloxStream stream(7, "init");
  const PhiloxKey key = StreamKey(7, "init");
  for (uint32_t block = 0; block < 3; ++block) {
    for (uint32_t word : Philox4x32({block, 0, 0, 0}, key)) EXPECT_EQ(stream.Next(), word);
  }
  EXPECT_EQ(stream.position(), 12u);
}

TEST(PhiloxTest, ResumesAtAnyPosition) {
  PhiloxStream whole(42, "shuffle");
  std::vector<uint32_t> draws;
  for (int i = 0; i < 50; ++i) draws.push_back(whole.Next());
  for (uint64_t start = 0; start < 50; ++start) {
    PhiloxStream resumed(42, "shuffle", start);
    for (uint64_t i = start; i < 50; ++i) ASSERT_EQ(resumed.Next(), draws[i]) << start << " " << i;
    EXPECT_EQ(resumed.position(), whole.position());
  }
}

TEST(PhiloxTest, PositionsBeyond32BitsAreOtherBlocks) {
  const uint64_t far = uint64_t{4} << 32;
  EXPECT_EQ(PhiloxStream(1, "x", far).Next(), Philox4x32({0, 1, 0, 0}, StreamKey(1, "x"))[0]);
  EXPECT_EQ(PhiloxStream(1, "x", far - 1).Next(), Philox4x32({0xffffffff, 0, 0, 0}, StreamKey(1, "x"))[3]);
}

TEST(PhiloxTest, UniformCoversZeroToOneWithoutOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(0xff), 0.0f);
  EXPECT_EQ(UniformFloat(0x100), 0x1p-24f);
  EXPECT_EQ(UniformFloat(0x80000000u), 0.5f);
  EXPECT_EQ(UniformFloat(0xffffffffu), 1.0f - 0x1p-24f);
}

TEST(PhiloxTest, UniformMoments) {
  PhiloxStream stream(3, "uniform");
  const int n = 200000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.Uniform(-2, 4);
    ASSERT_GE(x, -2);
    ASSERT_LE(x, 4);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / n;
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(3.0 / n));  // variance 36 / 12
  EXPECT_NEAR(squares / n - mean * mean, 3, 0.03);
}

TEST(PhiloxTest, NormalMoments) {
  PhiloxStream stream(5, "normal");
  const int n = 200000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.Normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    beyond_two += std::fabs(x) > 2;
  }
  EXPECT_EQ(stream.position(), 2u * n);
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(cubes / n, 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 0.0025);
}

TEST(PhiloxTest, BelowIsUniformAndInRange) {
  PhiloxStream stream(9, "below");
  for (uint64_t n : {1u, 2u, 3u, 7u, 10u}) {
    std::vector<int> counts(n);
    const int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      const uint64_t value = stream.Below(n);
      ASSERT_LT(value, n);
      ++counts[value];
    }
    const double expected = static_cast<double>(draws) / n;
    for (int count : counts) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << n;
  }
}

TEST(PhiloxTest, BelowHandlesHugeRanges) {
  PhiloxStream stream(11, "huge");
  const uint64_t n = (uint64_t{1} << 63) + 1;  // nearly half of all draws are rejected
  int upper_half = 0;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t value = stream.Below(n);
    ASSERT_LT(value, n);
    upper_half += value >= n / 2;
  }
  EXPECT_NEAR(upper_half, 2000, 5 * std::sqrt(1000.0));
  EXPECT_GT(stream.position(), 8000u + 4000u);
  EXPECT_LE(PhiloxStream(1, "").Below(UINT64_MAX), UINT64_MAX - 1);
  EXPECT_THROW(stream.Below(0), Error);
}

}  // namespace
}  // namespace bindery
