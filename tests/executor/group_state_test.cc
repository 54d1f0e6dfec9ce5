// Parameters, states, shared groups, fixed parameters, gradient requests, statistics, failures of the group.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "train/metrics.h"

namespace bindery {
namespace {

std::string MessageOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(GroupParams, MissingAndExtraNames) {   // E15
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap all, aux;
  group.GetParams(&all, &aux);
  group.SetParams(all, aux);
  HostTensorMap missing = all, extra = all;
  missing.erase("fc2_bias");
  extra["fc3_weight"] = HostTensor(DType::kFloat32, {1});
  EXPECT_NO_THROW(group.SetParams(missing, aux, {.allow_missing = true}));
  EXPECT_EQ(MessageOf([&] { group.SetParams(missing, aux); }), "Error: SetParams: parameter \"fc2_bias\" is missing; allow_missing leaves it as it is");
  EXPECT_NO_THROW(group.SetParams(extra, aux, {.allow_extra = true}));
  EXPECT_NE(MessageOf([&] { group.SetParams(extra, aux); }).find("there is no parameter \"fc3_weight\""), std::string::npos);
  const HostTensorMap only_extra = {{"fc3_weight", HostTensor(DType::kFloat32, {1})}};
  EXPECT_NE(MessageOf([&] { group.SetParams(only_extra, aux); }).find("is missing"), std::string::npos);
  EXPECT_NE(MessageOf([&] { group.SetParams(only_extra, aux, {.allow_missing = true}); }).find("there is no parameter"), std::string::npos);
  all["fc1_weight"] = HostTensor(DType::kFloat32, {5, 7});
  EXPECT_EQ(MessageOf([&] { group.SetParams(all, aux); }), "ShapeError: parameter \"fc1_weight\": expected (5, 6), got (5, 7)");
}

TEST(GroupParams, AreEqualOnAllDevicesAndCast) {
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params = {{"fc1_weight", HostTensor::Full(DType::kFloat64, {1}, 0)}};
  group.GetParams(&params, nullptr);
  EXPECT_EQ(params.at("fc1_weight").dtype(), DType::kFloat64);
  const StoredParameter& p = *group.store().Find("fc1_weight");
  EXPECT_EQ(group.store().Get(p, 0), group.store().Get(p, 1));
  group.SetParams(params, {});   // float64 goes in by a cast
  EXPECT_EQ(group.store().Get(p, 0).dtype(), DType::kFloat32);
}

TEST(GroupParams, SharedGroupUsesTheSameMemory) {   // E16
  const auto stack = [](int layers) {
    Symbol x = Variable("data");
    for (int i = 0; i < layers; ++i) x = Tanh(FullyConnected(x, {.num_hidden = 8}, "layer" + std::to_string(i)));
    return SoftmaxOutput(x, {}, "softmax");
  };
  const GroupOptions options{.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {32, 8}}}, .labels = {{"softmax_label", {32}}}};
  DataParallelExecutorGroup first(stack(3), options);
  GroupOptions shared = options;
  shared.shared_group = &first;
  DataParallelExecutorGroup second(stack(5), shared);
  for (const ReplicatedParam& p : first.params()) {
    for (const ReplicatedParam& q : second.params()) {
      if (p.name != q.name) continue;
      for (int d = 0; d < 2; ++d) {
        EXPECT_EQ(p.values[d].data(), q.values[d].data());
        EXPECT_EQ(p.grads[d].data(), q.grads[d].data());
      }
      EXPECT_EQ(first.grad_req(p.name), second.grad_req(p.name));
    }
  }
  EXPECT_EQ(first.replicas()[0]->arena(), second.replicas()[0]->arena());
  // Results that another group has overwritten are an error.
  InitialiseEqually({&second}, 1);
  Batch batch = RandomBatch(32, 8, 8, 1);
  first.Forward(batch);
  second.Forward(batch);
  EXPECT_NE(MessageOf([&] { first.Outputs(); }).find("another program has used the shared memory"), std::string::npos);
  EXPECT_NO_THROW(second.Outputs()[0].ToHost());
  const Symbol other = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 9}, "layer0"), {}, "softmax");
  EXPECT_NE(MessageOf([&] { DataParallelExecutorGroup(other, shared); }).find("parameter \"layer0_weight\" is shared"), std::string::npos);
}

TEST(GroupParams, ANetWithoutParameters) {   // E19
  DataParallelExecutorGroup group(MakeLoss(Dropout(Variable("data"), {.p = 0.5}, "drop"), {}, "loss"), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 3}}}});
  EXPECT_TRUE(group.params().empty());
  group.Forward(Batch{.data = {RandomTensor({4, 3}, 1)}});
  group.Backward();
  EXPECT_EQ(group.Outputs()[0].ToHost().shape(), (Shape{4, 3}));
}

