// The vector loops of products of matrices, in every set of instructions that runs here, against sums in double.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/executor/kernels/loop_tables.h"

namespace bindery::cpu {
namespace {

class ProductLoopsTest : public testing::TestWithParam<const Loops*> {
 protected:
  const Loops& loops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, ProductLoopsTest, testing::ValuesIn(LoopTables()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(ProductLoopsTest, TransposedProducts) {
  const int64_t lanes = loops().lanes, depth = 11, a_row = 19, row = 7 * lanes + 3;
  const std::vector<float> a = RandomFloats(depth * a_row, "a"), b = RandomFloats(depth * row, "b"),
                           old = RandomFloats(17 * row, "y");
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
    for (int64_t vectors = 1; vectors <= 7; ++vectors) {
      std::vector<float> y = old;
      loops().multiply_transposed({.a = a.data(),
                                   .a_row = a_row,
                                   .b = b.data(),
                                   .b_row = row,
                                   .y = y.data(),
                                   .y_row = row,
                                   .rows = rows,
                                   .depth = depth,
                                   .vectors = vectors});
      for (int64_t i = 0; i < 17 * row; ++i) {
        const int64_t r = i / row, column = i % row;
        if (r >= rows || column >= vectors * lanes) {
          ASSERT_EQ(y[i], old[i]) << "beyond";
          continue;
        }
        double wanted = 0;
        for (int64_t d = 0; d < depth; ++d) wanted += double{a[d * a_row + r]} * b[d * row + column];
        ASSERT_NEAR(y[i], wanted, 1e-5) << rows << " rows, " << vectors << " vectors";
      }
    }
  }
}

// Sums begin with nothing, or with what y holds.
TEST_P(ProductLoopsTest, Strips) {
  const int64_t lanes = loops().lanes, step = 2 * lanes + 3, depth = 11;
  const int64_t a_row = depth + 2;
  const std::vector<float> a = RandomFloats(27 * a_row, "a"), b = RandomFloats(depth * 2 * lanes, "b"),
                           old = RandomFloats(27 * step, "y");
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 27}) {
    for (int64_t vectors : {1, 2}) {
      for (bool adds : {false, true}) {
        std::vector<float> y = old;
        loops().multiply_strip({.a = a.data(),
                                .a_row = a_row,
                                .b = b.data(),
                                .y = y.data(),
                                .y_row = step,
                                .rows = rows,
                                .depth = depth,
                                .vectors = vectors,
                                .begin = adds ? y.data() : nullptr,
                                .begin_row = adds ? step : 0});
        for (int64_t i = 0; i < 27 * step; ++i) {
          const int64_t row = i / step, column = i % step;
          if (row >= rows || column >= vectors * lanes) {
            ASSERT_EQ(y[i], old[i]) << "beyond";
            continue;
          }
          double wanted = adds ? old[i] : 0;
          for (int64_t k = 0; k < depth; ++k) {
            wanted += double{a[row * a_row + k]} * b[k * vectors * lanes + column];
          }
          ASSERT_NEAR(y[i], wanted, 1e-5) << rows << " rows, " << vectors << " vectors, " << adds;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery::cpu
