// What a checkpoint knows of its run: tested, and gone on with, by its folder alone.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class RunOptionsTest : public ProgramTest {
 protected:
  // 120 flowers of three species, told apart by their first number.
  RunOptionsTest() {
    std::string rows = "length,width,species\n";
    const char* kSpecies[] = {"iris", "rose", "tulip"};
    for (int i = 0; i < 120; ++i) {
      rows += std::to_string(i % 3 * 2 + i % 7 * 0.05) + "," + std::to_string(i % 5) + "," + kSpecies[i % 3] + "\n";
    }
    Write("flowers.csv", rows);
  }
  static Words OnFlowers(int epochs, const Words& more = {}) {
    return Words{"train", "--model",      "mlp", "--data",   "csv:flowers.csv?label=species", "--test-part",
                 "0.25",  "--batch-size", "16",  "--epochs", std::to_string(epochs),          "--threads",
                 "1"} +
           more;
  }
  json Test(const Words& more = {}) const { return Json(Words{"test", "--json"} + more); }
  // The first line of a training's JSON.
  static json Start(const Outcome& outcome) { return json::parse(outcome.out.substr(0, outcome.out.find('\n'))); }
};

// Whose log it is, its first line says: not its name, and not its length.
TEST_F(RunOptionsTest, ALogGoesOnOnlyWhereItIsTheRuns) {
  Succeeds(OnFlowers(1, {"--checkpoints", "one", "--log", "one.jsonl"}));
  Succeeds(OnFlowers(3, {"--checkpoints", "two", "--log", "two.jsonl"}));
  const std::string first = Read("one.jsonl"), others = Read("two.jsonl");
  const auto resumed = [](int epochs, const Words& more) {
    return Words{"train", "--checkpoints", "one", "--resume", "--epochs", std::to_string(epochs)} + more;
  };
  Fails(4, "\"two.jsonl\" is the log of another run", resumed(2, {"--log", "two.jsonl"}));
  EXPECT_EQ(Read("two.jsonl"), others);
  // Under another name it is the same one; a new one begins.
  fs::rename(PathOf("one.jsonl"), PathOf("moved.jsonl"));
  Succeeds(resumed(2, {"--log", "moved.jsonl"}));
  EXPECT_TRUE(Read("moved.jsonl").starts_with(first));
  EXPECT_EQ(Lines(Read("moved.jsonl")).size(), 2u);
  fs::copy(PathOf("one"), PathOf("before"));
  Fails(0, "\"new.jsonl\" has no lines of the run so far: it begins anew", resumed(3, {"--log", "new.jsonl"}));
  EXPECT_EQ(Lines(Read("new.jsonl")).size(), 1u);
  // So it does where the run was killed before it saved anything: all lines are of later steps.
  fs::remove_all(PathOf("one"));
  fs::rename(PathOf("before"), PathOf("one"));
  Succeeds(resumed(3, {"--log", "new.jsonl"}));
  EXPECT_EQ(Lines(Read("new.jsonl")).size(), 1u);
  // A run that has no log yet takes none of another's.
  Succeeds(OnFlowers(1, {"--checkpoints", "none"}));
  Fails(4, "\"two.jsonl\" is the log of another run",
        {"train", "--checkpoints", "none", "--resume", "--epochs", "2", "--log", "two.jsonl"});
  EXPECT_EQ(Read("two.jsonl"), others);
  // Of lines that are lost or were edited, none is cut: it goes on behind the last whole one.
  Succeeds(OnFlowers(2, {"--checkpoints", "three", "--log", "three.jsonl"}));
  const std::string whole = Read("three.jsonl");
  const size_t second = whole.find('\n') + 1;
  for (const std::string& left :
       {whole.substr(0, second + 9), whole.substr(0, second) + "{}\n" + whole.substr(second)}) {
    Write("three.jsonl", left);
    fs::remove_all(PathOf("again"));
    fs::copy(PathOf("three"), PathOf("again"));
    Succeeds({"train", "--checkpoints", "again", "--resume", "--epochs", "3"});
    const std::vector<json> lines = Lines(Read("three.jsonl"));
    EXPECT_EQ(lines.front().at("epoch"), 1);
    EXPECT_EQ(lines.back().at("epoch"), 3);
  }
}

