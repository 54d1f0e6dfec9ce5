// Parts of a graph on devices of their own, in one replica or several: the results are those of one device.
#include <gtest/gtest.h>

#include "tests/executor/group/placed_helpers.h"

namespace bindery {
namespace {

// E31.
TEST(Placed, EveryArrayIsOnTheDeviceOfItsPart) {
  for (const bool data_gradient : {true, false}) {
    GroupOptions options = OptionsOf(2, {{"data", {7, 4}}}, {{"softmax_label", {7}}});
    options.inputs_need_grad = data_gradient;
    PlacedExecutorGroup group(Mlp(), options);
    InitialiseEqually({&group}, 1);
    group.Forward(RandomBatch(7, 4, 3, 1));
    group.Backward();
    EXPECT_EQ(group.DevicesOf("data"), options.placements.at("low"));
    EXPECT_EQ(group.DevicesOf("softmax_label"), options.placements.at("high"));
    ASSERT_EQ(group.params().size(), 6u);
    for (const ReplicatedParam& p : group.params()) {
      const std::vector<Device>& devices = options.placements.at(p.name.starts_with("fc1") ? "low" : "high");
      EXPECT_EQ(p.name, group.param_names()[static_cast<size_t>(p.index)]);
      EXPECT_EQ(group.DevicesOf(p.name), devices);
      ASSERT_EQ(p.values.size(), 2u);
      ASSERT_EQ(p.grads.size(), 2u);
      for (size_t d = 0; d < 2; ++d) {
        EXPECT_EQ(p.values[d].device(), devices[d]) << p.name;
        EXPECT_EQ(p.grads[d].device(), devices[d]) << p.name;
      }
    }
    EXPECT_EQ(group.Outputs()[0].device(), options.placements.at("high")[0]);
    if (data_gradient) {
      EXPECT_EQ(group.InputGradients()[0].device(), options.placements.at("low")[0]);
    } else {
      EXPECT_EQ(group.grad_req("data"), GradReq::kNull);
      EXPECT_THROW(group.InputGradients(), Error);
    }
  }
}

// E31.
TEST(Placed, SumsOverTwoDevices) {
  const Symbol sum = On("low", [] { return (Variable("d1") + Variable("d2")) * 3; });
  const Symbol net = On("high", [&] { return sum + Variable("d3"); });
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    std::vector<DataDesc> data;
    Batch batch;
    for (int i = 1; i <= 3; ++i) {
      data.push_back({"d" + std::to_string(i), {4, 5}, dtype});
      batch.data.push_back(HostTensor::Full(dtype, {4, 5}, i));
    }
    const HostTensor ones = HostTensor::Full(dtype, {4, 5}, 1);
    PlacedExecutorGroup group(net, OptionsOf(1, data));
    const auto one = Unplaced(net, OptionsOf(1, data));
    ExpectEqual(&group, one.get(), batch, {ones}, 0);
    EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::Full(dtype, {4, 5}, 12));
    const std::vector<Tensor> gradients = group.InputGradients();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(gradients[i].ToHost(), HostTensor::Full(dtype, {4, 5}, i < 2 ? 3 : 1)) << ToString(dtype) << i;
    }
  }
}

TEST(Placed, EqualsOneDevice) {
  for (const Case& c : Cases()) {
    for (const std::vector<double>& workload : {std::vector<double>{1}, {1, 1}, {3, 1}}) {
      SCOPED_TRACE(fmt::format("{}, {} replicas", c.name, workload.size()));
      GroupOptions options = OptionsOf(static_cast<int>(workload.size()), {c.data}, {c.label});
      options.workload = workload;
      PlacedExecutorGroup group(c.net, options);
      options.devices = {Cpu(0)};
      options.workload = {};
      const auto one = Unplaced(c.net, options);
      InitialiseEqually({&group, one.get()}, 3);
      for (const int64_t samples : {7, 3, 7, 1}) {
        SCOPED_TRACE(samples);
        ExpectEqual(&group, one.get(), RandomBatchOf(c, samples, static_cast<uint64_t>(samples)));
        EXPECT_EQ(group.batch_size(), samples);
        group.Forward(RandomBatchOf(c, samples, 9), Mode::kPredict);
        one->Forward(RandomBatchOf(c, samples, 9), Mode::kPredict);
        EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), one->Outputs()[0].ToHost()), 2e-5);
      }
    }
  }
}

