// Parts of data through the commands: what a training is judged by and never sees, and shards, of data of every kind.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "symbol/model.h"
#include "tests/tools/program.h"
#include "train/data/digits.h"
#include "train/data/idx.h"
#include "train/data/records/image_folder.h"
#include "train/data/samples/numbers.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class PartsTest : public ProgramTest {
 protected:
  PartsTest() {
    std::string rows = "length,width,kind\n", text;
    for (int i = 0; i < 100; ++i) {
      rows += std::to_string(i % 3) + "," + std::to_string(i) + "," + (i % 3 == 0 ? "iris" : "rose") + "\n";
      text += i < 50 ? "abcab\n" : "bbbbb\n";
    }
    Write("rows.csv", rows);
    Write("text", text);
    WriteImageFolder(DrawDigits(100, 1), PathOf("pictures"));
    WriteIdx("idx", DrawDigits(100, 1));
  }
  void WriteIdx(const std::string& folder, const ImageSet& train) const {
    fs::create_directory(PathOf(folder));
    const ImageSet test = DrawDigits(50, 1, 1000);
    const auto path = [&](const char* name) { return PathOf(folder) + "/" + name; };
    WriteIdxImages(train, path("train-images-idx3-ubyte"), path("train-labels-idx1-ubyte"));
    WriteIdxImages(test, path("t10k-images-idx3-ubyte"), path("t10k-labels-idx1-ubyte"));
  }
  json Json(const Words& words) const { return ProgramTest::Json(words + Words{"--json"}); }
  std::vector<json> Lines(const Words& words) const {
    return ProgramTest::Lines(Succeeds(words + Words{"--json"}).out);
  }
  std::vector<int> Classes(const Words& options) const {
    std::vector<int> classes;
    for (const json& sample : Json(Words{"predict", "--threads", "1", "--show", "1000"} + options)) {
      classes.push_back(sample.at("class"));
    }
    return classes;
  }
};

struct Kind {
  std::string name, data, model;
  Words more = {};
};
const std::vector<Kind> kKinds = {
    {"csv", "csv:rows.csv?label=kind", "mlp"},
    {"images", "images:pictures", "mlp"},
    {"idx", "idx", "mlp"},
    {"digits", "digits", "mlp", {"--train-digits", "100", "--test-digits", "50"}},
    {"text", "text:text", "gpt(layers=1, width=16, heads=2, context=8)"},
};

Words TrainOn(const Kind& kind) {
  return Words{"train", "--data", kind.data, "--model", kind.model, "--batch-size", "16", "--threads", "1"} + kind.more;
}

TEST_F(PartsTest, EveryKindIsJudgedByAPartOfItsOwn) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const Words run = {"--checkpoints", "run-" + kind.name}, train = TrainOn(kind) + Words{"--epochs", "2"};
    const json whole = Lines(train + Words{"--checkpoints="})[0];
    EXPECT_EQ(whole.at("validation_samples"), 0);
    const std::vector<json> lines = Lines(train + run + Words{"--validation-part", "0.2"});
    EXPECT_EQ(lines[0].at("test_samples"), 0);
    const int all = whole.at("samples"), held = lines[0].at("validation_samples");
    EXPECT_NEAR(held, 0.2 * all, 1);
    EXPECT_NEAR(lines[0].at("samples").get<int>() + held, all, kind.name == "text" ? 1 : 0);  // a window that is cut
    EXPECT_EQ(lines.back().at("test"), json::object());
    // The run's folder knows both: what it was judged by, and what it has not seen.
    const json validated = Json(Words{"test", "--validation"} + run), tested = Json(Words{"test"} + run);
    EXPECT_EQ(validated.at("samples"), held);
    EXPECT_NEAR(validated.at("cross-entropy").get<double>(),
                lines.back().at("validation").at("cross-entropy").get<double>(), 1e-5);
    EXPECT_EQ(tested.at("samples"), whole.at("test_samples"));
    EXPECT_NE(tested.at("cross-entropy"), validated.at("cross-entropy"));
    // The same as a file says it.
    Write("data.prototxt", "train: \"" + kind.data + "\" validation_part: 0.2");
    Words described = train + Words{"--checkpoints="};
    described[2] = "data.prototxt";
    EXPECT_EQ(Lines(described).back().at("validation"), lines.back().at("validation"));
    if (kind.name != "text") {
      EXPECT_EQ(Classes(Words{"--validation"} + run).size(), static_cast<size_t>(held));
    }
  }
}

