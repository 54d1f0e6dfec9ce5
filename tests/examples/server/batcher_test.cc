// Requests that are computed together: who gets which rows, when nobody waits, and whom an error reaches.
#include "examples/server/batcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "base/error.h"

namespace bindery::server {
namespace {

using namespace std::chrono_literals;

HostTensorMap Rows(std::initializer_list<float> values) {
  HostTensorMap inputs;
  inputs["x"] = HostTensor::From({static_cast<int64_t>(values.size()), 1}, values);
  return inputs;
}

std::vector<float> Values(const Batcher::Outputs& outputs) {
  const auto data = outputs.at(0).data<float>();
  return {data.begin(), data.end()};
}

// Twice the input; keeps the sizes of batches. While closed, it holds those that have come to it.
class Doubler {
 public:
  Batcher::Outputs operator()(const HostTensorMap& inputs) {
    const HostTensor& x = inputs.at("x");
    std::unique_lock lock(mutex_);
    sizes_.push_back(x.shape()[0]);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    HostTensor y(DType::kFloat32, x.shape());
    for (int64_t i = 0; i < x.elements(); ++i) {
      if (x.At(i) < 0) throw DataError("negative");
      y.Set(i, 2 * x.At(i));
    }
    return {y};
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitBatches(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sizes_.size() >= count; });
  }
  std::vector<int64_t> sizes() {
    const std::lock_guard lock(mutex_);
    return sizes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  std::vector<int64_t> sizes_;
};

class BatcherTest : public testing::Test {
 protected:
  Batcher& Make(const BatcherOptions& options) {
    batcher_ = std::make_unique<Batcher>([this](const HostTensorMap& inputs) { return doubler_(inputs); }, options);
    return *batcher_;
  }
  std::future<std::vector<float>> Ask(std::initializer_list<float> values, std::chrono::milliseconds limit = 30s) {
    return std::async(std::launch::async,
                      [this, inputs = Rows(values), limit] { return Values(batcher_->Run(inputs, limit)); });
  }
  void AwaitQueued(int64_t samples) const {
    while (batcher_->queued() != samples) std::this_thread::sleep_for(100us);
  }
  ~BatcherTest() override {
    doubler_.Open();
    batcher_ = nullptr;
  }

