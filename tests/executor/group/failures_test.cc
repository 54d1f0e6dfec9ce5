// DataParallelExecutorGroup: what is refused, and what a failed call leaves behind.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

const std::vector<Device> kTwo = {TestDevice(0), TestDevice(1)};

GroupOptions SmallNetOptions(int64_t samples, const std::vector<Device>& devices = kTwo) {
  return {.devices = devices, .data = {{"data", {samples, 6}}}, .labels = {{"softmax_label", {samples}}}};
}

HostTensor Full(const Shape& shape, double value) { return HostTensor::Full(DType::kFloat32, shape, value); }

std::vector<BatchPtr> Parts(std::vector<Batch> batches) {
  std::vector<BatchPtr> parts;
  for (Batch& batch : batches) parts.push_back(std::make_shared<const Batch>(std::move(batch)));
  return parts;
}

Batch Rows(const Batch& batch, int64_t begin, int64_t end) {
  return {.data = {batch.data[0].Slice(0, begin, end)}, .label = {batch.label[0].Slice(0, begin, end)}};
}

TEST(GroupFailures, AParameterShapedByTheBatchIsRefused) {
  const Symbol open = Variable("data") * Variable("w");
  const auto options = [](int64_t samples, std::vector<double> workload) {
    return GroupOptions{.devices = kTwo, .workload = std::move(workload), .data = {{"data", {samples, 4}}}};
  };
  for (const auto& [samples, workload] : {std::pair(int64_t{4}, std::vector<double>{1, 1}), {int64_t{5}, {1, 4}}}) {
    EXPECT_NE(MessageOf([&, &samples = samples, &workload = workload] {
                DataParallelExecutorGroup(open, options(samples, workload));
              }).find("parameter \"w\" takes its shape from the batch"),
              std::string::npos);
  }
  DataParallelExecutorGroup declared(Variable("data") * Variable("w", {.shape = Shape{4}}), options(5, {1, 4}));
  EXPECT_EQ(declared.OutputShapes()[0], (Shape{5, 4}));
  // One device: the shape is fixed by the first batch; another batch does not fit, and the first still does.
  DataParallelExecutorGroup one(open, {.data = {{"data", {4, 4}}}});
  EXPECT_NE(MessageOf([&] {
              one.Forward(Batch{.data = {Full({3, 4}, 1)}});
            }).find("batches of all shapes, declare its shape"),
            std::string::npos);
  one.SetParams({{"w", Full({4, 4}, 2)}}, {});
  one.Forward(Batch{.data = {Full({4, 4}, 3)}});
  EXPECT_EQ(one.Outputs()[0].ToHost(), Full({4, 4}, 6));
}

TEST(GroupFailures, AFailedAdoptionChangesNothing) {
  ParameterStore store(MakeInlineEngine(), {TestDevice(0)});
  const auto argument = [](const std::string& name, const Shape& shape) {
    return PlanArgument{.name = name, .type = {.dtype = DType::kFloat32, .shape = shape}};
  };
  Plan first, wrong, right;
  first.arguments = {argument("b", {2})};
  wrong.arguments = {argument("a", {3}), argument("b", {5})};
  wrong.gradients = {{.argument = 1}};
  right.arguments = {argument("a", {4}), argument("b", {2})};
  store.Adopt(first);
  EXPECT_THROW(store.Adopt(wrong), ShapeError);
  EXPECT_EQ(store.Find("a"), nullptr);
  EXPECT_EQ(store.parameters().size(), 1u);
  EXPECT_EQ(store.blocks().size(), 1u);
  EXPECT_TRUE(store.blocks()[0].gradients.empty());
  store.Adopt(right);
  store.Set(*store.Find("a"), Full({4}, 7));
  EXPECT_EQ(store.Get(*store.Find("a")), Full({4}, 7));
}

TEST(GroupFailures, AForwardIsUsedUpByItsBackward) {
  for (const GradReq req : {GradReq::kWrite, GradReq::kAdd}) {
    GroupOptions options = SmallNetOptions(6);
    options.grad_req = req;
    DataParallelExecutorGroup group(SmallNet(), options);
    InitialiseEqually({&group}, 1);
    group.Forward(RandomBatch(6, 6, 3, 2));
    group.Backward();
    const HostTensor once = SumOfGradients(group, "fc1_weight");
    EXPECT_NE(MessageOf([&] { group.Backward(); }).find("run Forward again"), std::string::npos);
    EXPECT_EQ(SumOfGradients(group, "fc1_weight"), once);
    group.Forward(RandomBatch(6, 6, 3, 2));
    EXPECT_NO_THROW(group.Backward());
  }
}

