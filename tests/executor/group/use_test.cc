// The group's smaller members: what it says of itself, modes, labels, head gradients, heads one by one.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;
const std::vector<Device> kTwo = {TestDevice(0), TestDevice(1)};

HostTensor Ones(const Shape& shape) { return HostTensor::Full(DType::kFloat32, shape, 1); }

TEST(GroupUse, SaysWhatIsBound) {
  Symbol x = BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc1"), {}, "bn");
  x = Group({SoftmaxOutput(x, {}, "softmax"), BlockGrad(x, "features")});
  const DataParallelExecutorGroup group(
      x, {.devices = kTwo, .workload = {1, 3}, .data = {{"data", {10, 6}}}, .labels = {{"softmax_label", {10}}}});
  EXPECT_EQ(group.arg_names(), x.ListArguments());
  EXPECT_EQ(group.param_names(), (Names{"fc1_weight", "fc1_bias", "bn_gamma", "bn_beta"}));
  EXPECT_EQ(group.aux_names(), (Names{"bn_running_mean", "bn_running_var"}));
  EXPECT_EQ(group.output_names(), (Names{"softmax_output", "features_output"}));
  EXPECT_EQ(group.devices(), kTwo);
  EXPECT_EQ(group.batch_size(), 10);
  EXPECT_EQ(group.slices(), (std::vector<SampleRange>{{0, 3}, {3, 10}}));
  EXPECT_EQ(group.OutputShapes(), (std::vector<Shape>{{10, 5}, {10, 5}}));
  const std::vector<ReplicatedParam> params = group.params();  // [parameter][device], in the order of the names
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(params[i].name, group.param_names()[i]);
    EXPECT_EQ(params[i].index, static_cast<int>(i));
    EXPECT_EQ(params[i].values.size(), 2u);
  }
}

TEST(GroupUse, ADeviceMayAppearTwice) {
  if (TestDevices() == "mixed") GTEST_SKIP() << "bits are compared, and two kinds of devices round differently";
  const auto run = [](const std::vector<Device>& devices) {
    DataParallelExecutorGroup group(
        SmallNet(),
        {.devices = devices, .data = {{"data", {5, 6}}}, .labels = {{"softmax_label", {5}}}, .threads_per_device = 1});
    InitialiseEqually({&group}, 1);
    group.Forward(RandomBatch(5, 6, 3, 2));
    group.Backward();
    EXPECT_EQ(group.OutputsPerDevice()[0].size(), 2u);
    return std::pair(group.Outputs()[0].ToHost(), SumOfGradients(group, "fc1_weight"));
  };
  EXPECT_EQ(run({TestDevice(1), TestDevice(1)}), run(kTwo));
}

TEST(GroupUse, ADeviceWithoutWorkloadSitsOut) {
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = kTwo, .workload = {0, 2}, .data = {{"data", {5, 6}}}, .labels = {{"softmax_label", {5}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(RandomBatch(5, 6, 3, 2));
  group.Backward();
  EXPECT_EQ(group.slices(), (std::vector<SampleRange>{{0, 0}, {0, 5}}));
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{5, 3}));
  EXPECT_EQ(group.GetGradient("fc1_weight", 0), HostTensor(DType::kFloat32, {5, 6}));
  EXPECT_THROW(DataParallelExecutorGroup(SmallNet(), {.devices = kTwo, .workload = {0, 0}, .data = {{"data", {5, 6}}}}),
               Error);
  EXPECT_THROW(
      DataParallelExecutorGroup(SmallNet(), {.devices = kTwo, .workload = {1, -1}, .data = {{"data", {5, 6}}}}), Error);
}