TEST(Placed, PaddedSplitAndDeviceBatches) {
  const Case c = Cases()[0];
  GroupOptions options = OptionsOf(2, {c.data}, {c.label});
  PlacedExecutorGroup group(c.net, options);
  const auto one = Unplaced(c.net, options);
  InitialiseEqually({&group, one.get()}, 3);
  Batch padded = RandomBatchOf(c, 7, 1);
  padded.samples = 5;
  padded.pad = 2;
  ExpectEqual(&group, one.get(), padded);
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{5, 3}));
  std::vector<BatchPtr> cut;
  for (const int64_t samples : {2, 5}) cut.push_back(std::make_shared<const Batch>(RandomBatchOf(c, samples, 2)));
  for (ExecutorGroup* g : {static_cast<ExecutorGroup*>(&group), one.get()}) {
    g->Forward(cut);
    g->Backward();
  }
  EXPECT_EQ(group.slices(), (std::vector<SampleRange>{{0, 2}, {2, 7}}));
  EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), one->Outputs()[0].ToHost()), 2e-5);
  EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), SumOfGradients(*one, "fc1_weight")), 2e-5);
  Batch there;
  for (const auto& [arrays, value] :
       {std::pair(&there.device_data, padded.data[0]), {&there.device_label, padded.label[0]}}) {
    const Tensor array(group.engine(), TestDevice(3), value.dtype(), value.shape());
    array.CopyFrom(value);
    arrays->Set(0, {array});
  }
  there.pad = 2;
  ExpectEqual(&group, one.get(), there);
}

TEST(Placed, ReplicasWithoutABatchSitOut) {
  const Case c = Cases()[0];
  const GroupOptions options = OptionsOf(3, {c.data}, {c.label});
  PlacedExecutorGroup group(c.net, options);
  const auto one = Unplaced(c.net, options);
  InitialiseEqually({&group, one.get()}, 3);
  const auto two = std::make_shared<const Batch>(RandomBatchOf(c, 2, 1)),
             five = std::make_shared<const Batch>(RandomBatchOf(c, 5, 2));
  for (const std::vector<BatchPtr>& cut : {std::vector<BatchPtr>{nullptr, two, five}, {five, nullptr, nullptr}}) {
    for (ExecutorGroup* g : {static_cast<ExecutorGroup*>(&group), one.get()}) {
      g->Forward(cut);
      g->Backward();
    }
    EXPECT_EQ(group.slices(), one->slices());
    EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), one->Outputs()[0].ToHost()), 2e-5);
    EXPECT_LT(MaxAbsDiff(group.InputGradients()[0].ToHost(), one->InputGradients()[0].ToHost()), 2e-5);
    EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), SumOfGradients(*one, "fc1_weight")), 2e-5);
  }
  EXPECT_THROW(group.Forward(std::vector<BatchPtr>(3)), DataError);
  PlacedExecutorGroup alone(c.net, OptionsOf(1, {c.data}, {c.label}));
  EXPECT_THROW(alone.Forward(std::vector<BatchPtr>(1)), DataError);
}

// By the place of its first sample (Batch::first).
TEST(Placed, APieceOfABatchDrawsWhatTheWholeDoes) {
  const Case c = Cases()[0];
  PlacedExecutorGroup group(c.net, OptionsOf(2, {c.data}, {c.label}));
  InitialiseEqually({&group}, 3);
  const Batch whole = RandomBatchOf(c, 7, 1);
  group.SetStep({.step = 3});
  group.Forward(whole);
  const HostTensor expected = group.Outputs()[0].ToHost();
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {3, 7}}) {
    Batch piece{.data = {whole.data[0].Slice(0, begin, end)}, .label = {whole.label[0].Slice(0, begin, end)}};
    piece.first = begin;
    group.SetStep({.step = 3, .micro_batch = begin == 0 ? 0u : 1u});
    group.Forward(piece);
    EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), expected.Slice(0, begin, end)), 2e-5);
  }
}