TEST(GroupFailures, ARefusedBatchLeavesTheLastResults) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(8));
  InitialiseEqually({&group}, 1);
  group.Forward(RandomBatch(8, 6, 3, 2));
  const HostTensor before = group.Outputs()[0].ToHost();
  EXPECT_THROW(group.Forward(Batch{.data = {RandomTensor({4, 6}, 3)}}), DataError);  // no labels
  Batch fewer_labels = RandomBatch(8, 6, 3, 2);
  fewer_labels.label[0] = fewer_labels.label[0].Slice(0, 0, 7);
  EXPECT_THROW(group.Forward(fewer_labels), ShapeError);
  EXPECT_EQ(group.batch_size(), 8);
  EXPECT_EQ(group.Outputs()[0].ToHost(), before);
  EXPECT_NO_THROW(group.Backward());
}

// An operation of one device lets go of the group, whose step another device still has to compute.
TEST(GroupFailures, AGroupThatGoesInAnOperationLeavesMemoryToWhatIsStillToRun) {
  const auto engine = MakeThreadedEngine();
  for (int round = 0; round < 3; ++round) {
    GroupOptions options = SmallNetOptions(8, {TestDevice(0)});
    options.engine = engine;
    auto group = std::make_shared<DataParallelExecutorGroup>(SmallNet(), options);
    InitialiseEqually({group.get()}, 1);
    group->ForwardBackward(std::make_shared<const Batch>(RandomBatch(8, 6, 3, 1)));
    engine->WaitAll();
    std::atomic<bool> is_gone = false;
    engine->Push({.name = "wait", .device = TestDevice(0), .run = [&](const OpContext&) {
                    while (!is_gone) std::this_thread::yield();
                  }});
    group->ForwardBackward(std::make_shared<const Batch>(RandomBatch(8, 6, 3, 2)));
    engine->Push({.name = "let go", .device = Cpu(9), .run = [&, held = std::move(group)](const OpContext&) mutable {
                    held = nullptr;
                    is_gone = true;
                  }});
    EXPECT_NO_THROW(engine->WaitAll());
  }
}

// The second device is short of memory when the first has moved its inputs already.
TEST(GroupFailures, ALackOfMemoryOnOneDeviceLeavesTheGroupWhole) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(8));
  InitialiseEqually({&group}, 1);
  const Batch small = RandomBatch(8, 6, 3, 2), large = RandomBatch(4096, 6, 3, 2);
  group.Forward(small);
  group.Backward();
  const HostTensor output = group.Outputs()[0].ToHost(), gradient = SumOfGradients(group, "fc1_weight");
  DefaultStorage()->ReleasePool();
  DefaultStorage()->SetLimit(TestDevice(1), DefaultStorage()->Stats(TestDevice(1)).in_use + 1024);
  EXPECT_THROW(group.Forward(large), DeviceError);
  EXPECT_EQ(group.batch_size(), 8);
  EXPECT_THROW(group.Outputs(), Error);  // of nothing that has run
  EXPECT_THROW(group.Backward(), Error);
  group.Forward(small);
  group.Backward();
  EXPECT_EQ(group.Outputs()[0].ToHost(), output);
  EXPECT_EQ(SumOfGradients(group, "fc1_weight"), gradient);
  DefaultStorage()->SetLimit(TestDevice(1), 0);
  group.Forward(large);
  EXPECT_EQ(group.Outputs()[0].shape(), (Shape{4096, 3}));
}

TEST(GroupFailures, BatchesCutBeforehandAreChecked) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(6));
  const Batch batch = RandomBatch(6, 6, 3, 4);
  const Batch unlabelled = {.data = {batch.data[0].Slice(0, 0, 3)}};
  for (const Mode mode : {Mode::kTrain, Mode::kPredict}) {
    EXPECT_THROW(group.Forward(Parts({Rows(batch, 0, 3), unlabelled}), mode), DataError);
    EXPECT_THROW(group.Forward(Parts({unlabelled, Rows(batch, 0, 3)}), mode), DataError);
  }
  EXPECT_THROW(group.Forward(Parts({Rows(batch, 0, 3), Batch{}})), DataError);
  EXPECT_THROW(group.Forward(Parts({Batch{}, Rows(batch, 0, 3)})), DataError);
  Batch short_labels = Rows(batch, 0, 3);
  short_labels.label[0] = batch.label[0].Slice(0, 0, 2);
  EXPECT_THROW(group.Forward(Parts({Rows(batch, 3, 6), short_labels})), ShapeError);
  EXPECT_NO_THROW(group.Forward(Parts({unlabelled, unlabelled}), Mode::kPredict));

  DataParallelExecutorGroup unbatched((Variable("data") * 2.0).WithAnnotation("merge", "first"),
                                      {.devices = kTwo, .data = {{"data", {3}, DType::kFloat32, "-"}}});
  EXPECT_THROW(unbatched.Forward(Parts({{.data = {Full({3}, 1)}}, {.data = {Full({3}, 1)}}})), DataError);

  // On one device there is nothing to cut.
  DataParallelExecutorGroup one(SmallNet(), SmallNetOptions(6, {TestDevice(0)}));
  one.Forward(Parts({batch}));
  EXPECT_EQ(one.batch_size(), 6);
  EXPECT_EQ(one.programs().misses(), 1);
}

