// The batcher, without a network and without HTTP: rows of results belong to who asked, whatever happens beside.
#include "examples/server/batcher.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/message_of.h"

namespace bindery::server {
namespace {

using namespace std::chrono_literals;

HostTensorMap Rows(int64_t rows, float first) {
  HostTensor x(DType::kFloat32, {rows, 2});
  for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, first + static_cast<float>(i));
  return {{"x", x}};
}

// Each element doubled.
std::vector<HostTensor> Double(const HostTensorMap& inputs) {
  HostTensor y = inputs.at("x");
  for (float& value : y.data<float>()) value *= 2;
  return {y};
}

void ExpectDoubled(const HostTensorMap& inputs, const std::vector<HostTensor>& outputs) {
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0], Double(inputs)[0]);
}

// A run that waits until it is let go.
class Gate {
 public:
  std::vector<HostTensor> Run(const HostTensorMap& inputs) {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return Double(inputs);
  }
  void WaitUntilEntered(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= times; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int entered_ = 0;
  bool open_ = false;
};

void WaitUntilQueued(const Batcher& batcher, int64_t samples) {
  while (batcher.queued() < samples) std::this_thread::sleep_for(1ms);
}

TEST(RoundedBatch, IsAPowerOfTwoOrAll) {
  EXPECT_EQ(RoundedBatch(1, 24), 1);
  EXPECT_EQ(RoundedBatch(3, 24), 4);
  EXPECT_EQ(RoundedBatch(16, 24), 16);
  EXPECT_EQ(RoundedBatch(17, 24), 24);
  EXPECT_EQ(RoundedBatch(24, 24), 24);
}

TEST(Batcher, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(Batcher(Double, {.max_batch = 0}), Error);
  EXPECT_THROW(Batcher(Double, {.max_batch = 8, .queue = 7}), Error);
  EXPECT_THROW(Batcher(Double, {.timeout = 0us}), Error);
  EXPECT_THROW(Batcher(Double, {.max_delay = -1us}), Error);
  EXPECT_THROW(Batcher(Double, {.workers = 0}), Error);
}

TEST(Batcher, RefusesRequestsThatAreNoBatches) {
  Batcher batcher(Double, {.max_batch = 4});
  EXPECT_EQ(MessageOf([&] { batcher.Predict(Rows(5, 0)); }),
            "DataError: a request of 5 samples: at most 4 are taken at once");
  EXPECT_THROW(batcher.Predict({}), DataError);
  EXPECT_THROW(batcher.Predict(Rows(0, 0)), DataError);
  EXPECT_THROW(batcher.Predict({{"x", HostTensor(DType::kFloat32, {})}}), DataError);
  HostTensorMap uneven = Rows(2, 0);
  uneven["z"] = HostTensor(DType::kFloat32, {3, 2});
  EXPECT_THROW(batcher.Predict(uneven), DataError);
}

TEST(Batcher, GivesEachThreadItsOwnRows) {
  std::mutex mutex;
  std::set<int64_t> extents;
  std::atomic<int64_t> runs{0}, samples{0};
  const auto run = [&](const HostTensorMap& inputs) {
    {
      const std::lock_guard lock(mutex);
      extents.insert(inputs.at("x").shape()[0]);
    }
    ++runs;
    return Double(inputs);
  };
  int64_t asked = 0;
  {
    Batcher batcher(run, {.max_batch = 12, .max_delay = 200us, .queue = 1000, .workers = 3, .on_batch = [&](int64_t n) {
                            samples += n;
                          }});
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
      for (int i = 0; i < 100; ++i) asked += 1 + (t + i) % 5;
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const HostTensorMap inputs = Rows(1 + (t + i) % 5, static_cast<float>(1000 * t + 10 * i));
          ExpectDoubled(inputs, batcher.Predict(inputs));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(batcher.queued(), 0);
  }
  EXPECT_EQ(samples, asked);
  EXPECT_LT(runs, 1600);  // requests were put together
  for (int64_t extent : extents) EXPECT_EQ(extent, RoundedBatch(extent, 12));
}

TEST(Batcher, WaitsForOthersNoLongerThanTold) {
  Batcher patient(Double, {.max_batch = 4, .max_delay = 100ms});
  const auto start = std::chrono::steady_clock::now();
  patient.Predict(Rows(1, 0));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
  Batcher never_late(Double, {.max_batch = 4, .max_delay = 1h, .timeout = 2h});
  ExpectDoubled(Rows(4, 7), never_late.Predict(Rows(4, 7)));  // a full batch does not wait
}

TEST(Batcher, RefusesAtOnceWhatDoesNotFitTheQueue) {
  Gate gate;
  Batcher batcher([&](const HostTensorMap& x) { return gate.Run(x); }, {.max_batch = 2, .max_delay = 0us, .queue = 3});
  std::vector<std::thread> threads;
  const auto ask = [&](int64_t rows) {
    threads.emplace_back([&, rows] { ExpectDoubled(Rows(rows, 5), batcher.Predict(Rows(rows, 5))); });
  };
  ask(2);
  gate.WaitUntilEntered(1);
  ask(2);
  WaitUntilQueued(batcher, 2);
  EXPECT_EQ(MessageOf([&] { batcher.Predict(Rows(2, 0)); }),
            "OverloadError: 2 samples are waiting, 2 more do not fit into the queue of 3");
  ask(1);  // this does
  WaitUntilQueued(batcher, 3);
  gate.Open();
  for (std::thread& thread : threads) thread.join();
}

TEST(Batcher, EndsWaitingAtTheLimitOfTime) {
  Gate gate;
  Batcher batcher([&](const HostTensorMap& x) { return gate.Run(x); },
                  {.max_batch = 1, .max_delay = 0us, .queue = 1, .timeout = 50ms});
  std::atomic<int> late{0};
  const auto ask = [&] {
    try {
      batcher.Predict(Rows(1, 0));
    } catch (const TimeoutError&) {
      ++late;
    }
  };
  std::thread running(ask);
  gate.WaitUntilEntered(1);
  ask();  // waits in the queue, in vain
  running.join();
  EXPECT_EQ(late, 2);
  // What is late makes room. This one runs in time, as soon as the worker is free.
  std::thread opener([&] {
    WaitUntilQueued(batcher, 1);
    gate.Open();
  });
  std::vector<HostTensor> outputs;
  EXPECT_NO_THROW(outputs = batcher.Predict(Rows(1, 3)));
  opener.join();
  ExpectDoubled(Rows(1, 3), outputs);
}

TEST(Batcher, AFailingRequestFailsAlone) {
  const auto run = [](const HostTensorMap& inputs) {
    for (float value : inputs.at("x").data<float>()) {
      if (value == 666) throw NumericError("the beast");
    }
    return Double(inputs);
  };
  Batcher batcher(run, {.max_batch = 8, .max_delay = 20ms, .workers = 2});
  std::atomic<int> failed{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const HostTensorMap inputs = Rows(1, t == 3 ? 666 : static_cast<float>(10 * t));
        try {
          right += batcher.Predict(inputs)[0] == Double(inputs)[0];
        } catch (const NumericError& e) {
          ++failed;
          EXPECT_EQ(t, 3);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 10);
  EXPECT_EQ(right, 70);
}

TEST(Batcher, AModelWithoutABatchAxisIsAnError) {
  Batcher batcher([](const HostTensorMap&) { return std::vector{HostTensor(DType::kFloat32, {1})}; }, {.max_batch = 4});
  EXPECT_THROW(batcher.Predict(Rows(4, 0)), Error);
}

TEST(Batcher, ShutdownComputesWhatWaits) {
  Gate gate;
  Batcher batcher([&](const HostTensorMap& x) { return gate.Run(x); }, {.max_batch = 1, .max_delay = 0us});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const HostTensorMap inputs = Rows(1, static_cast<float>(t));
      right += batcher.Predict(inputs)[0] == Double(inputs)[0];
    });
  }
  WaitUntilQueued(batcher, 5);
  std::thread stopper([&] { batcher.Shutdown(); });
  gate.Open();
  for (std::thread& thread : threads) thread.join();
  stopper.join();
  EXPECT_EQ(right, 6);
  EXPECT_THROW(batcher.Predict(Rows(1, 0)), ShutdownError);
  batcher.Shutdown();  // again: nothing
}

TEST(Batcher, ShutdownDoesNotWaitForABatchToFill) {
  Batcher batcher(Double, {.max_batch = 8, .max_delay = 1h, .timeout = 2h});
  std::thread asking([&] { ExpectDoubled(Rows(1, 1), batcher.Predict(Rows(1, 1))); });
  WaitUntilQueued(batcher, 1);
  batcher.Shutdown();
  asking.join();
}

// No thread has a stack that is larger than all memory there could be.
TEST(Batcher, SaysWhichWorkerCannotBeStarted) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  const std::string message = MessageOf<Error>([] { Batcher(Double, {.workers = 3}); });
  ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(message.find("Error: worker 1 of 3 cannot be started: "), 0u) << message;
  ::pthread_attr_destroy(&huge);
  ::pthread_attr_destroy(&usual);
  Batcher batcher(Double, {.workers = 3});
  ExpectDoubled(Rows(2, 1), batcher.Predict(Rows(2, 1)));
}

}  // namespace
}  // namespace bindery::server
