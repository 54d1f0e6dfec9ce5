#include "train/data/prefetch_iter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <semaphore>

#include "base/error.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/data/wrapped_iter.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 10;

std::unique_ptr<DataIter> Numbers(LastBatch last_batch) {
  return std::make_unique<ArrayIter>(Filled({kSamples}, std::identity()), HostTensor(DType::kFloat32, {kSamples}),
                                     ArrayIterOptions{.batch_size = 3, .shuffle = true, .last_batch = last_batch});
}

// Passes everything on, and can be told to fail or to wait.
class TestIter : public WrappedIter {
 public:
  struct Control {
    std::atomic<int> made{0};
    std::atomic<int> fail_at{-1};  // number of the call of Next that throws
    std::atomic<bool> fail_reset{false};
    std::atomic<bool> fail_load{false};
    std::atomic<bool> wait{false};
    std::counting_semaphore<1000> go{0};
  };
  explicit TestIter(Control* control) : WrappedIter(Numbers(LastBatch::kShort)), control_(control) {}
  BatchPtr Next() override {
    if (control_->wait) control_->go.acquire();
    if (control_->made++ == control_->fail_at) Throw<DataError>("record 7 is damaged");
    return WrappedIter::Next();
  }
  void Reset() override {
    if (control_->fail_reset) Throw<DataError>("the file is gone");
    WrappedIter::Reset();
  }
  void LoadState(const IterState& state) override {
    if (control_->fail_load) Throw<DataError>("the disk is gone");
    WrappedIter::LoadState(state);
  }

 private:
  Control* control_;
};

void ExpectSame(DataIter* a, DataIter* b) {
  const auto left = a->Next(), right = b->Next();
  ASSERT_EQ(left == nullptr, right == nullptr);
  if (left != nullptr) {
    EXPECT_EQ(left->index, right->index);
    EXPECT_EQ(left->data, right->data);
    EXPECT_EQ(left->label, right->label);
    EXPECT_EQ(left->samples, right->samples);
    EXPECT_EQ(left->pad, right->pad);
  }
  EXPECT_EQ(a->epoch(), b->epoch());
  EXPECT_EQ(a->epoch_detail(), b->epoch_detail());
  EXPECT_EQ(a->previous_epoch_detail(), b->previous_epoch_detail());
  EXPECT_EQ(a->is_new_epoch(), b->is_new_epoch());
  EXPECT_EQ(a->SaveState(), b->SaveState());
}

TEST(PrefetchIter, HandsOutWhatTheSourceAloneWould) {
  for (const int depth : {1, 2, 7}) {
    for (const LastBatch last_batch : {LastBatch::kShort, LastBatch::kPad, LastBatch::kDiscard, LastBatch::kRollOver}) {
      PrefetchIter prefetched(Numbers(last_batch), depth);
      const auto plain = Numbers(last_batch);
      EXPECT_EQ(prefetched.ProvideData(), plain->ProvideData());
      EXPECT_EQ(prefetched.ProvideLabel(), plain->ProvideLabel());
      EXPECT_EQ(prefetched.batch_size(), 3);
      EXPECT_EQ(prefetched.samples(), kSamples);
      EXPECT_EQ(prefetched.previous_epoch_detail(), -1);
      for (int epoch = 0; epoch < 4; ++epoch) {
        for (int i = 0; i < 6; ++i) ExpectSame(&prefetched, plain.get());  // beyond the end, too
        prefetched.Reset();
        plain->Reset();
      }
    }
  }
}

TEST(PrefetchIter, ResetsInTheMiddleAsIfItHadNotReadAhead) {
  for (int taken = 0; taken < 5; ++taken) {
    PrefetchIter prefetched(Numbers(LastBatch::kShort), 3);
    const auto plain = Numbers(LastBatch::kShort);
    for (int i = 0; i < taken; ++i) ExpectSame(&prefetched, plain.get());
    prefetched.Reset();
    plain->Reset();
    for (int i = 0; i < 5; ++i) ExpectSame(&prefetched, plain.get());
  }
}

