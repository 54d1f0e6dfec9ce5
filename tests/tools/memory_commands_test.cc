// Commands where memory is what counts: batches in pieces, the largest that fits; and epochs of some batches.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace bindery {
namespace {

using MemoryCommandsTest = ProgramTest;

// The bytes behind a word of a report.
int64_t BytesOf(const std::string& report, const std::string& what) {
  const size_t at = report.find("  " + what);
  EXPECT_NE(at, std::string::npos) << what << " in " << report;
  return at == std::string::npos ? 0 : std::stoll(report.substr(at + 2 + what.size()));
}

const Words kInspect = {"inspect", "--model", "mlp", "--threads", "1"};

TEST_F(MemoryCommandsTest, MicroBatchesTrainTheSame) {
  const Words plain = {"--json", "--checkpoints="};
  const json whole = Lines(Succeeds(Training(2, plain)).out).back();
  const json cut = Lines(Succeeds(Training(2, plain + Words{"--micro-batches", "5"})).out).back();
  EXPECT_EQ(whole.at("micro_batches"), 1);
  EXPECT_EQ(cut.at("micro_batches"), 5);
  EXPECT_EQ(cut.at("steps"), whole.at("steps"));
  EXPECT_NEAR(cut.at("test").at("cross-entropy").get<double>(), whole.at("test").at("cross-entropy").get<double>(),
              1e-4);
  EXPECT_NE(Succeeds(Training(1, {"--micro-batches", "2"})).out.find("micro-batches         2 of a batch"),
            std::string::npos);
}

TEST_F(MemoryCommandsTest, StoppedInMicroBatchesItGoesOnToTheBit) {
  const Words micro = {"--micro-batches", "3", "--dropout", "0.2"};
  Succeeds(Training(3, micro + Words{"--checkpoints", "all", "--save", "model.pb"}));
  const auto expected = ModelFiles("model.pb");
  Succeeds(Training(1, micro + Words{"--checkpoints", "part"}));
  Succeeds(Training(3, micro + Words{"--checkpoints", "part", "--resume", "--save", "model.pb"}));
  EXPECT_EQ(ModelFiles("model.pb"), expected);
  const Outcome other = Succeeds(Training(4, {"--checkpoints", "part", "--resume", "--micro-batches", "1"}));
  EXPECT_NE(other.err.find("was trained with micro-batches \"3\", this run goes on with \"1\""), std::string::npos);
}

TEST_F(MemoryCommandsTest, InBlocksAnyDevicesGiveTheSameBits) {
  const Words blocks = {"--reproducible", "8", "--dropout", "0.2"};
  Succeeds(Training(2, blocks + Words{"--device", "cpu:0", "--checkpoints=", "--save", "model.pb"}));
  const auto expected = ModelFiles("model.pb");
  const Words others = {"--device", "cpu:0,cpu:1,cpu:2", "--workload", "1,3,2", "--micro-batches", "4"};
  Succeeds(Training(2, blocks + others + Words{"--checkpoints=", "--save", "model.pb"}));
  EXPECT_EQ(ModelFiles("model.pb"), expected);
  Succeeds(Training(1, blocks + others + Words{"--checkpoints", "part"}));
  Succeeds(Training(2, blocks + Words{"--device", "cpu:0,cpu:1", "--balance", "--checkpoints", "part", "--resume",
                                      "--save", "model.pb"}));
  EXPECT_EQ(ModelFiles("model.pb"), expected);
  Succeeds(Training(1, Words{"--device", "cpu:0,cpu:1", "--checkpoints=", "--balance", "--reproducible"}));
  Fails(2, "--reproducible: blocks have at least 1 sample, got -1", Training(1, {"--reproducible=-1"}));
  Fails(2, "--balance: unknown balance \"guessed\"", Training(1, {"--balance=guessed"}));
}

TEST_F(MemoryCommandsTest, ATunedRunGoesOnWithItsChoices) {
  setenv("XDG_CACHE_HOME", PathOf("cache").c_str(), 1);
  const auto train = [&](int epochs, const Words& more) {
    const Words words = {"train",
                         "--model",
                         "lenet",
                         "--train-digits",
                         "100",
                         "--test-digits",
                         "50",
                         "--epochs",
                         std::to_string(epochs),
                         "--threads",
                         "1"};
    return Succeeds(words + more);
  };
  train(2, {"--tune", "--checkpoints", "all", "--save", "model.pb"});
  EXPECT_EQ(Files("cache/bindery/tuning").size(), 1u);
  const auto expected = ModelFiles("model.pb");
  train(1, {"--tune", "--checkpoints", "part"});
  std::filesystem::remove_all(PathOf("cache/bindery/tuning"));  // the checkpoint has them, too
  train(2, {"--checkpoints", "part", "--resume", "--save", "model.pb"});
  EXPECT_EQ(ModelFiles("model.pb"), expected);
  EXPECT_FALSE(std::filesystem::exists(PathOf("cache/bindery/tuning"))) << "something was measured again";
  const Outcome other = train(3, {"--checkpoints", "part", "--resume", "--tune", "winograd"});
  EXPECT_NE(other.err.find("was trained with tuning \"measured\", this run goes on with \"winograd\""),
            std::string::npos)
      << other;
  for (const char* command : {"inspect", "time"}) {
    const Words words = {command, "--model", "lenet", "--batch-size", "8", "--threads", "1", "--tune"};
    const Words more = command == std::string("time") ? Words{"--steps", "1"} : Words{"--plan"};
    EXPECT_NE(Succeeds(words + more).out.find(", tuned"), std::string::npos) << command;
  }
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(MemoryCommandsTest, AsManyMicroBatchesAsTheLimitAsksFor) {
  const Words lenet = {"--model", "lenet", "--threads", "1", "--device", "cpu:0"};
  const auto bytes = [&](const char* batch) {
    const Words words = {"inspect", "--optimizer", "sgd(momentum=0.9)", "--memory", "--batch-size", batch};
    return BytesOf(Succeeds(words + lenet).out, "with it");
  };
  const int64_t at_once = bytes("64"), of_one = bytes("1");
  ASSERT_LT(2 * of_one, at_once);
  const auto train = [&](int64_t limit) {
    return Words{"train",
                 "--train-digits",
                 "100",
                 "--test-digits",
                 "50",
                 "--epochs",
                 "1",
                 "--checkpoints=",
                 "--micro-batches",
                 "auto",
                 "--memory-limit",
                 std::to_string(limit)} +
           lenet;
  };
  // Labels are inputs, too, of which inspect knows nothing.
  EXPECT_EQ(Succeeds(train(at_once + 4096)).out.find("micro-batches"), std::string::npos);
  const Outcome cut = Succeeds(train(at_once / 4 * 3));
  EXPECT_NE(cut.out.find(" of a batch\n"), std::string::npos) << cut;
  EXPECT_NE(cut.err.find("a batch of 64 samples is computed in "), std::string::npos) << cut;
  Fails(6, "not even one sample at a time can be trained on: cpu:0 needs ", train(of_one / 2));
}

TEST_F(MemoryCommandsTest, AMirrorTakesLessAndTrainsTheSame) {
  const auto trained = [&](const Words& options) {
    Succeeds(Words{"train", "--model", "lenet", "--train-digits", "100", "--test-digits", "50", "--epochs", "1"} +
             Words{"--threads", "1", "--checkpoints=", "--save", "net.pb"} + options);
    return ModelFiles("net.pb");
  };
  const auto expected = trained({});
  EXPECT_EQ(trained({"--mirror", "90%"}), expected);
  EXPECT_EQ(trained({"--mirror", "least"}), expected);

  const Words inspect = {"inspect", "--model", "lenet", "--threads", "1"};
  const auto bytes = [&](const Words& options) {
    return BytesOf(Succeeds(inspect + Words{"--memory"} + options).out, "total");
  };
  EXPECT_LT(bytes({"--mirror", "least"}), bytes({}));
  const auto largest = [&](const Words& options) {
    const std::string out = Succeeds(inspect + Words{"--memory-limit", "8M"} + options).out;
    const size_t at = out.find("of each device: ");
    EXPECT_NE(at, std::string::npos) << out;
    return at == std::string::npos ? 0 : std::stoll(out.substr(at + 16));
  };
  EXPECT_LT(largest({}), largest({"--mirror", "auto"}));
}

TEST_F(MemoryCommandsTest, TheLargestBatchThatFits) {
  const Words limit = {"--memory-limit", "4M"};
  const auto largest = [&](const Words& more) {
    const std::string out = Succeeds(kInspect + limit + more).out;
    const size_t at = out.find("of each device: ");
    EXPECT_NE(at, std::string::npos) << out;
    return at == std::string::npos ? 0 : std::stoll(out.substr(at + 16));
  };
  const int64_t training = largest({}), with_adam = largest({"--optimizer", "adam"}),
                predicting = largest({"--predict"});
  EXPECT_GT(with_adam, 1);
  EXPECT_LT(with_adam, training);
  EXPECT_LT(training, predicting);
  // That many do, one more does not.
  const auto bytes = [&](int64_t batch) {
    return BytesOf(Succeeds(kInspect + Words{"--memory", "--batch-size", std::to_string(batch)}).out, "total");
  };
  EXPECT_LE(bytes(training), 4 << 20);
  EXPECT_GT(bytes(training + 1), 4 << 20);
  EXPECT_NE(Succeeds(kInspect + limit + Words{"--device", "cpu:0,cpu:1"}).out.find("cpu:1 ("), std::string::npos);
  Fails(6, "no batch fits: of one sample, cpu:0 needs ", kInspect + Words{"--memory-limit", "100k"});
}

TEST_F(MemoryCommandsTest, EpochsOfSomeBatches) {
  const std::vector<json> lines = Lines(Succeeds(Training(3, {"--epoch-batches", "5", "--json"})).out);
  ASSERT_EQ(lines.size(), 5u);  // between start and end
  for (size_t i = 1; i <= 3; ++i) EXPECT_EQ(lines[i].at("step"), 5 * i);
}

}  // namespace
}  // namespace bindery
