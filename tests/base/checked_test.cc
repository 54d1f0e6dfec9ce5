#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace bindery {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(CheckedTest, MultipliesUpToTheLimit) {
  EXPECT_EQ(CheckedMul(0, kMax), 0);
  EXPECT_EQ(CheckedMul(1, kMax), kMax);
  EXPECT_EQ(CheckedMul(-1, kMax), -kMax);
  EXPECT_EQ(CheckedMul(int64_t{1} << 31, (int64_t{1} << 32) - 1), 9223372034707292160);
  EXPECT_EQ(CheckedMul(3037000499, 3037000499), 9223372030926249001);
}

TEST(CheckedTest, RefusesProductsThatOverflow) {
  EXPECT_THROW(CheckedMul(2, kMax), ShapeError);
  EXPECT_THROW(CheckedMul(-1, kMin), ShapeError);
  EXPECT_THROW(CheckedMul(int64_t{1} << 32, int64_t{1} << 31), ShapeError);
  EXPECT_THROW(CheckedMul(3037000500, 3037000500), ShapeError);
  EXPECT_THROW(CheckedMul(kMax, kMax), ShapeError);
}

TEST(CheckedTest, AddsUpToTheLimit) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMin, kMax), -1);
  EXPECT_THROW(CheckedAdd(kMax, 1), ShapeError);
  EXPECT_THROW(CheckedAdd(kMin, -1), ShapeError);
}

TEST(CheckedTest, NamesTheQuantity) {
  try {
    CheckedMul(kMax, 4, "bytes of fc1_weight");
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "ShapeError: bytes of fc1_weight overflows: 9223372036854775807 * 4");
  }
}

TEST(CheckedTest, RoundsUp) {
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(1, 64), 64);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 64), 128);
  EXPECT_EQ(RoundUp(7, 1), 7);
  EXPECT_EQ(RoundUp(8, 3), 9);
  EXPECT_THROW(RoundUp(kMax, 64), ShapeError);
}

TEST(CheckedTest, DividesUp) {
  EXPECT_EQ(CeilDiv(0, 3), 0);
  EXPECT_EQ(CeilDiv(1, 3), 1);
  EXPECT_EQ(CeilDiv(3, 3), 1);
  EXPECT_EQ(CeilDiv(4, 3), 2);
  EXPECT_EQ(CeilDiv(kMax, 3), kMax / 3 + 1);
}

}  // namespace
}  // namespace bindery
