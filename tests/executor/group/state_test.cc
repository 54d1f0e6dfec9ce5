// Statistics, metrics, watched values and failures of the group.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"
#include "tests/executor/group_helpers.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/metrics/metrics.h"

namespace bindery {
namespace {

TEST(GroupStatistics, RunningValuesIncludeThePartBetweenDevices) {
  const Symbol net = MakeLoss(BatchNorm(Variable("data"), {.momentum = 0}, "bn"), {}, "loss");
  DataParallelExecutorGroup group(net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 1}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(Batch{.data = {HostTensor::From({4, 1}, {0, 2, 10, 12})}});
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  EXPECT_NEAR(aux.at("bn_running_mean").At(0), 6, 1e-6);
  EXPECT_NEAR(aux.at("bn_running_var").At(0), 26, 1e-5);
  EXPECT_EQ(group.store().Get(*group.store().Find("bn_running_var"), 0),
            group.store().Get(*group.store().Find("bn_running_var"), 1));
}

// Shares of 1 and 3 samples, whose means are 0 and 8 and whose variances are 0 and 8/3: merged without regard to their
// sizes they would be 4 and 17.3.
TEST(GroupStatistics, UnequalSharesCountByTheirSamples) {
  const Symbol net = MakeLoss(BatchNorm(Variable("data"), {.momentum = 0.25}, "bn"), {}, "loss");
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .workload = {1, 3}, .data = {{"data", {4, 1}}}});
  InitialiseEqually({&group}, 1);
  EXPECT_EQ(group.slices(), (std::vector<SampleRange>{{0, 1}, {1, 4}}));
  group.Forward(Batch{.data = {HostTensor::From({4, 1}, {0, 6, 8, 10})}});
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  const double mean = 6, variance = (36 + 0 + 4 + 16) / 4.0;
  EXPECT_NEAR(aux.at("bn_running_mean").At(0), 0.25 * 0 + 0.75 * mean, 1e-6);
  EXPECT_NEAR(aux.at("bn_running_var").At(0), 0.25 * 1 + 0.75 * variance, 1e-5);
}

TEST(GroupStatistics, DevicesMergeThoseOfAllLayersAtOnce) {
  Symbol x = Variable("data");
  for (int i = 0; i < 3; ++i) {
    x = BatchNorm(FullyConnected(x, {.num_hidden = 3}, fmt::format("fc{}", i)), {}, fmt::format("bn{}", i));
  }
  const auto plans = DataParallelExecutorGroup::MakePlans(
      MakeLoss(x, {}, "loss"), {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 2}}}});
  std::vector<size_t> exchanges;
  for (const PlanSegment& segment : plans[0].plan.segments) exchanges.push_back(segment.exchanges.size());
  EXPECT_EQ(exchanges, (std::vector<size_t>{3, 0, 0}));  // forward, the rest of forward, backward
}

TEST(GroupStatistics, FixedLayersKeepTheirStatistics) {
  const Symbol net = MakeLoss(BatchNorm(Variable("data"), {.fix_gamma = false}, "bn"), {}, "loss");
  DataParallelExecutorGroup group(net, {.data = {{"data", {4, 1}}}, .fixed_params = {"bn_gamma", "bn_beta"}});
  InitialiseEqually({&group}, 1);
  group.Forward(Batch{.data = {HostTensor::From({4, 1}, {0, 2, 10, 12})}});
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  EXPECT_EQ(aux.at("bn_running_mean").At(0), 0);
  EXPECT_EQ(aux.at("bn_running_var").At(0), 1);
}

