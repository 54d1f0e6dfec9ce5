// What threads add to the engines' contract: order and failures as in the inline engine, parallel devices, an end.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/philox.h"
#include "tests/engine/operation.h"

namespace bindery {
namespace {

// E44: 10000 operations with random read and write sets over 100 variables on 4 devices; some throw, some are
// prepared, some push others. The values, the failures and what each reader sees must not depend on the engine.
struct RandomRun {
  std::vector<uint64_t> values;
  std::vector<std::string> failures;
  bool operator==(const RandomRun&) const = default;
};

RandomRun RunRandomProgram(Engine& engine, uint64_t seed, double throwing) {
  constexpr int kVars = 100, kOperations = 10000;
  PhiloxStream random(seed, "program"), priorities(seed, "priorities");
  std::vector<VarPtr> vars;
  for (int i = 0; i < kVars; ++i) vars.push_back(engine.NewVar());
  RandomRun result{std::vector<uint64_t>(kVars), std::vector<std::string>(kVars)};
  std::vector<uint64_t>& values = result.values;
  for (int i = 0; i < kOperations; ++i) {
    std::vector<int> reads(random.Below(5)), writes(random.Below(3)), updates(random.Below(3));
    Operation op;
    op.name = "op " + std::to_string(i);
    op.device = Cpu(static_cast<int>(random.Below(4)));
    op.priority = static_cast<int>(priorities.Below(5)) - 2;
    for (auto [indices, list] : {std::pair{&reads, &op.reads}, {&writes, &op.writes}, {&updates, &op.updates}}) {
      for (int& index : *indices) {
        index = static_cast<int>(random.Below(kVars));
        list->push_back(vars[index]);
      }
    }
    const bool throws = random.Uniform() < throwing;
    op.run = [=, &values](const OpContext&) {
      if (throws) throw NumericError("thrown");
      uint64_t sum = i;
      for (int r : reads) sum = sum * 31 + values[r];
      for (int u : updates) sum = sum * 31 + values[u];
      for (int w : writes) values[w] = sum + w;
      for (int u : updates) values[u] += sum ^ u;
    };
    if (random.Below(2)) {
      engine.Push(std::move(op));
    } else {
      engine.Push(engine.Prepare(std::move(op)));
    }
    if (random.Below(2000) == 0) {
      try {
        engine.WaitAll();
      } catch (const NumericError&) {
      }
      engine.Recover();
    }
  }
  for (int i = 0; i < kVars; ++i) {
    try {
      engine.Wait(vars[i]);
    } catch (const NumericError& error) {
      result.failures[i] = error.what();
    }
  }
  return result;
}

TEST(ThreadedEngineTest, EqualsInline) {
  for (const double throwing : {0.0, 0.0, 0.002, 0.05}) {
    static uint64_t seed = 0;
    ++seed;
    const RandomRun expected = RunRandomProgram(*MakeInlineEngine(), seed, throwing);
    const RandomRun threaded = RunRandomProgram(*MakeThreadedEngine(), seed, throwing);
    const RandomRun parking = RunRandomProgram(*MakeThreadedEngine({.spin_microseconds = 0}), seed, throwing);
    EXPECT_EQ(threaded, expected) << "seed " << seed;
    EXPECT_EQ(parking, expected) << "seed " << seed;
    EXPECT_EQ(expected.failures == std::vector<std::string>(100), throwing == 0);
  }
}

TEST(ThreadedEngineTest, ReadersRunTogetherAndDevicesInParallel) {
  const auto engine = MakeThreadedEngine();
  const VarPtr a = engine->NewVar();
  std::atomic<int> arrived{0};
  const auto meet = [&] {  // returns only if the other one runs at the same time
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  engine->Push(Op("reader", Cpu(0), {a}, {}, {}, meet));
  engine->Push(Op("reader", Cpu(1), {a}, {}, {}, meet));
  engine->Wait(a);
  EXPECT_EQ(arrived, 2);
}

// Those that are ready, while their worker was busy; what is not ready does not hold them up.
TEST(ThreadedEngineTest, WhatIsReadyRunsByPriority) {
  const auto engine = MakeThreadedEngine();
  std::atomic<bool> go{false};
  std::vector<int> order;
  const auto push = [&](int name, int priority, std::vector<VarPtr> updates = {}) {
    engine->Push({.device = Cpu(),
                  .updates = std::move(updates),
                  .run = [&order, name](const OpContext&) { order.push_back(name); },
                  .priority = priority});
  };
  engine->Push({.device = Cpu(), .run = [&](const OpContext&) {
                  while (!go) std::this_thread::yield();
                }});
  const VarPtr var = engine->NewVar();
  push(0, 0);
  push(1, 2);
  push(2, 0);
  push(3, 2);
  push(4, -1, {var});
  push(5, 9, {var});  // only after 4
  push(6, 1);
  go = true;
  engine->WaitAll();
  EXPECT_EQ(order, (std::vector<int>{1, 3, 6, 0, 2, 4, 5}));
}

TEST(ThreadedEngineTest, WaitWaitsForReadersToo) {
  const auto engine = MakeThreadedEngine();
  const VarPtr a = engine->NewVar();
  std::atomic<bool> read{false};
  engine->Push(Op("reader", Cpu(0), {a}, {}, {}, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    read = true;
  }));
  engine->Wait(a);
  EXPECT_TRUE(read);
}

TEST(ThreadedEngineTest, OneThreadPerDevice) {
  const auto engine = MakeThreadedEngine();
  std::vector<std::vector<std::thread::id>> ids(3);
  for (int i = 0; i < 30; ++i) {
    engine->Push(Op("", Cpu(i % 3), {}, {}, {}, [&ids, i] { ids[i % 3].push_back(std::this_thread::get_id()); }));
  }
  engine->WaitAll();
  for (const auto& own : ids) {
    ASSERT_EQ(own.size(), 10u);
    for (const auto& id : own) EXPECT_EQ(id, own[0]);
  }
  EXPECT_NE(ids[0][0], ids[1][0]);
  EXPECT_NE(ids[1][0], ids[2][0]);
}

// E44: engines come and go, with operations in their queues.
TEST(ThreadedEngineTest, StartsAndStops) {
  for (int i = 0; i < 50; ++i) {
    int x = 0;
    auto engine = MakeThreadedEngine();
    const VarPtr a = engine->NewVar();
    for (int k = 0; k < i % 7; ++k) engine->Push(Op("", Cpu(k), {}, {}, {a}, [&] { ++x; }));
    if (i % 2) engine->Wait(a);
    engine.reset();
    EXPECT_EQ(x, i % 7);
  }
}

TEST(ThreadedEngineTest, LastReferenceMayBeDroppedByAnOperation) {
  for (int i = 0; i < 20; ++i) {
    auto finished = std::make_shared<std::atomic<int>>(0);
    {
      const auto engine = MakeThreadedEngine({.spin_microseconds = 0});
      const VarPtr a = engine->NewVar();
      engine->Push(Op("", Cpu(0), {}, {}, {a}, [engine, finished] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++*finished;
      }));
      engine->Push(Op("", Cpu(1), {}, {}, {a}, [finished] { ++*finished; }));
    }
    while (*finished < 2) std::this_thread::yield();
    while (finished.use_count() > 1) std::this_thread::yield();
  }
}

// E44: negative counts.
TEST(ThreadedEngineTest, RejectsInvalidOptions) {
  EXPECT_THROW(MakeThreadedEngine({.spin_microseconds = -1}), Error);
  EXPECT_NO_THROW(MakeThreadedEngine({.spin_microseconds = 0}));
}

// Only an error that nobody could know of is worth a line when the engine ends.
TEST(ThreadedEngineTest, LogsAnErrorThatNobodyWaitedFor) {
  for (const char* wait : {"", "idle", "told"}) {
    std::vector<std::string> lines;
    SetLogCallback([&](LogLevel, const std::string& line) { lines.push_back(line); });
    {
      const auto engine = MakeThreadedEngine();
      const VarPtr a = engine->NewVar();
      engine->Push(Op("spoil", Cpu(0), {}, {a}, {}, [] { Throw<NumericError>("not finite"); }));
      if (wait == std::string("idle")) {
        EXPECT_NO_THROW(engine->WaitIdle(a));
      } else if (wait == std::string("told")) {
        EXPECT_THROW(engine->Wait(a), NumericError);
      }
    }
    SetLogCallback(nullptr);
    EXPECT_EQ(lines.size(), wait == std::string("told") ? 0u : 1u) << wait;
  }
}

TEST(DefaultEngineTest, IsMadeOnceAndReplaceable) {
  const auto first = DefaultEngine();
  EXPECT_EQ(first, DefaultEngine());
  EXPECT_STREQ(first->name(), "threaded");
  const auto other = MakeInlineEngine();
  SetDefaultEngine(other);
  EXPECT_EQ(DefaultEngine(), other);
  EXPECT_STREQ(DefaultEngine()->name(), "inline");
  SetDefaultEngine(nullptr);
  EXPECT_STREQ(DefaultEngine()->name(), "threaded");
  EXPECT_NE(DefaultEngine(), first);
}

}  // namespace
}  // namespace bindery
