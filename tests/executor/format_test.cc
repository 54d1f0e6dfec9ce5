#include "executor/format.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tests/executor/blocked_format.h"

namespace bindery {
namespace {

int64_t Offset(const Format& format, const Shape& shape, std::initializer_list<int64_t> index) {
  return ElementOffset(format, shape, index.begin());
}

TEST(Format, PlainIsTheDefaultAndTheIdentityPermutation) {
  EXPECT_EQ(Format(), Format::Plain());
  EXPECT_EQ(Format::Permuted({0, 1, 2, 3}), Format::Plain());
  EXPECT_EQ(Format::Permuted({}), Format::Plain());
  EXPECT_NE(Format::Permuted({1, 0}), Format::Plain());
  EXPECT_TRUE(Format::Plain().is_plain());
}

TEST(Format, ChannelsLastMovesAxisOneToTheEnd) {
  EXPECT_EQ(Format::ChannelsLast(4), Format::Permuted({0, 2, 3, 1}));
  EXPECT_EQ(Format::ChannelsLast(3), Format::Permuted({0, 2, 1}));
  EXPECT_EQ(Format::ChannelsLast(5), Format::Permuted({0, 2, 3, 4, 1}));
  EXPECT_EQ(Format::ChannelsLast(2), Format::Plain());
  EXPECT_EQ(Format::ChannelsLast(0), Format::Plain());
}

TEST(Format, PermutationsAreChecked) {
  EXPECT_THROW(Format::Permuted({0, 0}), Error);
  EXPECT_THROW(Format::Permuted({1, 2}), Error);
  EXPECT_THROW(Format::Permuted({0, 1, 2, 3, 4, 5, 6, 7, 8}), Error);
}

TEST(Format, Names) {
  EXPECT_EQ(ToString(Format::Plain()), "plain");
  EXPECT_EQ(ToString(Format::ChannelsLast(4)), "acdb");
  EXPECT_EQ(ToString(Blocked({0, 1, 2, 3}, {{1, 8}})), "aBcd8b");
  EXPECT_EQ(ToString(Blocked({0, 1, 2, 3}, {{1, 8}, {0, 8}})), "ABcd8b8a");
  EXPECT_EQ(ToString(Blocked({1, 0}, {{0, 16}, {1, 2}})), "BA16a2b");
  EXPECT_EQ(ToString(Format::Opaque(128, "dnnl")), "opaque:dnnl:128");
  EXPECT_EQ(fmt::format("{}", Format::ChannelsLast(3)), "acb");
}

TEST(Format, PlainOffsetsAreCOrder) {
  EXPECT_EQ(Offset(Format::Plain(), {2, 3, 4}, {1, 2, 3}), 23);
  EXPECT_EQ(Offset(Format::Plain(), {}, {}), 0);
}

TEST(Format, PermutedOffsets) {
  // (N, C, H, W) = (2, 3, 4, 5) in channels-last order.
  EXPECT_EQ(Offset(Format::ChannelsLast(4), {2, 3, 4, 5}, {1, 2, 3, 4}), ((1 * 4 + 3) * 5 + 4) * 3 + 2);
}

TEST(Format, BlockedOffsets) {
  const Format n_chw8c = Blocked({0, 1, 2, 3}, {{1, 8}});
  // 20 channels lie in 3 blocks of 8.
  EXPECT_EQ(PaddedShape(n_chw8c, {2, 20, 4, 5}), Shape({2, 24, 4, 5}));
  EXPECT_EQ(StorageElements(n_chw8c, {2, 20, 4, 5}), 2 * 24 * 4 * 5);
  EXPECT_EQ(StorageBytes(n_chw8c, DType::kBFloat16, {2, 20, 4, 5}), 2 * 2 * 24 * 4 * 5);
  EXPECT_EQ(Offset(n_chw8c, {2, 20, 4, 5}, {1, 19, 3, 4}), (((1 * 3 + 2) * 4 + 3) * 5 + 4) * 8 + 3);
  // OIhw8i8o: the input's block is outside the output's.
  const Format o_ihw8i8o = Blocked({0, 1, 2, 3}, {{1, 8}, {0, 8}});
  EXPECT_EQ(Offset(o_ihw8i8o, {16, 16, 3, 3}, {9, 10, 1, 2}), (((1 * 2 + 1) * 3 + 1) * 3 + 2) * 64 + 2 * 8 + 1);
  // One axis in two blocks (OI16i16o2i has such): 0..31 = 16 outer places of 2.
  const Format twice = Blocked({0, 1}, {{1, 4}, {0, 2}, {1, 2}});
  EXPECT_EQ(PaddedShape(twice, {3, 9}), Shape({4, 16}));
  EXPECT_EQ(Offset(twice, {3, 9}, {1, 5}), (0 * 2 + 0) * 16 + 2 * 4 + 1 * 2 + 1);
}

// Every element has a place of its own inside the storage.
TEST(Format, OffsetsAreDistinctAndInside) {
  const Shape shape{3, 5, 2, 7};
  for (const Format& format :
       {Format::Plain(), Format::ChannelsLast(4), Format::Permuted({3, 1, 0, 2}), Blocked({0, 1, 2, 3}, {{1, 8}}),
        Blocked({1, 0, 2, 3}, {{0, 4}, {1, 4}}), Blocked({0, 2, 3, 1}, {{1, 2}, {3, 4}, {1, 2}})}) {
    std::set<int64_t> seen;
    int64_t index[4];
    for (index[0] = 0; index[0] < shape[0]; ++index[0])
      for (index[1] = 0; index[1] < shape[1]; ++index[1])
        for (index[2] = 0; index[2] < shape[2]; ++index[2])
          for (index[3] = 0; index[3] < shape[3]; ++index[3]) seen.insert(ElementOffset(format, shape, index));
    EXPECT_EQ(static_cast<int64_t>(seen.size()), shape.Elements()) << ToString(format);
    EXPECT_GE(*seen.begin(), 0) << ToString(format);
    EXPECT_LT(*seen.rbegin(), StorageElements(format, shape)) << ToString(format);
  }
}

TEST(Format, OpaqueHasASizeAndNoElements) {
  const Format state = Format::Opaque(100, "reference");
  EXPECT_EQ(StorageElements(state, {1}), 100);
  EXPECT_EQ(StorageBytes(state, DType::kFloat32, {1}), 100);
  EXPECT_THROW(Offset(state, {1}, {0}), Error);
  EXPECT_NE(state, Format::Opaque(100, "dnnl"));
  EXPECT_NE(state, Format::Opaque(101, "reference"));
  EXPECT_THROW(Format::Opaque(1, "a name that is much too long"), Error);
}

TEST(Format, RankMustFit) {
  EXPECT_THROW(PaddedShape(Format::ChannelsLast(4), {2, 3, 4}), Error);
  EXPECT_THROW(Offset(Format::ChannelsLast(4), {2, 3, 4}, {0, 0, 0}), Error);
}

TEST(Format, EmptyValuesAreEmpty) {
  EXPECT_EQ(StorageElements(Blocked({0, 1, 2, 3}, {{1, 8}}), {0, 20, 4, 5}), 0);
  EXPECT_EQ(StorageElements(Blocked({0, 1, 2, 3}, {{1, 8}}), {2, 0, 4, 5}), 0);
}

TEST(Format, SizesAreChecked) {
  EXPECT_THROW(StorageBytes(Format::Plain(), DType::kFloat64, {int64_t{1} << 61, 2}), ShapeError);
  EXPECT_THROW(StorageElements(Blocked({0, 1}, {{0, 8}}), {INT64_MAX - 1, 1}), ShapeError);
}

}  // namespace
}  // namespace bindery