TEST(GroupFailures, TheUsualSplitDoesNotFollowOneCutBeforehand) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(6));
  InitialiseEqually({&group}, 1);
  const Batch batch = RandomBatch(6, 6, 3, 4);
  using Ranges = std::vector<SampleRange>;
  group.Reshape({{"data", {3, 6}}}, {{"softmax_label", {3}}});  // another binding
  group.Forward(Parts({Rows(batch, 0, 1), Rows(batch, 1, 6)}));
  EXPECT_EQ(group.slices(), (Ranges{{0, 1}, {1, 6}}));
  group.Forward(batch);
  EXPECT_EQ(group.slices(), (Ranges{{0, 3}, {3, 6}}));
  group.Forward(Parts({Rows(batch, 0, 1), Rows(batch, 1, 6)}));
  EXPECT_EQ(group.slices(), (Ranges{{0, 1}, {1, 6}}));
}

TEST(GroupFailures, PaddingIsLessThanTheBatch) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(3));
  for (const int64_t pad : {-2, 3, 4}) {
    Batch batch = RandomBatch(3, 6, 3, 1);
    batch.pad = pad;
    EXPECT_THROW(group.Forward(batch), DataError) << pad;
    EXPECT_THROW(group.Forward(Parts({batch, batch})), DataError) << pad;
  }
  Batch batch = RandomBatch(3, 6, 3, 1);
  batch.pad = 2;
  batch.label[0] = batch.label[0].Slice(0, 0, 1);  // fewer labels than rows of padding
  EXPECT_THROW(group.Forward(batch), ShapeError);
  EXPECT_EQ(MessageOf([&] { group.Forward(RandomBatch(0, 6, 3, 1)); }),
            "DataError: \"data\" (0, 6): a batch has at least one sample");
}

class Counter : public HostMetric {
 public:
  std::string name() const override { return "counter"; }
  int partial_size() const override { return 1; }
  void Accumulate(const MetricInputs& inputs, std::span<double> partial) const override {
    partial[0] += static_cast<double>(inputs.samples * static_cast<int64_t>(inputs.labels.size()));
  }
  NamedValues Values(std::span<const double> total) const override { return {{"counter", total[0]}}; }
};

TEST(GroupFailures, MetricsWantTheLabelsDescribed) {
  DataParallelExecutorGroup group(SmallNet(), SmallNetOptions(6));
  group.Forward(RandomBatch(6, 6, 3, 1));
  const HostTensor labels(DType::kFloat32, {3});
  Counter counter;
  using Lists = std::vector<std::vector<HostTensor>>;
  for (const std::vector<HostTensor>& wrong : {std::vector<HostTensor>{}, std::vector<HostTensor>{labels, labels}}) {
    EXPECT_THROW(group.UpdateMetric(&counter, Lists{{labels}, wrong}), DataError);
    EXPECT_THROW(group.UpdateMetric(&counter, wrong), DataError);
  }
  EXPECT_TRUE(counter.total().empty());
  group.UpdateMetric(&counter, Lists{{labels}, {labels}});
  EXPECT_EQ(counter.total()[0], 6);
}

