// How a batch is shared out among devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bindery {

struct SampleRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const SampleRange&) const = default;
};

// Contiguous ranges in device order, one per workload, together 0 .. batch-1. Shares follow the workload by largest
// remainder: each is within one of batch * w / sum(w); of equal remainders the first device gets the sample. Any batch
// >= 0 is fine: a share may be empty. Throws Error unless workloads are finite, >= 0 and not all 0.
std::vector<SampleRange> SplitBatch(int64_t batch, std::span<const double> workload);

size_t NumBusy(std::span<const SampleRange> ranges);  // how many of them have samples

}  // namespace bindery
