// The loops of integers, in every set of instructions that runs here and in both forms of data, against 64 bits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "tests/executor/kernels/loop_tables.h"

namespace bindery::cpu {
namespace {

struct Extremes {
  int data_low, data_high, weight_low, weight_high;
};

// Rows of runs of groups of taps, as the table takes them, and the numbers that they stand for.
template <class T>
class Rows {
 public:
  Rows(const IntegerLoops& loops, int64_t rows, int64_t runs, int64_t groups, int zero, const Extremes& range)
      : loops_(loops), runs_(runs), groups_(groups), zero_(zero), taps_(groups * loops.taps) {
    PhiloxStream stream(7, "rows");
    const auto draw = [&](int low, int high) {
      return static_cast<int>(std::floor(stream.Uniform(static_cast<float>(low), static_cast<float>(high) + 1)));
    };
    // Runs lie apart, and rows behind each other.
    apart_ = taps_ + loops.taps;
    for (int64_t i = 0; i < rows * runs * apart_; ++i)
      data_.push_back(static_cast<T>(draw(range.data_low, range.data_high)));
    for (int64_t i = 0; i < runs * taps_ * kPanel; ++i) {
      weights_.push_back(static_cast<int8_t>(draw(range.weight_low, range.weight_high)));
    }
    elements_.resize(data_.size() * bytes());
    if constexpr (std::is_signed_v<T>) {
      loops.load_signed(data_.data(), elements_.data(), std::ssize(data_), zero);
    } else {
      loops.load_unsigned(data_.data(), elements_.data(), std::ssize(data_), zero);
    }
  }

  void Check(int64_t rows, bool half) const {
    const int element_of_zero = bytes() == 2 ? 0 : ElementOf<uint8_t>(static_cast<T>(zero_), zero_);
    std::array<int32_t, kPanel> begin;
    loops_.begin(weights_.data(), runs_ * groups_, element_of_zero, begin.data());
    std::vector<const void*> at;
    for (int64_t row = 0; row < rows; ++row) {
      at.push_back(elements_.data() + static_cast<size_t>(row * runs_ * apart_) * bytes());
    }
    std::vector<int32_t> offsets;
    for (int64_t run = 0; run < runs_; ++run) {
      offsets.push_back(static_cast<int32_t>(static_cast<size_t>(run * apart_) * bytes()));
    }
    std::vector<int32_t> sums(static_cast<size_t>(rows * kPanel), -1);
    (half ? loops_.half_products : loops_.products)[static_cast<size_t>(rows - 1)]({.rows = at.data(),
                                                                                    .offsets = offsets.data(),
                                                                                    .runs = runs_,
                                                                                    .groups = groups_,
                                                                                    .weights = weights_.data(),
                                                                                    .begin = begin.data(),
                                                                                    .sums = sums.data()});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t o = 0; o < (half ? kPanel / 2 : kPanel); ++o) {
        ASSERT_EQ(sums[static_cast<size_t>(row * kPanel + o)], Sum(row, o)) << "row " << row << ", output " << o;
      }
    }
  }

 private:
  size_t bytes() const { return static_cast<size_t>(4 / loops_.taps); }

  int64_t Sum(int64_t row, int64_t output) const {
    int64_t sum = 0;
    for (int64_t run = 0; run < runs_; ++run) {
      for (int64_t tap = 0; tap < taps_; ++tap) {
        const int64_t x = data_[static_cast<size_t>((row * runs_ + run) * apart_ + tap)];
        const int64_t group = (run * taps_ + tap) / loops_.taps, in_group = tap % loops_.taps;
        sum += (x - zero_) * weights_[static_cast<size_t>((group * kPanel + output) * loops_.taps + in_group)];
      }
    }
    return sum;
  }

  const IntegerLoops& loops_;
  int64_t runs_, groups_;
  int zero_;
  int64_t taps_, apart_;  // of a run; from run to run
  std::vector<T> data_;
  std::vector<int8_t> weights_;
  std::vector<unsigned char> elements_;
};

template <class T>
void CheckAll(const IntegerLoops& loops, int low, int high) {
  for (int64_t rows = 1; rows <= loops.most_rows; ++rows) {
    for (const int zero : {low, 0, 3, high}) {
      const Rows<T> drawn(loops, rows, 3, 5, zero, {low, high, -128, 127});
      drawn.Check(rows, false);
      drawn.Check(rows, true);
    }
  }
  // The largest sums: 65536 products, each as far from 0 as can be.
  const int64_t groups = (1 << 16) / loops.taps;
  for (const auto& [x, zero] : {std::pair(high, low), std::pair(low, high)}) {
    for (const int w : {-128, 127}) Rows<T>(loops, 1, 1, groups, zero, {x, x, w, w}).Check(1, false);
  }
}

TEST(IntegerLoopsTest, Products) {
  for (const IntegerLoops* loops : IntegerTables()) {
    SCOPED_TRACE(loops->most_rows);
    CheckAll<uint8_t>(*loops, 0, 255);
    CheckAll<int8_t>(*loops, -128, 127);
  }
}

}  // namespace
}  // namespace bindery::cpu
