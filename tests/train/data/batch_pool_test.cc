// Batches in the memory of earlier ones, by an iterator over arrays.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "tests/host_tensors.h"
#include "train/data/array_iter.h"

namespace bindery {
namespace {

HostTensor Row(int64_t first) {
  return Filled({4, 1}, [=](int64_t i) { return first + i; });
}

// Of those that nobody holds: what is handed out stays as it is.
TEST(BatchPool, BatchesLieWhereEarlierOnesLay) {
  ArrayIter iter(Filled({100, 1}, std::identity()), HostTensor(DType::kFloat32, {100}),
                 {.batch_size = 4, .last_batch = LastBatch::kRepeat});
  const BatchPtr held = iter.Next();
  std::set<const void*> places;
  for (int64_t i = 1; i < 60; ++i) {
    const BatchPtr batch = iter.Next();
    EXPECT_EQ(batch->data[0], Row(4 * i % 100));
    places.insert(batch->data[0].raw());
  }
  EXPECT_LE(places.size(), 3u);
  EXPECT_FALSE(places.contains(held->data[0].raw()));
  EXPECT_EQ(held->data[0], Row(0));

  std::vector<BatchPtr> all;
  places.clear();
  for (int64_t i = 0; i < 25; ++i) places.insert(all.emplace_back(iter.Next())->data[0].raw());
  EXPECT_EQ(places.size(), 25u) << "who holds many has many";
  EXPECT_EQ(held->data[0], Row(0));
}

// One of another shape is made anew, and what a short one leaves is no part of the next.
TEST(BatchPool, ShortBatchesBetween) {
  ArrayIter iter(Filled({6, 1}, std::identity()), HostTensor(DType::kFloat32, {6}), {.batch_size = 4});
  for (int epoch = 0; epoch < 10; ++epoch) {
    EXPECT_EQ(iter.Next()->data[0], Row(0));
    const BatchPtr rest = iter.Next();
    EXPECT_EQ(rest->data[0], Row(4).Slice(0, 0, 2));
    EXPECT_EQ(rest->samples, 2);
    EXPECT_EQ(rest->index, (std::vector<int64_t>{4, 5}));
    EXPECT_EQ(iter.Next(), nullptr);
    iter.Reset();
  }
}

}  // namespace
}  // namespace bindery
