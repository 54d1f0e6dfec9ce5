// Devices that hang are named, and nothing is lost if they come back.
#include "engine/threaded/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/sim/sim.h"
#include "engine/sim/stream.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

constexpr int kLimit = 100;  // milliseconds

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    SetLogCallback([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kError) log_.push_back(line);
    });
  }
  ~WatchdogTest() override {
    go_ = true;
    sim::Reset();
    engine_.reset();
    SetLogCallback(nullptr);
  }
  // An operation on a CPU that ends when go_ is set.
  void PushHanging(const VarPtr& var, std::function<std::string()> at = {}) {
    engine_->Push({.name = "wait for go",
                   .device = Cpu(1),
                   .reads = {},
                   .writes = {},
                   .updates = {var},
                   .run =
                       [this](const OpContext&) {
                         while (!go_) std::this_thread::yield();
                       },
                   .lane = Lane::kCompute,
                   .at = std::move(at)});
  }
  void PushCount(const VarPtr& var, Device device = Cpu(0)) {
    engine_->Push({.name = "count",
                   .device = device,
                   .reads = {},
                   .writes = {},
                   .updates = {var},
                   .run = [this](const OpContext& context) {
                     if (context.stream.device().kind == DeviceKind::kCpu) {
                       ++count_;
                     } else {
                       sim::SimStreamOf(context.stream).Enqueue([this] { ++count_; }, "Plus \"one\"");
                     }
                   }});
  }

  std::atomic<bool> go_{false};
  std::atomic<int> count_{0};
  std::vector<std::string> log_;
  std::shared_ptr<Engine> engine_ = MakeThreadedEngine({.hang_milliseconds = kLimit});
};

TEST_F(WatchdogTest, NamesTheDeviceTheOperationAndTheNode) {
  const VarPtr var = engine_->NewVar(), other = engine_->NewVar();
  sim::HangKernel(Sim(3), 2);
  PushCount(var, Sim(3));
  PushCount(var, Sim(3));
  PushCount(other, Sim(2));
  for (const auto& wait : std::vector<std::function<void()>>{[&] { engine_->Wait(var); }, [&] { engine_->WaitAll(); },
                                                             [&] { engine_->Recover(); }}) {
    const std::string message = MessageOf<HangError>(wait);
    EXPECT_NE(message.find("sim:3 hangs: it has been at operation \"count\", Plus \"one\" for "), std::string::npos)
        << message;
    EXPECT_NE(message.find(" s, since 20"), std::string::npos) << message;
  }
  engine_->Wait(other);  // nobody else is held up
  EXPECT_EQ(log_.size(), 1u);
  EXPECT_EQ(count_, 2);
  sim::Release(Sim(3));
  engine_->WaitAll();
  EXPECT_EQ(count_, 3);
}

TEST_F(WatchdogTest, WhoGivesUpLeavesTheOthersInTheirOrder) {
  const VarPtr var = engine_->NewVar();
  PushHanging(var, [] { return std::string("Square \"x\""); });
  for (int i = 0; i < 3; ++i) {
    PushCount(var);
    const std::string message = MessageOf<HangError>([&] { engine_->Wait(var); });
    EXPECT_NE(message.find("cpu:1 hangs: it has been at operation \"wait for go\", Square \"x\" for"),
              std::string::npos)
        << message;
  }
  std::thread patient([&] { engine_->WaitIdle(var); });
  PushCount(var, Sim(0));
  EXPECT_EQ(count_, 0);
  go_ = true;
  patient.join();
  engine_->Wait(var);
  EXPECT_EQ(count_, 4);
  EXPECT_EQ(log_.size(), 1u);
}

// Those that wait for nobody but for whoever gave up.
TEST_F(WatchdogTest, WhoGivesUpLetsReadersGoAhead) {
  const VarPtr var = engine_->NewVar();
  const auto push_reader = [&](Device device, std::function<void()> run) {
    engine_->Push({.name = "read", .device = device, .reads = {var}, .run = [run](const OpContext&) { run(); }});
  };
  std::atomic<bool> begun{false};
  push_reader(Cpu(1), [&] {
    begun = true;
    while (!go_) std::this_thread::yield();
  });
  std::thread waiter([&] { EXPECT_THROW(engine_->Wait(var), HangError); });
  const auto count = [&] { ++count_; };
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(kLimit / 4));
  push_reader(Cpu(2), count);  // behind the waiter, most likely
  waiter.join();
  push_reader(Cpu(3), count);
  for (int i = 0; i < 4000 && count_ < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(count_, 2);
  go_ = true;
  engine_->WaitAll();
}

TEST_F(WatchdogTest, WhatMovesDoesNotHang) {
  const VarPtr var = engine_->NewVar();
  std::atomic<int> step{0};
  PushHanging(var, [&] { return std::to_string(step); });
  std::thread other([&] {
    for (; step < 10; ++step) std::this_thread::sleep_for(std::chrono::milliseconds(kLimit / 4));
    go_ = true;
  });
  EXPECT_NO_THROW(engine_->Wait(var));
  other.join();
}

TEST_F(WatchdogTest, AProgramMayEndWhereItCannotWait) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [] {
    auto engine = MakeThreadedEngine({.hang_milliseconds = kLimit, .on_hang = [](const HangError& error) {
                                        std::fputs(error.what(), stderr);
                                        std::_Exit(6);
                                      }});
    sim::HangKernel(Sim(1), 1);
    engine->Push({.name = "work", .device = Sim(1), .run = [](const OpContext& context) {
                    sim::SimStreamOf(context.stream).Enqueue([] {});
                  }});
    engine.reset();  // waits for the device
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(6), "DeviceError: sim:1 hangs: it has been at operation .work. for");
}

TEST(Watchdog, OffItWaits) {
  const auto engine = MakeThreadedEngine({.hang_milliseconds = 0});
  const VarPtr var = engine->NewVar();
  sim::HangKernel(Sim(0), 1);
  engine->Push({.name = "work", .device = Sim(0), .writes = {var}, .run = [](const OpContext& context) {
                  sim::SimStreamOf(context.stream).Enqueue([] {});
                }});
  std::thread release([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sim::Release(Sim(0));
  });
  EXPECT_NO_THROW(engine->Wait(var));
  release.join();
  EXPECT_THROW(MakeThreadedEngine({.hang_milliseconds = -1}), Error);
}

}  // namespace
}  // namespace bindery