TEST_F(RunOptionsTest, TestsOnTheDataOfTheTraining) {
  const Outcome trained = Succeeds(OnFlowers(8, {"--json"}));
  const std::string lines = trained.out.substr(0, trained.out.rfind('\n'));
  const json last = json::parse(lines.substr(lines.rfind('\n') + 1)).at("test");
  json tested = Test();
  EXPECT_EQ(tested.at("samples"), 30);
  EXPECT_EQ(tested.at("accuracy"), last.at("accuracy"));
  EXPECT_EQ(tested.at("cross-entropy"), last.at("cross-entropy"));
  EXPECT_EQ(Json({"predict", "--json"}).size(), 10u);
  // From another folder, too.
  fs::create_directory(PathOf("elsewhere"));
  EXPECT_EQ(
      Process(Command({"test", "--json", "--checkpoints", "../bindery-checkpoints"}), PathOf("elsewhere")).Wait().out,
      tested.dump() + "\n");
  // What is given counts more.
  EXPECT_EQ(Test({"--test-part", "0.5"}).at("samples"), 60);
  Write("more.csv", "6,1,tulip\n2,1,rose\n");
  EXPECT_EQ(Test({"--test-data", "csv:more.csv"}).at("samples"), 2);
  EXPECT_EQ(Test({"--data", "csv:more.csv", "--test-part", "1"}).at("samples"), 2);
  Write("data.prototxt", "train: \"csv:more.csv\" test: \"csv:more.csv\"");
  EXPECT_EQ(Test({"--data", "data.prototxt"}).at("samples"), 2);
  Fails(4, "none.npy", {"test", "--data", "npy:none.npy"});
  fs::rename(PathOf("flowers.csv"), PathOf("moved.csv"));
  for (const char* command : {"test", "predict"}) Fails(4, PathOf("flowers.csv"), {command});
  EXPECT_EQ(Test({"--data", "csv:moved.csv?label=species"}), tested);
}

TEST_F(RunOptionsTest, DigitsAndFoldersAndDescriptions) {
  Succeeds(Training(1, {"--digits-seed", "7", "--write-digits", "digits", "--checkpoints", "drawn"}));
  const json drawn = Test({"--checkpoints", "drawn"});
  EXPECT_EQ(drawn.at("samples"), 50);
  EXPECT_EQ(Test({"--checkpoints", "drawn", "--data", "digits", "--digits-seed", "7", "--test-digits", "50"}), drawn);
  EXPECT_NE(Test({"--checkpoints", "drawn", "--digits-seed", "8"}), drawn);
  Succeeds(Training(1, {"--data", "./digits", "--checkpoints", "folder"}));
  EXPECT_EQ(Test({"--checkpoints", "folder"}).at("samples"), 50);
  Write("data.prototxt", "train: \"csv:flowers.csv\" test: \"csv:flowers.csv\" last_batch: \"pad\"");
  Succeeds({"train", "--model", "mlp", "--data", "data.prototxt", "--epochs", "1", "--checkpoints", "described"});
  // A description given anew cannot say the batch size, which stays the run's.
  const Words anew = {"train", "--checkpoints", "anew", "--data", "data.prototxt"};
  Succeeds(anew + Words{"--model", "mlp", "--epochs", "1", "--batch-size", "16"});
  Succeeds(anew + Words{"--resume", "--epochs", "2"});
  fs::remove(PathOf("data.prototxt"));
  EXPECT_EQ(Test({"--checkpoints", "described"}).at("samples"), 120);
}

// They say nothing of their data; digits, which would fit, are not taken for them.
TEST_F(RunOptionsTest, FilesOfModelsWantData) {
  Succeeds(Training(1, {"--save", "net.pb"}));
  for (const char* command : {"test", "predict"}) {
    for (const char* option : {"--weights", "--model"}) {
      Fails(2, "model \"net.pb\" does not say what it was trained on: give --data", {command, option, "net.pb"});
    }
    Succeeds({command, "--weights", "net.pb", "--data", "digits", "--test-digits", "50"});
    Succeeds({command, "--weights", "net.pb", "--test-digits", "50"});
  }
}