TEST(GroupStatistics, ADivergedStepMovesNone) {
  const Symbol net = Add(BatchNorm(Variable("a"), {.momentum = 0}, "bna"), BatchNorm(Variable("b"), {}, "bnb"));
  DataParallelExecutorGroup group(MakeLoss(net, {}, "loss"),
                                  {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"a", {4, 1}}, {"b", {4, 1}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params, before, failed, healthy;
  group.GetParams(&params, &before);
  const HostTensor values = HostTensor::From({4, 1}, {0, 2, 10, 12});
  HostTensor wrong = values;
  wrong.Set(3, std::numeric_limits<double>::quiet_NaN());
  group.Forward(Batch{.data = {values, wrong}});
  group.GetParams(&params, &failed);
  EXPECT_EQ(failed, before);
  group.Forward(Batch{.data = {values, values}});
  group.GetParams(&params, &healthy);
  EXPECT_NEAR(healthy.at("bna_running_mean").At(0), 6, 1e-6);
}

// data, auxiliary count -> data; every training forward that is committed adds one to the count.
const OpDef& CountedOp() {
  static const OpDef& op = []() -> const OpDef& {
    AddOp({.name = "Counted",
           .inputs = {"data", Auxiliary("count")},
           .infer =
               [](InferContext& c) {
                 rule::SameDTypes(c);
                 rule::SameShape({c.in(0), c.out(0)});
                 c.in(0).Carry(c.out(0));
                 c.in(1).Set({1});
               },
           .gradient =
               [](const GradientContext& g) {
                 return std::vector<Symbol>{g.output_grad(0), {}};
               },
           .updates =
               [](const UpdateContext& c) {
                 return std::vector<StateUpdate>{{1, c.state(1) + 1}};
               },
           .inplace = {{0, 0}},
           .is_view = [](const ViewContext&) { return true; }});
    return FindOp("Counted");
  }();
  return op;
}

TEST(GroupStates, AnyOperatorMayUpdateItsOwn) {
  const Symbol count = Variable("count");
  Symbol net = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc");
  for (int i = 0; i < 2; ++i) net = Apply(CountedOp(), {}, {net, count});  // two nodes with one state
  net = MakeLoss(net, {}, "loss");
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1), TestDevice(2)}, .data = {{"data", {6, 3}}}});
  InitialiseEqually({&group}, 1);
  const auto counted = [&] {
    const StoredParameter& state = *group.store().Find("count");
    const HostTensor first = group.store().Get(state, 0);
    for (int d = 1; d < 3; ++d) EXPECT_EQ(group.store().Get(state, d), first);
    return first.At(0);
  };
  const double start = counted();
  group.Forward(RandomBatch(6, 3, 2, 1));
  EXPECT_EQ(counted(), start + 2);
  group.Forward(RandomBatch(6, 3, 2, 1), Mode::kPredict);
  EXPECT_EQ(counted(), start + 2);
  group.Forward(RandomBatch(1, 3, 2, 1));  // two devices sit out
  EXPECT_EQ(counted(), start + 4);
  for (uint32_t i = 0; i < 3; ++i) {
    group.SetStep({.micro_batch = i, .tentative = true});
    group.Forward(RandomBatch(i + 2, 3, 2, 1));
    EXPECT_EQ(counted(), start + 4);
  }
  StepParts parts;
  group.AppendPublish({}, &parts);
  StepRange(group.engine(), std::move(parts)).Push();
  EXPECT_EQ(counted(), start + 10);
  group.SetStep({.tentative = true});
  group.Forward(RandomBatch(6, 3, 2, 1));  // never committed
  group.SetStep({});
  group.Forward(RandomBatch(6, 3, 2, 1));
  EXPECT_EQ(counted(), start + 12);
}