// What it is judged by may be others: the training is the same to the bit. Which they are, their number says.
TEST_F(PartsTest, WhatItIsJudgedByIsNotTrainedOn) {
  const SplitNumbers tested = SplitByPart(100, 0.1), validated = SplitByPart(90, 0.2);
  const auto trained = [&](const std::string& data, const std::string& model) {
    Succeeds(TrainOn({"", data, model}) +
             Words{"--validation-part", "0.2", "--epochs", "2", "--checkpoints=", "--save", "trained.pb"});
    return LoadModel(PathOf("trained.pb")).params;
  };
  const auto images = [&](const std::vector<int64_t>& numbers) {
    ImageSet set = DrawDigits(100, 1);
    for (const int64_t number : numbers) {
      for (int64_t i = 0; i < 28 * 28; ++i) set.images.Set(number * 28 * 28 + i, i % 2);
    }
    WriteIdx("idx", set);
    return trained("idx", "mlp");
  };
  const SplitNumbers of_images = SplitByPart(100, 0.2);
  ASSERT_EQ(of_images.part.size(), 20u);
  EXPECT_EQ(images(of_images.part), images({}));
  EXPECT_NE(images({of_images.rest[7]}), images({}));

  // Of a table, the part to test on is taken first.
  const auto table = [&](const std::vector<int64_t>& numbers) {
    std::string rows;
    for (int64_t i = 0; i < 100; ++i) {
      const bool is_other = std::ranges::find(numbers, i) != numbers.end();
      const std::string kind = i % 3 == 0 ? ",iris\n" : ",rose\n";
      rows += (is_other ? "-7" : std::to_string(i % 3)) + "," + std::to_string(i) + kind;
    }
    Write("table.csv", rows);
    return trained("csv:table.csv", "mlp");
  };
  std::vector<int64_t> part;
  for (const int64_t place : validated.part) part.push_back(tested.rest[static_cast<size_t>(place)]);
  ASSERT_EQ(part.size(), 18u);
  EXPECT_EQ(table(part), table({}));
  EXPECT_EQ(table(tested.part), table({}));
  EXPECT_NE(table({tested.rest[static_cast<size_t>(validated.rest[7])]}), table({}));

  // Of a text of 600 characters, 432 are trained on; its characters are the same.
  const auto text = [&](int64_t begin, int64_t end) {
    std::string characters;
    for (int64_t i = 0; i < 600; ++i) characters += "abcde"[i % (i >= begin && i < end ? 3 : 5)];
    Write("letters", characters);
    return trained("text:letters", kKinds[4].model);
  };
  EXPECT_EQ(text(432, 600), text(0, 0));
  EXPECT_NE(text(431, 432), text(0, 0));
}

TEST_F(PartsTest, TheBestIsTheBestOfTheValidationPart) {
  const Words part = {"--validation-part", "0.3"};
  const std::vector<json> lines = Lines(Training(8, part + Words{"--best", "best.pb", "--checkpoints="}));
  double best = 0;
  for (const json& line : lines) {
    if (line.at("event") == "epoch") best = std::max(best, line.at("validation").at("accuracy").get<double>());
  }
  EXPECT_GT(best, 0);
  EXPECT_EQ(
      Json(Words{"test", "--weights", "best.pb", "--data", "digits", "--train-digits", "100", "--validation"} + part)
          .at("accuracy"),
      best);
  const Outcome shown = Succeeds(Training(1, part + Words{"--checkpoints=", "--progress", "lines"}));
  EXPECT_NE(shown.err.find("70 samples of (1, 28, 28), validated on 30"), std::string::npos) << shown;
  EXPECT_NE(shown.err.find("  validation: accuracy "), std::string::npos) << shown;
  EXPECT_NE(shown.out.find("  validation accuracy "), std::string::npos) << shown;
}

