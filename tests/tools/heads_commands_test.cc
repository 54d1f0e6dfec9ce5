// What `bindery test` and `predict` say of models whose head is no softmax over several classes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

class HeadsCommandsTest : public ProgramTest {
 protected:
  // 80 points; is x above y?
  HeadsCommandsTest() {
    std::string rows = "x,y,above\n";
    for (int i = 0; i < 80; ++i) {
      const int x = i * 7 % 20, y = i * 3 % 20 + (i % 2);
      rows += std::to_string(x / 20.0) + "," + std::to_string(y / 20.0) + (x > y ? ",yes\n" : ",no\n");
    }
    Write("points.csv", rows);
  }
  json Answers(const Words& model) const {
    const Words all = {"--data", kData, "--test-part", "1", "--show", "80", "--json"};
    return Json(Words{"predict"} + model + all);
  }
  // One score of each point.
  static Symbol Score() {
    return FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 2}}), {.num_hidden = 1}, "fc");
  }
  static constexpr const char* kData = "csv:points.csv";
};

// One column tells two classes apart: at 0.5.
TEST_F(HeadsCommandsTest, ASigmoid) {
  SaveModel({.symbol = LogisticRegressionOutput(Score(), Variable("softmax_label"), {}, "out")}, PathOf("above.pb"));
  Succeeds({"train", "--model", "above.pb", "--data", kData, "--epochs", "60", "--batch-size", "16", "--threads", "1",
            "--optimizer", "adam(lr=0.05)", "--save", "above.onnx", "--quiet"});
  const json tested = Json({"test", "--confusion", "--json", "--test-part", "1"});
  const json& confusion = tested.at("confusion");
  ASSERT_EQ(confusion.size(), 2u) << tested;
  EXPECT_EQ(tested.at("unjudged"), 0);
  EXPECT_EQ(tested.at("classes").at(1).at("name"), "yes");
  const int right = confusion[0][0].get<int>() + confusion[1][1].get<int>();
  EXPECT_EQ(right + confusion[0][1].get<int>() + confusion[1][0].get<int>(), 80) << confusion;
  EXPECT_GT(right, 76);
  Succeeds({"test", "--report", "report.html", "--test-part", "1"});

  const json answers = Answers({});
  int agree = 0;
  for (const json& one : answers) {
    EXPECT_GE(one.at("probability").get<double>(), 0.5) << one;
    agree += one.at("class") == one.at("label");
  }
  EXPECT_EQ(agree, right);
  EXPECT_EQ(answers.at(0).at("name"), answers.at(0).at("class") == 1 ? "yes" : "no");
  EXPECT_EQ(Answers({"--top", "2"}).at(0).at("top").size(), 2u);

  // What was exported ends in a sigmoid, and is the same model.
  const json of_file = Answers({"--model", "above.onnx"});
  ASSERT_EQ(of_file.size(), answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(of_file[i].at("class"), answers[i].at("class"));
    EXPECT_NEAR(of_file[i].at("probability").get<double>(), answers[i].at("probability").get<double>(), 1e-5);
  }
  const Words on_all = {"--data", kData, "--test-part", "1"};
  const json again = Json(Words{"test", "--model", "above.onnx", "--confusion", "--json"} + on_all);
  EXPECT_EQ(again.at("confusion"), confusion);
}

