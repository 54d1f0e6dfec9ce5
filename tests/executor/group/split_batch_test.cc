#include "executor/group/split_batch.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace bindery {
namespace {

// Where rounding to double is coarser than one sample.
TEST(SplitBatchTest, SharesOutHugeBatchesToTheLastSample) {
  for (const int64_t batch : {INT64_MAX, INT64_MAX - 1, (int64_t{1} << 60) + 1, (int64_t{1} << 53) + 1}) {
    for (const std::vector<double>& workload : {std::vector<double>{1}, {1, 1}, {1, 2, 3}, {0, 1}, {1e-9, 1}}) {
      const std::vector<SampleRange> ranges = SplitBatch(batch, workload);
      int64_t end = 0;
      for (size_t d = 0; d < workload.size(); ++d) {
        EXPECT_EQ(ranges[d].begin, end);
        EXPECT_GE(ranges[d].size(), 0);
        EXPECT_TRUE(workload[d] > 0 || ranges[d].size() == 0);
        end = ranges[d].end;
      }
      EXPECT_EQ(end, batch);
    }
  }
}

}  // namespace
}  // namespace bindery