TEST(GroupRequests, OneListMapAndFixed) {
  const Symbol net = SmallNet();
  const std::vector<DataDesc> data = {{"data", {4, 6}}}, labels = {{"softmax_label", {4}}};
  EXPECT_EQ(DataParallelExecutorGroup(net, {.data = data, .labels = labels, .grad_req = GradReq::kAdd}).grad_req("fc1_bias"), GradReq::kAdd);
  const DataParallelExecutorGroup fixed(net, {.data = data, .labels = labels, .fixed_params = {"fc1_weight"}});
  EXPECT_EQ(fixed.grad_req("fc1_weight"), GradReq::kNull);
  EXPECT_EQ(fixed.grad_req("data"), GradReq::kNull);
  const std::vector<GradReq> list(net.ListArguments().size(), GradReq::kWrite);
  EXPECT_THROW(DataParallelExecutorGroup(net, {.data = data, .labels = labels, .grad_req = std::vector<GradReq>{GradReq::kWrite}}), Error);
  const DataParallelExecutorGroup by_map(net, {.data = data, .labels = labels, .fixed_params = {"fc1_weight"},
                                               .grad_req = std::map<std::string, GradReq>{{"fc1_weight", GradReq::kAdd}, {"data", GradReq::kWrite}}});
  EXPECT_EQ(by_map.grad_req("fc1_weight"), GradReq::kAdd);
  EXPECT_EQ(by_map.grad_req("data"), GradReq::kWrite);
  EXPECT_EQ(by_map.grad_req("fc2_weight"), GradReq::kWrite);
}

TEST(GroupRequests, AddAccumulatesUntilZeroed) {   // E17's rule
  DataParallelExecutorGroup group(MakeLoss(Variable("data") * Variable("w", {.shape = Shape{1, 1}}), {}, "loss"),
                                  {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {2, 1}}}, .grad_req = GradReq::kAdd});
  group.SetParams({{"w", HostTensor::Full(DType::kFloat32, {1, 1}, 1)}}, {});
  const Batch batch{.data = {HostTensor::Full(DType::kFloat32, {2, 1}, 1)}};
  for (const double expected : {2.0, 4.0}) {
    group.Forward(batch);
    group.Backward();
    EXPECT_EQ(SumOfGradients(group, "w").At(0), expected);
  }
  group.ZeroGradients();
  EXPECT_EQ(SumOfGradients(group, "w").At(0), 0);
}

TEST(GroupStates, AreSetAndRead) {   // E11, with a plain recurrent cell
  Symbol h = Tanh(FullyConnected(Variable("data"), {.num_hidden = 4}, "in") + FullyConnected(Variable("h0"), {.num_hidden = 4}, "rec"));
  DataParallelExecutorGroup group(h, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {5, 3}}}, .states = {{"h0", {5, 4}}}, .for_training = false});
  InitialiseEqually({&group}, 1);
  const Batch batch{.data = {RandomTensor({5, 3}, 1)}};
  group.SetStates(1.0);
  group.Forward(batch);
  const HostTensor first = group.Outputs()[0].ToHost();
  group.SetStates(std::vector<std::vector<Tensor>>{group.OutputsPerDevice()[0]});
  group.Forward(batch);
  const HostTensor second = group.Outputs()[0].ToHost();
  EXPECT_GT(MaxAbsDiff(first, second), 1e-4);
  group.SetStates(std::vector<HostTensor>{HostTensor::Full(DType::kFloat32, {5, 4}, 1)});
  group.Forward(batch);
  EXPECT_EQ(MaxAbsDiff(group.Outputs()[0].ToHost(), first), 0);
  ASSERT_EQ(group.States().size(), 1u);
  EXPECT_EQ(group.States()[0][0].shape(), (Shape{3, 4}));
}

TEST(GroupStatistics, RunningValuesIncludeThePartBetweenDevices) {
  const Symbol net = MakeLoss(BatchNorm(Variable("data"), {.momentum = 0}, "bn"), {}, "loss");
  DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 1}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(Batch{.data = {HostTensor::From({4, 1}, {0, 2, 10, 12})}});
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  EXPECT_NEAR(aux.at("bn_running_mean").At(0), 6, 1e-6);
  EXPECT_NEAR(aux.at("bn_running_var").At(0), 26, 1e-5);
  EXPECT_EQ(group.store().Get(*group.store().Find("bn_running_var"), 0), group.store().Get(*group.store().Find("bn_running_var"), 1));
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