// As the loss of that name, which is PyTorch's; what is measured is of the labels as they are.
TEST_F(HeadsCommandsTest, LabelsThatAreSmoothed) {
  const Symbol label = Variable("softmax_label");
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 2}});
  std::string rows = "x,y,kind\n";
  for (int i = 0; i < 60; ++i) rows += fmt::format("{},{},{}\n", i * 7 % 20 / 20.0, i * 3 % 20 / 20.0, "abc"[i % 3]);
  Write("kinds.csv", rows);
  const Symbol scores = FullyConnected(data, {.num_hidden = 3}, "fc");
  const auto train = [&](const std::string& name, const Symbol& symbol, const Words& more) {
    SaveModel({.symbol = symbol}, PathOf(name + ".pb"));
    Succeeds(Words{"train", "--model", name + ".pb", "--data", "csv:kinds.csv", "--epochs", "5", "--batch-size", "16",
                   "--quiet", "--threads", "1", "--save", name + "-done.pb", "--checkpoints", name} +
             more);
    return LoadModel(PathOf(name + "-done.pb"));
  };
  const auto weights = [](const Model& model) { return model.params.at("fc_weight"); };
  const Symbol softmax = SoftmaxOutput(scores, label, {}, "softmax");
  for (const char* part : {"0.3", "1"}) {
    const Symbol loss = SoftmaxCrossEntropy(scores, label, {.label_smoothing = std::stod(part)});
    const Model expected = train(std::string("own") + part, MakeLoss(loss, {}, "own"), {"--metrics", "loss"});
    const Model smoothed = train(std::string("smooth") + part, softmax, {"--label-smoothing", part});
    EXPECT_LT(MaxAbsDiff(weights(smoothed), weights(expected)), 1e-5) << part;
  }
  const Model plain = train("plain", softmax, {"--label-smoothing", "0"});
  EXPECT_GT(MaxAbsDiff(weights(plain), weights(LoadModel(PathOf("smooth0.3-done.pb")))), 1e-2);
  // Of the labels.
  const Words all = {"--checkpoints", "smooth0.3", "--test-part", "1"};
  Succeeds(Words{"predict", "--output", "scores.npy"} + all);
  const HostTensor probabilities = ReadNpy(PathOf("scores.npy"));
  double sum = 0;
  for (int i = 0; i < 60; ++i) sum -= std::log(probabilities.At(3 * i + i % 3));
  EXPECT_NEAR(Json(Words{"test", "--json"} + all).at("cross-entropy").get<double>(), sum / 60, 1e-5);
  // It stays so in the run and in the file, until another is said.
  Succeeds({"train", "--resume", "--checkpoints", "smooth0.3", "--epochs", "6", "--quiet"});
  Fails(5, "another graph",
        {"train", "--resume", "--checkpoints", "smooth0.3", "--epochs", "7", "--label-smoothing", "0"});
  const auto kept = [&](const Words& more) {
    Succeeds(Words{"train", "--model", "smooth0.3-done.pb", "--data", "csv:kinds.csv", "--epochs", "1", "--quiet",
                   "--checkpoints=", "--save", "tuned.pb"} +
             more);
    return LoadModel(PathOf("tuned.pb")).symbol.entries()[0].node->attrs().get<SoftmaxOutputAttrs>().smooth_alpha;
  };
  EXPECT_NEAR(kept({}), 0.3 * 2 / 3, 1e-12);
  EXPECT_EQ(kept({"--label-smoothing", "0"}), 0);
  Write("text.txt", std::string(100, 'a') + std::string(100, 'b'));
  Succeeds({"train", "--model", "lstm(layers=1, width=8, context=4)", "--data", "text:text.txt", "--label-smoothing",
            "0.1", "--epochs", "1", "--checkpoints=", "--quiet"});
  const std::string no_softmax = "--label-smoothing is for models whose only head is a softmax over classes";
  const Words smooth = {"--label-smoothing", "0.1", "--checkpoints="};
  Fails(2, no_softmax, Words{"train", "--model", "own1.pb", "--data", "csv:kinds.csv", "--metrics", "loss"} + smooth);
  Fails(2, no_softmax,
        Words{"train", "--model", "mlp(head=regression)", "--data", "csv:kinds.csv?label=x&leave_out=kind"} + smooth);
  Fails(2, "--label-smoothing: expected a number from 0 to 1, got \"1.5\"", {"train", "--label-smoothing", "1.5"});
}

// One column of a model from elsewhere that ends in no sigmoid is a number.
TEST_F(HeadsCommandsTest, OneNumberOfAModelFromElsewhere) {
  Write("goods.csv", "x,y,price\n0.5,0.25,0.75\n0.5,1,0\n");
  Model model{.symbol = Score()};
  model.params = {{"fc_weight", HostTensor::From({1, 2}, {2, -1})}, {"fc_bias", HostTensor::From({1}, {0})}};
  for (const char* file : {"price.onnx", "price.pb"}) {
    SaveModel(model, PathOf(file));
    const std::string data = "csv:goods.csv";
    const json answers = Json({"predict", "--model", file, "--data", data, "--json"});
    EXPECT_FLOAT_EQ(answers.at(0).at("values").at("value").get<float>(), 0.75) << answers;
    EXPECT_FLOAT_EQ(answers.at(1).at("values").at("value").get<float>(), 0) << answers;
  }
  const Words test = {"test", "--json", "--model", "price.onnx", "--data", "csv:goods.csv", "--test-part", "1"};
  EXPECT_NEAR(Json(test).at("rmse").get<double>(), 0, 1e-6);
}

// Answers for each pixel are no list of classes.
TEST_F(HeadsCommandsTest, AClassForEachPixel) {
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 1, 4, 4}});
  const Symbol scores = Convolution(data, {.num_filter = 2, .kernel = {1, 1}}, "conv");
  Model model{.symbol = SoftmaxOutput(scores, {.multi_output = true}, "softmax")};
  model.params = {{"conv_weight", HostTensor::From({2, 1, 1, 1}, {1, -1})},
                  {"conv_bias", HostTensor::From({2}, {0, 0})}};
  SaveNpy(HostTensor(DType::kFloat32, {3, 1, 4, 4}), PathOf("data.npy"));
  SaveNpy(HostTensor(DType::kInt32, {3, 4, 4}), PathOf("labels.npy"));
  for (const std::string file : {"pixels.pb", "pixels.onnx"}) {
    SaveModel(model, PathOf(file));
    const Words predict = {"predict", "--model", file, "--data", "npy:data.npy?labels=labels.npy"};
    Fails(3, "of shape (3, 2, 4, 4) is not one class of several for each sample; --output FILE.npy", predict);
    Fails(3, "--output FILE.npy", predict + Words{"--output", "answers.csv"});
    EXPECT_EQ(std::ranges::count(Files(), "answers.csv"), 0);
    EXPECT_EQ(Succeeds(predict + Words{"--output", "answers.npy"}).out, "answers.npy: (3, 2, 4, 4)\n");
    EXPECT_EQ(ReadNpy(PathOf("answers.npy")).shape(), Shape({3, 2, 4, 4}));
    EXPECT_EQ(Json(predict + Words{"--output", "answers.npy", "--json"}),
              json({{"file", "answers.npy"}, {"shape", {3, 2, 4, 4}}}));
  }
}

