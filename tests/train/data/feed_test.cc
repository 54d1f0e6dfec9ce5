// Batches whose arrays come in another order than a group was bound with.
#include "train/data/feed.h"

#include <gtest/gtest.h>

#include "engine/memory/storage.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"

namespace bindery {
namespace {

ArrayData Array(const char* name, double value) {
  return {name, std::make_shared<const HostTensor>(HostTensor::Full(DType::kFloat32, {2, 3}, value))};
}

// The iterator has b and then a, the group a and then b; so it is with the labels.
class FeedTest : public testing::Test {
 protected:
  FeedTest()
      : iter_({Array("b", 2), Array("a", 1)}, {Array("d", 4), Array("c", 3)}, {.batch_size = 2}),
        feed_(GroupOptions{.data = {{"a", {2, 3}}, {"b", {2, 3}}}, .labels = {{"c", {2, 3}}, {"d", {2, 3}}}}, iter_) {}

  ArrayIter iter_;
  const Feed feed_;
};

TEST_F(FeedTest, ArraysComeInTheOrderOfTheGroup) {
  const BatchPtr batch = feed_.Arrange(iter_.Next());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(batch->data[static_cast<size_t>(i)].At(0), 1 + i);
    EXPECT_EQ(batch->label[static_cast<size_t>(i)].At(0), 3 + i);
  }
  EXPECT_EQ(batch->samples, 2);
  EXPECT_EQ(feed_.Arrange(iter_.Next()), nullptr);
}

// Some lie on devices; a piece of a step's batch knows where that begins.
TEST_F(FeedTest, WhatElseABatchHasGoesAlong) {
  const std::shared_ptr<Engine> engine = MakeInlineEngine();
  Batch given = *iter_.Next();
  const Tensor on_device(engine, Cpu(), DType::kFloat32, {2, 3});
  on_device.CopyFrom(HostTensor::Full(DType::kFloat32, {2, 3}, 7));
  given.device_data.Set(1, {on_device});
  given.device_label = std::vector<Tensor>{on_device, on_device};
  given.label.clear();
  given.first = 6;
  const BatchPtr batch = feed_.Arrange(std::make_shared<const Batch>(given));
  ASSERT_NE(batch->device_data.Find(0), nullptr);
  EXPECT_EQ(batch->device_data.Find(0)->at(0).ToHost().At(0), 7);
  EXPECT_EQ(batch->device_data.Find(1), nullptr);
  EXPECT_EQ(batch->data[1].At(0), 2);
  EXPECT_NE(batch->device_label.Find(0), nullptr);
  EXPECT_NE(batch->device_label.Find(1), nullptr);
  EXPECT_EQ(batch->first, 6);
}

TEST_F(FeedTest, ABatchWithoutAnArrayIsRefused) {
  Batch given = *iter_.Next();
  given.data.pop_back();
  EXPECT_EQ(MessageOf<DataError>([&] { feed_.Arrange(std::make_shared<const Batch>(given)); }),
            "DataError: the iterator's batch has 1 of 2 data arrays");
}

}  // namespace
}  // namespace bindery
