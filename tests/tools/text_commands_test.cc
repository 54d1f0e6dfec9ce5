// Text through the commands: training, testing, going on, writing.
#include <nlohmann/json.hpp>
#include <tuple>

#include "symbol/model.h"
#include "tests/tools/program.h"
#include "train/data/text.h"

namespace bindery {
namespace {

class TextCommandsTest : public ProgramTest {
 protected:
  TextCommandsTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "abcab\n";
    Write("text", text);
  }
  // One epoch of 1079 / 8 windows is 9 steps.
  static Words Train(const std::string& model, int epochs, const Words& more = {}) {
    return Words{"train",
                 "--model",
                 model,
                 "--data",
                 "text:text",
                 "--epochs",
                 std::to_string(epochs),
                 "--batch-size",
                 "16",
                 "--optimizer",
                 "adam(lr=0.01)"} +
           more;
  }
};

const std::string kGpt = "gpt(layers=1, width=16, heads=2, context=8)", kLstm = "lstm(layers=1, width=16, context=8)";

TEST_F(TextCommandsTest, TrainTestGenerate) {
  for (const std::string& model : {kGpt, kLstm, std::string("lstm(layers=1, width=16, context=8, time_first=1)")}) {
    const Outcome trained = Succeeds(Train(model, 30, {"--checkpoints", "run", "--overwrite"}));
    EXPECT_NE(trained.err.find("134 samples of (8), tested on 14"), std::string::npos) << trained;
    const size_t row = trained.out.find("test cross-entropy");
    ASSERT_NE(row, std::string::npos) << trained;
    EXPECT_NE(trained.out.find(" nats per character", row), std::string::npos) << trained;
    const Words use = {"--checkpoints", "run"}, data = {"--data", "text:text"};
    const json tested = Json(Words{"test", "--json"} + use + data);
    EXPECT_EQ(tested.at("samples"), 14);
    EXPECT_LT(tested.at("cross-entropy"), 0.15);  // of the last character alone 0.23
    EXPECT_NE(Succeeds(Words{"test"} + use + data).out.find(" nats per character\n"), std::string::npos);
    // By its name it is the model of the checkpoint: as many characters.
    EXPECT_EQ(Json(Words{"test", "--json", "--model", model} + use + data), tested);
    const Words write = Words{"generate", "--prompt", "abcab\n", "--length", "12", "--temperature", "0"} + use;
    EXPECT_EQ(Succeeds(write).out, "abcab\nabcab\nabcab\n\n");
    EXPECT_EQ(Json(write + Words{"--json"}), (json{{"prompt", "abcab\n"}, {"text", "abcab\nabcab\n"}}));
  }
  const auto hot = [&](const char* seed) {
    return Succeeds({"generate", "--checkpoints", "run", "--temperature", "10", "--seed", seed}).out;
  };
  EXPECT_EQ(hot("1"), hot("1"));
  EXPECT_NE(hot("1"), hot("2"));
}

// 134 windows are 8 batches of 16, and 6 are left.
TEST_F(TextCommandsTest, LastBatches) {
  for (const auto& [last_batch, epochs, steps] : {std::tuple("short", 3, 27), std::tuple("pad", 3, 27),
                                                  std::tuple("discard", 3, 24), std::tuple("roll-over", 3, 25)}) {
    const Outcome trained = Succeeds(Train(kGpt, epochs, {"--last-batch", last_batch, "--checkpoints=", "--json"}));
    const std::string& out = trained.out;
    EXPECT_EQ(json::parse(out.substr(out.rfind('\n', out.size() - 2) + 1)).at("steps"), steps) << last_batch;
  }
}

TEST_F(TextCommandsTest, ResumedAndSaved) {
  Succeeds(Train(kGpt, 3, {"--checkpoints", "one", "--save", "one.pb", "--dropout", "0.1"}));
  Succeeds(Train(kGpt, 1, {"--checkpoints", "two", "--dropout", "0.1"}));
  Succeeds(Train(kGpt, 3, {"--checkpoints", "two", "--save", "two.pb", "--dropout", "0.1", "--resume"}));
  const Model one = LoadModel(PathOf("one.pb")), two = LoadModel(PathOf("two.pb"));
  EXPECT_EQ(one.params, two.params);
  EXPECT_EQ(one.metadata.at(kVocabularyKey), "\nabc");
  // What was saved is trained on, and written with; on another text of the same characters.
  Write("other", std::string(300, 'c'));
  Succeeds({"train", "--model", "one.pb", "--data", "text:other", "--epochs", "20", "--batch-size", "8", "--optimizer",
            "adam(lr=0.01)", "--checkpoints=", "--save", "more.pb"});
  EXPECT_EQ(Succeeds({"generate", "--model", "more.pb", "--prompt", "c", "--length", "4", "--temperature", "0"}).out,
            "ccccc\n");
  Succeeds({"train", "--model", kGpt, "--weights", "one.pb", "--data", "text:text", "--epochs", "1", "--checkpoints="});
}

// By name, of few classes, and as a training left it, also with the batch at axis 1: what is drawn are classes.
TEST_F(TextCommandsTest, SequencesAreInspectedAndTimed) {
  for (const std::string& settings : {std::string(), std::string(", time_first=1")}) {
    const std::string model = "lstm(layers=1, width=16, context=8" + settings + ")";
    Succeeds(Train(model, 1, {"--save", "model.pb", "--checkpoints="}));
    for (const std::string& name : {model.substr(0, model.size() - 1) + ", classes=3)", std::string("model.pb")}) {
      const Words two = {"--model", name, "--batch-size", "2"};
      const std::string shape = settings.empty() ? "(2, 8)" : "(8, 2)";
      EXPECT_NE(Succeeds(Words{"inspect"} + two).out.find(" " + shape + " "), std::string::npos);
      Succeeds(Words{"inspect", "--memory", "--predict"} + two);
      const Words time = Words{"time", "--steps", "1", "--warmup", "1"} + two;
      EXPECT_EQ(Json(time + Words{"--json"}).at("batch"), 2);
      EXPECT_NE(Succeeds(time + Words{"--predict"}).out.find(" of " + shape + " on "), std::string::npos);
    }
  }
}

TEST_F(TextCommandsTest, Errors) {
  Fails(4, "cannot read \"none\"", {"train", "--model", kGpt, "--data", "text:none"});
  Write("bad", "abc\n\xff");
  Fails(4, "\"bad\", line 2: byte 4 is not UTF-8", {"train", "--model", kGpt, "--data", "text:bad"});
  Write("short", "abcdefgh");
  Fails(4, "\"text:short\", the part to train on: a text of 7 characters has no window of 8 and a next character",
        {"train", "--model", kGpt, "--data", "text:short"});
  Fails(4, "a text of 0 characters has no window of 8 and a next character; --test-part says how large that is",
        Train(kGpt, 1, {"--test-part", "0"}));
  Fails(2, "--data: model \"mlp\" takes (1, 28, 28), not windows of text as gpt and lstm do",
        {"train", "--model", "mlp", "--data", "text:text"});
  Fails(2, "--write-digits is for images", Train(kGpt, 1, {"--write-digits", "digits"}));
  Fails(2, "there is no checkpoint in \"bindery-checkpoints\": train first", {"generate"});
  Succeeds(Train(kGpt, 1, {"--save", "model.pb"}));
  Fails(4, "prompt, line 1: \"x\" is none of the 4 characters of the vocabulary", {"generate", "--prompt", "x"});
  Fails(4, "the prompt is empty", {"generate", "--prompt="});
  Write("other", "xyz xyz xyz xyz");
  Fails(4, "\"other\", line 1: \"x\" is none of the 4 characters", {"test", "--data", "text:other"});
  Fails(2, "--data: the newest checkpoint in \"bindery-checkpoints\" takes text, text:FILE, not images",
        {"test", "--data", "digits"});
  Fails(2, "predict tells classes of samples; bindery generate writes text", {"predict", "--data", "text:text"});
  Succeeds(Training(1, {"--checkpoints", "images"}));
  Fails(3, "the model has no \"vocabulary\" in its metadata", {"generate", "--checkpoints", "images"});
}

}  // namespace
}  // namespace bindery
