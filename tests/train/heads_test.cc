// Losses of one's own, and what follows from a network's heads: how they are merged and divided, measured and
// predicted.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/predictor.h"
#include "symbol/graph.h"
#include "symbol/onnx/onnx.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/metrics/default_metrics.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 12;

std::shared_ptr<HostTensor> Values(const Shape& shape) {
  return std::make_shared<HostTensor>(
      Filled(shape, [](int64_t i) { return 0.1 * static_cast<double>(i * 7 % 19) - 0.5; }));
}

std::shared_ptr<HostTensor> Classes(int64_t count) {
  return std::make_shared<HostTensor>(Filled({kSamples}, [=](int64_t i) { return i * 5 % count; }));
}

Symbol Scores() { return FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"); }
ArrayIter Batches() { return {{{"data", Values({kSamples, 4})}}, {{"label", Classes(3)}}, {.batch_size = 5}}; }

// A loss that is a mean over the devices' samples hands on that its parts are to be added, and its value is theirs.
TEST(Heads, AMeanLossHasOneValueOnAnyDevices) {
  const Symbol mean = SoftmaxCrossEntropy(Scores(), Variable("label"), {}, LossReduction::kMean);
  for (const Symbol& loss : {MakeLoss(mean, {}, "loss"), MakeLoss(0.5 * mean + mean / 2.0, {}, "loss")}) {
    NamedValues trained, scored;
    HostTensor weight;
    for (const int count : {1, 2, 3}) {
      ArrayIter data = Batches();
      Trainer trainer(loss, {.devices = TestDeviceList(count), .optimizer = "sgd(lr=0.3)"});
      const NamedValues of_training = trainer.Fit(data, {.epochs = 2}).train, of_score = trainer.Score(data);
      const HostTensor now = trainer.ToModel().params.at("fc_weight");
      ASSERT_EQ(of_score.size(), 1u);
      EXPECT_EQ(of_score[0].first, "loss");
      if (count == 1) {
        trained = of_training;
        scored = of_score;
        weight = now;
      }
      EXPECT_NEAR(of_training[0].second, trained[0].second, 1e-6) << count;
      EXPECT_NEAR(of_score[0].second, scored[0].second, 1e-6) << count;
      EXPECT_LT(MaxAbsDiff(now, weight), 1e-6) << count;
    }
  }
}

// A sum is that of a batch, however this is computed; a mean is that of its samples.
TEST(Heads, ALossHasOneValueInAnyMicroBatches) {
  for (const LossReduction reduction : {LossReduction::kSum, LossReduction::kMean}) {
    const Symbol loss = MakeLoss(SoftmaxCrossEntropy(Scores(), Variable("label"), {}, reduction), {}, "loss");
    std::optional<double> expected;
    for (const int devices : {1, 2}) {
      for (const int64_t pieces : {1, 2, 4}) {
        ArrayIter data({{"data", Values({kSamples, 4})}}, {{"label", Classes(3)}}, {.batch_size = 6});
        Trainer trainer(loss, {.devices = TestDeviceList(devices), .optimizer = "sgd(lr=0)", .micro_batches = pieces});
        const double trained = trainer.Fit(data, {}).train[0].second, scored = trainer.Score(data)[0].second;
        if (!expected) expected = trained;
        EXPECT_NEAR(trained, *expected, 1e-5) << devices << " devices, " << pieces << " pieces";
        EXPECT_NEAR(scored, *expected, 1e-5) << devices << " devices, " << pieces << " pieces";
      }
    }
  }
}

TEST(Heads, AMeanOverTheSamplesIsNotDividedOnceMore) {
  const Symbol weight = Variable("fc_weight");
  const Symbol scores = FullyConnected(Variable("data"), weight, Variable("fc_bias"), {.num_hidden = 3}, "fc");
  const Symbol each = SoftmaxCrossEntropy(scores, Variable("label"));
  const auto fit = [](const Symbol& loss, const std::string& optimizer) {
    return MessageOf([&] {
      ArrayIter data = Batches();
      Trainer(loss, {.devices = TestDeviceList(1), .optimizer = optimizer}).Fit(data, {});
    });
  };
  for (const Symbol& loss :
       {MakeLoss(Mean(each, {}, "mean"), {}, "loss"), MakeLoss(0.5 * Mean(each, {}, "mean") + Sum(each), {}, "loss")}) {
    const std::string message = fit(loss, "sgd");
    EXPECT_NE(message.find("loss \"loss\" has no axis of samples: Mean \"mean\" is their mean"), std::string::npos)
        << message;
    EXPECT_EQ(fit(loss, "sgd(rescale=1)"), "nothing was thrown");
  }
  for (const Symbol& loss :
       {MakeLoss(Sum(each)), MakeLoss(Mean(each) * 5.0), MakeLoss(Mean(each), {.grad_scale = 5}),
        MakeLoss(Sum(each) + Sum(Mean(Square(scores), {.axes = {1}}))),
        MakeLoss(Sum(each) + Mean(Sum(Square(scores), {.axes = {0}}))),
        Group(
            {MakeLoss(each), MakeLoss(0.1 * Mean(Square(weight)), {}, "penalty").WithAnnotation("merge", "first")})}) {
    EXPECT_EQ(fit(loss, "sgd"), "nothing was thrown") << loss.DebugString();
  }
}

TEST(Heads, WhatLosesTheSamplesIsNamed) {
  ArrayIter data = Batches();
  const Symbol each = SoftmaxCrossEntropy(Scores(), Variable("label"));
  Trainer trainer(MakeLoss(Square(Sum(each, {}, "total")), {}, "loss"), {.devices = TestDeviceList(2)});
  const std::string message = MessageOf([&] { trainer.Fit(data, {}); });
  EXPECT_NE(message.find("which Sum \"total\" does not hand on"), std::string::npos) << message;
  EXPECT_NE(message.find(".WithAnnotation(\"merge\", \"sum\")"), std::string::npos) << message;
}

TEST(DefaultMetrics, AreThoseOfTheHeads) {
  const Symbol x = Variable("x"), y = Variable("y");
  EXPECT_EQ(DefaultMetrics(SoftmaxOutput(x)), "accuracy,cross-entropy");
  EXPECT_EQ(DefaultMetrics(SoftmaxOutput(x, {.use_ignore = true, .preserve_shape = true})),
            "accuracy(axis=-1, ignore=-1),cross-entropy(axis=-1, ignore=-1)");
  EXPECT_EQ(DefaultMetrics(SVMOutput(x)), "accuracy");
  EXPECT_EQ(DefaultMetrics(LogisticRegressionOutput(x)), "accuracy(axis=none),rmse");
  EXPECT_EQ(DefaultMetrics(LinearRegressionOutput(x)), "rmse,mae");
  EXPECT_EQ(DefaultMetrics(MakeLoss(Square(x - y))), "loss");
  EXPECT_EQ(DefaultMetrics(Softmax(x)), "accuracy,cross-entropy");
  EXPECT_EQ(DefaultMetrics(Group(
                {SoftmaxOutput(x, Variable("class"), {}, "cls"), MakeLoss(Square(x - y), {}, "square"), BlockGrad(x)})),
            "accuracy(output=cls_output, label=class),cross-entropy(output=cls_output, label=class),"
            "loss(output=square_output)");
  EXPECT_EQ(DefaultMetrics(Group({SVMOutput(x, Variable("of \"a\", b"), {}, "a(b"), BlockGrad(x)})),
            "accuracy(output=\"a(b_output\", label=\"of \"\"a\"\", b\")");
}

TEST(DefaultMetrics, FindHeadsOfAnyName) {
  for (const char* name : {"a, b", "a(b", "a)", "a=b", "\"a\"", "\"\"", "a b"}) {
    const Symbol scores = Scores();
    ArrayIter data = Batches();
    Trainer trainer(Group({SoftmaxOutput(scores, Variable("label"), {}, name), BlockGrad(scores, {}, "other")}),
                    {.devices = TestDeviceList(1)});
    EXPECT_EQ(trainer.Fit(data, {}).train.size(), 2u) << name;
  }
}

// Several truths of a sample are right or wrong each by itself.
TEST(DefaultMetrics, CountTruthsOneByOne) {
  for (const int64_t truths : {1, 5}) {
    auto labels = std::make_shared<HostTensor>(DType::kFloat32, Shape{kSamples, truths});
    for (int64_t i = 0; i < labels->elements(); ++i) labels->Set(i, static_cast<double>(i * 7 % 3 == 0));
    ArrayIter data({{"data", Values({kSamples, 4})}}, {{"softmax_label", labels}}, {.batch_size = 4});
    const Symbol scores = FullyConnected(Variable("data"), {.num_hidden = truths}, "fc");
    Trainer trainer(LogisticRegressionOutput(scores, Variable("softmax_label"), {}, "truths"),
                    {.devices = TestDeviceList(2), .optimizer = "sgd(lr=0.5)"});
    trainer.Fit(data, {.epochs = 3});
    const HostTensor p = trainer.Predict(data)[0];
    double right = 0;
    for (int64_t i = 0; i < p.elements(); ++i) right += (p.At(i) > 0.5) == (labels->At(i) > 0.5);
    const NamedValues scored = trainer.Score(data);
    EXPECT_EQ(scored[0].first, "accuracy");
    EXPECT_DOUBLE_EQ(scored[0].second, right / static_cast<double>(p.elements())) << truths;
  }
}

// Labels of -1 are padding; with as many positions as classes, the head says where these are.
TEST(DefaultMetrics, LeaveOutWhatTheHeadIgnores) {
  const Symbol scores = FullyConnected(Variable("data"), {.num_hidden = 3, .flatten = false}, "fc");
  auto labels = std::make_shared<HostTensor>(DType::kFloat32, Shape{kSamples, 3});
  for (int64_t i = 0; i < labels->elements(); ++i) labels->Set(i, static_cast<double>(i % 4) - 1);
  ArrayIter data({{"data", Values({kSamples, 3, 4})}}, {{"softmax_label", labels}}, {.batch_size = 4});
  Trainer trainer(SoftmaxOutput(scores, {.use_ignore = true, .preserve_shape = true}, "softmax"),
                  {.devices = TestDeviceList(1)});
  const FitResult result = trainer.Fit(data, {.epochs = 2});
  ASSERT_EQ(result.train.size(), 2u);
  EXPECT_TRUE(std::isfinite(result.train[1].second));
}

// Another name than ours for the label, by the iterator; and it is told where it does not fit.
TEST(Heads, ALabelMayHaveAnotherName) {
  const Symbol net = LinearRegressionOutput(FullyConnected(Variable("x"), {.num_hidden = 1}, "fc"), {}, "reg");
  const auto fit = [&](const ArrayIterOptions& options) {
    ArrayIter data(*Values({kSamples, 4}), *Values({kSamples, 1}), options);
    Trainer trainer(net, {.devices = TestDeviceList(1)});
    return trainer.Fit(data, {}).train;
  };
  EXPECT_EQ(fit({.batch_size = 4, .data_name = "x", .label_name = "reg_label"})[0].first, "rmse");
  EXPECT_EQ(MessageOf([&] { fit({.batch_size = 4, .data_name = "x"}); }),
            "Error: label \"softmax_label\" is not an argument of the symbol, whose label is \"reg_label\": call the "
            "array so");
}

TEST(Heads, ForgottenArraysAreToldFromThoseThatAreGiven) {
  const Symbol both = FullyConnected(Variable("left"), {.num_hidden = 2}, "l") +
                      FullyConnected(Variable("right"), {.num_hidden = 2}, "r");
  const Symbol net = MakeLoss(Square(both - Variable("number")), {}, "loss");
  const auto message = [&](const std::vector<ArrayData>& data, const std::vector<ArrayData>& labels) {
    ArrayIter batches(data, labels, {.batch_size = 4});
    Trainer trainer(net, {.devices = TestDeviceList(1)});
    return MessageOf([&] { trainer.Fit(batches, {}); });
  };
  const ArrayData left{"left", Values({kSamples, 4})}, right{"right", Values({kSamples, 4})},
      number{"number", Values({kSamples, 2})};
  EXPECT_EQ(message({left, right}, {number}), "nothing was thrown");
  const std::string no_label = message({left, right}, {}), no_data = message({left}, {number});
  EXPECT_NE(no_label.find("\"number\""), std::string::npos) << no_label;
  EXPECT_NE(no_label.find("; only \"left\", \"right\" are data and labels"), std::string::npos) << no_label;
  EXPECT_NE(no_data.find("right, r_weight (2, ?); given: left (4, 4), number (4, 2)"), std::string::npos) << no_data;
}

TEST(Heads, BytesThatParametersFollowAreNamed) {
  const HostTensor bytes(DType::kUInt8, {kSamples, 4});
  ArrayIter data(bytes, *Classes(3), {.batch_size = 4});
  Trainer trainer(SoftmaxOutput(Scores(), {}, "softmax"), {.devices = {Cpu(0)}});
  const std::string message = MessageOf([&] { trainer.Fit(data, {}); });
  EXPECT_NE(message.find("is uint8, as the data \"data\" are"), std::string::npos) << message;
}

TEST(Heads, NumbersThatAreNotFiniteAreFoundInTheData) {
  const Symbol net = LinearRegressionOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "reg");
  const auto message = [&](int64_t bad_data, int64_t bad_label) {
    HostTensor data = *Values({kSamples, 4}), label = *Values({kSamples, 2});
    if (bad_data >= 0) data.Set(bad_data, std::nan(""));
    if (bad_label >= 0) label.Set(bad_label, std::nan(""));
    ArrayIter batches(data, label, {.batch_size = 4, .label_name = "reg_label"});
    Trainer trainer(net, {.devices = TestDeviceList(1)});
    return MessageOf([&] { trainer.Fit(batches, {}); });
  };
  const std::string in_data = message(22, -1), in_label = message(-1, 11);
  EXPECT_NE(in_data.find("nor is its input \"data\" (element 6 is nan, of sample 1 of the batch, row 5 of the data)"),
            std::string::npos)
      << in_data;
  EXPECT_NE(in_label.find("nor is its label \"reg_label\" (element 3 is nan, of sample 1 of the batch, row 5"),
            std::string::npos)
      << in_label;
}