// One value is read by two stages, and is a head; another crosses twice. Gradients of all of them are added up.
TEST(Placed, ValuesThatSeveralStagesRead) {
  const Symbol data = Variable("data");
  const Symbol x = On("low", [&] { return Tanh(FullyConnected(data, {.num_hidden = 4}, "fc1"), "x"); });
  const Symbol y = On("high", [&] { return Tanh(FullyConnected(x, {.num_hidden = 4}, "fc2"), "y"); });
  const Symbol z = On("low", [&] { return x * y + data; });
  const Symbol net = Group({On("high", [&] { return MakeLoss(z * y + x, {}, "loss"); }), x});
  for (const int replicas : {1, 2}) {
    GroupOptions options = OptionsOf(replicas, {{"data", {5, 4}}});
    PlacedExecutorGroup group(net, options);
    const auto one = Unplaced(net, options);
    InitialiseEqually({&group, one.get()}, 3);
    EXPECT_EQ(group.stages().size(), 4u);
    const HostTensor of_loss(DType::kFloat32, {5, 4}), of_x = RandomTensor({5, 4}, 8);
    ExpectEqual(&group, one.get(), Batch{.data = {RandomTensor({5, 4}, 5)}}, {of_loss, of_x});
    group.Forward(Batch{.data = {RandomTensor({5, 4}, 5)}});
    EXPECT_EQ(MessageOf<Error>([&] { group.Backward(); }),
              "Error: Backward: head \"x_output\" is not a loss, so its gradient must be given (or make it a loss with "
              "MakeLoss)");
    group.Backward(std::map<std::string, HostTensor>{{"x_output", of_x}});
    EXPECT_THROW(group.Backward(std::map<std::string, HostTensor>{{"x_output", of_x}}), Error);
  }
}

// MXNet's sums went wrong from eight devices on.
TEST(Placed, TenPartsReadOneValue) {
  const Symbol x = On("low", [] { return Variable("data") * 2; });
  Symbol sum;
  GroupOptions options = OptionsOf(2, {{"data", {4, 3}}});
  options.placements.erase("high");
  for (int i = 1; i <= 10; ++i) {
    const std::string name = "part" + std::to_string(i);
    options.placements[name] = {TestDevice(i % 4), TestDevice((i + 1) % 4)};
    const Symbol part = On(name, [&] { return x * i; });
    sum = sum.empty() ? part : On("low", [&] { return sum + part; });
  }
  PlacedExecutorGroup group(sum, options);
  group.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 3}, 1)}});
  group.Backward({HostTensor::Full(DType::kFloat32, {4, 3}, 1)});
  EXPECT_EQ(group.Outputs()[0].ToHost(), HostTensor::Full(DType::kFloat32, {4, 3}, 110));
  EXPECT_EQ(group.InputGradients()[0].ToHost(), HostTensor::Full(DType::kFloat32, {4, 3}, 110));
}

// Shared by placements, squared on one and used on the other; and a penalty without a batch axis.
TEST(Placed, ParametersOfSeveralPlacements) {
  const Symbol weight = Variable("w_weight");
  const Symbol x = On(
      "low", [&] { return FullyConnected(Variable("data"), weight, {}, {.num_hidden = 4, .no_bias = true}, "fc1"); });
  const Symbol square = On("low", [&] { return Square(weight, "square"); });
  const Symbol net = On("high", [&] {
    const Symbol y = FullyConnected(Tanh(x), weight, {}, {.num_hidden = 4, .no_bias = true}, "fc2");
    return LinearRegressionOutput(FullyConnected(y, square, {}, {.num_hidden = 4, .no_bias = true}, "fc3"),
                                  Variable("label"), {}, "out");
  });
  for (const int replicas : {1, 2}) {
    GroupOptions options = OptionsOf(replicas, {{"data", {5, 4}}}, {{"label", {5, 4}}});
    PlacedExecutorGroup group(net, options);
    const auto one = Unplaced(net, options);
    InitialiseEqually({&group, one.get()}, 3);
    EXPECT_EQ(group.DevicesOf("w_weight"), options.placements.at("low"));
    ExpectEqual(&group, one.get(), Batch{.data = {RandomTensor({5, 4}, 5)}, .label = {RandomTensor({5, 4}, 6)}});
  }
}

// What a loss gives goes to another placement, from which nothing comes back: the loss is not begun there.
TEST(Placed, ALossThatNothingFlowsBackInto) {
  const Symbol probabilities = On(
      "low", [] { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1"), {}, "softmax"); });
  const Symbol target = On("high", [&] { return BlockGrad(probabilities * 2.0); });
  const Symbol flows = On("high", [&] { return MakeLoss(probabilities * 2.0, {}, "loss"); });
  for (const Symbol& net : {target, flows}) {
    const GroupOptions options = OptionsOf(2, {{"data", {5, 4}}}, {{"softmax_label", {5}}});
    PlacedExecutorGroup group(net, options);
    const auto one = Unplaced(net, options);
    InitialiseEqually({&group, one.get()}, 3);
    ExpectEqual(&group, one.get(), RandomBatch(5, 4, 3, 1));
  }
}

}  // namespace
}  // namespace bindery