TEST(GroupUse, TheModeIsTheOneItIsBoundForUnlessSaid) {
  const Symbol net = Dropout(Variable("data"), {.p = 0.5}, "drop");
  const Batch batch{.data = {Ones({4, 50})}};
  DataParallelExecutorGroup training(net, {.devices = kTwo, .data = {{"data", {4, 50}}}});
  DataParallelExecutorGroup prediction(net, {.devices = kTwo, .data = {{"data", {4, 50}}}, .for_training = false});
  const auto dropped = [&](DataParallelExecutorGroup& group, std::optional<Mode> mode) {
    group.Forward(batch, mode);
    return group.Outputs()[0].ToHost() != batch.data[0];
  };
  EXPECT_TRUE(dropped(training, std::nullopt));
  EXPECT_TRUE(dropped(training, Mode::kTrain));
  EXPECT_FALSE(dropped(training, Mode::kPredict));
  EXPECT_THROW(training.Backward(std::vector<HostTensor>{Ones({4, 50})}), Error);  // of a prediction
  EXPECT_FALSE(dropped(prediction, std::nullopt));
  EXPECT_FALSE(dropped(prediction, Mode::kPredict));
  EXPECT_TRUE(dropped(prediction, Mode::kTrain));
}

TEST(GroupUse, PredictionsNeedNoLabels) {
  const Batch batch = RandomBatch(5, 6, 3, 2);
  const DataDesc data{"data", {5, 6}}, label{"softmax_label", {5}};
  DataParallelExecutorGroup training(SmallNet(), {.devices = kTwo, .data = {data}, .labels = {label}});
  DataParallelExecutorGroup prediction(SmallNet(), {.devices = kTwo, .data = {data}, .for_training = false});
  EXPECT_EQ(prediction.param_names(), training.param_names());  // the label's argument is no parameter
  InitialiseEqually({&training, &prediction}, 1);
  training.Forward(batch, Mode::kPredict);
  const HostTensor expected = training.Outputs()[0].ToHost();
  training.Forward(Batch{.data = batch.data}, Mode::kPredict);
  EXPECT_EQ(training.Outputs()[0].ToHost(), expected);
  prediction.Forward(Batch{.data = batch.data});
  EXPECT_EQ(prediction.Outputs()[0].ToHost(), expected);
  prediction.Forward(batch);  // labels that nobody asked for are left alone
  EXPECT_EQ(prediction.Outputs()[0].ToHost(), expected);
}

// As in a group that is bound without; not those of the batch before.
TEST(GroupUse, LabelsThatABatchDoesNotHaveAreZero) {
  const Symbol net = MakeLoss(SoftmaxCrossEntropy(Variable("data"), Variable("label")), {}, "loss");
  const DataDesc data{"data", {5, 3}}, label{"label", {5}};
  DataParallelExecutorGroup training(net, {.devices = kTwo, .data = {data}, .labels = {label}});
  DataParallelExecutorGroup prediction(net, {.devices = kTwo, .data = {data}, .for_training = false});
  const Batch batch{.data = {RandomTensor({5, 3}, 1)}, .label = {HostTensor::From({5}, {2, 1, 2, 1, 2})}};
  training.Forward(batch);
  const HostTensor loss = training.Outputs()[0].ToHost();
  training.Forward(Batch{.data = batch.data}, Mode::kPredict);
  prediction.Forward(Batch{.data = batch.data});
  EXPECT_EQ(training.Outputs()[0].ToHost(), prediction.Outputs()[0].ToHost());
  training.Forward(batch, Mode::kPredict);
  EXPECT_LE(MaxAbsDiff(training.Outputs()[0].ToHost(), loss), 1e-6);
}

// Of two symbols with one interface.
TEST(GroupUse, AGroupOnTheWeightsOfAnotherRunsItsOwnSymbol) {
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), relu = Relu(x, "out"),
               tanh = Tanh(x, "out");
  GroupOptions options{.devices = {TestDevice(0)}, .data = {{"data", {1, 2}}}, .for_training = false};
  DataParallelExecutorGroup first(relu, options);
  first.SetParams({{"fc_weight", HostTensor::From({2, 2}, {0, 1, 2, 3})}, {"fc_bias", HostTensor::From({2}, {1, 2})}},
                  {});
  options.weights = first.Weights();
  DataParallelExecutorGroup same(relu, options), other(tanh, options);
  const auto predict = [](DataParallelExecutorGroup* group) {
    group->Forward(Batch{.data = {HostTensor::From({1, 2}, {1, 1})}});
    return group->Outputs()[0].ToHost();
  };
  EXPECT_EQ(predict(&same), HostTensor::From({1, 2}, {2, 7}));
  EXPECT_NEAR(predict(&other).At(0), std::tanh(2.0), 1e-5);
  EXPECT_EQ(&same.programs(), &first.programs());
  EXPECT_NE(&other.programs(), &first.programs());
  HostTensorMap args, aux;
  first.GetParams(&args, &aux);
  EXPECT_EQ(MessageOf([&] { same.SetParams(args, aux); }),
            "Error: parameter \"fc_weight\" is another group's and only read here");
  EXPECT_EQ(predict(&first), HostTensor::From({1, 2}, {2, 7}));
}

