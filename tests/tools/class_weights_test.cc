// `bindery train --class-weights`: which weights the head of the model gets, and what it learns by them.
#include <fmt/format.h>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/tools/program.h"
#include "train/weights/weights.h"

namespace bindery {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<double>;

class ClassWeightsTest : public ProgramTest {
 protected:
  // 90 points, of which 60 are "well", 10 "ill" and 20 "unsure": in this order, that of the names.
  ClassWeightsTest() {
    std::string rows = "x,y,state\n";
    for (int i = 0; i < 90; ++i) {
      const char* state = i % 9 == 0 ? "ill" : i % 9 < 3 ? "unsure" : "well";
      rows += fmt::format("{},{},{}\n", i * 7 % 20 / 20.0, i * 3 % 20 / 20.0, state);
    }
    Write("states.csv", rows);
  }
  static Symbol Scores() {
    return FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 2}}), {.num_hidden = 3}, "fc");
  }
  Model Trained(const Words& more) const {
    Succeeds(kTrain + Words{"--epochs", "5", "--batch-size", "16", "--threads", "1", "--quiet", "--save", "m.pb"} +
             more);
    return LoadModel(PathOf("m.pb"));
  }
  static Numbers WeightsOf(const Model& model) {
    return model.symbol.entries()[0].node->attrs().get<SoftmaxOutputAttrs>().class_weights;
  }
  const Words kTrain = {"train", "--data", "csv:states.csv", "--test-data", "csv:states.csv"};
  const Words kMlp = {"--model", "mlp", "--checkpoints="};
};

TEST_F(ClassWeightsTest, WhatIsSaid) {
  const auto weights = [&](const std::string& text) {
    return WeightsOf(Trained(kMlp + Words{"--class-weights", text}));
  };
  EXPECT_EQ(weights("balanced"), (Numbers{90 / 30.0, 90 / 60.0, 90 / 180.0}));  // as scikit-learn
  EXPECT_EQ(weights("10,0,1.5"), (Numbers{10, 0, 1.5}));
  EXPECT_EQ(weights("well=0.5, ill=4"), (Numbers{4, 1, 0.5}));
  EXPECT_EQ(WeightsOf(Trained(kMlp)), Numbers());
  const auto fails = [&](const std::string& message, const std::string& text) {
    Fails(2, "--class-weights: " + message, kTrain + kMlp + Words{"--class-weights", text});
  };
  fails("2 numbers for 3 classes, which are ill, unsure, well", "1,2");
  fails("there is no class \"wel\"; did you mean \"well\"?", "wel=2");
  fails("there is no class \"0\"", "0=2");
  fails("class \"ill\" is there twice", "ill=2,ill=3");
  fails("expected CLASS=NUMBER, got \"2\"", "ill=2,2");
  for (const char* number : {"-1", "nan", "inf", "", "balance"}) {
    fails(fmt::format("expected a number from 0 to 1000000, got \"{}\"", number), fmt::format("1,1,{}", number));
    fails(fmt::format("expected a number from 0 to 1000000, got \"{}\"", number), fmt::format("ill={}", number));
  }
  fails("all are 0", "0,0,0");
}