// A network of two outputs, one of them a loss whose target only training has.
Model WithLoss() {
  const Symbol forecast = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc");
  const Symbol loss = MakeLoss(Square(forecast - Variable("target")), {}, "loss");
  ArrayIter data({{"data", Values({kSamples, 4})}}, {{"target", Values({kSamples, 2})}}, {.batch_size = 4});
  Trainer trainer(Group({loss, BlockGrad(forecast, {}, "forecast")}), {.devices = TestDeviceList(1)});
  trainer.Fit(data, {});
  return trainer.ToModel();
}

TEST(Heads, ALossWhoseTargetNobodyGivesIsNotPredicted) {
  const Model model = WithLoss();
  const Predictor predictor(model, {.device = TestDevice(0), .inputs = {{"data", {4, 4}}}});
  EXPECT_EQ(predictor.output_names(), (std::vector<std::string>{"forecast_output"}));
  EXPECT_EQ(predictor.Predict({{"data", *Values({2, 4})}})[0].shape(), (Shape{2, 2}));
  const Predictor both(model, {.device = TestDevice(0), .inputs = {{"data", {4, 4}}, {"target", {4, 2}}}});
  EXPECT_EQ(both.output_names().size(), 2u);
  EXPECT_EQ(MessageOf([&] {
              Predictor(model, {.device = TestDevice(0), .inputs = {{"target", {4, 2}}}});
            }),
            "Error: \"data\" has no value in the model: describe it in the options, as an input, with its largest "
            "shape; it was trained on (?, 4)");
  const Model exported = ParseOnnx(SerializeOnnx(model));
  EXPECT_EQ(exported.symbol.size(), 1);
  EXPECT_EQ(exported.symbol.ListArguments(), (std::vector<std::string>{"data", "fc_weight", "fc_bias"}));
}