TEST_F(PartsTest, ARunKeepsItsPart) {
  const Words part = {"--validation-part", "0.2"};
  Succeeds(Training(3, part + Words{"--checkpoints", "whole", "--save", "whole.pb"}));
  Succeeds(Training(1, part + Words{"--checkpoints", "cut"}));
  const Words resume = {"train", "--resume", "--checkpoints", "cut", "--epochs", "3", "--progress", "none"};
  Fails(5, "was trained with --validation-part 0.2, not 0.3", resume + Words{"--validation-part", "0.3"});
  Fails(5, "was trained with --validation-part 0.2, not 0:", resume + Words{"--validation-part", "0"});
  Succeeds(resume + Words{"--save", "cut.pb"});
  EXPECT_EQ(LoadModel(PathOf("cut.pb")).params, LoadModel(PathOf("whole.pb")).params);
  Succeeds(Training(1, {"--checkpoints", "without"}));
  Fails(5, "was trained with --validation-part 0, not 0.2",
        Training(2, part + Words{"--checkpoints", "without", "--resume"}));
  Fails(2, "--validation: there is no --validation-part", {"test", "--checkpoints", "without", "--validation"});
  Fails(4, "no images are left to validate on", Training(1, {"--validation-part", "0.001", "--checkpoints="}));
  Fails(4, "no samples are left to test on",
        {"train", "--data", "csv:rows.csv", "--model", "mlp", "--validation-part", "0.001", "--checkpoints="});
}

// Shards are parts of the whole: what is said of each sample is the same, in turns.
TEST_F(PartsTest, ShardsTogetherAreTheWhole) {
  Succeeds(Training(2, {"--save", "digits.pb", "--checkpoints="}));
  Succeeds(TrainOn(kKinds[0]) + Words{"--epochs", "1", "--save", "csv.pb", "--checkpoints="});
  for (const Kind& kind : kKinds) {
    if (kind.name == "text") continue;
    SCOPED_TRACE(kind.name);
    const Words model = {"--weights", kind.name == "csv" ? "csv.pb" : "digits.pb", "--test-digits", "50"};
    const std::vector<int> whole = Classes(model + Words{"--data", kind.data});
    for (const bool in_text : {false, true}) {
      std::vector<int> together(whole.size(), -1);
      for (size_t i = 0; i < 3; ++i) {
        const std::string shard = std::to_string(i) + "/3",
                          setting = (kind.data.find('?') == std::string::npos ? "?shard=" : "&shard=") + shard;
        const std::vector<int> classes = Classes(
            model + (in_text ? Words{"--data", kind.data + setting} : Words{"--data", kind.data, "--shard", shard}));
        for (size_t k = 0; k < classes.size(); ++k) together.at(3 * k + i) = classes[k];
      }
      EXPECT_EQ(together, whole);
    }
  }
}

// A stretch of it, with all characters of the whole.
TEST_F(PartsTest, ShardsOfText) {
  const Words train = TrainOn(kKinds[4]) + Words{"--epochs", "1", "--test-part", "0.5"};
  const json whole = Lines(train + Words{"--checkpoints="})[0];
  const Words run = {"--checkpoints", "run"};
  const json half = Lines(train + run + Words{"--shard", "1/2"})[0];
  EXPECT_EQ(half.at("parameters"), whole.at("parameters"));
  EXPECT_EQ(whole.at("samples"), 37);  // of 300 characters
  EXPECT_EQ(half.at("samples"), 18);   // of 150
  const json tested = Json(Words{"test"} + run);
  EXPECT_EQ(tested.at("samples"), 18);
  EXPECT_EQ(Json(Words{"test", "--data", "text:text?shard=1/2"} + run), tested);
  EXPECT_EQ(Json(Words{"test", "--data", "text:text"} + run).at("samples"), 37);
  // The other half is another text: "bbbbb" alone is easier.
  EXPECT_NE(Json(Words{"test", "--data", "text:text", "--shard", "0/2"} + run).at("cross-entropy"),
            tested.at("cross-entropy"));
}

