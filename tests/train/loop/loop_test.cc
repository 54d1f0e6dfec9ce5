// What a loop promises of its extensions: order, errors, ends, what is kept.
#include "train/loop/loop.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"
#include "tests/train/loop_fixture.h"
#include "train/extensions/reports.h"

namespace bindery {
namespace {

Extension Noting(const std::string& name, int priority, Counter* learner, Trigger trigger = Always()) {
  const auto note = [=](const char* what) { return [=](Loop&) { learner->log += name + what; }; };
  return {.name = name,
          .trigger = std::move(trigger),
          .priority = priority,
          .run = note(" "),
          .begin = note("-begins "),
          .on_error = [=](Loop&, const std::exception_ptr&) { learner->log += name + "-error "; },
          .end = note("-ends ")};
}

TEST_F(LoopTest, RunsWhatIsDueByPriority) {
  Counter learner;
  Loop loop(&learner, UntilIteration(2));
  loop.Extend(Noting("low", kReads, &learner));
  loop.Extend(Noting("high", kWrites, &learner, EveryIterations(2)));
  loop.Extend(Noting("second", kReads, &learner));
  loop.Run();
  EXPECT_EQ(learner.log,
            "connect low-begins second-begins high-begins low second high low second high-ends low-ends second-ends "
            "finalize ");
  learner.log.clear();
  loop.Run();  // nothing is left
  EXPECT_EQ(learner.log, "low-begins second-begins high-begins high-ends low-ends second-ends finalize ");
}

TEST_F(LoopTest, WhatIsReportedFirstIsSeenByTriggersBehind) {
  Counter learner;
  Loop loop(&learner, Either(UntilIteration(100), EarlyStopping({.value = "validation/accuracy", .patience = 2})));
  int runs = 0;
  loop.Extend({.name = "best", .trigger = AtMaximum("validation/accuracy"), .run = [&](Loop&) { ++runs; }});
  const std::vector<double> accuracies = {0.1, 0.3, 0.2, 0.4, 0.4, 0.4, 0.9};
  loop.Extend(Evaluator("validation", [&] {
    return NamedValues{{"accuracy", accuracies.at(static_cast<size_t>(learner.now().epoch - 1))}};
  }));
  loop.Run();
  EXPECT_EQ(learner.now().epoch, 6);
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(loop.stopped());
}

TEST_F(LoopTest, AnErrorEndsTheRunInOrder) {
  Counter learner;
  learner.fails_at = 2;
  Loop loop(&learner, UntilIteration(5));
  loop.Extend(Noting("a", kReads, &learner));
  loop.Extend({.name = "bad",
               .on_error = [](Loop&, const std::exception_ptr&) { throw Error("again"); },
               .end =
                   [](Loop& l) {
                     EXPECT_TRUE(l.failed());
                     throw Error("and again");
                   }});
  loop.Extend(
      {.name = "odd", .on_error = [](Loop&, const std::exception_ptr&) { throw 1; }, .end = [](Loop&) { throw 2; }});
  EXPECT_EQ(MessageOf<DataError>([&] { loop.Run(); }), "DataError: iteration 2");
  EXPECT_EQ(learner.log, "connect a-begins a a-error a-ends finalize ");
  EXPECT_NE(log_.text().find("extension \"bad\" failed after an error: Error: again\n"), std::string::npos)
      << log_.text();
  EXPECT_NE(log_.text().find("extension \"bad\" failed at the end of a run: Error: and again\n"), std::string::npos)
      << log_.text();
  EXPECT_NE(log_.text().find("extension \"odd\" failed at the end of a run: an exception of no"), std::string::npos)
      << log_.text();
  // It may go on.
  learner.fails_at = -1;
  Loop next(&learner, UntilIteration(5));
  next.Run();
  EXPECT_EQ(learner.now().iteration, 5);
}

TEST_F(LoopTest, StopEndsItBeforeTheNextUpdate) {
  Counter learner;
  Loop loop(&learner, UntilIteration(9));
  loop.Extend({.name = "stop", .trigger = AtIterations({3}), .run = [](Loop& l) { l.Stop(); }});
  loop.Run();
  EXPECT_TRUE(loop.stopped());
  EXPECT_EQ(learner.now().iteration, 3);
  loop.Run();
  EXPECT_FALSE(loop.stopped());
  EXPECT_EQ(learner.now().iteration, 9);
}

TEST_F(LoopTest, AStopThatMeetsAnErrorDoesNotStopTheNextRun) {
  Counter learner;
  learner.fails_at = 2;
  Loop loop(&learner, UntilIteration(5));
  loop.Extend(
      {.name = "stop", .trigger = AtIterations({2}), .on_error = [](Loop& l, const std::exception_ptr&) { l.Stop(); }});
  EXPECT_THROW(loop.Run(), Error);
  learner.fails_at = -1;
  loop.Run();
  EXPECT_FALSE(loop.stopped());
  EXPECT_EQ(learner.now().iteration, 5);
}

TEST_F(LoopTest, RefusesExtensionsThatDoNothingOrComeTooLate) {
  Counter learner;
  Loop loop(&learner, UntilIteration(1));
  loop.Extend({.name = "nests", .trigger = Always(), .run = [](Loop& l) {
                 EXPECT_EQ(MessageOf([&] { l.Extend({.name = "late", .run = [](Loop&) {}}); }),
                           "Error: extension \"late\" comes too late: the loop is running");
                 EXPECT_EQ(MessageOf([&] { l.Run(); }), "Error: the loop is running already");
               }});
  loop.Run();
  EXPECT_EQ(MessageOf([&] { loop.Extend({.name = "idle"}); }),
            "Error: extension \"idle\" does nothing: it has neither run, begin, on_error nor end");
}

TEST_F(LoopTest, ARestoreThatFailsChangesNothing) {
  Counter learner;
  Loop loop(&learner, UntilIteration(6));
  loop.Extend({.name = "once", .trigger = Once(EveryIterations(2)), .run = [](Loop&) {}});
  loop.Run();
  Checkpoint checkpoint = loop.ToCheckpoint();
  EXPECT_EQ(checkpoint.numbers.at("extension:once/trigger/done"), 1);
  checkpoint.numbers["extension:once/trigger/done"] = 0;
  learner.refused = 6;
  EXPECT_THROW(loop.Restore(checkpoint), CheckpointError);
  EXPECT_EQ(loop.ToCheckpoint().numbers.at("extension:once/trigger/done"), 1);
  learner.refused = -1;
  loop.Restore(checkpoint);
  EXPECT_EQ(loop.ToCheckpoint().numbers.at("extension:once/trigger/done"), 0);
}

// Also what was not there yet when the checkpoint was made; and what is in it is looked at.
TEST_F(LoopTest, RestoresStatesOfNothing) {
  Counter learner;
  Loop loop(&learner, UntilIteration(6));
  HostTensorMap last;
  loop.Extend({.name = "last",
               .trigger = Once(EveryIterations(2)),
               .run = [&](Loop& l) { last = l.learner().ToModel("").params; },
               .serialize = [&](Archive* archive) { archive->Tensors(Archive::Tensor::kParameter, &last); }});
  loop.Extend(LogReport({.path = folder_ + "/log", .trigger = EverySeconds(1e6)}));
  const Checkpoint before = loop.ToCheckpoint();
  loop.Run();
  const Checkpoint after = loop.ToCheckpoint();
  EXPECT_EQ(after.model.params.at("extension:last/state/w").At(0), 2);
  for (const auto& [name, value] : {std::pair("extension:log/state/bytes", NAN),
                                    {"extension:log/state/bytes", -1},
                                    {"loop/time/seconds", NAN},
                                    {"loop/time/seconds", -1}}) {
    Checkpoint bad = before;
    bad.numbers[name] = value;
    EXPECT_THROW(loop.Restore(bad), CheckpointError) << name;
    EXPECT_EQ(loop.ToCheckpoint().model.params, after.model.params);
  }
  loop.Restore(before);
  EXPECT_TRUE(last.empty());
  EXPECT_FALSE(loop.ToCheckpoint().numbers.contains("extension:last/trigger/done"));
  loop.Restore(after);
  EXPECT_EQ(last.at("w").At(0), 2);
}

// By which triggers go: with nobody who reports, too.
TEST_F(LoopTest, TimeGoesOn) {
  Counter learner;
  Loop loop(&learner, UntilIteration(1));
  loop.Extend({.name = "hourly", .trigger = EverySeconds(3600), .run = [](Loop&) {}});
  loop.Run();
  Checkpoint checkpoint = loop.ToCheckpoint();
  ASSERT_TRUE(checkpoint.numbers.contains("loop/time/seconds"));
  checkpoint.numbers["loop/time/seconds"] = 3599;
  loop.Restore(checkpoint);
  EXPECT_GE(loop.now().seconds, 3599);
}

}  // namespace
}  // namespace bindery
