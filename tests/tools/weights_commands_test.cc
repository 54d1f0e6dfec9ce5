// bindery verify and convert, and models and weights from elsewhere.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/program.h"
#include "train/checkpoint/checkpoint.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

const Words kTestDigits = {"--test-digits", "50", "--threads", "1"};

class WeightsCommandsTest : public ProgramTest {
 protected:
  void Damage(const std::string& name, size_t place) const {
    std::string bytes = Read(name);
    bytes[place] = static_cast<char>(bytes[place] ^ 4);
    Write(name, bytes);
  }
  void SaveWith(const std::string& name, const std::string& parameter, float value) const {
    Model model = LoadModel(PathOf("net.pb"));
    model.params.at(parameter).Set(1, value);
    SaveModel(model, PathOf(name));
  }
  json Test(const Words& more) const { return Json(Words{"test", "--json"} + more + kTestDigits); }
};

TEST_F(WeightsCommandsTest, VerifySaysWhatFilesAre) {
  Succeeds(Training(1, {"--save", "net.pb"}));
  Succeeds(Training(1, {"--save", "net.onnx", "--checkpoints="}));
  const std::string checkpoint = "bindery-checkpoints/step-0000000002.ckpt";
  for (const char* out : {"net.prototxt", "net.safetensors", "net.npz"}) Succeeds({"convert", "net.pb", out});
  fs::copy(PathOf(checkpoint), PathOf("named otherwise"));
  const Outcome outcome = Succeeds(
      {"verify", checkpoint, "named otherwise", "net.pb", "net.prototxt", "net.onnx", "net.safetensors", "net.npz"});
  const std::string graph = "6 parameters, 109386 elements, 0 auxiliary states, a graph";
  const std::string of_checkpoint = ": good; checkpoint, step 2, epoch 1, " + graph + ", 6 optimizer states\n";
  EXPECT_EQ(outcome.out, checkpoint + of_checkpoint + "named otherwise" + of_checkpoint + "net.pb: good; model, " +
                             graph + "\nnet.prototxt: good; model, " + graph + "\nnet.onnx: good; model, " + graph +
                             "\nnet.safetensors: good; weights, 6 tensors, 109386 elements\n"
                             "net.npz: good; weights, 6 tensors, 109386 elements\n");
  const json line = Json({"verify", "--json", "net.pb"});
  EXPECT_EQ(line, json({{"file", "net.pb"},
                        {"kind", "model"},
                        {"good", true},
                        {"parameters", 6},
                        {"elements", 109386},
                        {"auxiliary", 0},
                        {"graph", true}}));
}

TEST_F(WeightsCommandsTest, VerifySaysWhatIsWrong) {
  Succeeds(Training(1, {"--save", "net.pb"}));
  Succeeds({"convert", "net.pb", "net.safetensors"});
  const std::string checkpoint = "bindery-checkpoints/step-0000000002.ckpt";
  Fails(2, "FILE is required", {"verify"});
  Fails(4, "No such file", {"verify", "none.pb"});
  Fails(4, "it is a folder: give the files in it", {"verify", "bindery-checkpoints"});
  Fails(4, "\"nothing.ckp\": DataError: No such file or directory", {"verify", "nothing.ckp"});
  Write("text.txt", "text");
  Fails(4, "neither a checkpoint nor, by its ending, a model", {"verify", "text.txt"});
  SaveWith("nan.pb", "fc1_bias", NAN);
  Fails(7, "\"fc1_bias\", element 1, is nan", {"verify", "nan.pb"});
  Model other = LoadModel(PathOf("net.pb"));
  other.params["more"] = HostTensor(DType::kFloat32, {1});
  SaveModel(other, PathOf("more.pb"));
  Fails(5, "1 of its 7 tensors are not in the model", {"verify", "more.pb"});
  other.params.erase("more");
  other.params["fc2_bias"] = HostTensor(DType::kFloat32, {65});
  SaveModel(other, PathOf("shape.pb"));
  Fails(5, "\"fc2_bias\" is (65), the model's is (64)", {"verify", "shape.pb"});
  // Every byte of tensors counts, wherever they lie.
  Checkpoint diverged = LoadCheckpoint(PathOf(checkpoint));
  diverged.optimizer_state.begin()->second.Set(0, INFINITY);
  SaveCheckpoint(diverged, PathOf("diverged.ckpt"));
  Fails(7, "element 0, is inf", {"verify", "diverged.ckpt"});
  Damage(checkpoint, Read(checkpoint).size() - 1);
  Fails(5, "is damaged: the checksum is wrong", {"verify", checkpoint});
  Damage("net.pb", Read("net.pb").size() / 2);
  EXPECT_EQ(Bindery({"verify", "net.pb"}).status, 3);
  Write("cut.safetensors", Read("net.safetensors").substr(0, 1000));
  // All are looked at; the status is that of the first.
  const Outcome outcome = Bindery({"verify", "net.safetensors", "cut.safetensors", checkpoint, "--json"});
  EXPECT_EQ(outcome.status, 4) << outcome;
  std::istringstream lines(outcome.out);
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].at("good"), true);
  EXPECT_EQ(all[1].at("status"), 4);
  EXPECT_EQ(all[2].at("status"), 5);
}

