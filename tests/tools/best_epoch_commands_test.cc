// The best epoch of a training by the command line: --watch, --keep-best, --resume best, --which.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/tools/program.h"

namespace bindery {
namespace {

// Without steps no epoch becomes better.
const Words kLearn = {"--optimizer", "sgd(lr=0.1)"}, kStandStill = {"--optimizer", "sgd(lr=0)"};

class BestEpochCommandsTest : public ProgramTest {
 protected:
  static std::vector<json> Events(const Outcome& outcome, const std::string& event) {
    std::vector<json> events = Lines(outcome.out);
    std::erase_if(events, [&](const json& one) { return one.at("event") != event; });
    return events;
  }
  static std::string FileOf(int step) {
    const std::string number = std::to_string(step);
    return "step-" + std::string(10 - number.size(), '0') + number + ".ckpt";
  }
  json Test(const Words& more) const {
    const Words run = std::ranges::count(more, "--checkpoints") > 0 ? Words{} : Words{"--checkpoints", "run"};
    return Json(Words{"test", "--json"} + run + more);
  }
};

TEST_F(BestEpochCommandsTest, ItsCheckpointIsKeptTestedAndGoneOnWith) {
  const Words run = {"--checkpoints", "run"}, keep = {"--keep-best", "--keep", "1"};
  const Outcome trained = Succeeds(Training(3, run + keep + kLearn + Words{"--watch", "cross-entropy", "--json"}));
  json best;
  for (const json& epoch : Events(trained, "epoch")) {
    if (epoch.at("best")) best = epoch;
  }
  const Outcome resumed = Succeeds(Words{"train", "--resume", "--epochs", "6", "--json"} + run + kStandStill);
  for (const json& epoch : Events(resumed, "epoch")) EXPECT_EQ(epoch.at("best"), false) << epoch;
  const std::string file = FileOf(best.at("step"));
  EXPECT_EQ(Files("run"), (Words{file, FileOf(12)}));
  EXPECT_EQ(Test({"--which", "best"}).at("cross-entropy"), best.at("test").at("cross-entropy"));
  EXPECT_NE(Succeeds({"predict", "--checkpoints", "run", "--which", "best"}).err.find("the best checkpoint in \"run\""),
            std::string::npos);

  const Outcome verified = Succeeds({"verify", "run/" + file, "run/" + FileOf(12)});
  const std::string first = verified.out.substr(0, verified.out.find('\n'));
  EXPECT_NE(first.find(", of the best epoch so far"), std::string::npos) << verified;
  EXPECT_EQ(verified.out.find("best", first.size()), std::string::npos) << verified;
  EXPECT_EQ(Json({"verify", "--json", "run/" + file}).at("best"), true);

  const Outcome back = Succeeds(Words{"train", "--resume", "best", "--epochs", "4", "--json"} + run);
  EXPECT_EQ(Events(back, "epoch").at(0).at("step"), best.at("step").get<int>() + 2);
  const Words files = Files("run");
  EXPECT_NE(std::ranges::find(files, FileOf(12) + ".old"), files.end());
  EXPECT_EQ(Events(Succeeds(Words{"train", "--resume=newest", "--epochs", "5", "--json"} + run), "epoch").size(), 1u);
}

TEST_F(BestEpochCommandsTest, BestModelAndPatienceGoByTheMetricThatIsWatched) {
  // Nothing becomes better than the first epoch, by whichever metric.
  const Words watched =
      Words{"--checkpoints=", "--metrics", "accuracy,cross-entropy,top-k(2)", "--patience", "2"} + kStandStill;
  for (const std::string metric : {"cross-entropy", "top-2"}) {
    const Outcome outcome = Succeeds(Training(9, watched + Words{"--watch", metric, "--best", "best.pb", "--json"}));
    EXPECT_EQ(Events(outcome, "epoch").size(), 3u);
    EXPECT_EQ(ModelFiles("best.pb").size(), 1u);
  }
  Fails(2, "--watch: there is no metric \"loss\"; --metrics has accuracy, cross-entropy",
        Training(1, {"--watch", "loss"}));
}

// What the run was before counts, whether it wrote a file then or another one.
TEST_F(BestEpochCommandsTest, TheBestModelIsThatOfTheWholeRun) {
  const std::string row = "best model file";
  for (const bool keep : {false, true}) {
    const std::string folder = keep ? "kept" : "run";
    const Words run = Words{"--checkpoints", folder} + (keep ? Words{"--keep-best"} : Words{});
    Succeeds(Training(3, run + kLearn));
    const auto resume = [&](int epochs, const Words& more) {
      return Words{"train", "--resume", "--checkpoints", folder, "--epochs", std::to_string(epochs)} + more;
    };
    const Outcome first = Succeeds(resume(4, kStandStill + Words{"--best", folder + "_a.pb"}));
    EXPECT_EQ(ModelFiles(folder + "_a.pb").empty(), !keep) << first;
    EXPECT_EQ(first.out.find(row) != std::string::npos, keep) << first;
    const std::string waits = "\"" + folder + "_a.pb\" is written when an epoch is better than the best so far";
    EXPECT_EQ(first.err.find(waits) == std::string::npos, keep) << first;
    const Outcome other = Succeeds(resume(5, kStandStill + Words{"--best", folder + "_b.pb"}));
    EXPECT_EQ(ModelFiles(folder + "_b.pb").empty(), !keep) << other;
    EXPECT_EQ(other.out.find(row) != std::string::npos, keep) << other;
    if (!keep) continue;
    const json best = Test({"--checkpoints", folder, "--which", "best"});
    for (const std::string file : {"kept_a.pb", "kept_b.pb"}) {
      EXPECT_EQ(
          Json({"test", "--json", "--weights", file, "--data", "digits", "--test-digits", "50"}).at("cross-entropy"),
          best.at("cross-entropy"));
    }
    // It is this run's past that wrote it.
    const Outcome again = Succeeds(resume(6, kStandStill + Words{"--best", "kept_b.pb"}));
    EXPECT_NE(again.out.find(row), std::string::npos) << again;
  }
}

TEST_F(BestEpochCommandsTest, AnotherMetricBeginsAnew) {
  Succeeds(Training(1, {"--watch", "accuracy", "--checkpoints", "run"}));
  Fails(0, "epochs so far were judged by validation accuracy",
        {"train", "--resume", "--checkpoints", "run", "--epochs", "2", "--watch", "cross-entropy"});
}

TEST_F(BestEpochCommandsTest, WhatIsNotThereIsSaid) {
  Succeeds(Training(1, {"--checkpoints", "run"}));
  Fails(2, "\"run\" has no checkpoint of a best epoch", {"test", "--checkpoints", "run", "--which", "best"});
  Fails(2, "--resume: \"run\" has no checkpoint of a best epoch",
        {"train", "--resume", "best", "--checkpoints", "run"});
  Fails(2, "--which: expected newest or best, got \"worst\"", {"test", "--checkpoints", "run", "--which", "worst"});
  Fails(2, "--resume: expected newest or best, got \"worst\"", {"train", "--resume", "worst"});
  Fails(2, "--keep-best needs a folder: --checkpoints is empty", Training(1, {"--keep-best", "--checkpoints="}));
  // A run that has not begun yet begins.
  Fails(0, "there is no checkpoint in \"new\" yet: starting anew",
        Training(1, {"--resume", "best", "--checkpoints", "new"}));
  Write("words.conf", "[train]\nresume = no\n[test]\nwhich = newest\n");
  Fails(2, "is of an earlier run", Training(1, {"--checkpoints", "run", "--config", "words.conf"}));
  Succeeds({"test", "--checkpoints", "run", "--config", "words.conf"});
}

// Later checkpoints are not set aside for a run that does not begin.
TEST_F(BestEpochCommandsTest, ARunThatIsRefusedLeavesTheFolderAsItWas) {
  const Words run = {"--checkpoints", "run"};
  Succeeds(Training(1, run + kLearn + Words{"--keep-best"}));
  Succeeds(Words{"train", "--resume", "--epochs", "3", "--keep-best"} + run + kStandStill);
  const Words files = Files("run"), back = Words{"train", "--resume", "best"} + run;
  ASSERT_EQ(files, (Words{FileOf(2), FileOf(4), FileOf(6)}));
  for (const Words& other : {Words{"--seed", "7"}, {"--batch-size", "50"}, {"--train-digits", "90"}}) {
    EXPECT_NE(Bindery(back + other).status, 0) << other[0];
    EXPECT_EQ(Files("run"), files) << other[0];
  }
  Succeeds(back + Words{"--epochs", "2"});
  EXPECT_EQ(Files("run"), (Words{FileOf(2), FileOf(4), FileOf(4) + ".old", FileOf(6) + ".old"}));
}

TEST_F(BestEpochCommandsTest, GeneratesByIt) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "to be or not to be\n";
  Write("input.txt", text);
  Succeeds({"train", "--model", "gpt(layers=1, width=8, heads=1, context=16)", "--data", "text:input.txt", "--epochs",
            "1", "--keep-best", "--threads", "1", "--quiet"});
  const Words generate = {"generate", "--which", "best", "--length", "5", "--seed", "1"};
  EXPECT_NE(Succeeds(generate).err.find("the best checkpoint in"), std::string::npos);
  EXPECT_EQ(Succeeds(generate + Words{"--quiet"}).err, "");
}

// Killed anywhere, all that is there is whole, the best epoch's is there once an epoch was done, and the run goes on.
TEST_F(BestEpochCommandsTest, KilledAnywhereTheFolderWorks) {
  const Words training = Training(
      40, {"--checkpoint-every", "1", "--keep", "1", "--keep-best", "--resume", "--checkpoints", "run", "--quiet"});
  const auto has_best = [&] {
    return Process(Command({"test", "--checkpoints", "run", "--which", "best"}), folder()).Wait().status == 0;
  };
  bool had_best = false;
  for (int round = 0; round < 8; ++round) {
    Process process(Command(training), folder());
    const auto has_begun = [&] {
      if (!std::filesystem::exists(PathOf("run"))) return false;
      const Words names = Files("run");
      return std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".ckpt"); });
    };
    while (round == 0 && process.Running() && !has_begun()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 40 * round));
    process.Signal(SIGKILL);
    process.Wait();
    if (!std::filesystem::exists(PathOf("run"))) continue;
    Words verify = {"verify"};
    for (const std::string& name : Files("run")) {
      if (name.ends_with(".ckpt")) verify.push_back("run/" + name);
    }
    EXPECT_LE(verify.size(), 4u);  // the newest, the best, and one that was to go
    if (verify.size() > 1) Succeeds(verify);
    EXPECT_TRUE(!had_best || has_best()) << "round " << round;
    had_best = had_best || has_best();
  }
  EXPECT_TRUE(had_best);
  Succeeds(training);
  EXPECT_TRUE(has_best());
  EXPECT_LE(Files("run").size(), 2u);
}

}  // namespace
}  // namespace bindery