// A head of a label predicts without it; a loss beside it does not.
TEST(Heads, ALossOfALabelThatNobodyGivesIsNotPredicted) {
  const Symbol label = Variable("label"), scores = Scores();
  const Symbol distance = Sum(Square(scores - OneHot(label, {.depth = 3})), {.axes = {1}});
  const std::vector<std::string> only = {"softmax_output"}, all = {"softmax_output", "distance_output"};
  for (const Symbol& second : {distance, SoftmaxCrossEntropy(scores, label) * 2.0}) {
    ArrayIter data = Batches();
    Trainer trainer(Group({SoftmaxOutput(scores, label, {}, "softmax"), MakeLoss(second, {}, "distance")}),
                    {.devices = TestDeviceList(1)});
    trainer.Fit(data, {});
    const Model model = trainer.ToModel();
    EXPECT_EQ(Predictor(model, {.device = TestDevice(0), .inputs = {{"data", {5, 4}}}}).output_names(), only);
    const Predictor both(model, {.device = TestDevice(0), .inputs = {{"data", {5, 4}}, {"label", {5}}}});
    EXPECT_EQ(both.output_names(), all);
  }
  Model model{.symbol = Group({SoftmaxOutput(scores, label, {}, "softmax"), MakeLoss(distance, {}, "distance")})};
  model.params = {{"fc_weight", *Values({3, 4})}, {"fc_bias", *Values({3})}};
  const Model exported = ParseOnnx(SerializeOnnx(model));
  EXPECT_EQ(exported.symbol.ListOutputs(), only);
  EXPECT_EQ(exported.symbol.ListArguments(), (std::vector<std::string>{"data", "fc_weight", "fc_bias"}));
}

