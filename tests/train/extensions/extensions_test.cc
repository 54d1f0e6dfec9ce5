// The ready-made extensions, on a learner that does nothing but count.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/message_of.h"
#include "tests/train/loop_fixture.h"
#include "train/extensions/guards.h"
#include "train/extensions/reports.h"
#include "train/extensions/snapshots.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class ExtensionsTest : public LoopTest {};

TEST_F(ExtensionsTest, LogsMeansSinceTheLastLine) {
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

TEST_F(ExtensionsTest, PrintsRows) {
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

TEST_F(ExtensionsTest, SaysHowFarItIs) {
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
  for (const double none : {std::nan(""), -1.0, 1e300}) EXPECT_EQ(Duration(none), "--:--");
}

// Cut off at any iteration, a run that goes on logs, keeps and ends as one that was not.
TEST_F(ExtensionsTest, GoesOnFromAnySnapshot) {
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

// What saves has loaded when the others begin: none of them takes the steps of before for its own.
TEST_F(ExtensionsTest, ABeginningSeesWhereTheRunIs) {
  std::vector<int64_t> seen;
  std::string lines;
  for (const int64_t until : {1000, 1002}) {
    Counter learner;
    Loop loop(&learner, UntilIteration(until));
    loop.Extend({.name = "sees", .begin = [&](Loop& l) { seen.push_back(l.now().iteration); }});
    loop.Extend({.name = "waits", .trigger = EveryIterations(1001), .run = [](Loop&) {
                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                 }});
    const auto write = [&](const std::string& line) { lines += line; };
    if (until == 1002) loop.Extend(PrintProgress(250.5, write, 0.01));
    loop.Extend(Snapshot({.folder = folder_, .trigger = Never()}));
    loop.Run();
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1000}));
  double rate = 0;  // of two iterations in 10 ms or more, not of 1002
  ASSERT_EQ(std::sscanf(lines.c_str(), "epoch %*f/250.5 iteration %*d %lf/s", &rate), 1) << lines;
  EXPECT_LE(rate, 200);
}

TEST_F(ExtensionsTest, ARunThatCannotLoadLeavesWhatIsThere) {
  for (const bool loads : {true, false}) {
    Counter learner;
    learner.refused = loads ? -1 : 5;
    Loop loop(&learner, UntilIteration(5));
    loop.Extend(Snapshot({.folder = folder_, .trigger = Never(), .on_error = true}));
    EXPECT_EQ(MessageOf([&] { loop.Run(); }), loads ? "nothing was thrown" : "CheckpointError: refused");
    EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000005.ckpt"}));
  }
}

TEST_F(ExtensionsTest, AFailedRunLeavesASnapshotIfAsked) {
  Counter learner;
  learner.fails_at = 4;
  Loop loop(&learner, UntilIteration(9));
  loop.Extend(Snapshot({.folder = folder_, .trigger = Never(), .on_error = true}));
  EXPECT_THROW(loop.Run(), DataError);
  EXPECT_EQ(Checkpoints(), (std::vector<std::string>{"step-0000000004.ckpt"}));
}

TEST_F(ExtensionsTest, NothingBadIsSavedOrPassedOver) {
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

TEST_F(ExtensionsTest, TheBestModelIsAFile) {
  Counter learner;
  Loop loop(&learner, UntilEpoch(3));
  loop.Extend(Evaluator("validation", [&] { return NamedValues{{"accuracy", learner.now().epoch == 2 ? 0.9 : 0.5}}; }));
  loop.Extend(BestModel(folder_ + "/of/models/best.pb", "validation/accuracy"));
  loop.Run();
  EXPECT_EQ(LoadModel(folder_ + "/of/models/best.pb").params.at("w").At(0), 8);
  EXPECT_THROW(BestModel(folder_ + "/best.pt", "validation/accuracy"), ModelError);
}

TEST_F(ExtensionsTest, TheBestModelMayBeJudgedMoreSeldom) {
  const auto run = [&](Extension best) {
    Counter learner;
    Loop loop(&learner, UntilEpoch(6));
    const auto rate = [&] { return NamedValues{{"accuracy", learner.now().epoch == 4 ? 0.9 : 0.5}}; };
    loop.Extend(Evaluator("test", rate, EveryEpochs(2)));
    loop.Extend(std::move(best));
    return MessageOf([&] { loop.Run(); });
  };
  const std::string path = folder_ + "/best.pb";
  EXPECT_EQ(run(BestModel(path, "test/accuracy", "main", Better::kAuto, EveryEpochs(2))), "nothing was thrown");
  EXPECT_EQ(LoadModel(path).params.at("w").At(0), 16);
  EXPECT_NE(run(BestModel(path, "test/accuracy")).find("a trigger waits for \"test/accuracy\""), std::string::npos);
}

TEST_F(ExtensionsTest, FilesAreTriedBeforeTheFirstUpdate) {
  std::ofstream(folder_ + "/file").put('x');
  for (Extension extension : {LogReport({.path = folder_ + "/file/log"}), LogReport({.path = folder_}),
                              BestModel(folder_ + "/file/best.pb", "loss")}) {
    Counter learner;
    Loop loop(&learner, UntilIteration(1));
    loop.Extend(extension);
    EXPECT_THROW(loop.Run(), DataError) << extension.name;
    EXPECT_EQ(learner.now().iteration, 0);
  }
  Counter learner;
  Loop loop(&learner, UntilIteration(4));
  loop.Extend(LogReport({.path = folder_ + "/a new/one/log"}));
  loop.Run();
  EXPECT_EQ(Lines("a new/one/log").size(), 1u);
}

}  // namespace
}  // namespace bindery
