// Models that the program did not make: token numbers as input, several inputs; and labels as other programs keep them.
#include "symbol/ops.h"
#include "tests/tools/program.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

constexpr int kSamples = 40, kLength = 5, kWords = 9, kClasses = 3;

HostTensor Ramp(const Shape& shape) {
  HostTensor values(DType::kFloat32, shape);
  for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, 0.1 * static_cast<double>(i * 7 % 11) - 0.5);
  return values;
}

class InputsCommandsTest : public ProgramTest {
 protected:
  // Sentences of five words, (N, 5), whose class is that of the first; the labels as numbers, (N) and (N, 1), and as a
  // 1 among zeros.
  static Weights Sentences(DType dtype) {
    HostTensor x(dtype, {kSamples, kLength}), y(DType::kInt64, {kSamples}), hot(DType::kUInt8, {kSamples, kClasses});
    for (int i = 0; i < kSamples; ++i) {
      for (int t = 0; t < kLength; ++t) x.Set(i * kLength + t, (i + t * t) % kWords);
      y.Set(i, i % kWords % kClasses);
      hot.Set(i * kClasses + i % kWords % kClasses, 1);
    }
    return {.tensors = {{"x", x}, {"y", y}, {"column", y.Reshape({kSamples, 1})}, {"hot", hot}}};
  }
  // Of int64 numbers, as PyTorch's are.
  static Model OfTokens() {
    const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, kLength}, .dtype = DType::kInt64});
    const Symbol found = Reshape(Embedding(data, {.input_dim = kWords, .output_dim = 4}, "embed"), {.shape = {0, -1}});
    return {.symbol = SoftmaxOutput(FullyConnected(found, {.num_hidden = kClasses}, "fc"), {}, "softmax"),
            .params = {{"embed_weight", Ramp({kWords, 4})},
                       {"fc_weight", Ramp({kClasses, 4 * kLength})},
                       {"fc_bias", Ramp({kClasses})}}};
  }
  static Words Train(const std::string& model, const std::string& data, const Words& more = {}) {
    return Words{"train", "--model", model, "--data", data, "--epochs", "2", "--batch-size", "8", "--threads", "1"} +
           more;
  }
};

TEST_F(InputsCommandsTest, TokensAreWhatTheModelDeclares) {
  SaveModel(OfTokens(), PathOf("tokens.pb"));
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kFloat32}) {
    SaveWeights(Sentences(dtype), PathOf("x.npz"));
    Succeeds(Train("tokens.pb", "npz:x.npz", {"--save", "trained.pb", "--checkpoints="}));
    Succeeds({"test", "--model", "trained.pb", "--data", "npz:x.npz"});
    Succeeds({"predict", "--model", "trained.pb", "--data", "npz:x.npz"});
  }
  Succeeds({"time", "--model", "tokens.pb", "--steps", "1", "--warmup", "1", "--batch-size", "4"});
  Fails(2, "--shape: two for \"data\", one of them without its name",
        {"inspect", "--model", "tokens.pb", "--shape", "4,5;data=4,5"});
  Weights broken = Sentences(DType::kFloat32);
  broken.tensors.at("x").Set(7, 1.5);
  SaveWeights(broken, PathOf("x.npz"));
  Fails(4, "\"data\": expected values of int64, got 1.5", {"predict", "--model", "tokens.pb", "--data", "npz:x.npz"});
}

TEST_F(InputsCommandsTest, LabelsOfOneClassInAnyForm) {
  SaveWeights(Sentences(DType::kFloat32), PathOf("x.npz"));
  for (const std::string label : {"y", "column", "hot"}) {
    const std::string data = "npz:x.npz?label=" + label;
    Succeeds(Train("mlp", data, {"--checkpoints=", "--save", label + ".pb"}));
    Succeeds({"test", "--model", label + ".pb", "--data", data, "--confusion"});
    EXPECT_EQ(LoadModel(PathOf(label + ".pb")).params, LoadModel(PathOf("y.pb")).params) << label;
  }
}

// As many classes as the data have, also with weights; but for those of a head for more.
TEST_F(InputsCommandsTest, WeightsOfAsManyClassesAsTheDataFit) {
  Weights ten = Sentences(DType::kFloat32);
  for (int i = 0; i < kSamples; ++i) ten.tensors.at("y").Set(i, i % 10);
  SaveWeights(ten, PathOf("ten.npz"));
  SaveWeights(Sentences(DType::kFloat32), PathOf("x.npz"));
  Succeeds(Train("mlp", "npz:x.npz", {"--checkpoints=", "--save", "three.pb"}));
  Succeeds(Train("mlp", "npz:ten.npz", {"--checkpoints=", "--save", "ten.pb"}));
  Succeeds({"convert", "three.pb", "three.safetensors"});
  for (const auto& [weights, classes] :
       {std::pair("three.pb", 3), std::pair("three.safetensors", 3), std::pair("ten.pb", 10)}) {
    Succeeds(Train("mlp", "npz:x.npz", {"--weights", weights, "--checkpoints=", "--save", "again.pb"}));
    EXPECT_EQ(LoadModel(PathOf("again.pb")).params.at("fc3_bias").shape(), Shape{classes}) << weights;
  }
  EXPECT_NE(Succeeds(Train("mlp", "npz:x.npz",
                           {"--weights", "ten.pb", "--map", "fc3.*=", "--checkpoints=", "--save", "again.pb"}))
                .err,
            "");
  EXPECT_EQ(LoadModel(PathOf("again.pb")).params.at("fc3_bias").shape(), Shape{3});
}