// All data but archives of arrays have one input to give.
TEST_F(HeadsCommandsTest, AModelOfTwoInputs) {
  Write("text.txt", "ab\n");
  const std::string more = "the model takes \"target\", too, but the data give \"data\"",
                    then = "alone: those of npz:FILE";
  for (const char* data : {"digits", "text:text.txt", kData}) {
    Fails(3, more + ", \"softmax_label\" " + then, {"train", "--model", "transformer", "--data", data});
  }
  SaveModel({.symbol = FullyConnected(Concat({Variable("data", {.shape = Shape{kUnknownDim, 2}}),
                                              Relu(Variable("target", {.shape = Shape{kUnknownDim, 2}}))}),
                                      {.num_hidden = 1, .no_bias = true}, "fc"),
             .params = {{"fc_weight", HostTensor(DType::kFloat32, {1, 4})}}},
            PathOf("two.pb"));
  Fails(3, more + " " + then, {"predict", "--model", "two.pb", "--data", kData});
  Succeeds({"inspect", "--model", "transformer"});
}

// What a name states counts: more classes than the data have, or an error.
TEST_F(HeadsCommandsTest, AsManyClassesAsTheNameStates) {
  const auto train = [&](const std::string& model, const std::string& data, const Words& more = {}) {
    return Words{"train", "--model", model, "--data", data, "--epochs", "1", "--checkpoints=", "--quiet"} + more;
  };
  const auto classes = [&](const std::string& file, const char* bias) {
    return LoadModel(PathOf(file)).params.at(bias).shape();
  };
  for (const auto& [model, stated] : {std::pair("mlp(classes=5)", 5), {"mlp(3)", 3}, {"mlp", 2}}) {
    Succeeds(train(model, kData, {"--save", "points.pb"}));
    EXPECT_EQ(classes("points.pb", "fc3_bias"), Shape({stated})) << model;
  }
  const Words digits = {"--train-digits", "50", "--test-digits", "10"};
  Succeeds(train("mlp(classes=12)", "digits", digits + Words{"--save", "digits.pb"}));
  EXPECT_EQ(classes("digits.pb", "fc3_bias"), Shape({12}));
  SaveNpy(HostTensor(DType::kFloat32, {4, 1, 8, 8}), PathOf("images.npy"));
  HostTensor pixels(DType::kInt32, {4, 8, 8});
  pixels.Set(9, 1);
  SaveNpy(pixels, PathOf("pixels.npy"));
  Succeeds(train("unet(classes=5)", "npy:images.npy?labels=pixels.npy", {"--test-part", "0.25", "--save", "unet.pb"}));
  EXPECT_EQ(classes("unet.pb", "head_bias"), Shape({5}));

  const auto refused = [&](const Words& words, const std::string& model, const std::string& why) {
    Fails(2, "--model: \"" + model + "\" tells " + why, words);
  };
  Write("three.csv", Read("points.csv") + "0.5,0.5,maybe\n");
  refused(train("mlp(classes=2)", "csv:three.csv"), "mlp(classes=2)", "2 classes apart, but the data have 3");
  refused(train("mlp(classes=4)", "digits", digits), "mlp(classes=4)", "4 classes apart, but the data have 10");
  Write("text.txt", std::string(40, 'a') + "bcd");
  refused(train("gpt(classes=300)", "text:text.txt"), "gpt(classes=300)",
          "300 classes apart, but the text has 4 characters, each a class");
  // Also where the head is trained anew, or is that of a file.
  const Words tune = {"--weights", "digits.pb", "--map", "fc3.*=", "--devices", "cpu:0,cpu:1"};
  refused(train("mlp(classes=2)", "digits", digits + tune), "mlp(classes=2)", "2 classes apart, but the data have 10");
  SaveModel(
      {.symbol = SoftmaxOutput(
           FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 2}}), {.num_hidden = 2}, "fc"), {}, "softmax")},
      PathOf("two.pb"));
  Fails(4, "--data: the labels are of 3 classes, but model \"two.pb\" tells 2 apart", train("two.pb", "csv:three.csv"));

  // A checkpoint is of as many as it was trained for.
  Succeeds(Words{"train", "--model", "mlp(classes=5)", "--data", kData, "--epochs", "1", "--quiet"});
  for (const char* model : {"mlp", "mlp(classes=5)"}) Succeeds({"test", "--model", model});
  Succeeds({"train", "--resume", "--epochs", "2"});
}

}  // namespace
}  // namespace bindery
