// Options that several commands share do what they say in each of them; and what ends with status 1.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/tools/program.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

class SharedOptionsTest : public ProgramTest {
 protected:
  json Json(const Words& command) const { return ProgramTest::Json(command + Words{"--json"}); }
  // The classes that `predict` finds.
  std::vector<int> Classes(const Words& options) const {
    std::vector<int> classes;
    for (const json& sample :
         Json(Words{"predict", "--threads", "1", "--test-digits", "50", "--show", "50"} + options)) {
      classes.push_back(sample.at("class"));
    }
    return classes;
  }
  // net.pb, and its values under other names, with the rules that undo them.
  Words OfStrangers(const Words& training) const {
    Succeeds(training + Words{"--save", "net.pb"});
    Succeeds({"convert", "net.pb", "theirs.npz", "--map", "(.*)=their.\\1"});
    return {"--weights", "theirs.npz", "--map", R"(their\.(.*)=\1)"};
  }
};

TEST_F(SharedOptionsTest, DevicesOfTestAndPredict) {
  Succeeds(Training(3));
  const std::vector<int> classes = Classes({});
  ASSERT_EQ(classes.size(), 50u);
  EXPECT_EQ(Classes({"--devices", "cpu:0,cpu:1,cpu:2", "--workload", "1,0,3", "--device-timeout", "60"}), classes);
  Fails(2, "--workload: expected 2 numbers", {"predict", "--devices", "cpu:0,cpu:1", "--workload", "1"});
  const Words test = {"test", "--test-digits", "50", "--threads", "1", "--device-timeout", "60"};
  EXPECT_NEAR(Json(test + Words{"--devices", "cpu:0,cpu:1", "--workload", "2,1"}).at("cross-entropy").get<double>(),
              Json(test).at("cross-entropy").get<double>(), 1e-5);
}

TEST_F(SharedOptionsTest, DataOfPredict) {
  Succeeds(Training(3));
  const std::vector<int> classes = Classes({});
  EXPECT_NE(Classes({"--digits-seed", "7"}), classes);
  // Of each sample, whatever becomes of the last batch of a training.
  EXPECT_EQ(Classes({"--batch-size", "16", "--last-batch", "discard"}), classes);

  fs::create_directories(PathOf("images/a"));
  fs::create_directories(PathOf("images/b"));
  fs::copy("tests/train/stored/pillow_rgb.png", PathOf("images/a/1.png"));
  fs::copy("tests/train/stored/pillow_bits.png", PathOf("images/b/1.png"));
  const std::string images = "images:images?size=12&channels=1";
  Succeeds(
      {"train", "--model", "mlp", "--data", images, "--test-data", images, "--epochs", "1", "--checkpoints", "run"});
  Write("images/b/2.png", "no image");
  const Words predict = {"predict", "--checkpoints", "run", "--workers", "2"};
  Fails(4, "/images/b/2.png\"", predict);
  EXPECT_EQ(Json(predict + Words{"--skip-damaged"}).size(), 2u);
}

TEST_F(SharedOptionsTest, NamesOfStrangers) {
  const Words named = OfStrangers(Training(3));
  const Words mlp = {"--model", "mlp"};
  EXPECT_EQ(Classes(mlp + Words{"--data", "digits"} + named), Classes({"--weights", "net.pb", "--data", "digits"}));
  EXPECT_EQ(Json(Words{"inspect"} + mlp + named).at("parameters"), 109386);
  Fails(5, "fc1_weight", {"inspect", "--model", "mlp", "--weights", "theirs.npz"});
  EXPECT_EQ(Json(Words{"time", "--steps", "1", "--warmup", "1", "--batch-size", "2"} + mlp + named).at("batch"), 2);
}

TEST_F(SharedOptionsTest, NamesOfStrangersWrite) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abc\n";
  Write("text", text);
  const std::string gpt = "gpt(layers=1, width=16, heads=2, context=8)";
  const Words named =
      OfStrangers({"train", "--model", gpt, "--data", "text:text", "--epochs", "1", "--batch-size", "4"});
  const Words generate = {"generate", "--prompt", "a", "--length", "20", "--seed", "3"};
  const std::string own = Succeeds(generate + Words{"--weights", "net.pb"}).out;
  Succeeds({"convert", "theirs.npz", "ours.npz", "--map", R"(their\.(.*)=\1)"});
  // A file of weights has no vocabulary: that of the model it is put into counts.
  EXPECT_EQ(Succeeds(generate + Words{"--model", "net.pb"} + named).out, own);
}

TEST_F(SharedOptionsTest, VariantsOfModels) {
  const auto plan = [&](const Words& options) {
    return Succeeds(Words{"inspect", "--model", "resnet20", "--batch-size", "4", "--plan"} + options).out;
  };
  const Words devices = {"--devices", "cpu:0,cpu:1"};
  EXPECT_NE(plan(devices), plan(devices + Words{"--sync-batch-norm"}));
  EXPECT_EQ(plan({}).find("bfloat16"), std::string::npos);
  EXPECT_NE(plan({"--precision", "bfloat16"}).find("bfloat16"), std::string::npos);
  Fails(2, "--precision: ", {"inspect", "--model", "mlp", "--precision", "bfloat17"});

  const auto operators = [&](const Words& options) {
    std::multiset<std::string> names;
    const json timed = Json(Words{"time", "--steps", "1", "--warmup", "1", "--threads", "1"} + options);
    for (const json& call : timed.at("calls")) names.insert(call.at("operator"));
    return names;
  };
  const Words mlp = {"--model", "mlp", "--shape", "6,1,10,10", "--predict"};
  EXPECT_EQ(Json(Words{"time", "--steps", "1", "--warmup", "1"} + mlp).at("batch"), 6);
  const Words training = {"--model", "mlp", "--batch-size", "4"};
  EXPECT_EQ(operators(training).count("Dropout"), 0u);
  EXPECT_GT(operators(training + Words{"--dropout", "0.5"}).count("Dropout"), 0u);
  const Words shared = {"--model",   "resnet20",    "--batch-size",     "4",
                        "--devices", "cpu:0,cpu:1", "--device-timeout", "60"};
  EXPECT_NE(operators(shared + Words{"--sync-batch-norm"}), operators(shared));
  for (const json& call : Json(Words{"time", "--steps", "1", "--warmup", "1", "--devices", "cpu:0,cpu:1"} +
                               Words{"--workload", "0,1", "--model", "mlp", "--batch-size", "4"})
                              .at("calls")) {
    EXPECT_EQ(call.at("device"), "cpu:1");
  }
}

// A head that is no loss, beside one that is: nobody gives its gradient. No status of its own says so.
TEST_F(SharedOptionsTest, ARunThatCannotBe) {
  Succeeds(Training(1, {"--save", "net.prototxt"}));
  std::string text = Read("net.prototxt");
  const std::string output = "output: \"softmax\"";
  ASSERT_NE(text.find(output), std::string::npos) << text;
  text.insert(text.find(output), "output: \"fc3\" ");
  Write("net.prototxt", text);
  Fails(1, "is not a loss",
        {"train", "--model", "net.prototxt", "--train-digits", "50", "--test-digits", "50", "--epochs", "1",
         "--checkpoints=", "--metrics", "accuracy(output=softmax_output)"});
}

}  // namespace
}  // namespace bindery