TEST(GroupUse, ArraysAreCountedNotCutShort) {
  DataParallelExecutorGroup group(SmallNet(), {.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  const Batch batch = RandomBatch(4, 6, 3, 1);
  EXPECT_EQ(MessageOf([&] {
              group.Forward(Batch{.data = {batch.data[0], batch.data[0]}, .label = batch.label});
            }),
            "DataError: the batch has 2 data arrays, 1 are described");
  EXPECT_EQ(MessageOf([&] {
              group.Forward(Batch{.data = batch.data, .label = {batch.label[0], batch.label[0]}});
            }),
            "DataError: the batch has 2 label arrays, 1 are described");
  EXPECT_NO_THROW(group.Forward(batch));
}

TEST(GroupUse, InputsAreCastToTheBoundType) {
  DataParallelExecutorGroup group(
      Identity(Variable("data"), "same"),
      {.devices = kTwo, .data = {{"data", {4, 3}, DType::kFloat64}}, .for_training = false});
  HostTensor bytes = HostTensor::Full(DType::kUInt8, {4, 3}, 200);
  bytes.Set(11, 255);
  group.Forward(Batch{.data = {bytes}});
  EXPECT_EQ(group.Outputs()[0].ToHost(), bytes.Cast(DType::kFloat64));
}

// However an input is described: as float32, where nobody thought of it.
TEST(GroupUse, InputsAreOfTheTypeThatTheirVariableDeclares) {
  const Symbol net = Identity(Variable("data", {.dtype = DType::kInt64}), "same");
  DataParallelExecutorGroup group(net, {.devices = kTwo, .data = {{"data", {4, 2}}}, .for_training = false});
  EXPECT_EQ(group.options().data[0].dtype, DType::kInt64);
  const HostTensor numbers = HostTensor::From({4, 2}, {0, 1, 2, 3, -4, 5, 6, 1 << 20});
  for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kInt64, DType::kFloat64}) {
    group.Forward(Batch{.data = {numbers.Cast(dtype)}});
    EXPECT_EQ(group.Outputs()[0].ToHost(), numbers.Cast(DType::kInt64)) << ToString(dtype);
  }
  group.Reshape({{"data", {2, 2}}}, {});
  EXPECT_EQ(group.options().data[0].dtype, DType::kInt64);
  HostTensor broken = numbers;
  for (const auto& [value, text] : {std::pair(1.5, "1.5"), std::pair<double, const char*>(NAN, "nan"),
                                    std::pair(18446744073709551616.0, "1.8446744073709552e+19")}) {
    broken.Set(5, value);
    const std::string message = MessageOf<DataError>([&] { group.Forward(Batch{.data = {broken}}); });
    EXPECT_TRUE(message.starts_with(fmt::format("DataError: \"data\": expected values of int64, got {}", text)))
        << message;
  }
  group.Forward(Batch{.data = {numbers}});  // goes on
  EXPECT_EQ(group.Outputs()[0].ToHost(), numbers.Cast(DType::kInt64));
}

TEST(GroupUse, StatesAreOfTheTypeThatTheirVariableDeclares) {
  const Symbol net = Identity(Variable("data") + Variable("state", {.dtype = DType::kFloat64}), "sum");
  DataParallelExecutorGroup group(
      net, {.devices = kTwo, .data = {{"data", {4, 2}, DType::kFloat64}}, .states = {{"state", {4, 2}}}});
  group.SetStates(std::vector<HostTensor>{HostTensor::Full(DType::kFloat32, {4, 2}, 3)});
  group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2}, 2)}});
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::Full(DType::kFloat64, {4, 2}, 5));
  EXPECT_EQ(group.States()[0][0].dtype(), DType::kFloat64);
}