// What serves such a loss alone may be described and given, and is not looked at.
TEST(Heads, AnInputOfALossThatIsNotPredictedIsLeftAlone) {
  const Symbol forecast = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc");
  const Symbol loss = MakeLoss(Variable("w") * Square(forecast - Variable("target")), {}, "loss");
  ArrayIter data({{"data", Values({kSamples, 4})}, {"w", Values({kSamples, 1})}}, {{"target", Values({kSamples, 2})}},
                 {.batch_size = 4});
  Trainer trainer(Group({loss, BlockGrad(forecast, {}, "forecast")}), {.devices = TestDeviceList(1)});
  trainer.Fit(data, {});
  const Predictor predictor(trainer.ToModel(), {.device = TestDevice(0), .inputs = {{"w", {4, 1}}, {"data", {4, 4}}}});
  EXPECT_EQ(predictor.output_names(), (std::vector<std::string>{"forecast_output"}));
  const HostTensor rows = *Values({2, 4}), expected = predictor.Predict({{"data", rows}})[0];
  EXPECT_EQ(expected.shape(), (Shape{2, 2}));
  EXPECT_EQ(predictor.Predict({{"data", rows}, {"w", *Values({2, 1})}})[0], expected);
  EXPECT_EQ(MessageOf([&] { predictor.Predict({{"w", rows}}); }), "DataError: input \"data\" is missing");
  EXPECT_EQ(MessageOf([&] {
              Predictor(trainer.ToModel(), {.device = TestDevice(0), .inputs = {{"data", {4, 4}}, {"ww", {4, 1}}}});
            }).find("Error: data \"ww\" is not an argument"),
            0u);
}