TEST(GroupMetric, SlicedAndPreSlicedGiveTheSameForAnySplit) {
  const Batch batch = RandomBatch(7, 6, 3, 2);
  std::vector<double> values;
  for (const std::vector<Device>& devices : {std::vector<Device>{Cpu(0)}, {Cpu(0), Cpu(1)}, {Cpu(0), Cpu(1), Cpu(2)}}) {
    DataParallelExecutorGroup group(SmallNet(), {.devices = devices, .data = {{"data", {7, 6}}}, .labels = {{"softmax_label", {7}}}});
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

TEST(GroupWatch, ValuesByNameOnEveryDevice) {
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
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
  EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), plain), 1e-6);   // watching changes nothing
  group.Watch("");
  EXPECT_THROW(group.Watch("("), Error);
}

// An operator that fails when it runs.
std::atomic<bool> broken{false};
const OpDef& BreakableOp() {
  static const bool added = [] {
    OpDef op;
    op.name = "Breakable";
    op.doc = "The identity; throws while the test says so.";
    op.infer_shape = [](InferContext& c) {
      if (c.input(0)) c.SetOutput(0, *c.input(0));
      if (c.output(0)) c.SetInput(0, *c.output(0));
    };
    op.gradient = [](const GradientContext& g) -> std::vector<Symbol> { return {g.output_grad(0)}; };
    AddOp(std::move(op));
    AddKernel("Breakable", [](const KernelSpec& spec) -> std::optional<Kernel> {
      const int64_t bytes = StorageBytes({}, spec.inputs[0].dtype, spec.inputs[0].shape);
      return Kernel{.implementation = "test", .input_formats = {Format::Plain()}, .output_formats = {Format::Plain()}, .bind = [bytes](const KernelArgs& args) -> Call {
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

TEST(GroupFailure, AFailedStepLeavesParametersAndLaterStepsWhole) {   // E40 by our rule
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1");
  x = SoftmaxOutput(Apply(BreakableOp(), {}, {x}, "weak"), {}, "softmax");
  DataParallelExecutorGroup group(x, {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  const Batch batch = RandomBatch(4, 6, 3, 2);
  group.Forward(batch);
  group.Backward();
  const HostTensor good = group.Outputs()[0].ToHost();
  broken = true;
  EXPECT_NO_THROW(group.Forward(batch));    // errors come when results are read
  EXPECT_NO_THROW(group.Backward());
  const Tensor output = group.Outputs()[0];
  for (int read = 0; read < 2; ++read) EXPECT_EQ(MessageOf([&] { output.ToHost(); }), "NumericError: operation \"forward cpu:0\" failed: Breakable \"weak\": broken on purpose");
  EXPECT_NE(MessageOf([&] { group.GetGradient("fc1_weight", 0); }).find("broken on purpose"), std::string::npos);
  HostTensorMap params;
  EXPECT_NO_THROW(group.GetParams(&params, nullptr));
  broken = false;
  group.Forward(batch);
  group.Backward();
  EXPECT_EQ(group.Outputs()[0].ToHost(), good);
  EXPECT_NO_THROW(group.GetGradient("fc1_weight", 0));
}

TEST(GroupMemory, ManyReshapesOverFewShapesDoNotGrow) {
  DataParallelExecutorGroup group(SmallNet(), {.devices = {Cpu(0), Cpu(1)}, .data = {{"data", {20, 6}}}, .labels = {{"softmax_label", {20}}}});
  InitialiseEqually({&group}, 1);
  const auto run = [&](int64_t n) {
    group.Reshape({{"data", {n, 6}}}, {{"softmax_label", {n}}});
    group.Forward(RandomBatch(n, 6, 3, 2));
    group.Backward();
  };
  for (int64_t n = 1; n <= 20; ++n) run(n);
  group.Outputs()[0].ToHost();
  const int programs = group.programs().size();
  const int64_t misses = group.programs().misses(), committed = group.replicas()[0]->arena()->committed();
  const int64_t in_use = DefaultStorage()->Stats(Cpu(0)).in_use;
  for (int i = 0; i < 1000; ++i) run(1 + i * 7 % 20);
  group.Outputs()[0].ToHost();
  EXPECT_EQ(group.programs().size(), programs);
  EXPECT_EQ(group.programs().misses(), misses);
  EXPECT_EQ(group.replicas()[0]->arena()->committed(), committed);
  EXPECT_EQ(DefaultStorage()->Stats(Cpu(0)).in_use, in_use);
}

}  // namespace
}  // namespace bindery