TEST_F(RunOptionsTest, ResumesTheSameRun) {
  const Words options = {"--dropout",
                         "0.3",
                         "--optimizer",
                         "adam(lr=0.01)",
                         "--schedule",
                         "factor(step=5, factor=0.5)",
                         "--precision",
                         "bfloat16",
                         "--seed",
                         "3",
                         "--metrics",
                         "accuracy",
                         "--device",
                         "cpu:0,cpu:1",
                         "--workload",
                         "2,1",
                         "--last-batch",
                         "discard",
                         "--average",
                         "ema(0.9)",
                         "--use-average",
                         "--initializer",
                         "msra",
                         "--micro-batches",
                         "2",
                         "--loss-scale",
                         "static(8)",
                         "--keep",
                         "2"};
  fs::create_directory(PathOf("whole"));
  fs::create_directory(PathOf("cut"));
  Succeeds(OnFlowers(4, options + Words{"--checkpoints", "whole/run", "--save", "whole/net.pb"}));
  Succeeds(OnFlowers(2, options + Words{"--checkpoints", "cut/run", "--save", "cut/net.pb"}));
  const Outcome done = Succeeds({"train", "--resume", "--checkpoints", "cut/run"});
  EXPECT_NE(done.err.find("has 2 epochs already: nothing is left to train"), std::string::npos) << done;
  const Outcome resumed = Succeeds({"train", "--resume", "--checkpoints", "cut/run", "--epochs", "4", "--json"});
  EXPECT_EQ(resumed.err.find("warning"), std::string::npos) << resumed;
  EXPECT_EQ(ModelFiles("cut/net.pb"), ModelFiles("whole/net.pb"));
  const json start = Start(resumed);
  EXPECT_EQ(start.at("optimizer"), "adam(lr=0.01)");
  EXPECT_EQ(start.at("batch_size"), 16);
  EXPECT_EQ(start.at("data"), "csv:" + PathOf("flowers.csv") + "?label=species");
  EXPECT_EQ(Files("cut/run").size(), 2u);
  // It knows its new number of epochs.
  EXPECT_EQ(Start(Succeeds({"train", "--resume", "--checkpoints", "cut/run", "--json"})).at("epochs"), 4);
}

TEST_F(RunOptionsTest, WhatIsGivenCountsMoreWhereItMay) {
  Succeeds(OnFlowers(1, {"--workload", "1,2", "--average", "ema(0.9)", "--use-average", "--log", "log.jsonl"}));
  const Words resume = {"train", "--resume"};
  Fails(0, "this run goes on on cpu:0:", resume + Words{"--epochs", "2", "--devices", "cpu:0"});
  Fails(5, "whose state", resume + Words{"--epochs", "3", "--average="});
  Succeeds(resume + Words{"--epochs", "3", "--threads", "2"});
  EXPECT_EQ(Succeeds({"test", "--json"}).status, 0);
  // What is scored are the averages, which are what it saves.
  Succeeds(resume + Words{"--epochs", "3", "--save", "saved.pb"});
  const auto scores = [&](const char* model) {
    const Words data = {"--data", "csv:flowers.csv?label=species", "--test-part", "0.25", "--json"};
    return json::parse(Succeeds(Words{"test", "--model", model} + data).out);
  };
  EXPECT_EQ(scores("bindery-checkpoints"), scores("saved.pb"));
  EXPECT_EQ(json::parse(Succeeds({"test", "--json"}).out), scores("saved.pb"));
  const std::string log = Read("log.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3);  // which is the run's, too
  Fails(5, "saved with another \"batch_size\": 16, but here it is 8",
        resume + Words{"--epochs", "4", "--batch-size", "8"});
  Fails(5, "saved with another \"seed\"", resume + Words{"--epochs", "4", "--seed", "9"});
  Fails(5, "saved with other data", resume + Words{"--epochs", "4", "--test-part", "0.5"});
  Fails(5, "another graph", resume + Words{"--epochs", "4", "--dropout", "0.2"});
  fs::remove(PathOf("flowers.csv"));
  Fails(4, PathOf("flowers.csv"), resume + Words{"--epochs", "4"});
}

// Checkpoints of programs have no options, and those of strangers any.
TEST_F(RunOptionsTest, OptionsThatAreNoneOrOfStrangers) {
  Succeeds(Training(1, {"--checkpoints", "run"}));
  const std::string name = "run/step-0000000002.ckpt";
  const Checkpoint good = LoadCheckpoint(PathOf(name));
  const auto with = [&](const std::string& option, const std::string& text) {
    Checkpoint other = good;
    other.info["option " + option] = text;
    SaveCheckpoint(other, PathOf(name));
  };
  const Words resume = {"train", "--resume", "--checkpoints", "run"};
  with("--epochs", "many");
  Fails(5, "was trained with --epochs \"many\": --epochs: expected a whole number", resume);
  with("--epochz", "3");
  Fails(5, "was trained with --epochz \"3\", which this program does not know", resume);
  EXPECT_EQ(Test({"--checkpoints", "run"}).at("samples"), 50);  // it is not of the data
  with("--test-digits", "0");
  Fails(5, "--test-digits: expected a whole number", {"test", "--checkpoints", "run"});
  Checkpoint bare = good;
  std::erase_if(bare.info, [](const auto& entry) { return entry.first.starts_with("option "); });
  SaveCheckpoint(bare, PathOf(name));
  Fails(2, "the newest checkpoint in \"run\" does not say what it was trained on: give --data",
        {"test", "--checkpoints", "run"});
  EXPECT_EQ(Test({"--checkpoints", "run", "--test-digits", "50"}).at("samples"), 50);
  Succeeds(Training(2, {"--checkpoints", "run", "--resume"}));
}

}  // namespace
}  // namespace bindery
