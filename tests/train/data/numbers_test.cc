// Which samples: shards and drawn parts are of the number of samples alone.
#include "train/data/samples/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

using Numbers = std::vector<int64_t>;

TEST(Numbers, ShardsAreDisjointAndHaveAll) {
  EXPECT_EQ(NumbersOf({0, 1}, 3), (Numbers{0, 1, 2}));
  EXPECT_EQ(NumbersOf({1, 3}, 8), (Numbers{1, 4, 7}));
  EXPECT_EQ(NumbersOf({2, 3}, 2), Numbers());
  for (const int64_t samples : {0, 1, 10, 97}) {
    Numbers together, all(static_cast<size_t>(samples));
    for (int64_t i = 0; i < 7; ++i) {
      const Numbers shard = NumbersOf({i, 7}, samples);
      together.insert(together.end(), shard.begin(), shard.end());
    }
    std::ranges::sort(together);
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(together, all);
  }
}

TEST(Numbers, ADrawnPartIsAlwaysTheSame) {
  for (const double part : {0.0, 0.1, 0.25, 1.0}) {
    const SplitNumbers split = SplitByPart(1000, part), again = SplitByPart(1000, part);
    EXPECT_EQ(split.part, again.part);
    EXPECT_EQ(split.part.size(), static_cast<size_t>(1000 * part));
    EXPECT_TRUE(std::ranges::is_sorted(split.part) && std::ranges::is_sorted(split.rest));
    Numbers together, all(1000);
    std::ranges::merge(split.rest, split.part, std::back_inserter(together));
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(together, all);
  }
  // From everywhere: sorted data give a part of all classes. And a part that checkpoints rely on stays what it is.
  const Numbers part = SplitByPart(1000, 0.1).part;
  EXPECT_LT(part.front(), 50);
  EXPECT_GT(part.back(), 950);
  EXPECT_EQ(SplitByPart(10, 0.3).part, (Numbers{3, 5, 6}));
  EXPECT_EQ(MessageOf<DataError>([] { SplitByPart(10, 1.5); }),
            "DataError: expected a part of the samples from 0 to 1, got 1.5");
}

TEST(Numbers, TextsWithAShard) {
  EXPECT_EQ(ParseShard("3/8"), (Shard{3, 8}));
  for (const char* bad : {"3/3", "-1/3", "1", "1/", "/3", "0/0", "1/3/5", "a/b", ""}) {
    EXPECT_EQ(MessageOf<DataError>([&] { ParseShard(bad); }),
              fmt::format("DataError: expected I/N, with I from 0 to N - 1, got \"{}\"", bad));
  }
  for (const char* data : {"digits", "text:input.txt", "folder/of?files", ""}) {
    EXPECT_EQ(CutShard(data).data, data);
    EXPECT_FALSE(CutShard(data).shard);
    const ShardedText cut = CutShard(std::string(data) + "?shard=1/2");
    EXPECT_EQ(cut.data, data);
    EXPECT_EQ(cut.shard, (Shard{1, 2}));
  }
  EXPECT_EQ(MessageOf<DataError>([] { CutShard("digits?shard=2/2"); }),
            "DataError: data \"digits?shard=2/2\": \"shard\": expected I/N, with I from 0 to N - 1, got \"2/2\"");
}

}  // namespace
}  // namespace bindery
