// What the commands do when all is well, from training to inspecting what was trained.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"
#include "symbol/model.h"
#include "tests/tools/program.h"
#include "train/data/idx.h"

namespace bindery {
namespace {

class CommandsTest : public ProgramTest {
 protected:
  // Of a log, or of a training, without the line that it begins with (tests/tools/seeing_test.cc).
  static std::vector<json> Lines(const std::string& text) {
    std::vector<json> lines = ProgramTest::Lines(text);
    std::erase_if(lines, [](const json& line) { return line.value("event", "") == "start"; });
    return lines;
  }
};

const Words kTestDigits = {"--test-digits", "50", "--threads", "1"};

TEST_F(CommandsTest, TrainTestPredictInspect) {
  const std::vector<json> lines = Lines(Succeeds(Training(2, {"--json"})).out);
  ASSERT_EQ(lines.size(), 3u);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    const json& line = lines[static_cast<size_t>(epoch - 1)];
    EXPECT_EQ(line.at("event"), "epoch");
    EXPECT_EQ(line.at("epoch"), epoch);
    EXPECT_EQ(line.at("step"), 2 * epoch);
    EXPECT_GT(line.at("seconds"), 0);
    EXPECT_GT(line.at("samples_per_second"), 0);
    EXPECT_EQ(line.at("learning_rate"), 0.05);
    for (const char* set : {"train", "test"}) {
      EXPECT_GE(line.at(set).at("accuracy"), 0);
      EXPECT_LE(line.at(set).at("accuracy"), 1);
      EXPECT_GT(line.at(set).at("cross-entropy"), 0);
    }
  }
  EXPECT_EQ(lines[2].at("event"), "end");
  EXPECT_EQ(lines[2].at("stopped"), false);
  EXPECT_EQ(lines[2].at("epochs"), 2);
  EXPECT_EQ(lines[2].at("steps"), 4);
  EXPECT_EQ(lines[2].at("test"), lines[1].at("test"));
  EXPECT_EQ(lines[2].at("checkpoint"), "bindery-checkpoints/step-0000000004.ckpt");

  const json tested = Json(Words{"test", "--json"} + kTestDigits);
  EXPECT_EQ(tested.at("samples"), 50);
  EXPECT_EQ(tested.at("accuracy"), lines[2].at("test").at("accuracy"));
  EXPECT_EQ(tested.at("cross-entropy"), lines[2].at("test").at("cross-entropy"));