TEST(PrefetchIter, SavesThePlaceOfWhatWasHandedOut) {
  PrefetchIter original(Numbers(LastBatch::kRepeat), 4);
  for (int i = 0; i < 12; ++i) {
    PrefetchIter resumed(Numbers(LastBatch::kRepeat), 2);
    const auto plain = Numbers(LastBatch::kRepeat);
    resumed.LoadState(original.SaveState());
    plain->LoadState(original.SaveState());
    for (int k = 0; k < 4; ++k) ExpectSame(&resumed, plain.get());
    original.Next();
  }
}

TEST(PrefetchIter, ErrorsComeWhereTheirBatchWouldHave) {
  TestIter::Control control;
  control.fail_at = 2;
  PrefetchIter iter(std::make_unique<TestIter>(&control), 2);
  EXPECT_NE(iter.Next(), nullptr);
  EXPECT_NE(iter.Next(), nullptr);
  const IterState before = iter.SaveState();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(MessageOf<DataError>([&] { iter.Next(); }), "DataError: record 7 is damaged");
  }
  EXPECT_EQ(iter.SaveState(), before);
  iter.LoadState(before);  // once more from there
  const auto plain = Numbers(LastBatch::kShort);
  plain->LoadState(before);
  for (int i = 0; i < 3; ++i) ExpectSame(&iter, plain.get());
}

TEST(PrefetchIter, WhatIsRefusedLeavesItsPlace) {
  TestIter::Control control;
  PrefetchIter iter(std::make_unique<TestIter>(&control));
  const auto plain = Numbers(LastBatch::kShort);
  control.fail_reset = true;
  for (int i = 0; i < 6; ++i) {  // beyond the end, too
    EXPECT_NE(MessageOf<CheckpointError>([&] { iter.LoadState({}); }).find("not the state"), std::string::npos);
    ExpectSame(&iter, plain.get());
    EXPECT_EQ(MessageOf<DataError>([&] { iter.Reset(); }), "DataError: the file is gone");
  }
  control.fail_reset = false;
  iter.Reset();
  plain->Reset();
  for (int i = 0; i < 5; ++i) ExpectSame(&iter, plain.get());
}

TEST(PrefetchIter, ASourceThatCannotGoBackIsReportedAndMayBeTriedAgain) {
  TestIter::Control control;
  PrefetchIter iter(std::make_unique<TestIter>(&control));
  iter.Next();
  control.fail_load = true;
  EXPECT_EQ(MessageOf<DataError>([&] { iter.Reset(); }), "DataError: the disk is gone");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(MessageOf<DataError>([&] { iter.Next(); }), "DataError: the disk is gone");
  }
  control.fail_load = false;
  iter.Reset();
  int batches = 0;
  while (iter.Next() != nullptr) ++batches;
  EXPECT_EQ(batches, 4);
}

TEST(PrefetchIter, MakesNoMoreThanItsDepthAhead) {
  TestIter::Control control;
  control.wait = true;
  PrefetchIter iter(std::make_unique<TestIter>(&control), 2);
  control.go.release(100);
  iter.Next();
  // One handed out, two ready, one that waits for room.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(control.made, 4);
  EXPECT_GE(control.made, 1);
}

TEST(PrefetchIter, EndsAtAnyMoment) {
  for (int round = 0; round < 300; ++round) {
    PrefetchIter iter(Numbers(round % 2 == 0 ? LastBatch::kRepeat : LastBatch::kShort), 1 + round % 3);
    for (int i = 0; i < round % 7; ++i) iter.Next();
    if (round % 5 == 0) iter.Reset();
  }
}

TEST(PrefetchIter, RefusesADepthOfZero) {
  EXPECT_EQ(MessageOf<Error>([] { PrefetchIter(Numbers(LastBatch::kShort), 0); }),
            "Error: PrefetchIter: expected a depth of at least 1, got 0");
}

}  // namespace
}  // namespace bindery
