// Models of the zoo through ONNX and back: the same outputs; and an imported model trained on.
#include "symbol/onnx/onnx.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

ArrayIter Digits(int64_t count) {
  ImageSet set = DrawDigits(count, 1, 0);
  return ArrayIter(std::move(set.images), std::move(set.labels), {.batch_size = 32});
}

HostTensor Images(const Shape& sample, int64_t count) {
  HostTensor images(DType::kFloat32, sample.Insert(0, count));
  for (int64_t i = 0; i < images.elements(); ++i) images.Set(i, 0.1 * static_cast<double>(i * 7 % 19) - 0.5);
  return images;
}

// With parameters, and running values that say something.
Model Initialised(const std::string& name) {
  Trainer trainer(ModelByName(name, {.dropout = 0.3}), {.devices = {TestDevice(0)}, .seed = 5});
  ArrayIter any(Images(ModelInputShape(name), 2), HostTensor(DType::kFloat32, {2}), {.batch_size = 2});
  trainer.Predict(any);
  Model model = trainer.ToModel();
  for (auto& [state, value] : model.aux) {
    for (int64_t i = 0; i < value.elements(); ++i) value.Set(i, 0.5 + 0.01 * static_cast<double>(i % 7));
  }
  return model;
}

HostTensor Predict(const Model& model, const HostTensor& images) {
  return Trainer(model, {.devices = {TestDevice(0)}}).Predict({images})[0];
}

TEST(Onnx, ModelsComeBackAsTheyWere) {
  for (const std::string& name :
       OnCpusOnly() ? std::vector<std::string>{"mlp", "lenet", "resnet20"} : std::vector<std::string>{"mlp"}) {
    const Model model = Initialised(name);
    const std::string path = testing::TempDir() + "/" + name + ".onnx";
    SaveModel(model, path);
    const Model loaded = LoadModel(path);
    EXPECT_EQ(loaded.symbol.ListArguments()[0], "data");
    EXPECT_EQ(loaded.params.size(), model.params.size()) << "labels and heads are not asked for";
    for (const auto& [parameter, value] : model.params) {
      if (!parameter.ends_with("_gamma")) {
        EXPECT_EQ(loaded.params.at(parameter), value) << parameter;
      }
    }
    EXPECT_EQ(loaded.aux, model.aux);
    for (const int64_t batch : {1, 3}) {
      const HostTensor images = Images(ModelInputShape(name), batch);
      EXPECT_LT(MaxAbsDiff(Predict(loaded, images), Predict(model, images)), 1e-6) << name;
    }
    EXPECT_EQ(SerializeOnnx(loaded), SerializeOnnx(ParseOnnx(SerializeOnnx(loaded))));
  }
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
      EXPECT_LT(MaxAbsDiff(Predict(loaded, data), Predict(model, data)), 1e-6) << static_cast<int>(cell);
    }
  }
}

// Cut before its softmax and given our head, it is trained as the model that it was made of.
TEST(Onnx, AnImportedModelIsTrainedOnTwoDevices) {
  Model model = Initialised("mlp");
  model.symbol = ModelByName("mlp");  // without dropout
  Model loaded = ParseOnnx(SerializeOnnx(model));
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