  Doubler doubler_;
  std::unique_ptr<Batcher> batcher_;
};

TEST_F(BatcherTest, WhatWaitsIsComputedTogetherAndFilledUp) {
  Make({.max_batch = 8});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  auto second = Ask({2, 3});
  AwaitQueued(2);
  auto third = Ask({4, 5, 6});
  AwaitQueued(5);
  doubler_.Open();
  EXPECT_EQ(first.get(), std::vector<float>{2});
  EXPECT_EQ(second.get(), (std::vector<float>{4, 6}));
  EXPECT_EQ(third.get(), (std::vector<float>{8, 10, 12}));
  EXPECT_EQ(doubler_.sizes(), (std::vector<int64_t>{1, 8}));  // 5 samples, filled up
}

TEST_F(BatcherTest, AFullBatchAndOthersShapesAreLeftForTheNext) {
  Make({.max_batch = 4});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  auto three = Ask({1, 2, 3});
  AwaitQueued(3);
  auto other = std::async(std::launch::async, [&] {
    HostTensorMap inputs;
    inputs["x"] = HostTensor::From({1, 2}, {7, 8});
    return Values(batcher_->Run(inputs, 30s));
  });
  AwaitQueued(4);
  auto two = Ask({4, 5});
  AwaitQueued(6);
  doubler_.Open();
  EXPECT_EQ(three.get(), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(other.get(), (std::vector<float>{14, 16}));
  EXPECT_EQ(two.get(), (std::vector<float>{8, 10}));
  first.get();
  EXPECT_EQ(doubler_.sizes(), (std::vector<int64_t>{1, 4, 1, 2}));
}

TEST_F(BatcherTest, WaitsForOthersAsLongAsItMay) {
  Make({.max_batch = 2, .max_delay = 30s});
  auto first = Ask({1});
  AwaitQueued(0);  // a worker has it
  auto second = Ask({2});
  EXPECT_EQ(first.get(), std::vector<float>{2});  // long before the delay: the batch is full
  second.get();
  EXPECT_EQ(doubler_.sizes(), std::vector<int64_t>{2});
}

TEST_F(BatcherTest, AnErrorReachesOnlyWhomItBelongsTo) {
  Make({.max_batch = 8});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  auto good = Ask({2});
  AwaitQueued(1);
  auto bad = Ask({-1});
  AwaitQueued(2);
  auto also_good = Ask({3});
  AwaitQueued(3);
  doubler_.Open();
  EXPECT_EQ(good.get(), std::vector<float>{4});
  EXPECT_THROW(bad.get(), DataError);
  EXPECT_EQ(also_good.get(), std::vector<float>{6});
}

TEST_F(BatcherTest, RefusesAtOnceWhatTheQueueDoesNotTake) {
  Make({.max_batch = 2, .max_queued = 3});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  auto two = Ask({1, 2});
  AwaitQueued(2);
  EXPECT_THROW(batcher_->Run(Rows({1, 2}), 30s), OverloadedError);
  auto one = Ask({3});
  AwaitQueued(3);
  EXPECT_THROW(batcher_->Run(Rows({1}), 30s), OverloadedError);
  doubler_.Open();
  EXPECT_EQ(two.get(), (std::vector<float>{2, 4}));
  EXPECT_EQ(one.get(), std::vector<float>{6});
}

TEST_F(BatcherTest, ATimeLimitEndsTheWaitAndTheRequest) {
  Make({.max_batch = 2});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  EXPECT_THROW(batcher_->Run(Rows({2}), 5ms), TimeoutError);  // in the queue
  auto third = Ask({3});
  AwaitQueued(2);
  doubler_.Open();
  EXPECT_EQ(third.get(), std::vector<float>{6});
  EXPECT_EQ(doubler_.sizes(), (std::vector<int64_t>{1, 1}));  // the second was not computed
  doubler_.Close();
  EXPECT_THROW(batcher_->Run(Rows({4}), 5ms), TimeoutError);  // while it is computed
}

TEST_F(BatcherTest, StopComputesWhatWaitsAndTakesNoMore) {
  Make({.max_batch = 2});
  doubler_.Close();
  auto first = Ask({1});
  doubler_.AwaitBatches(1);
  auto second = Ask({2}), third = Ask({3, 4});
  AwaitQueued(3);
  std::thread stopping([&] { batcher_->Stop(); });
  for (;;) {
    try {
      batcher_->Run(Rows({5}), 1ms);
    } catch (const StoppedError&) {
      break;
    } catch (const std::runtime_error&) {  // not yet
    }
  }
  doubler_.Open();
  stopping.join();
  EXPECT_EQ(second.get(), std::vector<float>{4});
  EXPECT_EQ(third.get(), (std::vector<float>{6, 8}));
  batcher_->Stop();  // twice is once
}

TEST_F(BatcherTest, ManyThreadsGetTheirOwn) {
  Make({.max_batch = 16, .max_queued = 1 << 20, .workers = 3});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto value = static_cast<float>(1000 * t + i);
        if (i % 7 == 3) {
          try {
            batcher_->Run(Rows({value, -1}), 30s);
            ++wrong;
          } catch (const DataError&) {
          }
        } else if (Values(batcher_->Run(Rows({value, value + 1, value}), 30s)) !=
                   std::vector<float>{2 * value, 2 * value + 2, 2 * value}) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const int64_t size : doubler_.sizes()) EXPECT_TRUE(size <= 16 && (size & (size - 1)) == 0) << size;
}

TEST_F(BatcherTest, RequestsAndOptionsThatMakeNoSense) {
  Make({.max_batch = 2});
  HostTensorMap unequal = Rows({1});
  unequal["y"] = HostTensor(DType::kFloat32, {2, 1});
  HostTensorMap scalar;
  scalar["x"] = HostTensor(DType::kFloat32, Shape());
  HostTensorMap none;
  none["x"] = HostTensor(DType::kFloat32, {0, 1});
  for (const HostTensorMap& inputs : {HostTensorMap(), unequal, scalar, none, Rows({1, 2, 3})}) {
    EXPECT_THROW(batcher_->Run(inputs, 30s), DataError);
  }
  for (const BatcherOptions& options : {BatcherOptions{.max_batch = 0}, BatcherOptions{.max_batch = 8, .max_queued = 7},
                                        BatcherOptions{.max_delay = -1us}, BatcherOptions{.workers = 0}}) {
    EXPECT_THROW(Batcher([](const HostTensorMap&) { return Batcher::Outputs(); }, options), Error);
  }
  Batcher rowless([](const HostTensorMap&) { return Batcher::Outputs{HostTensor(DType::kFloat32, {3, 1})}; }, {});
  EXPECT_THROW(rowless.Run(Rows({1}), 30s), ModelError);
}

}  // namespace
}  // namespace bindery::server
