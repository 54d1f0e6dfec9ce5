#include "train/data/samples/numbers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/philox.h"

namespace bindery {

Shard ParseShard(std::string_view text) {
  constexpr int64_t kMostShards = 1 << 20;
  const size_t slash = std::min(text.find('/'), text.size());
  const auto first = ParseNumber<int64_t>(text.substr(0, slash)),
             count = ParseNumber<int64_t>(text.substr(std::min(slash + 1, text.size())));
  if (!first || !count || *count > kMostShards || *first < 0 || *first >= *count) {
    Throw<DataError>("expected I/N, with I from 0 to N - 1, got \"{}\"", text);
  }
  return {*first, *count};
}

std::vector<int64_t> NumbersOf(const Shard& shard, int64_t samples) {
  std::vector<int64_t> numbers;
  for (int64_t number = shard.first; number < samples; number += shard.count) numbers.push_back(number);
  return numbers;
}

SplitNumbers SplitByPart(int64_t samples, double part) {
  if (!(part >= 0 && part <= 1)) Throw<DataError>("expected a part of the samples from 0 to 1, got {}", part);
  std::vector<int64_t> numbers(static_cast<size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  PhiloxStream stream(0, "split");
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[stream.Below(i)]);
  const auto middle = numbers.end() - std::llround(part * static_cast<double>(numbers.size()));
  std::sort(numbers.begin(), middle);
  std::sort(middle, numbers.end());
  return {{numbers.begin(), middle}, {middle, numbers.end()}};
}

ShardedText CutShard(const std::string& data) {
  constexpr std::string_view kSetting = "?shard=";
  const size_t at = data.rfind(kSetting);
  if (at == std::string::npos) return {data};
  try {
    return {data.substr(0, at), ParseShard(data.substr(at + kSetting.size()))};
  } catch (const DataError& e) {
    Throw<DataError>("data \"{}\": \"shard\": {}", data, e.message());
  }
}

}  // namespace bindery