TEST_F(WeightsCommandsTest, VerifyReadsLogs) {
  Succeeds(Training(2, {"--tensorboard", "runs", "--log", "log.jsonl"}));
  const std::string events = "runs/" + Files("runs").at(0);
  const Outcome good = Succeeds({"verify", "log.jsonl", events});
  EXPECT_TRUE(good.out.starts_with("log.jsonl: good; log, 2 lines\n" + events + ": good; event file, ")) << good;
  const std::string log = Read("log.jsonl");
  Write("cut.jsonl", log.substr(0, log.size() - 1));
  Fails(4, "\"cut.jsonl\", line 2: cut off", {"verify", "cut.jsonl"});
  Write("other.jsonl", log + "[1]\n");
  Fails(4, "\"other.jsonl\", line 3: not an object of JSON", {"verify", "other.jsonl"});
  const std::string bytes = Read(events);
  Write(events, bytes.substr(0, bytes.size() - 1));
  Fails(4, ": cut off: it has ", {"verify", events});
  Write(events, bytes);
  Damage(events, 14);  // in the first message
  Fails(4, "\"" + events + "\", record 0: damaged: its checksum is another", {"verify", events});
}

TEST_F(WeightsCommandsTest, VerifyReadsTracesAndDescriptions) {
  Succeeds(Training(2, {"--trace", "trace.json"}));
  Write("solver.prototxt", "model: \"mlp\" epochs: 3");
  Write("data.prototxt", "train: \"csv:rows.csv\"");
  const Outcome good = Succeeds({"verify", "solver.prototxt", "data.prototxt", "trace.json"});
  const std::string trace =
      "solver.prototxt: good; solver, 2 options\ndata.prototxt: good; description of data\n"
      "trace.json: good; trace, " +
      std::to_string(json::parse(Read("trace.json")).at("traceEvents").size()) + " events\n";
  EXPECT_EQ(good.out, trace);
  Write("data.prototxt", "trian: \"csv:rows.csv\"");
  Fails(3, "has no field named \"trian\"", {"verify", "data.prototxt"});
  Write("cut.json", Read("trace.json").substr(0, 100));
  Fails(3, "cut.json", {"verify", "cut.json"});
}

TEST_F(WeightsCommandsTest, ModelsBecomeWeightsAndWeightsModels) {
  Succeeds(Training(3, {"--save", "net.pb"}));
  const json expected = Test({"--weights", "net.pb"});
  for (const char* file : {"net.safetensors", "net.npz"}) {
    EXPECT_EQ(Succeeds({"convert", "net.pb", file}).out, std::string(file) + ": 6 tensors\n");
    EXPECT_EQ(LoadWeights(PathOf(file)).tensors, LoadModel(PathOf("net.pb")).params);
    EXPECT_EQ(Test({"--model", "mlp", "--weights", file}), expected);
    Succeeds(Words{"predict", "--model", "mlp", "--weights", file} + kTestDigits);
    Succeeds({"convert", file, "back.pb", "--model", "mlp"});
    EXPECT_EQ(Test({"--model", "back.pb"}), expected);
    Fails(2, "holds weights but no graph: name the model with --model", {"convert", file, "back.pb"});
    Fails(2, "holds weights but no graph: name the model with --model", Words{"test", "--weights", file} + kTestDigits);
    Fails(5, "2 of its 6 tensors are not in the model",
          Words{"test", "--model", "lenet", "--weights", file} + kTestDigits);
  }
  for (const char* from : {"bindery-checkpoints", "bindery-checkpoints/step-0000000006.ckpt"}) {
    Succeeds({"convert", from, "of-checkpoint.safetensors"});
    EXPECT_EQ(LoadWeights(PathOf("of-checkpoint.safetensors")).tensors, LoadModel(PathOf("net.pb")).params);
  }
  Fails(2, "OUT: expected a name that ends in", {"convert", "net.pb", "net.bin"});
  Fails(2, "IN and OUT are the same", {"convert", "net.pb", "./net.pb"});
  Fails(2, "OUT is required", {"convert", "net.pb"});
  Fails(2, "test takes options only; did you mean \"--model net.pb\"?", {"test", "net.pb"});
}