TEST(Heads, WhatTheModelDoesNotTakeIsNamedFirst) {
  const Predictor predictor(WithLoss(), {.device = TestDevice(0), .inputs = {{"data", {4, 4}}}});
  EXPECT_TRUE(MessageOf([&] {
                predictor.Predict({{"data", *Values({2, 3})}});
              }).starts_with("ShapeError: the model does not take \"data\" (2, 3): "));
  EXPECT_EQ(MessageOf([&] {
              predictor.Predict({{"data", HostTensor(DType::kFloat32, {0, 4})}});
            }),
            "DataError: input \"data\" (0, 4) is empty");
}

// A part of a model works with the values that it has; a new head gets initial ones.
TEST(Heads, AModelCanBeCut) {
  const Model model = WithLoss();
  Model part = model;
  part.symbol = Relu(model.symbol.Internals()["data"]);
  EXPECT_EQ(Predictor(part, {.inputs = {{"data", {4, 4}}}}).output_names().size(), 1u);
  const Symbol features = FullyConnected(model.symbol.Internals()["data"], {.num_hidden = 3}, "new");
  const Model cut = Cut(model, SoftmaxOutput(features, Variable("label"), {}, "softmax"));
  EXPECT_TRUE(cut.params.empty());
  EXPECT_EQ(cut.metadata, model.metadata);
  ArrayIter data = Batches();
  Trainer trainer(cut, {.devices = TestDeviceList(1)});
  trainer.Fit(data, {});
  EXPECT_EQ(Cut(trainer.ToModel(), features).params.size(), 2u);
  EXPECT_EQ(
      MessageOf<ModelError>([&] { Cut(model, FullyConnected(Variable("features"), {.num_hidden = 2}, "other")); }),
      "ModelError: nothing of the model is left in the symbol that it is to be cut to, whose inputs are features, "
      "other_weight, other_bias: make that of the model's own values, model.symbol.Internals()[\"NAME_output\"]");
  const Model untrained{.symbol = model.symbol};  // nothing is lost
  EXPECT_TRUE(Cut(untrained, Relu(Variable("features"))).params.empty());
}

