// Models of the zoo through ONNX and back: the same outputs; and an imported model trained on.
#include "symbol/onnx/onnx.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/initializer.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(int64_t count) {
  ImageSet set = DrawDigits(count, 1, 0);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = 32});
}

HostTensor Images(const Shape& sample, int64_t count) {
  return Filled(sample.Insert(0, count), [](int64_t i) { return 0.1 * static_cast<double>(i * 7 % 19) - 0.5; });
}

// A model of the zoo as it is tested: of the same layers, but of as little as they can have.
struct ZooCase {
  std::string model;  // with its settings
  ZooOptions options = {};
  std::map<std::string, Shape> samples = {};  // of its inputs
  std::vector<int64_t> batches = {1, 3};
  bool is_exported_as_it_was = false;
};
ZooCase CaseOf(const std::string& name) {
  const Shape sample = ModelInputShape(name);
  if (sample.rank() == 3) {
    const bool is_large = sample[1] > 32;
    const Shape small = is_large ? Shape{sample[0], 32, 32} : sample;
    return {.model = name,
            .options = {.input = small, .num_classes = 10, .dropout = 0.3},
            .samples = {{"data", small}},
            .batches = is_large ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 3}};
  }
  const std::string heads = name == "lstm" ? "" : ", heads=4";
  ZooCase c{.model = fmt::format("{}(layers=2, width=16, context=6{})", name, heads),
            .options = {.num_classes = 11, .dropout = 0.3},
            .samples = {{"data", {6}}}};
  if (name == "transformer") c.samples["target"] = {6};
  return c;
}

// Of class numbers or of images.
HostTensorMap DataOf(const ZooCase& c, int64_t count) {
  HostTensorMap data;
  for (const auto& [name, sample] : c.samples) {
    if (sample.rank() == 3) {
      data[name] = Images(sample, count);
      continue;
    }
    const int64_t step = name == "data" ? 7 : 5;
    data[name] = Filled(sample.Insert(c.options.time_first ? 1 : 0, count), [=](int64_t i) { return i * step % 11; });
  }
  return data;
}

// With parameters, and running values that say something.
Model Initialised(const ZooCase& c) {
  const Symbol symbol = ModelByName(c.model, c.options);
  ShapeMap inputs;
  for (const auto& [name, value] : DataOf(c, 2)) inputs.emplace(name, value.shape());
  inputs.emplace("softmax_label", *InferShapes(symbol, inputs).arguments.back());
  Model model = InitialModel(symbol, inputs, Initializer("xavier"), /*seed=*/5);
  for (auto& [name, value] : model.aux) {
    const bool is_var = name.ends_with("_var");
    value = Filled(value.shape(), [=](int64_t i) {
      return is_var ? 2 + 0.1 * static_cast<double>(i % 7) : 0.02 * static_cast<double>(i % 3 - 1);
    });
  }
  return model;
}

HostTensor Predict(const Model& model, const HostTensorMap& data) {
  std::vector<HostTensor> in_order;
  for (const std::string& name : model.symbol.ListArguments()) {
    if (const auto found = data.find(name); found != data.end()) in_order.push_back(found->second);
  }
  return Trainer(model, {.devices = {TestDevice(0)}}).Predict(in_order)[0];
}

void ExpectToComeBack(const ZooCase& c) {
  SCOPED_TRACE(c.model);
  const Model model = Initialised(c);
  const Model loaded = ParseOnnx(SerializeOnnx(model));
  EXPECT_EQ(loaded.symbol.ListArguments().size(), model.params.size() + c.samples.size()) << "no label is asked for";
  EXPECT_EQ(loaded.params.size(), model.params.size());
  for (const auto& [parameter, value] : model.params) {
    const auto found = loaded.params.find(parameter);
    ASSERT_NE(found, loaded.params.end()) << parameter;
    EXPECT_EQ(found->second, value) << parameter;
  }
  EXPECT_EQ(loaded.aux, model.aux);
  for (const int64_t batch : c.batches) {
    const HostTensorMap data = DataOf(c, batch);
    const HostTensor expected = Predict(model, data);
    EXPECT_LT(MaxAbsDiff(Predict(loaded, data), expected), 1e-6);
    const HostTensor same = HostTensor::Full(DType::kFloat32, expected.shape(), expected.At(0));
    EXPECT_GT(MaxAbsDiff(expected, same), 1e-4) << "it says nothing";
  }
  if (c.is_exported_as_it_was) {
    EXPECT_EQ(SerializeOnnx(loaded), SerializeOnnx(ParseOnnx(SerializeOnnx(loaded))));
  }
}

TEST(Onnx, ModelsComeBackAsTheyWere) {
  if (!OnCpusOnly()) return ExpectToComeBack(CaseOf("mlp"));
  for (const std::string& name : ModelNames()) {
    if (name == "resnet34" || name == "resnet50") continue;  // of resnet18's layers
    ZooCase c = CaseOf(name);
    c.is_exported_as_it_was = name == "mlp" || name == "lenet" || name == "resnet20";  // of layers that ONNX has, too
    ExpectToComeBack(c);
  }
  ZooCase tied = CaseOf("gpt");
  tied.options.tied = true;
  ExpectToComeBack(tied);
  ZooCase time_first = CaseOf("lstm");
  time_first.options.time_first = true;
  ExpectToComeBack(time_first);
}