TEST(GroupFailures, TrainingNeedsItsLabelsBound) {
  DataParallelExecutorGroup group(SmallNet(), {.devices = kTwo, .data = {{"data", {4, 6}}}});
  const Batch batch = RandomBatch(4, 6, 3, 1);
  EXPECT_NE(MessageOf([&] { group.Forward(batch); }).find("cannot train without the label \"softmax_label\""),
            std::string::npos);
  EXPECT_NO_THROW(group.Forward(batch, Mode::kPredict));
  // All of them: what is left out is no parameter.
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc");
  DataParallelExecutorGroup half(Group({SoftmaxOutput(x, {}, "first"), SoftmaxOutput(x, {}, "second")}),
                                 {.devices = kTwo, .data = {{"data", {4, 6}}}, .labels = {{"first_label", {4}}}});
  EXPECT_EQ(half.param_names(), (std::vector<std::string>{"fc_weight", "fc_bias"}));
  EXPECT_NE(MessageOf([&] { half.Forward(batch); }).find("cannot train without the label \"second_label\""),
            std::string::npos);
  EXPECT_NO_THROW(half.Forward(batch, Mode::kPredict));
  // A label may also be described as data.
  Executor executor(SmallNet(), {.inputs = {{"data", {4, 6}}, {"softmax_label", {4}}}});
  EXPECT_NO_THROW(executor.Forward());
}

TEST(GroupFailures, ReshapeChangesShapesOnly) {
  DataParallelExecutorGroup group(Tanh(Variable("data")),
                                  {.devices = kTwo, .data = {{"data", {3, 4, 2}, DType::kFloat32, "TNC"}}});
  EXPECT_THROW(group.Reshape({{"data", {3, 4, 2}}}, {}), Error);
  EXPECT_THROW(group.Reshape({{"data", {3, 4, 2}, DType::kFloat64, "TNC"}}, {}), Error);
  EXPECT_THROW(group.Reshape({{"data", {3, 4}, DType::kFloat32, "TNC"}}, {}), ShapeError);
  group.Reshape({{"data", {5, 6, 2}, DType::kFloat32, "TNC"}}, {});
  EXPECT_EQ(group.OutputShapes()[0], (Shape{5, 6, 2}));
  EXPECT_EQ(group.batch_size(), 6);
}

TEST(GroupFailures, AGroupSharesWithinOneEngine) {
  GroupOptions options = SmallNetOptions(4);
  options.engine = MakeInlineEngine();
  DataParallelExecutorGroup first(SmallNet(), options);
  InitialiseEqually({&first}, 1);
  options.engine = nullptr;
  options.shared_group = &first;
  DataParallelExecutorGroup second(SmallNet(), options);
  EXPECT_EQ(second.engine(), first.engine());
  EXPECT_EQ(second.options().shared_group, nullptr);
  second.Forward(RandomBatch(4, 6, 3, 1));
  EXPECT_EQ(second.Outputs()[0].shape(), (Shape{4, 3}));
  options.engine = MakeInlineEngine();
  EXPECT_NE(MessageOf([&] { DataParallelExecutorGroup(SmallNet(), options); }).find("same engine"), std::string::npos);
}

// A failed step makes gradients fail; that of a device without samples is written as a whole and so is whole again.
TEST(GroupFailures, AnIdleDeviceRecoversByItself) {
  // The label is computed, so that none but the device sees that it is none.
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1");
  DataParallelExecutorGroup group(SoftmaxOutput(x, Abs(Variable("softmax_label")), {}, "softmax"), SmallNetOptions(4));
  InitialiseEqually({&group}, 1);
  Batch bad = RandomBatch(4, 6, 3, 1);
  bad.label[0].Set(3, 99);  // no such class; on the second device
  group.Forward(bad);
  group.Backward();
  EXPECT_THROW(group.GetGradient("fc1_weight", 1), Error);
  group.Forward(RandomBatch(1, 6, 3, 1));
  group.Backward();
  for (const std::string& name : group.param_names()) {
    const HostTensor gradient = group.GetGradient(name, 1);
    EXPECT_EQ(gradient, HostTensor(DType::kFloat32, gradient.shape())) << name;
  }
}

TEST(GroupFailures, AScalarInputIsNotBatched) {
  const Symbol net = Variable("data") * Variable("factor");
  for (const std::vector<Device>& devices : {std::vector<Device>{TestDevice(0)}, kTwo}) {
    DataParallelExecutorGroup group(
        net, {.devices = devices, .data = {{"data", {4, 3}}, {"factor", {}}}, .inputs_need_grad = true});
    group.Forward(Batch{.data = {Full({4, 3}, 2), Full({}, 5)}});
    EXPECT_EQ(group.Outputs()[0].ToHost(), Full({4, 3}, 10));
    group.Backward(std::vector<HostTensor>{Full({4, 3}, 1)});
    EXPECT_EQ(group.InputGradients()[1].ToHost(), Full({}, 24));
  }
  Executor executor(net, {.inputs = {{"factor", {}}, {"data", {4, 3}, DType::kFloat32, "NC"}}});
  executor.Forward({{"data", Full({4, 3}, 2)}, {"factor", Full({}, 5)}});
  EXPECT_EQ(executor.Output(0), Full({4, 3}, 10));
}