TEST_F(InputsCommandsTest, AHeadWithMoreClassesIsWarnedOf) {
  SaveModel(OfTokens(), PathOf("tokens.pb"));
  Weights two = Sentences(DType::kInt64);
  for (int i = 0; i < kSamples; ++i) two.tensors.at("y").Set(i, i % 2);
  SaveWeights(two, PathOf("two.npz"));
  SaveWeights(Sentences(DType::kInt64), PathOf("x.npz"));
  const std::string warning = "model \"tokens.pb\" tells 3 classes apart, but the data have 2: its head stays as it is";
  EXPECT_NE(Succeeds(Train("tokens.pb", "npz:two.npz", {"--checkpoints="})).err.find(warning), std::string::npos);
  EXPECT_EQ(Succeeds(Train("tokens.pb", "npz:x.npz", {"--checkpoints="})).err.find("its head stays"),
            std::string::npos);
}

TEST_F(InputsCommandsTest, SeveralInputsAreShownAndTimed) {
  const auto input = [](const char* name) { return Variable(name, {.shape = Shape{kUnknownDim, 4}}); };
  const Symbol both =
      FullyConnected(input("left"), {.num_hidden = 2}, "a") + FullyConnected(input("right"), {.num_hidden = 2}, "b");
  Model model{.symbol = both};
  for (const std::string name : {"a", "b"}) {
    model.params[name + "_weight"] = Ramp({2, 4});
    model.params[name + "_bias"] = Ramp({2});
  }
  SaveModel(model, PathOf("two.pb"));
  const Words inspect = {"inspect", "--model", "two.pb", "--batch-size", "8"};
  for (const char* name : {"left", "right", "(8, 4)", "(8, 2)"}) {
    EXPECT_NE(Succeeds(inspect).out.find(name), std::string::npos) << name;
  }
  for (const Words& more :
       {Words{"--plan", "--predict"}, Words{"--memory", "--predict"}, Words{"--json"}, Words{"--dot", "-"}}) {
    Succeeds(inspect + more);
  }
  EXPECT_NE(Succeeds(inspect + Words{"--memory-limit", "1M", "--predict"}).out.find("largest batch"),
            std::string::npos);
  Fails(2, "the model has 2 inputs, \"left\" (?, 4), \"right\" (?, 4): say whose it is, as \"left=64,...\"",
        inspect + Words{"--shape", "8,4"});
  EXPECT_NE(Succeeds(inspect + Words{"--shape", "right=3,4"}).out.find("(3, 2)"), std::string::npos);  // left, too
  Fails(2, "--shape: the model has no input \"rihgt\"; did you mean \"right\"?",
        inspect + Words{"--shape", "left=3,4;rihgt=3,4"});
  Fails(2, "--shape: two for \"left\"", inspect + Words{"--shape", "left=3,4;left=3,4"});
  const Words time = {"time", "--model", "two.pb", "--steps", "1", "--warmup", "1", "--batch-size", "4"};
  Succeeds(time + Words{"--predict"});
  Fails(3, "the model has no loss with a label", time);
  SaveWeights(Sentences(DType::kFloat32), PathOf("x.npz"));
  Fails(3,
        "no argument \"data\", which takes the samples; its inputs are left, right: arrays of npz:FILE may be called",
        Train("two.pb", "npz:x.npz"));
}

// Shapes that a file leaves open are said, or are those of the data; its output of classes gets a head.
TEST_F(InputsCommandsTest, SeveralInputsOfAnotherSystem) {
  const Shape open = {kUnknownDim, kUnknownDim};
  const auto product = [](const Symbol& x, const std::string& name) {
    return MatMul(x, Variable(name, {.shape = Shape{3, 2}}));
  };
  Model model{.symbol = Softmax(product(Variable("left", {.shape = open}), "a") +
                                product(Variable("right", {.shape = open}), "b"))};
  model.params = {{"a", Ramp({3, 2})}, {"b", Ramp({3, 2})}};
  SaveModel(model, PathOf("two.onnx"));
  SaveModel(model, PathOf("open.pb"));  // an ONNX file has what follows from the values
  const Words inspect = {"inspect", "--model", "open.pb", "--predict", "--plan"};
  Fails(2, "\"left\" (64, ?), \"right\" (64, ?): --shape \"left=64,...\" does", inspect);
  EXPECT_NE(Succeeds(inspect + Words{"--shape", "left=5,3;right=5,3"}).out.find("(5, 2)"), std::string::npos);
  Succeeds({"time", "--model", "two.onnx", "--shape", "left=5,3;right=5,3", "--steps", "1", "--warmup", "1"});
  HostTensor y(DType::kInt64, {kSamples});
  for (int i = 0; i < kSamples; ++i) y.Set(i, i % 2);
  SaveWeights({.tensors = {{"left", Ramp({kSamples, 3})}, {"right", Ramp({kSamples, 3})}, {"y", y}}}, PathOf("x.npz"));
  Succeeds(Train("two.onnx", "npz:x.npz", {"--save", "done.pb"}));
  Succeeds({"test", "--model", "done.pb", "--data", "npz:x.npz", "--confusion"});
  Succeeds({"inspect", "--model", "done.pb", "--plan"});  // as it was trained
}