TEST(GroupMetric, SlicedAndPreSlicedGiveTheSameForAnySplit) {
  const Batch batch = RandomBatch(7, 6, 3, 2);
  std::vector<double> values;
  for (const std::vector<Device>& devices : {std::vector<Device>{TestDevice(0)},
                                             {TestDevice(0), TestDevice(1)},
                                             {TestDevice(0), TestDevice(1), TestDevice(2)}}) {
    DataParallelExecutorGroup group(
        SmallNet(), {.devices = devices, .data = {{"data", {7, 6}}}, .labels = {{"softmax_label", {7}}}});
    InitialiseEqually({&group}, 1);
    group.Forward(batch);
    const auto metric = MakeMetric("cross-entropy,accuracy");
    group.UpdateMetric(metric.get(), batch.label);
    values.push_back(metric->Get()[0].second);
    const auto again = MakeMetric("cross-entropy,accuracy");
    std::vector<std::vector<HostTensor>> pre_sliced;
    for (const SampleRange& r : group.slices()) pre_sliced.push_back({batch.label[0].Slice(0, r.begin, r.end)});
    group.UpdateMetric(again.get(), pre_sliced);
    EXPECT_EQ(metric->Get(), again->Get());
  }
  EXPECT_NEAR(values[0], values[1], 1e-6);
  EXPECT_NEAR(values[0], values[2], 1e-6);
}

// Squared errors that sum to 4 over two samples and to 9 over one: 13 / 3, where a mean of means would say 5.5.
TEST(GroupMetric, MeansAreOverSamplesNotOverDevices) {
  const Symbol net = LinearRegressionOutput(Variable("data"), {}, "out");
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {3, 1}}}, .labels = {{"out_label", {3, 1}}}});
  Batch batch{
      .data = {HostTensor::From({4, 1}, {0, 2, 3, 100})}, .label = {HostTensor(DType::kFloat32, {4, 1})}, .pad = 1};
  group.Forward(batch);
  const auto metric = MakeMetric("mse");
  group.UpdateMetric(metric.get(), batch.label);  // with the padding row, which is not counted
  EXPECT_NEAR(metric->Get()[0].second, 13.0 / 3, 1e-12);
  EXPECT_THROW(group.UpdateMetric(metric.get(), std::vector<HostTensor>{}), DataError);
  EXPECT_THROW(group.UpdateMetric(metric.get(), std::vector<std::vector<HostTensor>>(1)), DataError);
}

// A metric in host code: the sum of an output, and of the labels.
class Sums : public HostMetric {
 public:
  std::string name() const override { return "sums"; }
  int partial_size() const override { return 2; }
  void Accumulate(const MetricInputs& share, std::span<double> partial) const override {
    for (int64_t i = 0; i < share.outputs[0].second.elements(); ++i) partial[0] += share.outputs[0].second.At(i);
    for (int64_t i = 0; i < share.samples; ++i) partial[1] += share.labels[0].second.At(i);
  }
  NamedValues Values(std::span<const double> total) const override {
    return {{"outputs", total[0]}, {"labels", total[1]}};
  }
};

// Outputs that are the batch itself, so that every device has the same. Labels are the caller's, or those of the batch.
TEST(GroupMetric, TheSameBitsOnEveryKindOfDevice) {
  const Symbol net = Group({BlockGrad(Variable("data"), "scores"), BlockGrad(Variable("classes"), "seen")});
  Batch batch = RandomBatch(7, 6, 3, 2);
  HostTensor& scores = batch.data[0];
  for (int64_t i = 0; i < scores.elements(); ++i) scores.Set(i, std::abs(scores.At(i)));
  std::vector<double> expected;
  for (const std::vector<Device>& devices :
       {std::vector<Device>{Cpu(0)}, {TestDevice(0), TestDevice(1), TestDevice(2)}, {Sim(0), Cpu(0), Sim(1)}}) {
    DataParallelExecutorGroup group(
        net, {.devices = devices,
              .workload = devices.size() == 1 ? std::vector<double>{} : std::vector<double>{1, 2, 3},
              .data = {{"data", {7, 6}}},
              .labels = {{"classes", {7}}},
              .for_training = false});
    const char* const text =
        "accuracy(output=scores_output), top-k(3, output=scores_output), loss(output=scores_output), "
        "cross-entropy(output=scores_output), cross-entropy(ignore=1, output=scores_output), "
        "mse(output=seen_output), accuracy(output=seen_output)";
    const auto whole = MakeMetric(text), of_batch = MakeMetric(text);
    Sums sums;
    for (int round = 0; round < 2; ++round) {
      group.Forward(batch);
      group.UpdateMetric(whole.get(), batch.label);
      group.UpdateMetric(&sums, batch.label);
      const auto measurement = std::make_shared<Measurement>();
      const VarPtr done = group.engine()->NewVar();
      group.PushMetric(*of_batch, measurement, done);
      group.engine()->Wait(done);
      for (const std::vector<double>& partial : measurement->partials) of_batch->Merge(partial);
    }
    const std::vector<double> total(whole->total().begin(), whole->total().end());
    if (expected.empty()) expected = total;
    EXPECT_EQ(total, expected);
    EXPECT_EQ(std::vector<double>(of_batch->total().begin(), of_batch->total().end()), expected);
    EXPECT_NEAR(sums.total()[0] / (2 * 7 * 6), whole->Get()[2].second, 1e-12);
    EXPECT_EQ(whole->Get()[5].second, 0);
    EXPECT_EQ(whole->Get()[6].second, 1);
  }
}

