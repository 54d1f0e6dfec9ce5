// The engines' contract, each case on both of them.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/engine/operation.h"

namespace bindery {
namespace {

using MakeEngine = std::shared_ptr<Engine> (*)();

std::shared_ptr<Engine> Threaded() { return MakeThreadedEngine(); }
std::shared_ptr<Engine> ThreadedParking() { return MakeThreadedEngine({.spin_microseconds = 0}); }

class EngineTest : public testing::TestWithParam<MakeEngine> {
 protected:
  std::shared_ptr<Engine> engine_ = GetParam()();
};

std::string EngineName(const testing::TestParamInfo<MakeEngine>& info) {
  return std::vector<std::string>{"threaded", "parking", "inline"}[info.index];
}
INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, testing::Values(&Threaded, &ThreadedParking, &MakeInlineEngine),
                         EngineName);

template <class E>
std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    EXPECT_EQ(typeid(error), typeid(E));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_P(EngineTest, RunsInPushOrderPerVariable) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar();
  int x = 0, y = 0;
  engine_->Push(Op("x = 3", Cpu(0), {}, {a}, {}, [&] { x = 3; }));
  engine_->Push(Op("y = 2 x", Cpu(1), {a}, {b}, {}, [&] { y = 2 * x; }));
  engine_->Push(Op("x += y", Cpu(0), {b}, {}, {a}, [&] { x += y; }));
  engine_->Push(Op("y += x", Cpu(1), {a}, {}, {b}, [&] { y += x; }));
  engine_->Wait(b);
  EXPECT_EQ(x, 9);
  EXPECT_EQ(y, 15);
}

TEST_P(EngineTest, OperationWithoutVariablesRuns) {
  std::atomic<int> runs{0};
  for (int i = 0; i < 10; ++i) engine_->Push(Op("", Cpu(0), {}, {}, {}, [&] { ++runs; }));
  engine_->WaitAll();
  EXPECT_EQ(runs, 10);
}

TEST_P(EngineTest, RepeatedAndOverlappingVariablesCountOnce) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar();
  int x = 0;
  for (int i = 0; i < 100; ++i) {
    engine_->Push(Op("+1", Cpu(i % 3), {a, b, a, b}, {a, a}, {a}, [&] { ++x; }));
    engine_->Push(Op("look", Cpu(1), {a, b, b, a}, {}, {}, [] {}));
  }
  engine_->Wait(a);
  EXPECT_EQ(x, 100);
}

// E44: 104 increments in a row.
TEST_P(EngineTest, PreparedOperationRunsAsOftenAsPushed) {
  const VarPtr a = engine_->NewVar();
  int sum = 0, payloads = 0;
  const PreparedPtr prepared = engine_->Prepare({"add", Cpu(0), {}, {}, {a}, [&](const OpContext& context) {
                                                   ++sum;
                                                   if (context.payload)
                                                     payloads += *static_cast<const int*>(context.payload);
                                                 }});
  for (int i = 0; i < 104; ++i) engine_->Push(prepared, i % 2 ? std::make_shared<int>(i) : nullptr);
  engine_->Wait(a);
  EXPECT_EQ(sum, 104);
  EXPECT_EQ(payloads, 52 * 52);
}