TEST(GroupUse, WholeNumbersFitTheBoundType) {
  const Symbol net = Identity(Variable("data", {.dtype = DType::kUInt8}), "same");
  DataParallelExecutorGroup group(net, {.devices = kTwo, .data = {{"data", {4}}}, .for_training = false});
  const HostTensor numbers = HostTensor::From({4}, {0, 100, 255, 3});
  for (const DType dtype : {DType::kUInt8, DType::kBool, DType::kInt16, DType::kUInt32, DType::kInt64}) {
    group.Forward(Batch{.data = {numbers.Cast(dtype)}});
    EXPECT_EQ(group.Outputs()[0].ToHost(), numbers.Cast(dtype).Cast(DType::kUInt8)) << ToString(dtype);
  }
  for (const float wrong : {256, -1}) {
    HostTensor broken = numbers;
    broken.Set(2, wrong);
    EXPECT_EQ(MessageOf<DataError>([&] { group.Forward(Batch{.data = {broken.Cast(DType::kInt64)}}); }),
              fmt::format("DataError: \"data\": expected values of uint8, got {} (element 2, of sample 2 of the batch)",
                          wrong));
  }
}

TEST(GroupUse, WithoutABatchTheFirstDeviceDoesAll) {
  const Symbol net = Variable("data") * Variable("w", {.shape = Shape{3}});
  DataParallelExecutorGroup group(
      net.WithAnnotation("merge", "first"),
      {.devices = kTwo, .data = {{"data", {2, 3}, DType::kFloat32, "--"}}, .inputs_need_grad = true});
  group.SetParams({{"w", HostTensor::From({3}, {1, 2, 3})}}, {});
  group.Forward(Batch{.data = {HostTensor::From({2, 3}, {1, 1, 1, 2, 2, 2})}});
  group.Backward(std::vector<HostTensor>{Ones({2, 3})});
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::From({2, 3}, {1, 2, 3, 2, 4, 6}));
  EXPECT_EQ(group.InputGradients()[0].ToHost(), HostTensor::From({2, 3}, {1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(SumOfGradients(group, "w"), HostTensor::From({3}, {3, 3, 3}));
}

// Two heads whose batches lie along different axes.
TEST(GroupUse, HeadsAreMergedAlongTheirOwnAxes) {
  const Symbol data = Variable("data");
  const Symbol net = Group({data * 2.0, Transpose(data, {}, "turned")});
  DataParallelExecutorGroup group(net, {.devices = kTwo, .data = {{"data", {3, 2}}}, .inputs_need_grad = true});
  const HostTensor x = HostTensor::From({3, 2}, {1, 2, 3, 4, 5, 6}),
                   turned = HostTensor::From({2, 3}, {1, 3, 5, 2, 4, 6});
  group.Forward(Batch{.data = {x}});
  EXPECT_EQ(group.OutputShapes(), (std::vector<Shape>{{3, 2}, {2, 3}}));
  EXPECT_EQ(group.Outputs()[1].ToHost(), turned);
  const std::vector<Tensor> second = group.Outputs(1, 2);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].ToHost(), turned);
  EXPECT_EQ(group.Outputs(1).size(), 1u);
  EXPECT_EQ(group.Outputs(1, 1).size(), 0u);
  const std::vector<std::vector<Tensor>> parts = group.OutputsPerDevice(1, 2);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0][1].ToHost(), HostTensor::From({2, 1}, {5, 6}));
  EXPECT_THROW(group.Outputs(2, 1), Error);
  EXPECT_THROW(group.Outputs(-1, 1), Error);
  // Head gradients are cut along the same axes.
  group.Backward(
      std::vector<HostTensor>{HostTensor(DType::kFloat32, {3, 2}), HostTensor::From({2, 3}, {10, 20, 30, 40, 50, 60})});
  EXPECT_EQ(group.InputGradients()[0].ToHost(), HostTensor::From({3, 2}, {10, 40, 20, 50, 30, 60}));
  // Outputs are the caller's: the next step leaves them alone.
  group.Forward(Batch{.data = {HostTensor(DType::kFloat32, {3, 2})}});
  EXPECT_EQ(second[0].ToHost(), turned);
  EXPECT_EQ(parts[0][1].ToHost(), HostTensor::From({2, 1}, {5, 6}));
}