// What it was judged by is known of its own data alone: of others, it may have been trained on.
TEST_F(PartsTest, ValidationIsOfTheRunsData) {
  Succeeds(TrainOn(kKinds[0]) + Words{"--epochs", "1", "--validation-part", "0.2", "--checkpoints", "run"});
  const Words validation = {"test", "--checkpoints", "run", "--validation"};
  const std::string data = kKinds[0].data;
  for (const auto& [option, text] : {std::pair<std::string, std::string>("--validation-part", "0.3"),
                                     {"--test-part", "0.2"},
                                     {"--test-data", data},
                                     {"--shard", "0/2"},
                                     {"--data", "csv:others.csv?label=kind"}}) {
    const Outcome outcome = Fails(2, "--validation: " + option + " is \"", validation + Words{option, text});
    EXPECT_NE(outcome.err.find("it takes a part of the run's own data"), std::string::npos) << outcome;
  }
  // The same again are no others, nor are those of a file that says the same.
  EXPECT_EQ(Json(validation + Words{"--data", data, "--validation-part", "0.20"}), Json(validation));
  const auto describe = [&](const std::string& part) {
    Write("data.prototxt", "train: \"" + data + "\" validation_part: " + part);
    return validation + Words{"--data", "data.prototxt", "--batch-size", "16"};
  };
  EXPECT_EQ(Json(describe("0.2")), Json(validation));
  Fails(2, "--validation: --validation-part is \"0.3\"", describe("0.3"));
  EXPECT_EQ(Json(describe("0.3") + Words{"--validation-part", "0.2"}), Json(validation));  // what is said here counts
  Fails(4, "validation_part: expected 0 to 0.99, got 1", describe("1"));
  Succeeds(Training(1, {"--validation-part", "0.2", "--checkpoints", "digits"}));
  for (const Words& other : {Words{"--train-digits", "200"}, {"--digits-seed", "2"}}) {
    Fails(2, "--validation: " + other[0] + " is \"", Words{"test", "--checkpoints", "digits", "--validation"} + other);
  }
}

TEST_F(PartsTest, ARunKeepsItsShard) {
  const auto start = [&](const Words& more) { return Lines(Training(1, more))[0]; };
  EXPECT_EQ(start({"--shard", "1/4", "--checkpoints", "run"}).at("samples"), 25);
  EXPECT_EQ(start({"--data", "idx?shard=1/4", "--checkpoints="}).at("samples"), 25);
  EXPECT_EQ(start({"--data", "idx?shard=1/4", "--shard", "1/4", "--checkpoints="}).at("samples"), 25);
  Write("data.prototxt", "train: \"digits?shard=1/4\"");
  EXPECT_EQ(start({"--data", "data.prototxt", "--checkpoints", "described"}).at("samples"), 25);
  for (const char* run : {"run", "described"}) {
    EXPECT_EQ(Json({"test", "--checkpoints", run}).at("samples"), 13);
    Succeeds({"train", "--resume", "--checkpoints", run, "--epochs", "2"});
  }
  EXPECT_EQ(Json({"test", "--checkpoints", "run", "--shard", "0/1"}).at("samples"), 50);
  EXPECT_EQ(Json({"test", "--checkpoints", "run", "--data", "digits"}).at("samples"), 50);
  // Other data to test on are taken whole.
  Succeeds(TrainOn(kKinds[0]) + Words{"--epochs", "1", "--shard", "1/4", "--checkpoints", "csv"});
  const Words others = {"test", "--checkpoints", "csv", "--test-data", kKinds[0].data};
  EXPECT_EQ(Json(others).at("samples"), 100);
  EXPECT_EQ(Json(others + Words{"--shard", "1/2"}).at("samples"), 50);
  Fails(5, "saved with another \"samples\": 25, but here it is 50",
        {"train", "--resume", "--checkpoints", "run", "--epochs", "3", "--shard", "1/2"});
  Fails(5, "saved with other data", {"train", "--resume", "--checkpoints", "run", "--epochs", "3", "--shard", "2/4"});
  Fails(2, "--shard 2/4: \"digits?shard=1/4\" is another one",
        Training(1, {"--data", "digits?shard=1/4", "--shard", "2/4"}));
  Fails(2, "--shard: expected I/N, with I from 0 to N - 1, got \"4/4\"", Training(1, {"--shard", "4/4"}));
  Fails(4, "data \"digits?shard=1\": \"shard\": expected I/N", Training(1, {"--data", "digits?shard=1"}));
  Fails(4, "no images are left to train on", Training(1, {"--shard", "200/201", "--checkpoints="}));
}

}  // namespace
}  // namespace bindery
