// Nets over time that join time and batch in one axis before the last layer: on several devices as on one.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/metrics/metrics.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 7, kTime = 3, kFeatures = 4, kHidden = 5, kWords = 6;

// (N, T) or (T, N), and a last axis if `last` is one.
Shape ShapeOf(const std::string& layout, int64_t samples, int64_t last = 0) {
  const Shape shape = layout == "NT" ? Shape{samples, kTime} : Shape{kTime, samples};
  return last == 0 ? shape : shape.Insert(2, last);
}

// An LSTM that reads `data` and says the next word at each time: probabilities (N T, words) against the label, whose
// layout is the data's, and as a head that needs a gradient the states before the last layer, (N T, hidden).
Symbol LanguageModel(const std::string& layout, Normalization normalization) {
  const int64_t time = layout == "NT" ? 1 : 0;
  const Symbol steps = SliceChannel(Variable("data"), {.num_outputs = kTime, .axis = time}, "steps");
  const Symbol i2h = Variable("i2h_weight"), bias = Variable("i2h_bias"), h2h = Variable("h2h_weight");
  Symbol h, c;
  std::vector<Symbol> states;
  for (int t = 0; t < kTime; ++t) {
    const Symbol x = Reshape(steps[t], {.shape = {-1, kFeatures}});
    Symbol gates = FullyConnected(x, i2h, bias, {.num_hidden = 4 * kHidden});
    if (t > 0) gates = gates + FullyConnected(h, h2h, {}, {.num_hidden = 4 * kHidden, .no_bias = true});
    const Symbol gate = SliceChannel(gates, {.num_outputs = 4});
    const Symbol add = Sigmoid(gate[0]) * Tanh(gate[2]);
    c = t > 0 ? Sigmoid(gate[1]) * c + add : add;
    h = Sigmoid(gate[3]) * Tanh(c);
    states.push_back(Reshape(
        h, {.shape = layout == "NT" ? std::vector<int64_t>{-1, 1, kHidden} : std::vector<int64_t>{1, -1, kHidden}}));
  }
  const Symbol rows = Reshape(Concat(states, {.axis = time}), {.shape = {-1, kHidden}}, "rows");
  const Symbol scores = FullyConnected(Dropout(rows, {.p = 0.3}, "drop"), {.num_hidden = kWords}, "scores");
  const SoftmaxOutputAttrs loss{.normalization = normalization, .use_ignore = true, .ignore_label = 0};
  return Group(
      {SoftmaxOutput(scores, Reshape(Variable("label"), {.shape = {-1}}), loss, "words"), Tanh(rows, "states")});
}

std::unique_ptr<DataParallelExecutorGroup> Bind(const Symbol& symbol, const std::string& layout, int devices) {
  GroupOptions options{.data = {{"data", ShapeOf(layout, kSamples, kFeatures), DType::kFloat32, layout + "C"}},
                       .labels = {{"label", ShapeOf(layout, kSamples), DType::kFloat32, layout}},
                       .inputs_need_grad = true};
  options.devices.clear();
  for (int i = 0; i < devices; ++i) {
    options.devices.push_back(TestDevice(i));
    options.workload.push_back(i == 1 ? 1 : 2.5);
  }
  return std::make_unique<DataParallelExecutorGroup>(symbol, options);
}

Batch RandomWords(const std::string& layout, int64_t samples, int64_t pad) {
  Batch batch{.data = {RandomTensor(ShapeOf(layout, samples, kFeatures), 3)},
              .label = {HostTensor(DType::kFloat32, ShapeOf(layout, samples))},
              .pad = pad};
  PhiloxStream random(4, "words");
  for (float& word : batch.label[0].data<float>()) word = static_cast<float>(random.Below(kWords));
  return batch;
}

void ExpectNear(const HostTensor& value, const HostTensor& expected, const std::string& what) {
  ASSERT_EQ(value.shape(), expected.shape()) << what;
  EXPECT_LE(MaxAbsDiff(value, expected), 1e-5) << what;
}

// One batch through `group`; `one` is what a single device makes of it.
void ExpectTheSame(DataParallelExecutorGroup* one, DataParallelExecutorGroup* group, const Batch& batch) {
  for (DataParallelExecutorGroup* each : {one, group}) {
    each->Forward(batch);
    each->Backward({{"states_output", RandomTensor(each->OutputShapes()[1], 9)}});
  }
  EXPECT_EQ(group->OutputShapes(), one->OutputShapes());
  const std::vector<Tensor> expected = one->Outputs(), merged = group->Outputs();
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectNear(merged[i].ToHost(), expected[i].ToHost(), group->output_names()[i]);
  }
  for (const std::string& name : one->param_names()) {
    ExpectNear(SumOfGradients(*group, name), SumOfGradients(*one, name), name);
  }
  ExpectNear(group->InputGradients()[0].ToHost(), one->InputGradients()[0].ToHost(), "data");
  for (const char* text : {"accuracy(output=words_output,ignore=0)", "cross-entropy(output=words_output,ignore=0)",
                           "loss(output=states_output)"}) {
    double values[2] = {};
    for (int i = 0; i < 2; ++i) {
      const std::unique_ptr<Metric> metric = MakeMetric(text);
      (i == 0 ? one : group)->UpdateMetric(metric.get(), batch.label);
      values[i] = metric->Get()[0].second;
    }
    EXPECT_NEAR(values[1], values[0], 1e-6) << text;
  }
}