  // The predictions are those that were measured.
  const Words predict = Words{"predict", "--show", "50", "--output", "list.csv"} + kTestDigits;
  std::istringstream rows(Succeeds(predict).out), list(Read("list.csv"));
  std::string header;
  std::getline(rows, header);
  int count = 0, right = 0;
  std::vector<int> classes, labels;
  int sample = 0, chosen = 0, label = 0;
  double probability = 0;
  while (rows >> sample >> chosen >> probability >> label) {
    EXPECT_EQ(sample, count++);
    EXPECT_GT(probability, 0.1);
    right += chosen == label;
    classes.push_back(chosen);
    labels.push_back(label);
  }
  EXPECT_EQ(count, 50);
  EXPECT_EQ(right / 50.0, tested.at("accuracy"));
  std::getline(list, header);
  EXPECT_EQ(header, "sample,class,probability,label,name,label_name,record");
  const json predicted = Json(Words{"predict", "--show=50", "--json"} + kTestDigits);
  ASSERT_EQ(predicted.size(), 50u);
  for (size_t i = 0; i < classes.size(); ++i) {
    std::string line;
    std::getline(list, line);
    const std::string begin = std::to_string(i) + "," + std::to_string(classes[i]) + ",";
    ASSERT_TRUE(line.starts_with(begin + "0.") || line.starts_with(begin + "1,")) << line;
    EXPECT_TRUE(line.ends_with("," + std::to_string(labels[i]) + ",,,")) << line;  // digits have no names
    EXPECT_EQ(predicted[i].at("sample"), i);
    EXPECT_EQ(predicted[i].at("class"), classes[i]);
    EXPECT_EQ(predicted[i].at("label"), labels[i]);
    EXPECT_EQ(std::stof(line.substr(begin.size())), predicted[i].at("probability").get<float>());
  }
  EXPECT_EQ(Json(Words{"predict", "--show=3", "--json"} + kTestDigits).size(), 3u);
}

TEST_F(CommandsTest, MinimumAccuracy) {
  Succeeds(Training(1));
  const double accuracy = Json(Words{"test", "--json"} + kTestDigits).at("accuracy");
  const auto above = std::to_string(accuracy + 0.01), below = std::to_string(accuracy - 0.01);
  EXPECT_NE(Fails(9, "is below", Words{"test", "--min-accuracy", above} + kTestDigits).out, "");
  Succeeds(Words{"test", "--min-accuracy", below} + kTestDigits);
}

TEST_F(CommandsTest, SavedModelsHoldWhatWasTrained) {
  Succeeds(Training(1, {"--save", "model.pb"}));
  Succeeds(Training(1, {"--save", "model.prototxt", "--checkpoints="}));
  const std::string expected = Succeeds(Words{"test", "--json"} + kTestDigits).out;
  for (const char* file : {"model.pb", "model.prototxt"}) {
    EXPECT_EQ(Succeeds(Words{"test", "--json", "--weights", file} + kTestDigits).out, expected);
    EXPECT_EQ(Succeeds(Words{"test", "--json", "--model", file} + kTestDigits).out, expected);
    EXPECT_EQ(Succeeds(Words{"test", "--json", "--model", "mlp", "--weights", file} + kTestDigits).out, expected);
    const json described = Json({"inspect", "--json", "--model", file});
    EXPECT_EQ(described.at("parameters"), 109386);
    EXPECT_EQ(described.at("outputs"), json({"softmax_output"}));
  }
  // Training goes on from the values, whichever file they come from.
  const Words more = {"train", "--train-digits", "100", "--test-digits", "50", "--epochs", "1", "--checkpoints="};
  Succeeds(more + Words{"--model", "mlp", "--weights", "model.pb", "--save", "one.pb"});
  Succeeds(more + Words{"--model", "model.prototxt", "--save", "two.pb"});
  EXPECT_EQ(Succeeds(Words{"test", "--json", "--weights", "one.pb"} + kTestDigits).out,
            Succeeds(Words{"test", "--json", "--weights", "two.pb"} + kTestDigits).out);
  EXPECT_NE(Succeeds(Words{"test", "--json", "--weights", "one.pb"} + kTestDigits).out, expected);
}

// Its log, the best model, and an end when nothing becomes better: after a resume, too.
TEST_F(CommandsTest, LogsKeepsTheBestAndStopsEarly) {
  const Words watched = {"--best", "best.pb",     "--log",       "log",   "--patience",
                         "2",      "--optimizer", "sgd(lr=0.1)", "--json"};
  const std::vector<json> lines = Lines(Succeeds(Training(500, watched)).out), log = Lines(Read("log"));
  const int epochs = lines.back().at("epochs");
  EXPECT_LT(epochs, 500);
  EXPECT_EQ(lines.back().at("stopped"), false);
  ASSERT_EQ(lines.size(), static_cast<size_t>(epochs) + 1);
  ASSERT_EQ(log.size(), static_cast<size_t>(epochs));
  double best = 0;
  int best_epoch = 0;
  for (int i = 0; i < epochs; ++i) {
    const json &line = lines[static_cast<size_t>(i)], &logged = log[static_cast<size_t>(i)];
    EXPECT_EQ(logged.at("epoch"), i + 1);
    EXPECT_EQ(logged.at("iteration"), line.at("step"));
    EXPECT_EQ(logged.at("train/learning-rate"), line.at("learning_rate"));
    EXPECT_EQ(logged.at("train/cross-entropy"), line.at("train").at("cross-entropy"));
    EXPECT_EQ(logged.at("validation/accuracy"), line.at("test").at("accuracy"));
    if (line.at("test").at("accuracy") <= best) continue;
    best = line.at("test").at("accuracy");
    best_epoch = i + 1;
  }
  EXPECT_EQ(best_epoch, epochs - 2);
  const json tested = Json(Words{"test", "--json", "--weights", "best.pb"} + kTestDigits);
  EXPECT_EQ(tested.at("accuracy"), best);

  // It has stopped for good; a log loses nothing by that.
  const json resumed = Lines(Succeeds(Training(500, watched + Words{"--resume"})).out).back();
  EXPECT_EQ(resumed.at("epochs"), epochs);
  EXPECT_EQ(Lines(Read("log")), log);
  Fails(2, "--best: expected a name that ends in", Training(1, {"--best", "best"}));
}

TEST_F(CommandsTest, OnnxModelsAreModels) {
  Succeeds(Training(1, {"--save", "model.onnx"}));
  const auto tested = [&](const Words& which) { return Json(Words{"test", "--json"} + which + kTestDigits); };
  const json expected = tested({}), got = tested({"--model", "model.onnx"});
  EXPECT_EQ(got.at("accuracy"), expected.at("accuracy"));
  EXPECT_NEAR(got.at("cross-entropy"), expected.at("cross-entropy"), 1e-5);
  Succeeds(Words{"predict", "--model", "model.onnx"} + kTestDigits);
  const json described = Json({"inspect", "--json", "--model", "model.onnx"});
  EXPECT_EQ(described.at("parameters"), 109386);
  Succeeds({"train", "--train-digits", "100", "--test-digits", "50", "--epochs", "1", "--checkpoints=", "--model",
            "model.onnx", "--save", "more.onnx"});
  EXPECT_NE(tested({"--model", "more.onnx"}), got);
}

// Its input is not of the images' shape: what was trained says so itself.
TEST_F(CommandsTest, ATrainedModelKnowsItsInput) {
  Succeeds({"train", "--model", "resnet20", "--train-digits", "8", "--test-digits", "4", "--batch-size", "4",
            "--epochs", "1", "--save", "net.pb"});
  const Words four = {"--test-digits", "4", "--json"};
  const std::string tested = Succeeds(Words{"test"} + four).out;
  EXPECT_EQ(Succeeds(Words{"test", "--weights", "net.pb"} + four).out, tested);
  Succeeds(Words{"predict", "--model", "net.pb"} + four);
  EXPECT_NE(Succeeds({"inspect", "--model", "net.pb", "--batch-size", "5"}).out.find("(5, 3, 32, 32)"),
            std::string::npos);
}

// Models by name take other images than their own, and the checkpoint knows which.
TEST_F(CommandsTest, AModelByNameTakesLargerImages) {
  std::filesystem::create_directory(PathOf("data"));
  for (const std::string part : {"train", "t10k"}) {
    WriteIdx(HostTensor(DType::kUInt8, {6, 30, 32}), PathOf("data/" + part + "-images-idx3-ubyte"));
    WriteIdx(HostTensor(DType::kUInt8, {6}), PathOf("data/" + part + "-labels-idx1-ubyte"));
  }
  Succeeds({"train", "--data", "data", "--batch-size", "4", "--epochs", "1"});
  EXPECT_EQ(Succeeds({"test", "--data", "data"}).out, Succeeds({"test", "--data", "data", "--model", "lenet"}).out);
  EXPECT_NE(Succeeds({"inspect", "--model", "lenet", "--shape", "5,1,30,32"}).out.find("(5, 1, 30, 32)"),
            std::string::npos);
}

TEST_F(CommandsTest, TheSameCommandGivesTheSameBits) {
  const auto model = [&](const Words& more) {
    Succeeds(Training(1, Words{"--checkpoints=", "--save", "model.pb", "--dropout", "0.5"} + more));
    return ModelFiles("model.pb");
  };
  const auto first = model({});
  EXPECT_EQ(model({}), first);
  EXPECT_EQ(model({"--json"}), first);
  EXPECT_NE(model({"--seed", "1"}), first);
  EXPECT_NE(model({"--digits-seed", "2"}), first);
}

TEST_F(CommandsTest, WrittenDigitsAreTheSameData) {
  for (const char* name : {"drawn", "read"}) std::filesystem::create_directory(PathOf(name));
  Succeeds(Training(1, {"--write-digits", "new/folder", "--checkpoints=", "--save", "drawn/model.pb"}));
  EXPECT_EQ(Files("new/folder").size(), 4u);
  Succeeds({"train", "--model", "mlp", "--epochs", "1", "--threads", "1", "--data", "new/folder",
            "--checkpoints=", "--save", "read/model.pb"});
  EXPECT_EQ(ModelFiles("read/model.pb"), ModelFiles("drawn/model.pb"));
  EXPECT_EQ(ModelFiles("read/model.pb").size(), 1u);
}

TEST_F(CommandsTest, DigitsWrittenAsImagesAreAFolderToTrainOn) {
  Succeeds(Training(1, {"--write-digits", "images:digits", "--checkpoints="}));
  EXPECT_EQ(Files("digits"), (Words{"test", "train"}));
  EXPECT_EQ(Files("digits/train").size(), 10u);
  const Outcome trained = Succeeds({"train", "--model", "mlp", "--epochs", "1", "--data", "images:digits/train",
                                    "--test-data", "images:digits/test", "--checkpoints=", "--json"});
  EXPECT_EQ(json::parse(trained.out.substr(0, trained.out.find('\n'))).at("samples"), 100);
  Fails(4, "--write-digits: cannot make the folder \"/dev/null/x\"",
        Training(1, {"--write-digits", "images:/dev/null/x", "--checkpoints="}));
}

TEST_F(CommandsTest, DevicesAndWorkloadsMeanTheSame) {
  const auto loss = [&](const Words& more) {
    const std::vector<json> lines = Lines(Succeeds(Training(2, Words{"--checkpoints=", "--json"} + more)).out);
    return lines.back().at("test").at("cross-entropy").get<double>();
  };
  const double one = loss({"--device", "cpu:0"});
  EXPECT_NEAR(loss({}), one, 1e-5 * one);
  EXPECT_NEAR(loss({"--device", "cpu:0,cpu:1", "--workload", "2,1"}), one, 1e-5 * one);
  EXPECT_NEAR(loss({"--device", "cpu:0,cpu:1,cpu:2", "--kvstore", "local"}), one, 1e-5 * one);
}

// The arenas reserve address space by what there is.
// A batch is normalised by what all devices have of it, and not by the share of each.
TEST_F(CommandsTest, BatchNormOverAllDevices) {
  const auto loss = [&](const Words& options) {
    const Outcome trained =
        Succeeds(Words{"train", "--model", "resnet20", "--train-digits", "16", "--test-digits", "8"} +
                 Words{"--batch-size", "16", "--epochs", "1", "--threads", "1", "--json"} +
                 Words{"--checkpoints=", "--device-timeout", "60"} + options);
    return Lines(trained.out)[0].at("train").at("cross-entropy").get<double>();
  };
  const double whole = loss({"--devices", "cpu:0"});
  EXPECT_NEAR(loss({"--devices", "cpu:0,cpu:1", "--sync-batch-norm"}), whole, 1e-4 * whole);
  EXPECT_GT(std::abs(loss({"--devices", "cpu:0,cpu:1"}) - whole), 1e-3 * whole);
}

TEST_F(CommandsTest, TrainsWithinALimitOfAddressSpace) {
  const Outcome outcome = WithAddressSpace(4'194'304, {"train", "--train-digits", "100", "--test-digits", "50",
                                                       "--epochs", "1", "--device", "cpu:0,cpu:1,cpu:2"});
  EXPECT_EQ(outcome.status, 0) << outcome;
}

TEST_F(CommandsTest, DescribesOperatorsAsTheDocumentationHasThem) {
  const std::string root = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE");
  EXPECT_EQ(Succeeds({"operators"}).out, ReadFile(root + "/docs/operators.md"))
      << "to write it anew: bazel run //tools:bindery -- operators > docs/operators.md";
  const std::vector<json> all = Lines(Succeeds({"operators", "--json"}).out);
  EXPECT_GE(all.size(), 190u);
  const json softmax = Json({"operators", "--only", "Softmax", "--json"});
  EXPECT_EQ(std::count(all.begin(), all.end(), softmax), 1);
  EXPECT_EQ(softmax.at("attributes").at(1).at("name"), "temperature");
  EXPECT_NE(Succeeds({"operators", "--only", "Softmax"}).out.find("## Softmax\n"), std::string::npos);
  Fails(3, "unknown operator \"Softmux\"; did you mean \"Softmax\"?", {"operators", "--only", "Softmux"});
}

TEST_F(CommandsTest, DescribesModelsAndDevices) {
  const json devices = Json({"devices", "--json"});
  EXPECT_EQ(devices.at("devices").at(0).at("name"), "cpu");
  EXPECT_GE(devices.at("devices").at(0).at("cores"), 1);
  EXPECT_EQ(devices.at("devices").size() == 1, devices.at("cuda").at("problem") != "");  // GPUs, or why there are none
  EXPECT_NE(Succeeds({"devices"}).out.find("cpu"), std::string::npos);
  const json mlp = Json({"inspect", "--model", "mlp", "--json"});
  EXPECT_EQ(mlp.at("model"), "mlp");
  EXPECT_EQ(mlp.at("parameters"), 109386);
  EXPECT_EQ(mlp.at("auxiliary"), 0);
  EXPECT_EQ(mlp.at("arguments").at(0), "data");
  EXPECT_NE(Succeeds({"inspect", "--model", "mlp"}).out.find("fc1 (FullyConnected)"), std::string::npos);
  EXPECT_EQ(Succeeds({"inspect", "--model", "mlp", "--dot", "-"}).out.rfind("digraph", 0), 0u);
  EXPECT_NE(Succeeds({"inspect", "--model", "mlp", "--plan", "--device", "cpu:0,cpu:1"}).out.find("cpu:1 (32 samples"),
            std::string::npos);
  EXPECT_NE(Succeeds({"inspect", "--model", "mlp", "--memory", "--predict"}).out.find("prediction"), std::string::npos);
  EXPECT_NE(Succeeds({"inspect", "--model", "mlp", "--shape", "7,1,20,20"}).out.find("(7, 10)"), std::string::npos);
  // Planned, not bound: what would not fit is reported all the same.
  const Words planned = {"inspect", "--model", "lenet", "--memory", "--batch-size", "1000000"};
  const Outcome report = WithAddressSpace(1'000'000, planned);
  EXPECT_EQ(report.status, 0) << report;
  EXPECT_NE(report.out.find("cpu:0 (1000000 samples, training)"), std::string::npos) << report;
  EXPECT_NE(report.out.find(" MiB\n"), std::string::npos) << report;
  Fails(3, "overflows 64 bits", {"inspect", "--model", "mlp", "--memory", "--shape", "9223372036854775807,1,28,28"});
}

// Divergence ends a run at once; the checkpoint before it stays.
TEST_F(CommandsTest, Divergence) {
  Succeeds(Training(1, {"--checkpoints", "run"}));
  Fails(7, "training has diverged",
        Training(5, {"--checkpoints", "run", "--resume", "--optimizer", "sgd(lr=1e30, momentum=0.9)"}));
  EXPECT_EQ(Files("run"), Words{"step-0000000002.ckpt"});
  // By its last step, which no later one sees.
  Fails(7, "not finite",
        {"train", "--model", "mlp", "--train-digits", "64", "--test-digits", "50", "--epochs", "1", "--checkpoints",
         "new", "--save", "model.pb", "--optimizer", "sgd(lr=1e300)"});
  EXPECT_TRUE(Files("new").empty());
  EXPECT_EQ(Files("run"), Words{"step-0000000002.ckpt"});
  EXPECT_TRUE(ModelFiles("model.pb").empty());
  Succeeds(Words{"test", "--checkpoints", "run"} + kTestDigits);
  // All values finite, all relus dead.
  Fails(0, "the model has learned nothing: its training accuracy of ",
        Words{"train", "--train-digits", "256", "--batch-size", "8", "--epochs", "2", "--checkpoints=", "--optimizer",
              "sgd(lr=1e30)"} +
            kTestDigits);
  const Outcome good = Succeeds(Training(3, {"--checkpoints="}));
  EXPECT_EQ(good.err.find("learned nothing"), std::string::npos) << good;
}

// Metrics that have no value, since all answers are of one class: nothing has diverged.
TEST_F(CommandsTest, MetricsWithoutAValue) {
  const Words still = {"--model",        "mlp",  "--metrics",     "accuracy,pcc(classes=10)",
                       "--initializer",  "zero", "--optimizer",   "sgd(lr=0)",
                       "--train-digits", "64",   "--test-digits", "50",
                       "--checkpoints",  "run",  "--epochs",      "1"};
  const Outcome trained = Fails(0, "test pcc has no value", Words{"train", "--save", "pcc.pb"} + still);
  EXPECT_NE(trained.out.find("test pcc              --\n"), std::string::npos) << trained;
  EXPECT_EQ(ModelFiles("pcc.pb").size(), 1u);
  const Words test = Words{"test", "--weights", "pcc.pb", "--metrics", "accuracy,pcc(classes=10)"} + kTestDigits;
  EXPECT_NE(Fails(0, "test pcc has no value", test).out.find(", pcc --\n"), std::string::npos);
  EXPECT_TRUE(Json(test + Words{"--json"}).at("pcc").is_null());
}

// Where there is too little to begin with, an error says so; oneDNN would crash.
TEST_F(CommandsTest, HardlyAnyAddressSpace) {
  for (int64_t mebibytes = 100; mebibytes <= 500; mebibytes += 25) {
    const Outcome outcome = WithAddressSpace(mebibytes << 10, Training(1, {"--checkpoints="}));
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 6) << mebibytes << " MiB: " << outcome;
  }
}

TEST_F(CommandsTest, AModelThatIsNotFiniteIsNoModel) {
  Succeeds(Training(1, {"--checkpoints=", "--save", "model.pb"}));
  Model model = LoadModel(PathOf("model.pb"));
  model.params.at("fc2_bias").Set(3, std::numeric_limits<double>::quiet_NaN());
  SaveModel(model, PathOf("bad.pb"));
  for (const char* command : {"test", "predict"}) {
    Fails(7, "\"bad.pb\": \"fc2_bias\", element 3, is nan: its training has diverged",
          Words{command, "--weights", "bad.pb"} + kTestDigits);
  }
  // Finite parameters may still give infinite outputs.
  for (auto& [name, value] : model.params) value = HostTensor::Full(value.dtype(), value.shape(), 3e38);
  SaveModel(model, PathOf("bad.pb"));
  Fails(7, "output \"softmax_output\" is not finite", Words{"test", "--weights", "bad.pb"} + kTestDigits);
  Fails(7, "output \"softmax_output\", element ", Words{"predict", "--weights", "bad.pb"} + kTestDigits);
}

}  // namespace
}  // namespace bindery