TEST_F(WeightsCommandsTest, CheckpointsAreModels) {
  Succeeds(Training(2, {"--save", "net.pb"}));
  const json expected = Test({"--model", "net.pb"});
  const Outcome shown = Succeeds({"inspect", "--model", "net.pb"});
  for (const char* from : {"bindery-checkpoints", "bindery-checkpoints/step-0000000004.ckpt"}) {
    EXPECT_EQ(Test({"--model", from}), expected);
    EXPECT_EQ(Test({"--weights", from}), expected);
    EXPECT_EQ(Test({"--model", "mlp", "--weights", from}), expected);
    EXPECT_EQ(Succeeds({"inspect", "--model", from}).out, shown.out);
    Succeeds({"time", "--weights", from, "--steps", "1", "--warmup", "1", "--batch-size", "2"});
    Succeeds({"train", "--model", "mlp(classes=12)", "--weights", from, "--map", "fc3.*=", "--train-digits", "64",
              "--test-digits", "50", "--epochs", "1", "--checkpoints="});
    Fails(2, "--model: a checkpoint has a graph", {"convert", from, "back.pb", "--model", "mlp"});
  }
  Fails(4, "\".\" is a folder without a checkpoint", {"convert", ".", "back.pb"});
}

TEST_F(WeightsCommandsTest, TrainedModelsBecomeIntegers) {
  Succeeds(Training(3, {"--save", "net.pb"}));
  const Words quantize = {"convert",     "net.pb", "small.pb",         "--int8",
                          "--calibrate", "digits", "--calibrate-part", "0.02"};
  const double expected = Test({"--model", "net.pb"}).at("cross-entropy");
  for (const Words& more : {Words{}, {"--activations", "int8"}, {"--percentile", "99.99"}}) {
    EXPECT_EQ(Succeeds(quantize + more).out, "small.pb: 12 tensors\n");
    EXPECT_EQ(LoadModel(PathOf("small.pb")).params.at("fc1_weight").dtype(), DType::kInt8);
    EXPECT_NEAR(Test({"--model", "small.pb"}).at("cross-entropy").get<double>(), expected, 0.03);
    const std::string plan = Succeeds({"inspect", "--model", "small.pb", "--predict", "--plan"}).out;
    EXPECT_NE(plan.find("QuantizedFullyConnected"), std::string::npos);
  }
  Succeeds({"convert", "small.pb", "small.onnx"});
  EXPECT_NEAR(Test({"--model", "small.onnx"}).at("cross-entropy").get<double>(), expected, 0.03);
  Fails(2, "--int8 needs --calibrate DATA", {"convert", "net.pb", "small.pb", "--int8"});
  Fails(2, "--int8: OUT must be a model", {"convert", "net.pb", "w.npz", "--int8", "--calibrate", "digits"});
  Fails(2, "--calibrate is about --int8, which is not given", {"convert", "net.pb", "a.pb", "--calibrate", "digits"});
  Fails(2, "--activations: expected uint8 or int8", quantize + Words{"--activations", "int4"});
  Fails(2, "--int8: layers of models of text",
        {"convert", "net.pb", "small.pb", "--int8", "--calibrate", "text:net.pb"});
  Fails(4, "--calibrate: \"nowhere\" is neither a folder nor",
        {"convert", "net.pb", "small.pb", "--int8", "--calibrate", "nowhere"});
  Write("rows.csv", "1,2,0\n1,3,1\n2,2,0\n2,3,1\n3,2,0\n3,3,1\n");
  Write("rows.prototxt", "train: \"csv:rows.csv\" validation_part: 0");
  Fails(4, "--calibrate: samples of (1, 1, 2) do not fit \"net.pb\"",
        {"convert", "net.pb", "small.pb", "--int8", "--calibrate", "rows.prototxt", "--calibrate-part", "0.5"});
  Fails(3, "nothing to quantize", {"convert", "small.pb", "twice.pb", "--int8", "--calibrate", "digits"});
}