// A head that is trained by a cross-entropy predicts what that is of, and needs no labels.
TEST(Onnx, AMeanOfCrossEntropiesIsExportedAsProbabilities) {
  const Symbol scores = FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 3}}), {.num_hidden = 4}, "fc");
  const Symbol loss = MakeLoss(SoftmaxCrossEntropy(scores, Variable("label"), {}, LossReduction::kMean), {}, "loss");
  const HostTensorMap params = {{"fc_weight", Images({3}, 4)}, {"fc_bias", HostTensor(DType::kFloat32, {4})}};
  const Model loaded = ParseOnnx(SerializeOnnx({.symbol = loss, .params = params}));
  EXPECT_EQ(loaded.symbol.ListArguments(), (std::vector<std::string>{"data", "fc_weight", "fc_bias"}));
  const Model expected{.symbol = Softmax(scores, {}, "loss"), .params = params};
  const HostTensorMap data = {{"data", Images({3}, 2)}};
  EXPECT_LT(MaxAbsDiff(Predict(loaded, data), Predict(expected, data)), 1e-6);
}

// Without values nobody knows targets, but for labels, from parameters.
TEST(Onnx, AnArchitectureKeepsItsHeads) {
  const Symbol x = Variable("data", {.shape = Shape{kUnknownDim, 5}}), label = Variable("label");
  const Symbol scores = FullyConnected(x, {.num_hidden = 3}, "fa");
  const Symbol other = Square(FullyConnected(x, {.num_hidden = 3}, "fb"), "other");
  const Symbol net = Group({SoftmaxOutput(scores, label, {}, "softmax"), MakeLoss(other),
                            MakeLoss(Square(scores - OneHot(label, {.depth = 3})))});
  const Model loaded = ParseOnnx(SerializeOnnx({.symbol = net}));
  EXPECT_EQ(loaded.symbol.ListOutputs(), (std::vector<std::string>{"softmax_output", "other_output"}));
}

// Layers that ONNX has in another form: gates in another order, the projection within the layer, axes for directions.
TEST(Onnx, RecurrentLayersComeBack) {
  if (!OnCpusOnly()) GTEST_SKIP() << "of the graph, not of devices";
  for (const RecurrentCell cell : {RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    for (const SequenceLayout layout : {SequenceLayout::kTnc, SequenceLayout::kNtc}) {
      const bool batch_first = layout == SequenceLayout::kNtc;
      const Shape sample = batch_first ? Shape{kUnknownDim, 5, 3} : Shape{5, kUnknownDim, 3};
      const Symbol x = Variable("data", {.shape = sample, .layout = batch_first ? "NTC" : "TNC"});
      const RnnResult rnn =
          Rnn(x, {.cell = cell, .hidden = 4, .layers = 2, .bidirectional = true, .layout = layout}, "rnn");
      const Shape whole = batch_first ? Shape{2, 5, 3} : Shape{5, 2, 3};
      Model model{.symbol = rnn.output};
      const InferredShapes shapes = InferShapes(model.symbol, {{"data", whole}});
      const std::vector<std::string> names = model.symbol.ListArguments();
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] != "data")
          model.params[names[i]] = Images(shapes.arguments[i]->Erase(0), (*shapes.arguments[i])[0]);
      }
      const Model loaded = ParseOnnx(SerializeOnnx(model));
      const HostTensor data = Images(whole.Erase(0), whole[0]);
      EXPECT_LT(MaxAbsDiff(Predict(loaded, {{"data", data}}), Predict(model, {{"data", data}})), 1e-6)
          << static_cast<int>(cell);
    }
  }
}

// Cut before its softmax and given our head, it is trained as the model that it was made of.
TEST(Onnx, AnImportedModelIsTrainedOnTwoDevices) {
  Model model = Initialised(CaseOf("mlp"));
  model.symbol = ModelByName("mlp");  // without dropout
  const std::string path = testing::TempDir() + "/mlp.onnx";
  SaveModel(model, path);
  Model loaded = LoadModel(path);
  const Symbol scores = Symbol(loaded.symbol.entry().node->inputs()[0]);
  loaded.symbol = SoftmaxOutput(scores, {}, "softmax");
  const TrainerOptions options{.devices = {TestDevice(0), TestDevice(1)}, .optimizer = "sgd(lr=0.1, momentum=0.9)"};
  Trainer ours(model, options), theirs(loaded, options);
  ArrayIter first = Digits(256), second = Digits(256);
  ours.Fit(first, {.epochs = 1});
  theirs.Fit(second, {.epochs = 1});
  const Model expected = ours.ToModel(), actual = theirs.ToModel();
  for (const auto& [name, value] : expected.params) {
    EXPECT_LT(MaxAbsDiff(actual.params.at(name), value), 1e-5) << name;
    EXPECT_GT(MaxAbsDiff(model.params.at(name), value), 1e-4) << name << " has not moved";
  }
}

TEST(Onnx, WhatCannotBeExportedIsListedAtOnce) {
  const Symbol x = Variable("data", {.shape = Shape{kUnknownDim, 4}});
  const Symbol net = Group({SumExactly(FirstOutside(x, {}, "a"), "b"), FirstOutside(x, {}, "c")});
  EXPECT_EQ(MessageOf<ModelError>([&] { SerializeOnnx({.symbol = net}); }),
            "ModelError: operators that cannot be exported, with the nodes that use them: FirstOutside (\"a\", \"c\"); "
            "SumExactly (\"b\")");
}

}  // namespace
}  // namespace bindery
