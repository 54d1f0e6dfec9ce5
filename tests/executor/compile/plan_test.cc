// What the verifier finds in plans that no compiler made, and offsets for storages of any lifetimes.
#include "executor/plan/plan.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "executor/compile/memory_plan.h"
#include "executor/compile/plan_memory.h"
#include "tests/executor/group_helpers.h"

namespace bindery {
namespace {

const ValueType kType{DType::kFloat32, {4}, -1};

// x -> a = Relu(x) [forward]; dx = ReluGrad(a), with scratch [backward].
Plan SmallPlan() {
  Plan plan;
  plan.arguments = {{.name = "x", .type = kType}};
  plan.auxiliary = {{.name = "s", .type = kType}};
  plan.gradients = {{.argument = 0}};
  plan.values = {{.name = "x", .type = kType, .place = Place::kArgument, .slot = 0},
                 {.name = "a", .type = kType, .place = Place::kArena, .storage = 0},
                 {.name = "dx", .type = kType, .place = Place::kGradient, .slot = 0}};
  plan.storages = {{.offset = 0, .bytes = 16, .first = 0, .last = 1},
                   {.offset = 64, .bytes = 16, .first = 1, .last = 1}};
  plan.calls = {{.op = "Relu", .node = "a", .inputs = {0}, .outputs = {1}},
                {.op = "ReluGrad", .node = "dx", .inputs = {1}, .outputs = {2}, .scratch = 1}};
  plan.segments = {{.phase = Phase::kForward, .begin = 0, .end = 1}, {.phase = Phase::kBackward, .begin = 1, .end = 2}};
  plan.outputs = {{"a", 1}};
  plan.arena_bytes = 128;
  return plan;
}

std::string BreachOf(const std::function<void(Plan*)>& spoil) {
  Plan plan = SmallPlan();
  spoil(&plan);
  return MessageOf([&] { VerifyPlan(plan); });
}
void ExpectBreach(const std::string& breach, const std::function<void(Plan*)>& spoil) {
  EXPECT_EQ(BreachOf(spoil), "Error: invalid plan: " + breach);
}

TEST(VerifyPlanTest, AcceptsAGoodPlan) { EXPECT_NO_THROW(VerifyPlan(SmallPlan())); }

TEST(VerifyPlanTest, GradientsAreWrittenOnceAndInBackward) {
  ExpectBreach("call 0 writes the gradient of \"x\" in forward", [](Plan* p) { p->values[1] = p->values[2]; });
  ExpectBreach("call 2 writes the gradient of \"x\" again", [](Plan* p) {
    p->values.push_back(p->values[2]);
    p->calls.push_back({.op = "Copy", .node = "dx", .inputs = {1}, .outputs = {3}});
    p->segments[1].end = 3;
    p->storages[0].last = 2;
  });
  ExpectBreach("call 1 writes the gradient of \"x\", which is zero", [](Plan* p) { p->gradients[0].is_zero = true; });
  ExpectBreach("nothing writes the gradient of \"x\"", [](Plan* p) { p->calls[1].outputs[0] = -1; });
  ExpectBreach("value \"dx\" does not fit the gradient of \"x\"", [](Plan* p) { p->values[2].type.shape = {5}; });
  const auto by_rows = [](Plan* p, DType numbers) {
    p->gradients = {{.argument = 0, .part = GradientPart::kRowNumbers}, {.argument = 0, .part = GradientPart::kRows}};
    p->values[2].type = {numbers, {3}, -1};
    p->values.push_back({.name = "rows", .type = {DType::kFloat32, {2}, -1}, .place = Place::kGradient, .slot = 1});
  };
  ExpectBreach("value \"dx\" is no rows of \"x\"", [&](Plan* p) { by_rows(p, DType::kInt32); });
  ExpectBreach("the gradient of \"x\" has other rows than the 3 that are numbered",
               [&](Plan* p) { by_rows(p, DType::kInt64); });
  ExpectBreach("the gradient of \"x\" is no numbers and rows", [&](Plan* p) {
    by_rows(p, DType::kInt64);
    std::swap(p->gradients[0], p->gradients[1]);
    std::swap(p->values[2], p->values[3]);
    p->values[2].slot = 0;
    p->values[3].slot = 1;
  });
  ExpectBreach("the gradient of \"x\" is no numbers and rows", [&](Plan* p) {
    by_rows(p, DType::kInt64);
    p->gradients.pop_back();
    p->values.pop_back();
  });
  ExpectBreach("\"x\" is not plain, but its gradient is kept by rows", [&](Plan* p) {
    by_rows(p, DType::kInt64);
    p->arguments[0].format = Format::Opaque(64, "blocks");
  });
  ExpectBreach("gradient 0 is that of argument 1", [](Plan* p) { p->gradients[0].argument = 1; });
  ExpectBreach("the gradient of head 0 is argument 0", [](Plan* p) { p->head_gradients = {0}; });
}

TEST(VerifyPlanTest, GradientsAreReadAfterTheyAreWritten) {
  const auto read_after = [](Plan* p) {  // b = Copy(dx)
    p->values.push_back({.name = "b", .type = kType, .place = Place::kArena, .storage = 2});
    p->storages.push_back({.offset = 64, .bytes = 16, .first = 2, .last = 2});
    p->calls.push_back({.op = "Copy", .node = "b", .inputs = {2}, .outputs = {3}});
    p->segments[1].end = 3;
    p->storages[0].last = 2;
  };
  EXPECT_EQ(BreachOf(read_after), "nothing was thrown");
  ExpectBreach("call 2 reads \"dx\" from a gradient that does not hold it", [&](Plan* p) {
    read_after(p);
    p->gradients[0].req = GradReq::kAdd;  // the array holds a sum
  });
  ExpectBreach("call 1 reads \"dx\" from a gradient that does not hold it", [](Plan* p) { p->calls[1].inputs[0] = 2; });
}

TEST(VerifyPlanTest, DerivedValuesAreMadeOfParametersAloneAndBeforeTheRun) {
  const auto derive = [](Plan* p) {  // d = Cast(x), when x has changed; a = Relu(d)
    p->values.push_back({.name = "d", .type = kType, .place = Place::kDerived, .slot = 0});
    p->derived = {{.name = "Cast (x)", .bytes = 16, .arguments = {0}}};
    p->calls.insert(p->calls.begin(), {.op = "Cast", .node = "d", .inputs = {0}, .outputs = {3}});
    p->calls[1].inputs = {3};
    p->derive_calls = 1;
    p->segments = {{.phase = Phase::kForward, .begin = 1, .end = 2}, {.phase = Phase::kBackward, .begin = 2, .end = 3}};
    p->storages[0].first = 1;
    p->storages[0].last = p->storages[1].first = p->storages[1].last = 2;
  };
  EXPECT_EQ(BreachOf(derive), "nothing was thrown");
  const auto expect = [&](const std::string& breach, const std::function<void(Plan*)>& spoil) {
    ExpectBreach(breach, [&](Plan* p) {
      derive(p);
      spoil(p);
    });
  };
  expect("segment of calls 0 to 2 does not continue at 1", [](Plan* p) { p->segments[0].begin = 0; });
  expect("derived values are made by 4 calls of 3", [](Plan* p) { p->derive_calls = 4; });
  expect("\"Cast (x)\" is made of argument 0", [](Plan* p) { p->arguments[0].role = Role::kData; });
  expect("call 0, which makes derived values, reads \"x\"", [](Plan* p) { p->derived[0].arguments = {}; });
  expect("call 0, which makes derived values, reads \"s\"", [](Plan* p) {
    p->values.push_back({.name = "s", .type = kType, .place = Place::kAuxiliary, .slot = 0});
    p->calls[0].inputs = {4};
  });
  expect("call 0, which makes derived values, writes \"s\"", [](Plan* p) {
    p->values.push_back({.name = "s", .type = kType, .place = Place::kAuxiliary, .slot = 0});
    p->calls[0].outputs = {4};
  });
  expect("value \"d\" is larger than its array", [](Plan* p) { p->derived[0].bytes = 8; });
  expect("call 1 reads \"d\" before it is written", [](Plan* p) { p->calls[0].outputs = {-1}; });
  expect("nothing makes \"Relu (x)\"", [](Plan* p) { p->derived.push_back({"Relu (x)", 16, {0}}); });
  expect("call 0 writes derived value \"d\" in a run or again", [](Plan* p) {
    p->derive_calls = 0;
    p->segments[0].begin = 0;
  });
  // What else is made there is gone when the run begins, or was never there.
  expect("call 1 reads \"b\" before it is written", [](Plan* p) {
    p->values.push_back({.name = "b", .type = kType, .place = Place::kArena, .storage = 2});
    p->storages.push_back({.offset = 64, .bytes = 16, .first = 0, .last = 1});
    p->calls[0].outputs = {4};
    p->calls[1].inputs = {4};
  });
}

TEST(VerifyPlanTest, ScratchIsOneStepsOwn) {
  ExpectBreach("call 1 has scratch storage 2", [](Plan* p) { p->calls[1].scratch = 2; });
  ExpectBreach("the scratch of call 1 is in use for something else", [](Plan* p) { p->calls[1].scratch = 0; });
  ExpectBreach("the scratch of call 1 is in use for something else", [](Plan* p) {
    p->calls[0].scratch = 1;
    p->storages[1].first = 0;
  });
  ExpectBreach("call 1 has its scratch only from 0 to 0",
               [](Plan* p) { p->storages[1].first = p->storages[1].last = 0; });
}

TEST(VerifyPlanTest, StatesAreUpdatedOnceInForwardAfterTheirReaders) {
  const auto update = [](Plan* p) {  // s = Copy(a), in forward
    p->values.push_back({.name = "s", .type = kType, .place = Place::kAuxiliary, .slot = 0});
    p->calls.insert(p->calls.begin() + 1, {.op = "Copy", .node = "a", .inputs = {1}, .outputs = {3}});
    p->segments = {{.phase = Phase::kForward, .begin = 0, .end = 2}, {.phase = Phase::kBackward, .begin = 2, .end = 3}};
    p->storages[0].last = p->storages[1].first = p->storages[1].last = 2;
    p->updates = {0};
  };
  EXPECT_EQ(BreachOf(update), "nothing was thrown");
  const auto expect = [&](const std::string& breach, const std::function<void(Plan*)>& spoil) {
    ExpectBreach(breach, [&](Plan* p) {
      update(p);
      spoil(p);
    });
  };
  expect("auxiliary state 1, which is updated, does not exist", [](Plan* p) { p->updates = {1}; });
  expect("call 1 updates state \"s\" unasked or again", [](Plan* p) { p->updates.clear(); });
  expect("call 1 updates state \"s\" in backward", [](Plan* p) { p->segments[0].end = p->segments[1].begin = 1; });
  expect("call 2 reads state \"s\" after it was updated", [](Plan* p) { p->calls[2].inputs[0] = 3; });
  expect("nothing updates state \"s\"", [](Plan* p) { p->calls[1].outputs[0] = -1; });
}

TEST(VerifyPlanTest, ExchangesStayInTheArena) {
  ExpectBreach("an exchange writes \"dx\" outside the arena",
               [](Plan* p) { p->segments[1].exchanges = {{.input = 1, .output = 2}}; });
  ExpectBreach("an exchange reads \"x\" outside the arena",
               [](Plan* p) { p->segments[1].exchanges = {{.input = 0, .output = 1}}; });
}

// An exchange behind the last call reads its input: that call must not work in it.
TEST(PlanMemoryTest, TheLastStepKeepsWhatAnExchangeReads) {
  Program program;
  Plan& p = program.plan;
  p.arguments = {{.name = "x", .type = kType}};
  p.values = {{.name = "x", .type = kType, .place = Place::kArgument, .slot = 0},
              {.name = "a", .type = kType, .place = Place::kArena},
              {.name = "b", .type = kType, .place = Place::kArena},
              {.name = "sum", .type = kType, .place = Place::kArena}};
  p.calls = {{.op = "Relu", .node = "a", .inputs = {0}, .outputs = {1}},
             {.op = "Exp", .node = "b", .inputs = {1}, .outputs = {2}}};
  p.segments = {{.phase = Phase::kForward, .begin = 0, .end = 2, .exchanges = {{.input = 1, .output = 3}}}};
  p.outputs = {{"b", 2}, {"sum", 3}};
  program.kernels = {Kernel{}, Kernel{.inplace = {{0, 0}}}};
  const std::vector<int> root = {0, 1, 2, 3}, kept = {2, 3};
  PlanMemory(&program, {.root = root, .kept = kept});
  EXPECT_NO_THROW(VerifyPlan(p));
  EXPECT_NE(p.values[1].storage, p.values[2].storage);
}

TEST(MemoryPlanTest, AnyLifetimes) {
  PhiloxStream random(1, "lifetimes");
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<PlanStorage> storages(1 + random.Below(40));
    const uint64_t calls = 1 + random.Below(30);
    int64_t total = 0;
    for (PlanStorage& s : storages) {
      s.first = static_cast<int>(random.Below(calls));
      s.last = s.first + static_cast<int>(random.Below(calls - static_cast<uint64_t>(s.first)));
      s.bytes = static_cast<int64_t>(random.Below(1000));
      total += (s.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    }
    for (const bool reuse : {true, false}) {
      const int64_t arena = AssignOffsets(&storages, reuse);
      EXPECT_GE(arena, PeakLiveBytes(storages));
      EXPECT_LE(arena, total);
      EXPECT_TRUE(reuse || arena == total);
      for (size_t i = 0; i < storages.size(); ++i) {
        const PlanStorage& s = storages[i];
        EXPECT_EQ(s.offset % kArenaAlignment, 0);
        EXPECT_TRUE(s.offset >= 0 && s.offset + s.bytes <= arena);
        for (size_t k = 0; k < i; ++k) {
          const PlanStorage& t = storages[k];
          const bool together = s.bytes > 0 && t.bytes > 0 && (!reuse || (s.first <= t.last && t.first <= s.last));
          EXPECT_FALSE(together && s.offset < t.offset + t.bytes && t.offset < s.offset + s.bytes) << i << ", " << k;
        }
      }
    }
  }
}

// The report's peak is that of the call where most is alive, counted one by one.
TEST(MemoryPlanTest, TheReportFindsTheFullestStep) {
  Plan plan = SmallPlan();
  plan.storages[0].bytes = 100;
  MemoryReport report = ReportMemory(plan);
  EXPECT_EQ(report.activations, 128);
  EXPECT_EQ(report.workspace, 64);
  EXPECT_EQ(report.gradients, 16);
  plan.calls[1].scratch = -1;
  plan.storages.pop_back();
  report = ReportMemory(plan);
  EXPECT_EQ(report.activations, 128);
  EXPECT_EQ(report.workspace, 0);
}

}  // namespace
}  // namespace bindery