TEST(GroupRecurrent, TimeFoldedIntoTheBatch) {
  for (const std::string layout : {"NT", "TN"}) {
    for (const Normalization normalization : {Normalization::kNull, Normalization::kBatch, Normalization::kValid}) {
      const Symbol net = LanguageModel(layout, normalization);
      const auto one = Bind(net, layout, 1);
      for (int devices : {2, 3}) {
        SCOPED_TRACE(fmt::format("{}, normalization {}, {} devices", layout, static_cast<int>(normalization), devices));
        const auto group = Bind(net, layout, devices);
        InitialiseEqually({one.get(), group.get()}, 5);
        for (DataParallelExecutorGroup* each : {one.get(), group.get()}) each->SetStep({.step = 1});
        ExpectTheSame(one.get(), group.get(), RandomWords(layout, kSamples, 0));
        EXPECT_EQ(group->OutputShapes()[0], (Shape{kSamples * kTime, kWords}));
        ExpectTheSame(one.get(), group.get(), RandomWords(layout, 5, 2));  // of 3 samples
      }
    }
  }
}

// Against loops by hand: rows of (T, N) come time by time, whatever the devices' shares are.
TEST(GroupRecurrent, RowsAreInTheOrderOfTheWholeBatch) {
  for (const std::string layout : {"NT", "TN"}) {
    const Symbol rows = Reshape(Variable("data"), {.shape = {-1, kFeatures}}, "rows");
    const auto group = Bind(Group({Tanh(rows, "y"), Reshape(Variable("label"), {.shape = {-1}}, "l")}), layout, 3);
    const Batch batch = RandomWords(layout, kSamples, 0);
    group->Forward(batch);
    ExpectNear(group->Outputs()[1].ToHost(), batch.label[0].Reshape({kTime * kSamples}), layout);
    const HostTensor y = group->Outputs()[0].ToHost();
    for (int64_t i = 0; i < y.elements(); ++i) EXPECT_NEAR(y.At(i), std::tanh(batch.data[0].At(i)), 1e-6);
    HostTensor head(DType::kFloat32, y.shape());
    for (int64_t i = 0; i < head.elements(); ++i) head.Set(i, static_cast<double>(i));
    group->Backward({{"y_output", head}, {"l_output", HostTensor(DType::kFloat32, {kTime * kSamples})}});
    const HostTensor gradient = group->InputGradients()[0].ToHost();
    ASSERT_EQ(gradient.shape(), batch.data[0].shape());
    for (int64_t i = 0; i < y.elements(); ++i) {
      EXPECT_NEAR(gradient.At(i), static_cast<double>(i) * (1 - y.At(i) * y.At(i)), 1e-4);
    }
  }
}

// (6, 3, 4) in shares of 3 as (3, -1): a row of a share happens to be a sample, one of the whole batch is two.
TEST(GroupRecurrent, AReshapeThatFitsAShareByChanceIsRefused) {
  const std::string message = MessageOf([&] {
    DataParallelExecutorGroup group(
        Reshape(Variable("data"), {.shape = {3, -1}}, "rows"),
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {6, kTime, kFeatures}}}, .for_training = false});
  });
  EXPECT_NE(
      message.find("head \"rows_output\" has its samples elsewhere in a device's share, (3, 12), than in the whole "
                   "batch, (3, 24)"),
      std::string::npos)
      << message;
}

// Halves of 4 and of 6 samples have their rows where the whole has them: nowhere. The same programs make up a batch of
// 5, whose rows happen to be samples.
TEST(GroupRecurrent, ProgramsFoundAgainAreCheckedAgainstEachBatch) {
  const Symbol rows = Reshape(Variable("data"), {.shape = {5, -1}}, "rows").WithAnnotation("merge", "sum");
  DataParallelExecutorGroup group(
      rows, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 10}}}, .for_training = false});
  const auto run = [&](int64_t samples) { group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {samples, 10})}}); };
  EXPECT_NO_THROW(run(6));
  const int64_t made = group.programs().misses();
  const std::string message = MessageOf<ModelError>([&] { run(5); });
  EXPECT_NE(message.find("has its samples elsewhere in a device's share, (5, 6), than in the whole batch, (5, 10)"),
            std::string::npos)
      << message;
  EXPECT_EQ(group.programs().misses(), made);
  EXPECT_NO_THROW(run(4));
}

TEST(GroupRecurrent, AReshapeThatCutsSamplesApartIsNamed) {
  const Symbol cut = Reshape(Variable("data"), {.shape = {kFeatures, -1}}, "cut");
  const std::string message = MessageOf([&] {
    DataParallelExecutorGroup group(
        Exp(cut, "out"),
        {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {6, kTime, kFeatures}}}, .for_training = false});
  });
  EXPECT_NE(message.find("for Reshape \"cut\" gives no axis whole samples"), std::string::npos) << message;
}

}  // namespace
}  // namespace bindery
