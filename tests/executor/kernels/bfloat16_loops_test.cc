// The vector loops that read and write bfloat16, in every set of instructions that runs here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/philox.h"
#include "executor/kernels/cpu/simd/bfloat16_products.h"
#include "tests/executor/kernels/loop_tables.h"

namespace bindery::cpu {
namespace {

class BFloat16LoopsTest : public testing::TestWithParam<const Loops*> {
 protected:
  const Loops& loops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, BFloat16LoopsTest, testing::ValuesIn(LoopTables()),
                         [](const auto& info) { return std::string(info.param->name); });

// All there are to floats and back; and floats of any bits, NaN, infinities, denormal ones and ties among them.
TEST_P(BFloat16LoopsTest, ConversionsAreThoseOfTheType) {
  std::vector<bfloat16> halves(1 << 16), back(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  loops().conversions.widen(halves.data(), floats.data(), 1 << 16);
  loops().conversions.narrow(floats.data(), back.data(), 1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), i << 16);
    ASSERT_EQ(back[i].bits, bfloat16(floats[i]).bits) << i;
  }
  PhiloxStream stream(5, "bits");
  for (const int64_t n : {1, 3, 15, 16, 17, 31, 10000}) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) {
      const uint32_t bits = stream.Next();
      value = std::bit_cast<float>(bits % 4 == 0 ? (bits & 0xffff0000u) | 0x8000u : bits);
    }
    std::vector<bfloat16> y(x.size() + 1);
    loops().conversions.narrow(x.data(), y.data(), n);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, bfloat16(x[i]).bits) << x[i];
    EXPECT_EQ(y.back().bits, 0) << n;
  }
}

// Loops over bfloat16 are those over the floats that they are, with results rounded once.
TEST_P(BFloat16LoopsTest, BatchNormOfBFloat16IsThatOfFloats) {
  for (int64_t lanes : {1, 3, 4, 8, 16, 20, 33}) {
    const int64_t rows = 131, n = rows * lanes;
    const auto rounded = [&](const char* name) {
      std::vector<bfloat16> halves;
      for (const float value : RandomFloats(n, name)) halves.emplace_back(value);
      return halves;
    };
    const std::vector<bfloat16> x = rounded("x"), dy = rounded("dy");
    std::vector<float> wide_x(x.size()), wide_dy(x.size()), wide_y(x.size());
    loops().conversions.widen(x.data(), wide_x.data(), n);
    loops().conversions.widen(dy.data(), wide_dy.data(), n);
    std::vector<bfloat16> y(x.size()), wanted(x.size());
    const auto expect_same = [&](const char* what) {
      loops().conversions.narrow(wide_y.data(), wanted.data(), n);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i].bits, wanted[i].bits) << what << " " << lanes << " " << i;
    };
    const std::vector<float> mean = RandomFloats(lanes, "mean"), scale = RandomFloats(lanes, "scale", 0.5f, 2),
                             beta = RandomFloats(lanes, "beta"), b = RandomFloats(lanes, "b"),
                             c = RandomFloats(lanes, "c");
    const Loops::Channels channels{mean.data(), scale.data(), beta.data(), b.data(), c.data()};
    const Loops::Channel channel{mean[0], scale[0], beta[0], b[0], c[0]};
    const auto& halves = loops().bfloat16_channels;
    const auto& floats = loops().channels;
    for (const bool relu : {false, true}) {
      halves.normalize(x.data(), y.data(), n, channel, relu);
      floats.normalize(wide_x.data(), wide_y.data(), n, channel, relu);
      expect_same("normalize");
      halves.normalize_rows(x.data(), y.data(), rows, lanes, channels, relu);
      floats.normalize_rows(wide_x.data(), wide_y.data(), rows, lanes, channels, relu);
      expect_same("normalize_rows");
      halves.grad_input(dy.data(), x.data(), y.data(), n, channel, relu);
      floats.grad_input(wide_dy.data(), wide_x.data(), wide_y.data(), n, channel, relu);
      expect_same("grad_input");
      y = dy;  // in place
      halves.grad_input_rows(y.data(), x.data(), y.data(), rows, lanes, channels, relu);
      floats.grad_input_rows(wide_dy.data(), wide_x.data(), wide_y.data(), rows, lanes, channels, relu);
      expect_same("grad_input_rows");
      std::vector<double> sums(static_cast<size_t>(4 * lanes + 4)), wanted_sums(sums.size());
      const auto add = [&](const auto& table, const auto* g, const auto* v, double* to) {
        table.moments(v, n, mean[0], to);
        table.grad_sums(g, v, n, channel, relu, to + 2);
        table.moments_rows(v, rows, lanes, lanes, mean.data(), to + 4, to + 4 + lanes);
        table.grad_sums_rows(g, v, rows, lanes, lanes, channels, relu, to + 4 + 2 * lanes, to + 4 + 3 * lanes);
      };
      add(halves, dy.data(), x.data(), sums.data());
      add(floats, wide_dy.data(), wide_x.data(), wanted_sums.data());
      EXPECT_EQ(sums, wanted_sums) << lanes << " " << relu;
    }
  }
}

// Products of what is rounded, in both orders of what is multiplied; behind its last column and number there is NaN.
TEST(RoundedProducts, AreThoseOfRoundedNumbers) {
  const RoundedProducts add = BestRoundedProducts();
  if (!add) GTEST_SKIP() << "no units for bfloat16";
  constexpr int64_t kTile = Loops::kTile;
  const auto half = [](float value) { return static_cast<double>(static_cast<float>(bfloat16(value))); };
  for (const bool along : {false, true}) {
    for (const int64_t rows : {1, 7, 8, 64, 70, 150}) {
      for (const int64_t depth : {1, 2, 15, 33, 64, 65, 130}) {
        const int64_t columns = rows % 2 == 0 ? kTile : 40;
        std::vector<float> a = RandomFloats(rows * depth, "a"), b = RandomFloats(depth * kTile, "b"),
                           y = RandomFloats(rows * kTile, "y");
        const std::vector<float> before = y;
        for (int64_t k = 0; k < depth; ++k) {
          for (int64_t j = columns; j < kTile; ++j) b[k * kTile + j] = NAN;
        }
        a.insert(a.end(), 2 * kTile, NAN);
        const int64_t a_row = along ? depth : 1, a_column = along ? 1 : rows;
        add({.a = a.data(),
             .a_row = a_row,
             .a_column = a_column,
             .b = b.data(),
             .y = y.data(),
             .rows = rows,
             .depth = depth,
             .columns = columns});
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            double sum = before[i * kTile + j];
            for (int64_t k = 0; k < depth; ++k) sum += half(a[i * a_row + k * a_column]) * half(b[k * kTile + j]);
            ASSERT_NEAR(y[i * kTile + j], sum, 2e-5) << along << " " << rows << " " << depth << " " << i << " " << j;
          }
        }
      }
    }
  }
  // What is not finite.
  for (const float special : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> a(2, 1.0f), b(2 * kTile, 1.0f), y(kTile);
    a[1] = special;
    add({.a = a.data(), .a_row = 2, .a_column = 1, .b = b.data(), .y = y.data(), .rows = 1, .depth = 2});
    if (std::isnan(special)) {
      EXPECT_TRUE(std::isnan(y[0]));
    } else {
      EXPECT_EQ(y[0], special);
    }
  }
}

}  // namespace
}  // namespace bindery::cpu
