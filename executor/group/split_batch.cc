#include "executor/group/split_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace bindery {

std::vector<SampleRange> SplitBatch(int64_t batch, std::span<const double> workload) {
  double sum = 0;
  for (const double w : workload) {
    if (!std::isfinite(w) || w < 0) Throw("workload {} is not a number >= 0", w);
    sum += w;
  }
  if (!(sum > 0) || !std::isfinite(sum)) Throw("the workloads must have a positive sum");
  if (batch < 0) Throw("a batch of {} samples cannot be split", batch);

  std::vector<int64_t> shares;
  std::vector<double> remainders;
  int64_t given = 0;
  for (const double w : workload) {
    const double quota = static_cast<double>(batch) * (w / sum);
    const double floor = std::floor(quota + 1e-9);
    // Compared before the cast: rounding may have lifted the quota of a huge batch out of the integers' range.
    const int64_t whole = floor < static_cast<double>(batch - given) ? static_cast<int64_t>(floor) : batch - given;
    shares.push_back(whole);
    remainders.push_back(quota - static_cast<double>(whole));
    given += whole;
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Remainders that differ by rounding only count as equal, so that the first device wins.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::round(remainders[a] * 1e9) > std::round(remainders[b] * 1e9);
  });
  for (size_t i = 0; given < batch; i = (i + 1) % order.size()) {
    if (workload[order[i]] == 0) continue;
    ++shares[order[i]];
    ++given;
  }
  std::vector<SampleRange> ranges;
  int64_t at = 0;
  for (const int64_t share : shares) {
    ranges.push_back({at, at + share});
    at += share;
  }
  return ranges;
}

size_t NumBusy(std::span<const SampleRange> ranges) {
  return static_cast<size_t>(std::ranges::count_if(ranges, [](const SampleRange& range) { return range.size() > 0; }));
}

}  // namespace bindery