// A backbone under other names, and a head for other classes.
TEST_F(WeightsCommandsTest, FineTunesWeightsOfOtherNames) {
  Succeeds(Training(3, {"--save", "net.pb"}));
  Succeeds({"convert", "net.pb", "theirs.safetensors", "--map", R"((fc\d)_(.*)=backbone.\1.\2)"});
  EXPECT_TRUE(LoadWeights(PathOf("theirs.safetensors")).tensors.contains("backbone.fc1.weight"));
  const Words tune = {"--weights", "theirs.safetensors", "--checkpoints", "tuned"};
  Fails(5, "\n  \"backbone.fc1.bias\"", Training(1, tune));
  const std::string map = R"(backbone\.fc3.*=; backbone\.(.*)\.(.*)=\1_\2)";
  Fails(5, "the rule \"head.*=\" renames nothing", Training(1, tune + Words{"--map", map + ";head.*="}));
  Fails(2, "--map: a rule for names: expected EXPRESSION=NAME", Training(1, tune + Words{"--map", "head"}));
  Fails(2, "--map is for the names in --weights", Training(1, {"--map", map}));
  Fails(5,
        "2 of its tensors do not fit the model; rules for names can leave them out:\n  \"fc3_weight\" is (10, 64), the "
        "model's is (3, 64)",
        {"train", "--model", "mlp(classes=3)", "--weights", "theirs.safetensors", "--map",
         R"(backbone\.(.*)\.(.*)=\1_\2)"});
  const Outcome tuned = Succeeds(Training(1, tune + Words{"--map", map, "--optimizer", "sgd(lr=0)"}));
  const Model before = LoadModel(PathOf("net.pb"));
  Succeeds({"convert", "tuned", "after.pb"});
  const Model after = LoadModel(PathOf("after.pb"));
  EXPECT_EQ(after.params.at("fc2_weight"), before.params.at("fc2_weight"));
  EXPECT_NE(after.params.at("fc3_weight"), before.params.at("fc3_weight"));
  Succeeds({"train", "--resume", "--checkpoints", "tuned", "--epochs", "2"});  // weights and rules are the run's
}

// Weights of fewer bits are trained in float32.
TEST_F(WeightsCommandsTest, HalfPrecisionWeightsAreTakenUp) {
  Succeeds(Training(1, {"--save", "net.pb"}));
  Weights weights = WeightsOf(LoadModel(PathOf("net.pb")));
  for (auto& [name, tensor] : weights.tensors) tensor = tensor.Cast(DType::kBFloat16);
  SaveWeights(weights, PathOf("half.safetensors"));
  const Words half = {"--model", "mlp", "--weights", "half.safetensors"};
  EXPECT_NEAR(Test(half).at("cross-entropy").get<double>(),
              Test({"--model", "net.pb"}).at("cross-entropy").get<double>(), 0.02);
  Succeeds(Training(1, {"--weights", "half.safetensors", "--checkpoints", "half", "--save", "tuned.pb"}));
  EXPECT_EQ(LoadModel(PathOf("tuned.pb")).params.at("fc1_weight").dtype(), DType::kFloat32);
}

// What is frozen stays, to the bit, with weight decay, too, and when the run goes on.
TEST_F(WeightsCommandsTest, FrozenParametersStay) {
  Succeeds(Training(1, {"--save", "net.pb", "--checkpoints="}));
  const Words tune = {"--weights", "net.pb", "--freeze", "fc1*,fc2_bias", "--optimizer", "sgd(lr=0.1, wd=0.01)"};
  Succeeds(Training(1, tune));
  Succeeds(Training(2, {"--resume", "--save", "tuned.pb"}));
  const Model before = LoadModel(PathOf("net.pb")), after = LoadModel(PathOf("tuned.pb"));
  for (const auto& [name, value] : before.params) {
    EXPECT_EQ(after.params.at(name) == value, name.starts_with("fc1") || name == "fc2_bias") << name;
  }
  Fails(2, "--freeze: no parameter is \"fc1_wieght\"; did you mean \"fc1_weight\"?",
        Training(1, {"--freeze", "fc1_wieght", "--checkpoints="}));
  Fails(2, "--freeze: nothing is left to be trained", Training(1, {"--freeze", "*", "--checkpoints="}));
}

