// What a loop promises of its extensions: order, errors, ends, what is kept; and the ready-made ones, on a learner that
// does nothing but count.
#include "train/loop/loop.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "tests/message_of.h"
#include "train/extensions/guards.h"
#include "train/extensions/reports.h"
#include "train/extensions/snapshots.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

// Four iterations are an epoch. Its parameter is the iteration; "loss" 1 / iteration, of two samples.
class Counter final : public Learner {
 public:
  void Update() override {
    ++iteration_;
    if (iteration_ == fails_at) Throw<DataError>("iteration {}", iteration_);
  }
  Moment now() const override {
    return {.iteration = iteration_,
            .epoch = iteration_ / 4,
            .epoch_detail = static_cast<double>(iteration_) / 4,
            .is_new_epoch = iteration_ % 4 == 0};
  }
  void Observe(Observation* observation) override {
    observation->Report("loss", 1.0 / static_cast<double>(iteration_), 2);
  }
  Checkpoint ToCheckpoint() override {
    const HostTensor value = HostTensor::Full(DType::kFloat32, {1}, iteration_ == bad_at ? NAN : 1);
    return {.model = {.params = {{"w", value}}}, .step = iteration_, .epoch = iteration_ / 4};
  }
  void Restore(const Checkpoint& checkpoint) override {
    EXPECT_TRUE(checkpoint.numbers.empty()) << "what is the loop's is not the learner's";
    if (checkpoint.step == refused) Throw<CheckpointError>("refused");
    iteration_ = checkpoint.step;
  }
  std::vector<std::string> model_names() const override { return {}; }
  Model ToModel(const std::string&) const override {
    return {.params = {{"w", HostTensor::Full(DType::kFloat32, {1}, static_cast<double>(iteration_))}}};
  }
  Updater& updater(const std::string&) override { throw Error("none"); }
  void Connect(Loop*) override { log += "connect "; }
  void Finalize() override { log += "finalize "; }

  int64_t fails_at = -1, bad_at = -1, refused = -1;
  std::string log;

 private:
  int64_t iteration_ = 0;
};

class LoopTest : public testing::Test {
 protected:
  LoopTest() : folder_(testing::TempDir() + "/loop_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    SetLogCallback([this](LogLevel, const std::string& line) { log_ += line + "\n"; });
  }
  ~LoopTest() override { SetLogCallback(nullptr); }

  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Lines of a log without their times.
  std::vector<std::string> Lines(const std::string& name) const {
    std::istringstream text(Read(name));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      const size_t begin = line.find("\"seconds\""), end = line.find(',', begin);
      lines.push_back(line.erase(begin, end + 1 - begin));
    }
    return lines;
  }
  std::vector<std::string> Checkpoints() const {
    std::vector<std::string> names;
    for (const std::string& path : CheckpointStore(folder_).List()) names.push_back(fs::path(path).filename());
    return names;
  }

  const std::string folder_;
  std::string log_;
};

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
            "connect high-begins low-begins second-begins low second high low second high-ends low-ends second-ends "
            "finalize ");
  learner.log.clear();
  loop.Run();  // nothing is left
  EXPECT_EQ(learner.log, "high-begins low-begins second-begins high-ends low-ends second-ends finalize ");
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
  EXPECT_EQ(MessageOf<DataError>([&] { loop.Run(); }), "DataError: iteration 2");
  EXPECT_EQ(learner.log, "connect a-begins a a-error a-ends finalize ");
  EXPECT_NE(log_.find("extension \"bad\" failed after an error: Error: again\n"), std::string::npos) << log_;
  EXPECT_NE(log_.find("extension \"bad\" failed at the end of a run: Error: and again\n"), std::string::npos) << log_;
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

TEST_F(LoopTest, RefusesAnExtensionThatDoesNothing) {
  Counter learner;
  Loop loop(&learner, UntilIteration(1));
  EXPECT_EQ(MessageOf([&] { loop.Extend({.name = "idle"}); }),
            "Error: extension \"idle\" does nothing: it has neither run, begin, on_error nor end");
}

TEST_F(LoopTest, LogsMeansSinceTheLastLine) {
  Counter learner;
  Loop loop(&learner, UntilIteration(5));
  std::vector<std::string> written;
  loop.Extend(LogReport({.path = folder_ + "/log", .trigger = EveryIterations(2)}));
  loop.Extend(LogReport({.write = [&](const std::string& line) { written.push_back(line); }}));
  loop.Extend(ObserveValue("twice \"it\"", [](Loop& l) { return 2.0 * static_cast<double>(l.now().iteration); }));
  loop.Run();
  EXPECT_EQ(Lines("log"),
            (std::vector<std::string>{R"({"epoch":0,"iteration":2,"loss":0.75,"twice \"it\"":4})",
                                      R"({"epoch":1,"iteration":4,"loss":0.29166666666666663,"twice \"it\"":8})"}));
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].find("{\"epoch\":1,\"iteration\":4,\"seconds\":"), 0u) << written[0];
}