TEST(GroupUse, HeadGradientsByPositionAndName) {
  const Symbol data = Variable("data");
  DataParallelExecutorGroup group(Group({MakeLoss(data * 3.0, {}, "loss"), Identity(data * 5.0, "plain")}),
                                  {.devices = kTwo, .data = {{"data", {3, 2}}}, .inputs_need_grad = true});
  const auto gradient = [&] { return group.InputGradients()[0].ToHost(); };
  const auto all = [](double value) { return HostTensor::Full(DType::kFloat32, {3, 2}, value); };
  group.Forward(Batch{.data = {Ones({3, 2})}});
  EXPECT_THROW(group.InputGradients(), Error);  // before backward
  group.Backward({{"plain_output", all(2)}});
  EXPECT_EQ(gradient(), all(13));
  group.Forward(Batch{.data = {Ones({3, 2})}});
  group.Backward(std::vector<HostTensor>{all(100), all(2)});  // a loss head ignores its own
  EXPECT_EQ(gradient(), all(13));
  group.Forward(Batch{.data = {Ones({3, 2})}});
  EXPECT_NE(MessageOf([&] { group.Backward(); }).find("head \"plain_output\" is not a loss"), std::string::npos);
  EXPECT_NE(MessageOf([&] {
              group.Backward({{"plane_output", all(2)}});
            }).find("did you mean \"plain_output\""),
            std::string::npos);
  EXPECT_THROW(group.Backward(std::vector<HostTensor>{all(2)}), Error);
  EXPECT_THROW(group.Backward({{"plain_output", Ones({2, 2})}}), ShapeError);
  group.Backward({{"plain_output", all(2)}});  // and nothing is broken
  EXPECT_EQ(gradient(), all(13));

  // Unless asked for: out_grad multiplies it in, sample by sample.
  const auto weighted = [&](bool out_grad, const HostTensor& head) {
    DataParallelExecutorGroup softmax(
        SoftmaxOutput(Variable("data"), {.out_grad = out_grad}, "softmax"),
        {.devices = kTwo, .data = {{"data", {3, 2}}}, .labels = {{"softmax_label", {3}}}, .inputs_need_grad = true});
    softmax.Forward(Batch{.data = {HostTensor(DType::kFloat32, {3, 2})}, .label = {HostTensor(DType::kFloat32, {3})}});
    softmax.Backward(std::vector<HostTensor>{head});
    return softmax.InputGradients()[0].ToHost();
  };
  const HostTensor head = HostTensor::From({3, 2}, {2, 2, 4, 4, 6, 6});
  EXPECT_EQ(weighted(false, head), HostTensor::From({3, 2}, {-0.5, 0.5, -0.5, 0.5, -0.5, 0.5}));
  EXPECT_EQ(weighted(true, head), HostTensor::From({3, 2}, {-1, 1, -2, 2, -3, 3}));
}

class Total : public Metric {
 public:
  std::string name() const override { return "total"; }
  int partial_size() const override { return 1; }
  MetricGraph AsGraph(const MetricArrays& share) const override {
    ++graphs;
    const Symbol sum = Sum(Cast(share.outputs[0].symbol, {.dtype = DType::kFloat64}));
    return {.partial = Reshape(sum, {.shape = {1}})};
  }
  NamedValues Values(std::span<const double> total) const override { return {{"total", total[0]}}; }
  mutable int graphs = 0;
};

// However many a program measures after each batch.
TEST(GroupUse, MetricsAreCompiledOnce) {
  const Batch batch = RandomBatch(5, 6, 3, 2);
  DataParallelExecutorGroup group(SmallNet(),
                                  {.devices = kTwo, .data = {{"data", {5, 6}}}, .labels = {{"softmax_label", {5}}}});
  InitialiseEqually({&group}, 1);
  std::vector<Total> metrics(9);
  for (int round = 0; round < 3; ++round) {
    group.Forward(batch);
    for (Total& metric : metrics) group.UpdateMetric(&metric, batch.label);
  }
  for (const Total& metric : metrics) {
    EXPECT_EQ(metric.graphs, 2);  // one for each device
    EXPECT_NEAR(metric.Get()[0].second, 15, 1e-5);
  }
}

}  // namespace
}  // namespace bindery