// Arrays of an archive are matched to inputs by name: here tokens, and numbers for which the graph declares no shape.
TEST_F(InputsCommandsTest, SeveralInputsAreTrainedTestedAndAsked) {
  const Symbol tokens = Variable("tokens", {.shape = Shape{kUnknownDim, kLength}, .dtype = DType::kInt32});
  const Symbol found = Reshape(Embedding(tokens, {.input_dim = kWords, .output_dim = 4}, "embed"), {.shape = {0, -1}});
  const Symbol row = FullyConnected(Variable("row"), {.num_hidden = 4}, "row_fc");
  const Symbol scores = FullyConnected(Concat({found, row}), {.num_hidden = kClasses}, "fc");
  SaveModel({.symbol = SoftmaxOutput(scores, {}, "softmax")}, PathOf("two.pb"));
  Weights arrays = Sentences(DType::kUInt8);
  HostTensor rows(DType::kFloat64, {kSamples, 2});
  for (int i = 0; i < rows.elements(); ++i) rows.Set(i, 0.1 * (i % 7));
  arrays.tensors = {{"tokens", arrays.tensors.at("x")}, {"row", rows}, {"y", arrays.tensors.at("y")}};
  arrays.tensors["fc_weight"] = rows;  // called like a parameter: no input
  SaveWeights(arrays, PathOf("both.npz"));
  const Outcome trained = Succeeds(Train("two.pb", "npz:both.npz",
                                         {"--optimizer", "adam(lr=0.05)", "--seed", "1", "--save", "done.pb",
                                          "--class-weights", "balanced", "--tensorboard", "board"}));
  EXPECT_NE(trained.err.find("samples of (5) and (2)"), std::string::npos) << trained;
  const size_t parameters = kWords * 4 + 2 * 4 + 4 + (kLength * 4 + 4) * kClasses + kClasses;
  EXPECT_NE(trained.out.find(std::to_string(parameters) + " parameters"), std::string::npos) << trained;
  Succeeds({"train", "--resume", "--epochs", "30", "--quiet"});
  Succeeds({"test", "--data", "npz:both.npz", "--test-part", "1", "--min-accuracy", "0.9", "--confusion"});
  arrays.tensors["softmax_label"] = arrays.tensors.at("y");  // the label's name in the graph
  arrays.tensors.erase("y");
  SaveWeights(arrays, PathOf("named.npz"));
  const Outcome known = Succeeds({"predict", "--data", "npz:named.npz", "--json"});
  arrays.tensors.erase("softmax_label");  // of what is to be predicted nobody knows
  SaveWeights(arrays, PathOf("new.npz"));
  const Outcome unknown = Succeeds({"predict", "--data", "npz:new.npz", "--json"});
  EXPECT_NE(known.out.find("\"label\":1"), std::string::npos) << known;
  EXPECT_NE(unknown.out.find("\"label\":null"), std::string::npos) << unknown;
  Succeeds({"predict", "--model", "done.pb", "--data", "npz:new.npz"});
  Succeeds({"inspect", "--model", "done.pb", "--plan"});
  Fails(4, "no array \"y\"", {"test", "--data", "npz:new.npz"});

  arrays.tensors["row"] = HostTensor(DType::kFloat32, {kSamples, 3});
  SaveWeights(arrays, PathOf("wide.npz"));
  Fails(4, "samples \"row\" of (3) do not fit", {"predict", "--data", "npz:wide.npz"});
  arrays.tensors["row"] = HostTensor(DType::kFloat32, {kSamples - 1, 2});
  SaveWeights(arrays, PathOf("few.npz"));
  Fails(4, "\"row\" has 39 samples, but \"tokens\" has 40", {"predict", "--data", "npz:few.npz"});
  arrays.tensors.erase("row");
  SaveWeights(arrays, PathOf("one.npz"));
  const std::string alone = "the model takes \"row\", too, but the data give \"tokens\" alone: those of npz:FILE have";
  Fails(3, alone, {"predict", "--data", "npz:one.npz"});
}

TEST_F(InputsCommandsTest, PredictionsAreWrittenInFormsThatAreKnown) {
  Fails(2, "--output: \"a.xlsx\": predictions are written as .csv or .npy", {"predict", "--output", "a.xlsx"});
}

}  // namespace
}  // namespace bindery
