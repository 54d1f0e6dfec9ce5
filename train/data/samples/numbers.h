// Which samples of a data set, by their numbers: a shard of them, or a part drawn from them. Both depend on nothing but
// how many there are, so who has the same data has the same choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

// Every count-th sample from number `first` on: of `count` shards, which have no sample in common.
struct Shard {
  int64_t first = 0, count = 1;
  bool operator==(const Shard&) const = default;
};

// "I/N". Throws DataError unless I is from 0 to N - 1.
Shard ParseShard(std::string_view text);
std::vector<int64_t> NumbersOf(const Shard& shard, int64_t samples);

// `part` of the numbers below `samples`, drawn without regard to their order but always the same, and the rest, both
// ascending. Throws DataError unless `part` is from 0 to 1.
struct SplitNumbers {
  std::vector<int64_t> rest, part;
};
SplitNumbers SplitByPart(int64_t samples, double part);

// Of the kinds of data that OpenData (train/data/open.h) does not know, "digits", text:FILE, a folder: the text without
// "?shard=I/N", which is the only setting that they have, and what it says, if it is there. Throws DataError as
// ParseShard.
struct ShardedText {
  std::string data;
  std::optional<Shard> shard = {};
};
ShardedText CutShard(const std::string& data);

}  // namespace bindery