// What is loaded with each batch is whole again by that; states are not.
TEST(GroupFailures, StatesWhoseSourceFailedFailEveryRunUntilTheyAreSetAgain) {
  const auto engine = MakeThreadedEngine();
  DataParallelExecutorGroup group(Variable("data") + Variable("state"), {.devices = {TestDevice(0), TestDevice(1)},
                                                                         .data = {{"data", {4, 2}}},
                                                                         .states = {{"state", {4, 2}}},
                                                                         .for_training = false,
                                                                         .engine = engine});
  const auto full = [](double value) { return HostTensor::Full(DType::kFloat32, {4, 2}, value); };
  const Tensor source(engine, TestDevice(0), DType::kFloat32, {4, 2});
  const auto set_failed = [&] {
    engine->Push({.name = "break", .device = TestDevice(0), .writes = {source.var()}, .run = [](const OpContext&) {
                    throw DataError("no");
                  }});
    group.SetStates(std::vector<std::vector<Tensor>>{{source}});
    for (int run = 0; run < 2; ++run) {
      group.Forward(Batch{.data = {full(1)}});
      EXPECT_THROW(group.Outputs()[0].ToHost(), DataError);
    }
  };
  set_failed();
  group.SetStates(2);
  group.Forward(Batch{.data = {full(1)}});
  EXPECT_EQ(group.Outputs()[0].ToHost(), full(3));
  set_failed();
  group.SetStates(std::vector<HostTensor>{full(4)});
  group.Forward(Batch{.data = {full(1)}});
  EXPECT_EQ(group.Outputs()[0].ToHost(), full(5));
}

// Statistics are exchanged, and then one device's share turns out to be wrong.
TEST(GroupFailures, ARunThatFailsOnOneDeviceMovesTheStatesOfNone) {
  if (TestDevices() == "cuda") GTEST_SKIP() << "what a GPU's kernel refuses lets the work behind it run";
  const Symbol x = BatchNorm(Variable("data"), {.sync = true}, "bn");
  const Symbol net = MakeLoss(Pick(x, Variable("place"), {.mode = IndexMode::kRaise}), {}, "loss");
  DataParallelExecutorGroup group(
      net, {.devices = kTwo, .data = {{"data", {4, 3}}, {"place", {4}}}, .engine = MakeThreadedEngine()});
  InitialiseEqually({&group}, 1);
  const auto states = [&group] {
    HostTensorMap aux;
    group.GetParams(nullptr, &aux, ReplicaMerge::kCheck);
    return aux;
  };
  const auto run = [&group](std::initializer_list<float> places) {
    group.Forward(Batch{.data = {RandomTensor({4, 3}, 2), HostTensor::From({4}, places)}});
  };
  const HostTensorMap before = states();
  const auto expect_refused = [&](std::initializer_list<float> places) {
    run(places);
    EXPECT_THROW(group.Outputs()[0].ToHost(), DataError);
    EXPECT_EQ(states(), before);
  };
  expect_refused({0, 9, 1, 2});
  expect_refused({0, 1, 2, 9});
  run({0, 1, 2, 0});
  EXPECT_NE(states(), before);
}

TEST(GroupFailures, WhatIsLostIsThereAgainWhenAllOfItIsSet) {
  const auto engine = MakeThreadedEngine();
  const Symbol net = BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "bn");
  DataParallelExecutorGroup group(net, {.devices = kTwo, .data = {{"data", {4, 2}}}, .engine = engine});
  InitialiseEqually({&group}, 1);
  HostTensorMap args, aux, read_args, read_aux;
  group.GetParams(&args, &aux);
  for (const ParameterStore::Block& block : group.store().blocks()) {
    for (const Tensor& values : block.values) {
      engine->Push({.name = "break", .device = values.device(), .writes = {values.var()}, .run = [](const OpContext&) {
                      throw DataError("lost");
                    }});
    }
  }
  EXPECT_THROW(group.GetParams(&read_args, nullptr), DataError);
  EXPECT_THROW(group.GetParams(nullptr, &read_aux), DataError);
  group.SetParams({{"fc_weight", args.at("fc_weight")}}, {}, {.allow_missing = true});
  EXPECT_THROW(group.GetParams(&read_args, nullptr), DataError);  // of the others nothing is known
  group.SetParams(args, aux);
  group.GetParams(&read_args, &read_aux, ReplicaMerge::kCheck);
  EXPECT_EQ(read_args, args);
  EXPECT_EQ(read_aux, aux);
}

}  // namespace
}  // namespace bindery