TEST_P(EngineTest, PayloadAndFunctionAreReleasedWhenTheRunIsOver) {
  const VarPtr a = engine_->NewVar();
  auto payload = std::make_shared<int>(7);
  auto captured = std::make_shared<int>(8);
  PreparedPtr prepared = engine_->Prepare({"hold", Cpu(0), {}, {a}, {}, [captured](const OpContext&) {}});
  engine_->Push(prepared, payload);
  engine_->Wait(a);
  EXPECT_EQ(payload.use_count(), 1);
  EXPECT_EQ(captured.use_count(), 2);
  engine_->Push(Op("once", Cpu(0), {}, {a}, {}, [captured] {}));
  engine_->Wait(a);
  EXPECT_EQ(captured.use_count(), 2);
  engine_->Push(prepared, payload);
  prepared.reset();
  engine_->Wait(a);
  EXPECT_EQ(payload.use_count(), 1);
  engine_.reset();
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_P(EngineTest, AVersionTellsWhetherAVariableHasChanged) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar();
  std::vector<std::optional<uint64_t>> versions = {engine_->Version(a)};
  const auto run = [&](std::vector<VarPtr> reads, std::vector<VarPtr> writes, std::vector<VarPtr> updates) {
    engine_->Push(Op("", Cpu(0), std::move(reads), std::move(writes), std::move(updates), [] {}));
  };
  const auto expect_another = [&] {
    const std::optional<uint64_t> now = engine_->Version(a);
    EXPECT_TRUE(now.has_value());
    EXPECT_EQ(std::ranges::count(versions, now), 0);
    versions.push_back(now);
  };
  run({a}, {b}, {});
  engine_->Wait(a);
  EXPECT_EQ(engine_->Version(a), versions.back());
  run({}, {a}, {});
  expect_another();  // as soon as it is pushed
  engine_->Wait(a);
  EXPECT_EQ(engine_->Version(a), versions.back());
  run({a}, {a, a}, {});
  expect_another();
  const PreparedPtr update = engine_->Prepare(Op("", Cpu(0), {}, {}, {a}, [] {}));
  for (int i = 0; i < 3; ++i) {
    engine_->Push(update);
    expect_another();
  }
  engine_->Push(Op("", Cpu(0), {}, {b}, {}, [] { throw DataError("broken"); }));
  run({b}, {a}, {});
  EXPECT_THROW(engine_->Wait(a), DataError);
  EXPECT_EQ(engine_->Version(a), std::nullopt);  // it carries the error
  EXPECT_EQ(engine_->Version(b), std::nullopt);
  run({}, {a}, {});
  engine_->Wait(a);
  expect_another();
  EXPECT_THROW(engine_->WaitAll(), DataError);
  engine_->Recover();
  expect_another();
  EXPECT_TRUE(engine_->Version(b).has_value());
  const VarPtr other = GetParam()()->NewVar();
  EXPECT_THROW(engine_->Version(other), Error);
  EXPECT_THROW(engine_->Version(nullptr), Error);
}

TEST_P(EngineTest, PushFromInsideAnOperationRunsAfterIt) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar();
  std::vector<int> order;
  engine_->Push(Op("outer", Cpu(0), {}, {}, {a}, [&] {
    engine_->Push(Op("inner", Cpu(1), {}, {}, {a}, [&] {
      order.push_back(2);
      engine_->Push(Op("innermost", Cpu(0), {}, {b}, {a}, [&] { order.push_back(4); }));
    }));
    engine_->Push(Op("inner", Cpu(0), {}, {}, {a}, [&] { order.push_back(3); }));
    order.push_back(1);
  }));
  engine_->WaitAll();
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
}

TEST_P(EngineTest, InnerOperationSeesWhetherTheOuterOneFailed) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar();
  bool ran = false;
  engine_->Push(Op("outer", Cpu(0), {}, {a}, {}, [&] {
    engine_->Push(Op("inner", Cpu(0), {a}, {b}, {}, [&] { ran = true; }));
    throw DataError("broken");
  }));
  EXPECT_THROW(engine_->Wait(a), DataError);
  EXPECT_THROW(engine_->WaitAll(), DataError);
  EXPECT_THROW(engine_->Wait(b), DataError);
  EXPECT_FALSE(ran);
}

TEST_P(EngineTest, ErrorKeepsItsTypeAndGetsTheOperationsName) {
  const VarPtr a = engine_->NewVar();
  engine_->Push(Op("forward cpu:0", Cpu(0), {}, {a}, {}, [] { throw ShapeError("expected (2), got (3)"); }));
  EXPECT_EQ(MessageOf<ShapeError>([&] { engine_->Wait(a); }),
            "ShapeError: operation \"forward cpu:0\" failed: expected (2), got (3)");
  engine_->Push(Op("own", Cpu(0), {}, {a}, {}, [] { throw Error("plain"); }));
  EXPECT_EQ(MessageOf<Error>([&] { engine_->Wait(a); }), "Error: operation \"own\" failed: plain");
  engine_->Push(Op("", Cpu(0), {}, {a}, {}, [] { throw DeviceError("nameless"); }));
  EXPECT_EQ(MessageOf<DeviceError>([&] { engine_->Wait(a); }), "DeviceError: nameless");

  struct MyError : ShapeError {
    using ShapeError::ShapeError;
  };
  engine_->Push(Op("derived", Cpu(0), {}, {a}, {}, [] { throw MyError("mine"); }));
  EXPECT_EQ(MessageOf<MyError>([&] { engine_->Wait(a); }), "ShapeError: mine");
  engine_->Push(Op("foreign", Cpu(0), {}, {a}, {}, [] { throw 42; }));
  EXPECT_THROW(engine_->Wait(a), int);
}