// Of what is trained on, in all kinds of data; classes without names have numbers.
TEST_F(ClassWeightsTest, BalancedByWhatIsTrainedOn) {
  HostTensor x(DType::kFloat32, {40, 4}), y(DType::kInt64, {40});
  for (int i = 0; i < 40; ++i) y.Set(i, i < 30 ? 0 : i < 35 ? 1 : 3);  // none of class 2
  SaveWeights({.tensors = {{"x", x}, {"y", y}}}, PathOf("x.npz"));
  const Words of_arrays = {"train", "--model",        "mlp",    "--data", "npz:x.npz", "--epochs",
                           "1",     "--checkpoints=", "--save", "m.pb",   "--quiet",   "--class-weights"};
  Succeeds(of_arrays + Words{"balanced", "--test-data", "npz:x.npz"});
  EXPECT_EQ(WeightsOf(LoadModel(PathOf("m.pb"))), (Numbers{40 / 90.0, 40 / 15.0, 1, 40 / 15.0}));
  Succeeds(of_arrays + Words{"balanced", "--test-part", "0.5"});
  const Numbers of_half = WeightsOf(LoadModel(PathOf("m.pb")));
  EXPECT_EQ(of_half.size(), 4u);
  EXPECT_NE(of_half[0], 40 / 90.0);
  Succeeds(of_arrays + Words{"3=2"});
  EXPECT_EQ(WeightsOf(LoadModel(PathOf("m.pb"))), (Numbers{1, 1, 1, 2}));
  Fails(2, "there is no class \"4\"; they are called 0 to 3", of_arrays + Words{"4=2"});

  const Words digits = {"train",    "--model", "mlp",     "--train-digits", "60",   "--test-digits",  "20",
                        "--epochs", "1",       "--quiet", "--save",         "m.pb", "--checkpoints=", "--class-weights",
                        "balanced"};
  Succeeds(digits + Words{"--write-digits", "images:digits"});
  const Numbers of_digits = WeightsOf(LoadModel(PathOf("m.pb")));
  ASSERT_EQ(of_digits.size(), 10u);
  Succeeds({"train", "--model", "mlp", "--data", "images:digits/train?channels=1", "--test-data",
            "images:digits/test?channels=1", "--epochs", "1", "--quiet", "--save", "m.pb",
            "--checkpoints=", "--class-weights", "balanced"});
  EXPECT_EQ(WeightsOf(LoadModel(PathOf("m.pb"))), of_digits);
}

// The loss of a sample times the weight of its label, over the number of samples, on any number of devices.
TEST_F(ClassWeightsTest, LearnsByTheWeightedLoss) {
  const Symbol label = Variable("softmax_label");
  SaveModel({.symbol = SoftmaxOutput(Scores(), label, {}, "softmax")}, PathOf("plain.pb"));
  const Symbol weights = Constant(HostTensor::From({3}, {3, 1.5, 0.5}));
  const Symbol losses = SoftmaxCrossEntropy(Scores(), label, {}, LossReduction::kNone, weights);
  SaveModel({.symbol = MakeLoss(losses, {}, "own")}, PathOf("own.pb"));
  const auto of_layer = [](const Model& model) { return model.params.at("fc_weight"); };
  const HostTensor expected = of_layer(Trained({"--model", "own.pb", "--checkpoints=", "--metrics", "loss"}));
  const Words balanced = {"--model", "plain.pb", "--class-weights", "balanced", "--overwrite"};
  EXPECT_LT(MaxAbsDiff(of_layer(Trained(balanced)), expected), 1e-5);
  EXPECT_LT(
      MaxAbsDiff(of_layer(Trained(balanced + Words{"--devices", "cpu:0,cpu:1", "--micro-batches", "2"})), expected),
      1e-5);
  EXPECT_GT(MaxAbsDiff(of_layer(Trained({"--model", "plain.pb", "--checkpoints="})), expected), 1e-2);
}

TEST_F(ClassWeightsTest, StayWithTheRunAndTheFile) {
  Trained({"--model", "mlp", "--class-weights", "balanced", "--checkpoints", "run"});
  const Words again = {"train", "--resume", "--checkpoints", "run", "--epochs", "6", "--quiet"};
  Succeeds(again);
  Fails(5, "another graph", again + Words{"--class-weights", "none"});
  const Words tuned = {"--model", "m.pb", "--checkpoints="};
  EXPECT_EQ(WeightsOf(Trained(tuned)), (Numbers{3, 1.5, 0.5}));
  EXPECT_EQ(WeightsOf(Trained(tuned + Words{"--class-weights", "1,2,3"})), (Numbers{1, 2, 3}));
  EXPECT_EQ(WeightsOf(Trained(tuned + Words{"--class-weights", "none"})), Numbers());
}

TEST_F(ClassWeightsTest, OfNothingElse) {
  const Words balanced = {"--class-weights", "balanced", "--checkpoints="};
  Fails(
      2, "--class-weights is for models whose only head is a softmax over classes",
      Words{"train", "--model", "mlp(head=regression)", "--data", "csv:states.csv?label=x&leave_out=state"} + balanced);
  Write("text.txt", std::string(100, 'a') + std::string(100, 'b'));
  Fails(2, "the characters of a text are not counted",
        Words{"train", "--model", "lstm(layers=1, width=8, context=4)", "--data", "text:text.txt"} + balanced);
}

}  // namespace
}  // namespace bindery
