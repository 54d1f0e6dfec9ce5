#include "train/data/digits.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "base/error.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(Digits, HaveTheFormOfMnist) {
  const ImageSet set = DrawDigits(50, 3);
  EXPECT_EQ(set.images.shape(), (Shape{50, 1, 28, 28}));
  EXPECT_EQ(set.labels.shape(), (Shape{50}));
  for (const float pixel : set.images.data<float>()) {
    EXPECT_GE(pixel, 0);
    EXPECT_LE(pixel, 1);
    EXPECT_EQ(static_cast<float>(static_cast<int>(255 * pixel + 0.5f)) / 255, pixel);
  }
  EXPECT_EQ(DrawDigits(0, 3).images.shape(), (Shape{0, 1, 28, 28}));
  EXPECT_EQ(MessageOf<DataError>([] { DrawDigits(-1, 0); }),
            "DataError: digits: expected a range of images, got -1 from 0 on");
}

TEST(Digits, EachIsAFunctionOfSeedAndNumber) {
  const ImageSet all = DrawDigits(40, 3);
  const ImageSet part = DrawDigits(13, 3, 17);
  EXPECT_EQ(part.images, all.images.Slice(0, 17, 30));
  EXPECT_EQ(part.labels, all.labels.Slice(0, 17, 30));
  EXPECT_FALSE(DrawDigits(40, 4).images == all.images);
  // Seeds are written down in scripts: what they give does not change with versions.
  EXPECT_EQ(all.labels.Slice(0, 0, 10), HostTensor::From({10}, {3, 9, 4, 8, 2, 1, 5, 7, 0, 6}));
}

TEST(Digits, AreBalancedInEveryTen) {
  const ImageSet set = DrawDigits(1000, 1);
  std::set<std::vector<float>> orders;
  for (int64_t ten = 0; ten < 100; ++ten) {
    const HostTensor labels = set.labels.Slice(0, 10 * ten, 10 * ten + 10);
    const std::vector<float> order(labels.data<float>().begin(), labels.data<float>().end());
    EXPECT_EQ(std::set<float>(order.begin(), order.end()).size(), 10u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 90u);
}

// They can be told apart, but not by a glance: the nearest class mean is right most of the time, and often wrong.
TEST(Digits, CanBeLearnt) {
  constexpr int64_t kTrain = 2000, kTest = 500, kPixels = 28 * 28;
  const ImageSet train = DrawDigits(kTrain, 1), test = DrawDigits(kTest, 1, kTrain);
  std::array<std::array<double, kPixels>, 10> means{};
  for (int64_t i = 0; i < kTrain; ++i) {
    for (int64_t p = 0; p < kPixels; ++p) {
      means[static_cast<size_t>(train.labels.At(i))][static_cast<size_t>(p)] +=
          train.images.At(i * kPixels + p) * 10 / kTrain;
    }
  }
  int right = 0;
  for (int64_t i = 0; i < kTest; ++i) {
    int best = 0;
    double best_distance = 1e9;
    for (int digit = 0; digit < 10; ++digit) {
      double distance = 0;
      for (int64_t p = 0; p < kPixels; ++p) {
        const double d = test.images.At(i * kPixels + p) - means[static_cast<size_t>(digit)][static_cast<size_t>(p)];
        distance += d * d;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = digit;
      }
    }
    right += best == static_cast<int>(test.labels.At(i));
  }
  EXPECT_GT(right, kTest * 4 / 10);
  EXPECT_LT(right, kTest * 9 / 10);
  RecordProperty("right_of_500", right);
}

}  // namespace
}  // namespace bindery