// E40: both outputs raise, at every read; waiting for all raises once; unrelated values stay readable.
TEST_P(EngineTest, FailureStaysUntilWrittenAnew) {
  const VarPtr out = engine_->NewVar(), grad = engine_->NewVar(), other = engine_->NewVar();
  engine_->Push(Op("normal", Cpu(0), {}, {out, grad}, {}, [] { Throw("sigma must be >= 0, got -1"); }));
  engine_->Push(Op("other", Cpu(0), {}, {other}, {}, [] {}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(engine_->Wait(out), Error);
    EXPECT_THROW(engine_->Wait(grad), Error);
    EXPECT_NO_THROW(engine_->Wait(other));
  }
  EXPECT_THROW(engine_->WaitAll(), Error);
  EXPECT_NO_THROW(engine_->WaitAll());
  EXPECT_THROW(engine_->Wait(out), Error);
  engine_->Push(Op("again", Cpu(1), {}, {out}, {}, [] {}));
  EXPECT_NO_THROW(engine_->Wait(out));
  EXPECT_THROW(engine_->Wait(grad), Error);
}

TEST_P(EngineTest, ErrorTravelsAndUpdatesStayUntouched) {
  const VarPtr data = engine_->NewVar(), loss = engine_->NewVar(), grad = engine_->NewVar(), weight = engine_->NewVar();
  int weight_value = 5;
  bool ran = false;
  engine_->Push(Op("load", Cpu(0), {}, {data}, {}, [] { throw DataError("no such file"); }));
  engine_->Push(Op("forward", Cpu(1), {data, weight}, {loss}, {}, [&] { ran = true; }));
  engine_->Push(Op("backward", Cpu(2), {loss, weight}, {grad}, {}, [&] { ran = true; }));
  engine_->Push(Op("update", Cpu(0), {grad}, {}, {weight}, [&] { weight_value = 0; }));
  EXPECT_EQ(MessageOf<DataError>([&] { engine_->Wait(grad); }), "DataError: operation \"load\" failed: no such file");
  EXPECT_NO_THROW(engine_->Wait(weight));
  EXPECT_EQ(weight_value, 5);
  EXPECT_FALSE(ran);

  engine_->Push(Op("update loss", Cpu(0), {}, {}, {loss}, [&] { ran = true; }));  // in place on a failed value: skipped
  EXPECT_THROW(engine_->Wait(loss), DataError);
  engine_->Push(Op("read and write loss", Cpu(0), {loss}, {loss}, {}, [&] { ran = true; }));
  EXPECT_THROW(engine_->Wait(loss), DataError);
  EXPECT_FALSE(ran);

  engine_->Recover();
  EXPECT_NO_THROW(engine_->WaitAll());
  for (const VarPtr& var : {data, loss, grad, weight}) EXPECT_NO_THROW(engine_->Wait(var));
  engine_->Push(Op("update", Cpu(0), {grad}, {}, {weight}, [&] { weight_value = 6; }));
  engine_->Wait(weight);
  EXPECT_EQ(weight_value, 6);
}

TEST_P(EngineTest, FirstFailedInputInListOrderPassesOn) {
  const VarPtr a = engine_->NewVar(), b = engine_->NewVar(), c = engine_->NewVar();
  engine_->Push(Op("", Cpu(0), {}, {a}, {}, [] { throw DataError("a"); }));
  engine_->Push(Op("", Cpu(0), {}, {b}, {}, [] { throw ModelError("b"); }));
  engine_->Push(Op("", Cpu(0), {b, a}, {c}, {}, [] {}));
  EXPECT_THROW(engine_->Wait(c), ModelError);
  engine_->Push(Op("", Cpu(0), {a, b}, {c}, {}, [] {}));
  EXPECT_THROW(engine_->Wait(c), DataError);
  EXPECT_THROW(engine_->WaitAll(), DataError);
}

TEST_P(EngineTest, WaitingInsideAnOperationIsAnError) {
  const VarPtr a = engine_->NewVar();
  engine_->Push(Op("", Cpu(0), {}, {a}, {}, [&] {
    EXPECT_THROW(engine_->Wait(a), Error);
    EXPECT_THROW(engine_->WaitAll(), Error);
    EXPECT_THROW(engine_->Recover(), Error);
  }));
  EXPECT_NO_THROW(engine_->WaitAll());
}

TEST_P(EngineTest, RejectsInvalidOperations) {
  const auto other = MakeInlineEngine();
  const VarPtr mine = engine_->NewVar(), foreign = other->NewVar();
  EXPECT_THROW(engine_->Push(Op("null", Cpu(0), {nullptr}, {}, {}, [] {})), Error);
  EXPECT_THROW(engine_->Push(Op("foreign", Cpu(0), {}, {foreign}, {}, [] {})), Error);
  EXPECT_THROW(engine_->Push(Op("device", Cpu(-1), {}, {mine}, {}, [] {})), DeviceError);
  EXPECT_THROW(engine_->Push(Operation{"empty", Cpu(0), {}, {mine}, {}, nullptr}), Error);
  EXPECT_THROW(engine_->Push(PreparedPtr(), nullptr), Error);
  EXPECT_THROW(engine_->Push(other->Prepare(Op("other", Cpu(0), {}, {}, {}, [] {}))), Error);
  EXPECT_THROW(engine_->Wait(nullptr), Error);
  EXPECT_THROW(engine_->Wait(foreign), Error);
  EXPECT_NO_THROW(engine_->Wait(mine));
  EXPECT_NO_THROW(engine_->WaitAll());
}

TEST_P(EngineTest, VariableMayBeDroppedWhilePending) {
  std::atomic<int> runs{0};
  for (int i = 0; i < 50; ++i) {
    const VarPtr a = engine_->NewVar();
    for (int k = 0; k < 4; ++k) engine_->Push(Op("", Cpu(k % 2), {}, {}, {a}, [&] { ++runs; }));
  }
  engine_->WaitAll();
  EXPECT_EQ(runs, 200);
}

TEST_P(EngineTest, DestructionWaitsAndNeverThrows) {
  std::atomic<int> runs{0};
  const VarPtr a = engine_->NewVar();
  for (int i = 0; i < 20; ++i) {
    engine_->Push(Op("slow", Cpu(i % 2), {}, {}, {a}, [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      ++runs;
    }));
  }
  engine_->Push(Op("", Cpu(0), {}, {a}, {}, [] { throw DataError("never read"); }));
  engine_.reset();
  EXPECT_EQ(runs, 20);
}

// Several threads push and wait at once; each works on its own variable, all read a common one.
TEST_P(EngineTest, ManyThreadsMayPushAndWait) {
  constexpr int kThreads = 4, kRounds = 300;
  const VarPtr common = engine_->NewVar();
  std::vector<int> counts(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const VarPtr own = engine_->NewVar();
      const PreparedPtr prepared =
          engine_->Prepare(Op("count", Cpu(t % 3), {common}, {}, {own}, [&counts, t] { ++counts[t]; }));
      for (int i = 0; i < kRounds; ++i) {
        engine_->Push(prepared);
        if (i % 10 == 0) {
          engine_->Wait(own);
          EXPECT_EQ(counts[t], i + 1);
        }
        if (i % 100 == 0) engine_->Push(Op("common", Cpu(0), {}, {}, {common}, [] {}));
        if (i % 100 == 50) engine_->Wait(common);
      }
      engine_->Wait(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts, std::vector<int>(kThreads, kRounds));
}

}  // namespace
}  // namespace bindery
