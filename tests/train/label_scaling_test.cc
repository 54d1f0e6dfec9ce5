#include "train/label_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/open.h"
#include "train/trainer.h"

namespace bindery {
namespace {

template <class Head>
Symbol Regression(int64_t outputs, const Head& head) {
  Symbol x = Tanh(FullyConnected(Variable("data", {.shape = Shape{kUnknownDim, 3}}), {.num_hidden = 5}, "fc1"));
  x = FullyConnected(x, {.num_hidden = outputs}, "fc2");
  return head(x, Variable("softmax_label"), {}, "regression");
}
Symbol Regression(int64_t outputs) { return Regression(outputs, LinearRegressionOutput); }

HostTensor Waves(const Shape& shape, double step) {
  return Filled(shape, [=](int64_t i) { return std::sin(step * static_cast<double>(i + 1)); });
}

// With labels that are scaled in the network it learns what the same network learns of labels that were scaled before,
// and gives them in their own unit.
TEST(LabelScaling, LearnsAsOfLabelsThatAreScaledBefore) {
  for (const int64_t outputs : {1, 2}) {
    const HostTensor data = Waves({24, 3}, 0.7), before = Waves({24, outputs}, 1.3);
    const ColumnScaling scaling = outputs == 1 ? ColumnScaling{ColumnScale::kStandard, {2e5}, {3e4}}
                                               : ColumnScaling{ColumnScale::kRange, {-7, 5000}, {-6.5, 9000}};
    HostTensor labels(DType::kFloat32, before.shape());
    std::vector<double> units, origins;
    for (int64_t i = 0; i < outputs; ++i) {
      const auto k = static_cast<size_t>(i);
      origins.push_back(scaling.first[k]);
      units.push_back(outputs == 1 ? scaling.second[k] : scaling.second[k] - scaling.first[k]);
    }
    const auto unscaled = [&](double value, int64_t i) {
      const auto k = static_cast<size_t>(i % outputs);
      return value * units[k] + origins[k];
    };
    for (int64_t i = 0; i < labels.elements(); ++i) labels.Set(i, unscaled(before.At(i), i));
    const auto train = [&](const Symbol& symbol, const HostTensor& of, const char* precision) {
      ArrayIter iter(data, of, {.batch_size = 8});
      Trainer trainer(symbol, {.devices = {TestDevice(0), TestDevice(1)},
                               .optimizer = "sgd(lr=0.1, momentum=0.9)",
                               .precision = precision});
      trainer.Fit(iter, {.epochs = 20});
      return std::pair(trainer.Predict(iter)[0], trainer.Score(iter, "rmse")[0].second);
    };
    const Symbol absolute = Regression(outputs, MAERegressionOutput);
    for (const auto& [symbol, precision] :
         {std::pair(Regression(outputs), "float32"), {Regression(outputs), "bfloat16"}, {absolute, "float32"}}) {
      const auto [expected, error_before] = train(symbol, before, precision);
      const auto [given, error] = train(ScaleLabels(symbol, scaling), labels, precision);
      const double tolerance = precision == std::string("float32") ? 1e-4 : 2e-2;  // of a unit
      for (int64_t i = 0; i < given.elements(); ++i) {
        const double unit = units[static_cast<size_t>(i % outputs)];
        ASSERT_NEAR(given.At(i), unscaled(expected.At(i), i), tolerance * unit)
            << outputs << " " << precision << " " << i;
      }
      // Metrics are of the labels in their own unit.
      if (outputs == 1) {
        EXPECT_NEAR(error, error_before * units[0], tolerance * units[0]);
      }
      EXPECT_LT(error_before, 0.75);
    }
  }
}

TEST(LabelScaling, TakesThePlaceOfAnother) {
  const Symbol plain = Regression(1);
  const ColumnScaling first{ColumnScale::kStandard, {5}, {2}}, second{ColumnScale::kStandard, {7}, {3}};
  const Symbol once = ScaleLabels(plain, first);
  EXPECT_EQ(once.ListArguments(), plain.ListArguments());
  EXPECT_EQ(once.ListOutputs(), plain.ListOutputs());
  EXPECT_EQ(ScaleLabels(ScaleLabels(plain, second), first).DebugString(), once.DebugString());
  EXPECT_EQ(ScaleLabels(once, {}).DebugString(), plain.DebugString());
  EXPECT_EQ(ScaleLabels(plain, {}).DebugString(), plain.DebugString());
  // As a model keeps it.
  Model model{.symbol = plain};
  SetPreprocessing("label_mean=5&label_scale=standard&label_std=2", &model);
  ScaleLabelsAsKept(&model);
  EXPECT_EQ(model.symbol.DebugString(), once.DebugString());
  SetPreprocessing("", &model);
  ScaleLabelsAsKept(&model);
  EXPECT_EQ(model.symbol.DebugString(), plain.DebugString());
}

// A file from elsewhere has what names it likes.
TEST(LabelScaling, WhatIsCalledSoMayHaveNoInputs) {
  const Symbol numbers = Constant(HostTensor(DType::kFloat32, {1, 1}), "in_label_units_0");
  const Symbol odd = LinearRegressionOutput(Add(numbers, Variable("data"), "in_label_units"), Variable("y"));
  EXPECT_EQ(ScaleLabels(odd, {}).ListArguments(), std::vector<std::string>{"y"});
}

TEST(LabelScaling, LeavesAnnotations) {
  const Symbol plain = Regression(1).WithAnnotation("is_mean", "1").WithAnnotation("note", "mine");
  const Annotations expected = plain.entry().node->annotations();
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(ScaleLabels(plain, {}).entry(), plain.entry());  // the very node
  const Symbol scaled = ScaleLabels(plain, {ColumnScale::kStandard, {5}, {2}});
  EXPECT_EQ(scaled.entry().node->annotations(), expected);
  EXPECT_EQ(scaled.name(), plain.name());
  EXPECT_EQ(ScaleLabels(scaled, {}).entry().node->annotations(), expected);
}

// The numbers are in the graph, but not in what is shown of it.
TEST(LabelScaling, ACheckpointOfOtherNumbersIsRefused) {
  const Symbol plain = Regression(1);
  ArrayIter iter(Waves({8, 3}, 0.7), Waves({8, 1}, 1.3), {.batch_size = 8});
  const auto trainer = [&](double mean) {
    return Trainer(ScaleLabels(plain, {ColumnScale::kStandard, {mean}, {2}}), {.devices = {TestDevice(0)}});
  };
  Trainer first = trainer(5), same = trainer(5), other = trainer(7);
  first.Fit(iter, {.epochs = 1});
  const Checkpoint checkpoint = first.ToCheckpoint();
  EXPECT_NO_THROW(same.Restore(checkpoint));
  EXPECT_EQ(MessageOf<CheckpointError>([&] { other.Restore(checkpoint); }),
            "CheckpointError: the checkpoint is of another graph: its constants have other numbers, as those of "
            "label_scale have of other rows");
}

TEST(LabelScaling, Errors) {
  const Symbol classes = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "softmax");
  const ColumnScaling scaling{ColumnScale::kStandard, {5}, {2}};
  EXPECT_EQ(MessageOf<ModelError>([&] { ScaleLabels(classes, scaling); }),
            "ModelError: labels are scaled (label_scale) for a model whose only head compares them with numbers, as "
            "LinearRegressionOutput does");
  Model model{.symbol = classes};
  SetPreprocessing("label_mean=5&label_scale=standard&label_std=2", &model);
  ScaleLabelsAsKept(&model);
  EXPECT_EQ(model.symbol.DebugString(), classes.DebugString());
  SetPreprocessing("label_mean=x&label_scale=standard&label_std=2", &model);
  EXPECT_NE(
      MessageOf<DataError>([&] { ScaleLabelsAsKept(&model); }).find("\"label_mean\": expected numbers, got \"x\""),
      std::string::npos);
}

}  // namespace
}  // namespace bindery