TEST(GroupMetric, WhatItRefusesIsNotCounted) {
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(RandomBatch(4, 6, 3, 2));
  const auto metric = MakeMetric("cross-entropy");
  const auto refused = [&](const HostTensor& labels) {
    return MessageOf<DataError>([&] { group.UpdateMetric(metric.get(), std::vector<HostTensor>{labels}); });
  };
  EXPECT_NE(refused(HostTensor::From({4}, {0, 1, 2, 7})).find("sample 3, element 1: expected a class 0..2, got 7"),
            std::string::npos);  // of the second device's share
  EXPECT_NE(refused(HostTensor::From({4}, {0, -1, 2, 1})).find("sample 1, element 1: expected a class 0..2, got -1"),
            std::string::npos);
  EXPECT_TRUE(metric->total().empty());
  group.UpdateMetric(metric.get(), std::vector<HostTensor>{HostTensor::From({4}, {0, 1, 2, 1})});
  EXPECT_EQ(metric->total()[3], 4);
}

TEST(GroupWatch, ValuesByNameOnEveryDevice) {
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  const Batch batch = RandomBatch(4, 6, 3, 2);
  group.Forward(batch);
  group.Backward();
  const HostTensor plain = SumOfGradients(group, "fc1_weight");
  group.Watch("^fc1_output$|backward");
  group.Forward(batch);
  group.Backward();
  const auto watched = group.WatchedValues();
  EXPECT_GE(watched.size(), 4u);
  EXPECT_EQ(watched[0].name, "fc1_output");
  EXPECT_EQ(watched[0].value.shape(), (Shape{2, 5}));
  EXPECT_EQ(watched.front().device, TestDevice(0));
  EXPECT_EQ(watched.back().device, TestDevice(1));
  EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), plain), 1e-6);  // watching changes nothing
  group.Watch("");
  EXPECT_THROW(group.Watch("("), Error);
}