TEST_F(LoopTest, PrintsRows) {
  Counter learner;
  Loop loop(&learner, UntilIteration(8));
  std::string rows;
  loop.Extend(
      PrintReport({"epoch", "iteration", "loss", "of nobody"}, [&](const std::string& r) { rows += r + "\n"; }));
  loop.Run();
  EXPECT_EQ(rows,
            "epoch       iteration   loss        of nobody\n"
            "1           4           0.520833\n"
            "2           8           0.158631\n");
}

TEST_F(LoopTest, SaysHowFarItIs) {
  Counter learner;
  Loop loop(&learner, UntilEpoch(1));
  std::string lines;
  loop.Extend(PrintProgress(
      1, [&](const std::string& line) { lines += line + "\n"; }, 1e-9));
  loop.Run();
  EXPECT_EQ(lines.find("epoch 0.25/1  iteration 1  "), 0u) << lines;
  EXPECT_NE(lines.find("\nepoch 1.00/1  iteration 4  "), std::string::npos) << lines;
  EXPECT_NE(lines.find("/s  00:00 left\n"), std::string::npos) << lines;
  EXPECT_EQ(Duration(3661), "1:01:01");
  EXPECT_EQ(Duration(NAN), "--:--");
}

// Cut off at any iteration, a run that goes on logs, keeps and ends as one that was not.
TEST_F(LoopTest, GoesOnFromAnySnapshot) {
  const auto run = [&](int64_t until, const std::string& log) {
    Counter learner;
    Loop loop(&learner, Either(UntilIteration(until), EarlyStopping({.value = "loss", .patience = 9})));
    loop.Extend(LogReport({.path = folder_ + "/" + log, .trigger = EveryIterations(3)}));
    loop.Extend(Snapshot({.folder = folder_, .trigger = EveryIterations(2), .keep = 2}));
    loop.Run();
    return learner.now().iteration;
  };
  EXPECT_EQ(run(11, "whole"), 11);
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000010.ckpt", "step-0000000011.ckpt"}));
  for (int cut = 1; cut < 11; ++cut) {
    for (const std::string& path : CheckpointStore(folder_).List()) fs::remove(path);
    fs::remove(folder_ + "/cut");
    {
      Counter learner;
      learner.fails_at = cut + 1;
      Loop loop(&learner, UntilIteration(11));
      loop.Extend(LogReport({.path = folder_ + "/cut", .trigger = EveryIterations(3)}));
      loop.Extend(Snapshot({.folder = folder_, .trigger = EveryIterations(2), .keep = 2}));
      EXPECT_THROW(loop.Run(), DataError);
    }
    EXPECT_EQ(run(11, "cut"), 11) << cut;
    EXPECT_EQ(Lines("cut"), Lines("whole")) << cut;
  }
  EXPECT_EQ(run(11, "cut"), 11);  // all is done
}

TEST_F(LoopTest, AFailedRunLeavesASnapshotIfAsked) {
  Counter learner;
  learner.fails_at = 4;
  Loop loop(&learner, UntilIteration(9));
  loop.Extend(Snapshot({.folder = folder_, .trigger = Never(), .on_error = true}));
  EXPECT_THROW(loop.Run(), DataError);
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000004.ckpt"}));
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

TEST_F(LoopTest, NothingBadIsSavedOrPassedOver) {
  Counter learner;
  learner.bad_at = 6;
  Loop saves(&learner, UntilIteration(9));
  saves.Extend(Snapshot({.folder = folder_, .trigger = EveryIterations(3)}));
  EXPECT_THROW(saves.Run(), NumericError);
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000003.ckpt"}));
  Counter other;
  other.bad_at = 5;
  Loop looks(&other, UntilIteration(9));
  looks.Extend(FailOnBadNumbers(EveryIterations(1)));
  EXPECT_EQ(MessageOf<NumericError>([&] { looks.Run(); }).find("NumericError: after step 5, \"w\", element 0, is nan"),
            0u);
  Counter third;
  Loop reports(&third, UntilIteration(9));
  reports.Extend(FailOnBadNumbers(EveryIterations(1)));
  reports.Extend(ObserveValue("gap", [](Loop& l) { return l.now().iteration == 2 ? INFINITY : 0; }));
  EXPECT_EQ(MessageOf<NumericError>([&] { reports.Run(); }),
            "NumericError: after step 2, \"gap\" is inf: training has diverged");
}

TEST_F(LoopTest, TheBestModelIsAFile) {
  Counter learner;
  Loop loop(&learner, UntilEpoch(3));
  loop.Extend(Evaluator("validation", [&] { return NamedValues{{"accuracy", learner.now().epoch == 2 ? 0.9 : 0.5}}; }));
  loop.Extend(BestModel(folder_ + "/best.pb", "validation/accuracy"));
  loop.Run();
  EXPECT_EQ(LoadModel(folder_ + "/best.pb").params.at("w").At(0), 8);
}

}  // namespace
}  // namespace bindery