// What training was given is known to whoever has to know shapes, and binds nobody.
TEST(Heads, ATrainedModelKnowsItsInputs) {
  auto tokens = std::make_shared<HostTensor>(DType::kInt32, Shape{kSamples, 6});
  Symbol x = Embedding(Variable("tokens"), {.input_dim = 5, .output_dim = 8}, "embed");
  x = x + Variable("pos_weight", {.shape = Shape{6, 8}});
  x = MultiHeadAttention(x, x, x, {}, {.width = 8, .heads = 2}, "mha");
  x = SoftmaxOutput(FullyConnected(Mean(x, {.axes = {1}}), {.num_hidden = 3}, "fc"), Variable("label"), {}, "softmax");
  ArrayIter data({{"tokens", tokens}}, {{"label", Classes(3)}}, {.batch_size = 4});
  Trainer trainer(x, {.devices = TestDeviceList(1)});
  trainer.Fit(data, {});
  const Model model = ParseModel(SerializeModel(trainer.ToModel()));
  EXPECT_EQ(TrainedInputs(model),
            (std::map<std::string, TrainedInput>{{"tokens", {DType::kInt32, Shape{kUnknownDim, 6}}}}));
  const Model exported = ParseOnnx(SerializeOnnx(model));  // attention wants to know how many axes there are
  EXPECT_EQ(exported.symbol.ListArguments()[0], "tokens");
  const Predictor predictor(model, {.device = TestDevice(0), .inputs = {{"tokens", {4, 6}}}});  // of float32
  EXPECT_EQ(predictor.Predict({{"tokens", HostTensor(DType::kInt64, {2, 6})}})[0].shape(), (Shape{2, 3}));
}

// Also where it is declared in part.
TEST(Heads, ATrainedModelKnowsExtentsThatItsInputsLeaveOpen) {
  constexpr int64_t kAny = kUnknownDim;
  for (const DType dtype : {DType::kInt32, DType::kFloat32}) {
    Symbol x = Embedding(Variable("tokens", {.shape = Shape{kAny, kAny}}), {.input_dim = 5, .output_dim = 8}, "embed");
    x = MultiHeadAttention(x, x, x, {}, {.width = 8, .heads = 2, .causal = true}, "mha");
    x = SoftmaxOutput(FullyConnected(Mean(x, {.axes = {1}}), {.num_hidden = 3}, "fc"), Variable("label"), {},
                      "softmax");
    auto tokens = std::make_shared<HostTensor>(dtype, Shape{kSamples, 6});
    ArrayIter data({{"tokens", tokens}}, {{"label", Classes(3)}}, {.batch_size = 4});
    Trainer trainer(x, {.devices = TestDeviceList(1)});
    trainer.Fit(data, {});
    const Model model = trainer.ToModel();
    EXPECT_EQ(TrainedInputs(model), (std::map<std::string, TrainedInput>{{"tokens", {dtype, Shape{kAny, 6}}}}));
    const Model exported = ParseOnnx(SerializeOnnx(model));  // a causal mask wants to know how many keys there are
    for (const NodePtr& node : Graph::Of(exported.symbol).nodes) {
      if (node->name() == "tokens") EXPECT_EQ(*node->declared_shape, (Shape{kAny, 6}));
    }
  }
}

TEST(Heads, InputsThatAreNoneAreNotRead) {
  Model model;
  model.metadata["bindery.inputs"] = "int32 ?,12 a b\nfloat99 1 c\nfloat32 1,-2 d\nfloat32 1,2,3,4,5,6,7,8,9 e\nf\n";
  EXPECT_EQ(TrainedInputs(model),
            (std::map<std::string, TrainedInput>{{"a b", {DType::kInt32, Shape{kUnknownDim, 12}}}}));
  SetTrainedInputs({}, &model);
  EXPECT_TRUE(model.metadata.empty());
}

}  // namespace
}  // namespace bindery