// A graph and values that MXNet saved: four numbers in, three classes.
TEST_F(WeightsCommandsTest, MxnetModelsAreModels) {
  for (const char* file : {"mlp-symbol.json", "mlp-0000.params"}) {
    fs::copy(std::string("tests/train/stored/mxnet/") + file, PathOf(file));
  }
  std::string rows = "a,b,c,d,species\n";
  const char* kSpecies[] = {"iris", "rose", "tulip"};
  for (int i = 0; i < 120; ++i) {
    rows += std::to_string(i % 3 - 1) + "," + std::to_string(i % 5 * 0.1) + "," + std::to_string(i % 7 * 0.1) + ",1," +
            kSpecies[i % 3] + "\n";
  }
  Write("four.csv", rows);
  const std::string data = "csv:four.csv?label=species";
  const auto accuracy = [&](const std::string& model) {
    const Outcome tested = Succeeds({"test", "--json", "--model", model, "--data", data});
    return json::parse(tested.out).at("accuracy").get<double>();
  };
  const double before = accuracy("mlp-symbol.json");
  EXPECT_LT(before, 1);
  Succeeds({"predict", "--model", "mlp-symbol.json", "--data", data});
  // One that ends in scores gets a softmax, whatever blocks gradients inside.
  std::string scores = Read("mlp-symbol.json");
  for (const auto& [from, to] : {std::pair("\"Activation\"", "\"BlockGrad\""),
                                 {"{\"act_type\": \"relu\"}", "{}"},
                                 {"[[14, 0, 0]]", "[[12, 0, 0]]"}}) {
    ASSERT_NE(scores.find(from), std::string::npos) << from;
    scores.replace(scores.find(from), std::string(from).size(), to);
  }
  Write("scores-symbol.json", scores);
  fs::copy(PathOf("mlp-0000.params"), PathOf("scores-0000.params"));
  Succeeds({"train", "--model", "scores-symbol.json", "--data", data, "--epochs", "1", "--checkpoints="});
  EXPECT_EQ(Json({"inspect", "--json", "--model", "mlp-symbol.json", "--shape", "6,4"}).at("parameters"), 63);
  Succeeds({"train", "--model", "mlp-symbol.json", "--data", data, "--epochs", "30", "--batch-size", "16",
            "--checkpoints=", "--save", "tuned.pb"});
  EXPECT_EQ(accuracy("tuned.pb"), 1);
  Fails(2, "--save: \"tuned-symbol.json\": MXNet's files are read, not written",
        {"train", "--model", "mlp-symbol.json", "--data", data, "--save", "tuned-symbol.json"});
  Write("mlp-0000.params", "damaged");
  Fails(3, "mlp-0000.params: not a file of MXNet's arrays", {"test", "--model", "mlp-symbol.json", "--data", data});
}

TEST_F(WeightsCommandsTest, ParametersHaveRatesOfTheirOwn) {
  Succeeds(Training(1, {"--save", "net.pb", "--checkpoints="}));
  const Words tune = {"--weights", "net.pb", "--lr-mult",   "fc1*=0, fc2_bias=0",
                      "--wd-mult", "fc3*=0", "--optimizer", "sgd(lr=0.1, wd=0.01)"};
  Succeeds(Training(1, tune));
  Succeeds(Training(2, {"--resume", "--save", "tuned.pb"}));
  const Model before = LoadModel(PathOf("net.pb")), after = LoadModel(PathOf("tuned.pb"));
  for (const auto& [name, value] : before.params) {
    EXPECT_EQ(after.params.at(name) == value, name.starts_with("fc1") || name == "fc2_bias") << name;
  }
  const auto refused = [&](const std::string& text, const std::string& message) {
    Fails(2, message, Training(1, {"--lr-mult", text, "--checkpoints="}));
  };
  refused("fc9_weight=1", "--lr-mult: multipliers: \"fc9_weight\" fits no parameter; did you mean \"fc1_weight\"?");
  refused("fc1", "--lr-mult: expected NAMES=NUMBER, as \"conv*=0.1\", got \"fc1\"");
  refused("fc1*=-1", "--lr-mult: ");
}

}  // namespace
}  // namespace bindery
