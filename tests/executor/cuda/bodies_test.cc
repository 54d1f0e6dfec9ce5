// The bodies of operators' kernels for GPUs, run for themselves: what the cases of operators, which are small, cannot
// show.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "executor/kernels/cuda/layout_body.h"
#include "executor/kernels/cuda/norm_body.h"
#include "executor/kernels/cuda/product_body.h"
#include "tests/engine/cuda/cpu_block.h"

namespace bindery::cuda {
namespace {

TEST(CudaBodiesTest, PlacesInGridsBeyond32Bits) {
  constexpr int64_t kLong = (int64_t{1} << 32) + 6;
  const Grid grid{.rank = 2, .extents = {3, kLong}, .n = 3 * kLong};
  const Strides strides{.of = {10 * kLong, 2}};
  EXPECT_EQ(PlacesOf(grid, 5, strides).of[0], 10);  // the index fits 32 bits, the extent does not
  EXPECT_EQ(PlacesOf(grid, kLong + 7, strides).of[0], 10 * kLong + 14);
}

TEST(CudaBodiesTest, Divides) {
  constexpr int64_t kMost = INT32_MAX;
  for (const int64_t by : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{64}, int64_t{127}, int64_t{65537},
                           (int64_t{1} << 30) + 3, kMost - 1, kMost, kMost + 1, int64_t{1} << 40}) {
    const Divisor divisor(by);
    for (const int64_t around : {int64_t{0}, by, 2 * by, kMost / by * by, kMost, int64_t{1} << 50}) {
      for (int64_t n = std::max<int64_t>(around - 3, 0); n < around + 3; ++n) {
        EXPECT_EQ(divisor.Of(n), n / by) << n << " / " << by;
        EXPECT_EQ(divisor.Rest(n), n % by) << n << " % " << by;
      }
    }
  }
}

// A sum of 2^16 products in one float would be off by one part in ten thousand.
TEST(CudaBodiesTest, LongProductsKeepTheirDigits) {
  constexpr int64_t kLength = int64_t{1} << 16;
  const std::vector<float> a(kLength, 0.1f), b(kLength, 1);
  const double expected = static_cast<double>(0.1f) * kLength;
  for (const int64_t splits : {1, 3}) {
    float y = 0;
    std::vector<float> partial(static_cast<size_t>(splits));
    const ProductArgs args{.m = 1,
                           .n = 1,
                           .k = kLength,
                           .a = {.source = {a.data(), DType::kFloat32}, .row_stride = kLength},
                           .b = {.source = {b.data(), DType::kFloat32}, .row_stride = 1},
                           .c = {.row_stride = 1},
                           .out = {&y, DType::kFloat32},
                           .splits = splits,
                           .split_k = kLength / splits + 1,
                           .partial = partial.data()};
    RunOnCpu(args, 2, ProductArgs::kThreads);
    if (splits > 1) RunOnCpu(ProductEndArgs{args}, 1, ProductArgs::kThreads);
    EXPECT_NEAR(y, expected, 1e-5 * expected) << splits;
  }
}

TEST(CudaBodiesTest, StatisticsOfNumbersFarFromZero) {
  constexpr int64_t kCount = 100000;
  std::vector<float> x(kCount), out(3);
  double sum = 0, square = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] = 1e4f + static_cast<float>(i % 7);
    sum += x[static_cast<size_t>(i)];
  }
  for (const float value : x) square += (value - sum / kCount) * (value - sum / kCount);
  for (const int by_block : {0, 1}) {
    const ChannelArgs args{.what = Channels::kStatistics,
                           .rows = {.count = 1, .by_block = by_block},
                           .channels = 1,
                           .inner = kCount,
                           .per_inner = Divisor(kCount),
                           .compute = DType::kFloat32,
                           .x = {x.data(), DType::kFloat32},
                           .out = {{out.data(), DType::kFloat32}}};
    RunOnCpu(args, 1, 64);
    EXPECT_EQ(out[0], kCount);
    EXPECT_NEAR(out[1], sum / kCount, 1e-3);  // a float's last bit
    EXPECT_NEAR(out[2], square, 1e-5 * square);
  }
}

// Whatever the number of bad elements, one fault is written: the first one's of a piece.
TEST(CudaBodiesTest, OneFaultOfAPieceIsHeard) {
  constexpr int64_t kRows = 40;
  std::vector<int64_t> indices(kRows, 9);
  const std::vector<float> table(8, 1);
  std::vector<float> out(kRows, 5);
  std::vector<Fault> faults(FaultRing::kSize);
  uint64_t piece = FaultRing::kSize + 3, heard = 0;
  GatherArgs args{.unit = 4,
                  .at = {.indices = {indices.data(), DType::kInt64}, .extent = 8, .count = kRows, .extents = {8}},
                  .n = kRows,
                  .in = table.data(),
                  .out = out.data(),
                  .faults = {faults.data(), &piece, &heard}};
  const auto run = [&] { RunOnThreads(args, 2, 16); };
  run();
  EXPECT_EQ(out, std::vector<float>(kRows, 0));
  for (size_t i = 0; i < faults.size(); ++i) EXPECT_EQ(faults[i].piece, i == 3 ? piece : 0);
  EXPECT_EQ(faults[3].value, 9);
  EXPECT_EQ(faults[3].low, -8);
  EXPECT_EQ(faults[3].high, 7);
  indices.assign(kRows, 10);
  run();  // of the same piece
  EXPECT_EQ(faults[3].value, 9);
  piece += FaultRing::kSize;
  run();
  EXPECT_EQ(faults[3].value, 10);
  EXPECT_EQ(faults[3].piece, piece);
}

}  // namespace
}  // namespace bindery::cuda