// Against plain loops: data (4, 2) -> z = data W^T + b -> tanh -> softmax over 3 classes, watched on two devices.
TEST(GroupWatch, ValuesAreThoseOfPlainLoops) {
  const Symbol net =
      SoftmaxOutput(Tanh(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), "act"), {}, "softmax");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)},
                                        .workload = {1, 3},
                                        .data = {{"data", {4, 2}}},
                                        .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  const Batch batch = RandomBatch(4, 2, 3, 5);
  group.Watch("^(fc|act|softmax)_output$|^act_backward");
  group.Forward(batch);
  group.Backward();
  double z[4][3], a[4][3], p[4][3], dz[4][3];
  for (int n = 0; n < 4; ++n) {
    double sum = 0;
    for (int k = 0; k < 3; ++k) {
      z[n][k] = params.at("fc_bias").At(k);
      for (int i = 0; i < 2; ++i) z[n][k] += batch.data[0].At(n * 2 + i) * params.at("fc_weight").At(k * 2 + i);
      a[n][k] = std::tanh(z[n][k]);
      sum += std::exp(a[n][k]);
    }
    for (int k = 0; k < 3; ++k) {
      p[n][k] = std::exp(a[n][k]) / sum;
      dz[n][k] = (p[n][k] - (batch.label[0].At(n) == k)) * (1 - a[n][k] * a[n][k]);
    }
  }
  std::map<std::string, int> seen;
  for (const DataParallelExecutorGroup::Watched& w : group.WatchedValues()) {
    const SampleRange range = group.slices()[static_cast<size_t>(w.device.index)];
    const auto& expected = w.name == "fc_output" ? z : w.name == "act_output" ? a : w.name == "softmax_output" ? p : dz;
    ASSERT_EQ(w.value.shape(), (Shape{range.size(), 3})) << w.name;
    for (int64_t n = 0; n < range.size(); ++n) {
      for (int64_t k = 0; k < 3; ++k) {
        EXPECT_NEAR(w.value.At(n * 3 + k), expected[range.begin + n][k], 1e-6)
            << w.name << " of " << ToString(w.device);
      }
    }
    ++seen[w.name.starts_with("act_backward") ? "gradient" : w.name];
  }
  EXPECT_EQ(seen,
            (std::map<std::string, int>{{"fc_output", 2}, {"act_output", 2}, {"softmax_output", 2}, {"gradient", 2}}));
}

// An operator that fails when it runs.
std::atomic<bool> broken{false};
const OpDef& BreakableOp() {
  static const bool added = [] {
    OpDef op;
    op.name = "Breakable";
    op.doc = "The identity; throws while the test says so.";
    op.infer = rule::Like(0);
    op.gradient = [](const GradientContext& g) -> std::vector<Symbol> { return {g.output_grad(0)}; };
    AddOp(std::move(op));
    AddKernel("Breakable", [](const KernelSpec& spec) -> std::optional<Kernel> {
      const int64_t bytes = StorageBytes({}, spec.inputs[0].dtype, spec.inputs[0].shape);
      return Kernel{.implementation = "test",
                    .input_formats = {Format::Plain()},
                    .output_formats = {Format::Plain()},
                    .bind = [bytes](const KernelArgs& args) -> Call {
                      return [bytes, in = args.inputs[0], out = args.outputs[0]] {
                        if (broken) throw NumericError("broken on purpose");
                        std::memcpy(out, in, static_cast<size_t>(bytes));
                      };
                    }};
    });
    return true;
  }();
  (void)added;
  return FindOp("Breakable");
}

TEST(GroupFailure, AFailedStepLeavesParametersAndLaterStepsWhole) {  // E40 by our rule
  if (TestDevices() == "cuda") GTEST_SKIP() << "its operator has a kernel for memory that the host addresses";
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1");
  x = SoftmaxOutput(Apply(BreakableOp(), {}, {x}, "weak"), {}, "softmax");
  DataParallelExecutorGroup group(
      x, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  const Batch batch = RandomBatch(4, 6, 3, 2);
  group.Forward(batch);
  group.Backward();
  const HostTensor good = group.Outputs()[0].ToHost();
  broken = true;
  EXPECT_NO_THROW(group.Forward(batch));  // errors come when results are read
  EXPECT_NO_THROW(group.Backward());
  const Tensor output = group.Outputs()[0];
  for (int read = 0; read < 2; ++read)
    EXPECT_EQ(MessageOf([&] { output.ToHost(); }),
              fmt::format("NumericError: operation \"forward {}\" failed: Breakable \"weak\": broken on purpose",
                          TestDevice(0)));
  EXPECT_NE(MessageOf([&] { group.GetGradient("fc1_weight", 0); }).find("broken on purpose"), std::string::npos);
  HostTensorMap params;
  EXPECT_NO_THROW(group.GetParams(&params, nullptr));
  broken = false;
  group.Forward(batch);
  group.Backward();
  EXPECT_EQ(group.Outputs()[0].ToHost(), good);
  EXPECT_NO_THROW(group.GetGradient("fc1_weight", 0));
}

}  // namespace
}  // namespace bindery
