// Parameters, gradient requests, shared groups and other shapes of the group.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

TEST(GroupParams, MissingAndExtraNames) {  // E15
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap all, aux;
  group.GetParams(&all, &aux);
  group.SetParams(all, aux);
  HostTensorMap missing = all, extra = all;
  missing.erase("fc2_bias");
  extra["fc3_weight"] = HostTensor(DType::kFloat32, {1});
  EXPECT_NO_THROW(group.SetParams(missing, aux, {.allow_missing = true}));
  EXPECT_EQ(MessageOf([&] { group.SetParams(missing, aux); }),
            "Error: SetParams: parameter \"fc2_bias\" is missing; allow_missing leaves it as it is");
  EXPECT_NO_THROW(group.SetParams(extra, aux, {.allow_extra = true}));
  EXPECT_NE(MessageOf([&] { group.SetParams(extra, aux); }).find("there is no parameter \"fc3_weight\""),
            std::string::npos);
  const HostTensorMap only_extra = {{"fc3_weight", HostTensor(DType::kFloat32, {1})}};
  EXPECT_NE(MessageOf([&] { group.SetParams(only_extra, aux); }).find("is missing"), std::string::npos);
  EXPECT_NE(MessageOf([&] { group.SetParams(only_extra, aux, {.allow_missing = true}); }).find("there is no parameter"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              group.SetParams(all, {{"mean", HostTensor(DType::kFloat32, {1})}});
            }).find("there is no auxiliary state \"mean\""),
            std::string::npos);
  HostTensorMap misshapen = all;
  misshapen["fc1_bias"] = HostTensor::Full(DType::kFloat32, {5}, 9);
  misshapen["fc1_weight"] = HostTensor(DType::kFloat32, {5, 7});
  EXPECT_EQ(MessageOf([&] { group.SetParams(misshapen, aux); }),
            "ShapeError: parameter \"fc1_weight\": expected (5, 6), got (5, 7)");
  HostTensorMap now;
  group.GetParams(&now, nullptr);
  EXPECT_EQ(now, all);  // none of the errors changed anything
  missing["fc1_bias"] = HostTensor::Full(DType::kFloat32, {5}, 9);
  group.SetParams(missing, aux, {.allow_missing = true});
  group.GetParams(&now, nullptr);
  EXPECT_EQ(now.at("fc1_bias"), missing.at("fc1_bias"));
  EXPECT_EQ(now.at("fc2_bias"), all.at("fc2_bias"));  // the missing one stays as it is
}

TEST(GroupParams, AreEqualOnAllDevicesAndCast) {
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params = {{"fc1_weight", HostTensor::Full(DType::kFloat64, {1}, 0)}};
  group.GetParams(&params, nullptr);
  EXPECT_EQ(params.at("fc1_weight").dtype(), DType::kFloat64);
  const StoredParameter& p = *group.store().Find("fc1_weight");
  EXPECT_EQ(group.store().Get(p, 0), group.store().Get(p, 1));
  params["fc1_weight"].Set(7, 0.1);  // float64 goes in by a cast
  group.SetParams(params, {});
  for (int d = 0; d < 2; ++d) EXPECT_EQ(group.store().Get(p, d), params.at("fc1_weight").Cast(DType::kFloat32));
}

// Replicas that differ, as no step leaves them: parameters and auxiliary states come from the first one, unmixed.
TEST(GroupParams, AreTakenFromOneReplica) {
  const Symbol net = SoftmaxOutput(
      FullyConnected(BatchNorm(Variable("data"), {.fix_gamma = false}, "bn"), {.num_hidden = 3}, "fc"), {}, "softmax");
  DataParallelExecutorGroup group(
      net,
      {.devices = {ApartDevice(0), ApartDevice(1)}, .data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params, aux, params_now, aux_now;
  group.GetParams(&params, &aux);
  for (const StoredParameter& p : group.store().parameters()) {
    group.store().Value(p, 1).CopyFrom(HostTensor::Full(p.dtype, {p.elements}, 1000));
  }
  group.GetParams(&params_now, &aux_now);
  EXPECT_EQ(params_now, params);
  EXPECT_EQ(aux_now, aux);
  group.SetParams(params, aux);  // all alike again
  for (const StoredParameter& p : group.store().parameters()) {
    EXPECT_EQ(group.store().Get(p, 1), group.store().Get(p, 0)) << p.name;
  }
}

// To the bit: one element on one device is found, whichever it is, and -0 is not 0; equal NaNs are equal.
TEST(GroupParams, AreCheckedToBeEqualOnAllDevices) {
  const Symbol net = SoftmaxOutput(
      FullyConnected(BatchNorm(Variable("data"), {.fix_gamma = false}, "bn"), {.num_hidden = 3}, "fc"), {}, "softmax");
  const Device devices[] = {ApartDevice(0), ApartDevice(1), ApartDevice(2)};
  DataParallelExecutorGroup group(
      net, {.devices = {devices, devices + 3}, .data = {{"data", {6, 4}}}, .labels = {{"softmax_label", {6}}}});
  InitialiseEqually({&group}, 1);
  HostTensorMap params, aux, checked, checked_aux;
  group.GetParams(&params, &aux);
  group.GetParams(&checked, &checked_aux, ReplicaMerge::kCheck);
  EXPECT_EQ(checked, params);
  EXPECT_EQ(checked_aux, aux);
  const auto message = [&] {
    return MessageOf([&] { group.GetParams(&checked, &checked_aux, ReplicaMerge::kCheck); });
  };
  const auto set = [&](const char* name, int device, int64_t element, double value) {
    const Tensor flat = group.store().Value(*group.store().Find(name), device);  // a vector: in the order of users
    HostTensor values = flat.ToHost();
    values.Set(element, value);
    flat.CopyFrom(values);
  };
  set("bn_running_mean", 1, 3, 0.5);
  EXPECT_EQ(message(),
            fmt::format("Error: auxiliary state \"bn_running_mean\" is not equal on all devices: element 3 of "
                        "(4) is 0 on {} and 0.5 on {}",
                        devices[0], devices[1]));
  set("fc_bias", 2, 1, 0.25);  // parameters come first
  EXPECT_EQ(message(),
            fmt::format("Error: parameter \"fc_bias\" is not equal on all devices: element 1 of (3) is {:.17g} "
                        "on {} and 0.25 on {}",
                        params["fc_bias"].At(1), devices[0], devices[2]));
  set("bn_running_mean", 1, 3, 0);
  for (int d = 0; d < 3; ++d) set("fc_bias", d, 1, std::nan(""));
  EXPECT_EQ(message(), "nothing was thrown");
  for (int d = 0; d < 3; ++d) set("fc_bias", d, 1, d == 1 ? -0.0 : 0.0);
  EXPECT_NE(message().find("is 0 on"), std::string::npos);
  EXPECT_NE(message().find("and -0 on"), std::string::npos);
  group.SetParams(params, aux);
  group.ForwardBackward(std::make_shared<const Batch>(RandomBatch(6, 4, 3, 2)));
  const bool alike = std::ranges::all_of(devices, [&](Device d) { return d.kind == devices[0].kind; });
  if (alike || TestDevices() != "cuda") {  // by GPUs' kernels they are but for rounding
    EXPECT_EQ(message(), "nothing was thrown") << "running statistics are equal, too";
  }
}

// What sharing groups have in common: lstm_test.cc.
TEST(GroupParams, SharedWorkingMemoryAndMismatches) {
  const auto stack = [](int layers) {
    Symbol x = Variable("data");
    for (int i = 0; i < layers; ++i) x = Tanh(FullyConnected(x, {.num_hidden = 8}, "layer" + std::to_string(i)));
    return SoftmaxOutput(x, {}, "softmax");
  };
  const GroupOptions options{
      .devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {32, 8}}}, .labels = {{"softmax_label", {32}}}};
  DataParallelExecutorGroup first(stack(3), options);
  GroupOptions shared = options;
  shared.shared_group = &first;
  DataParallelExecutorGroup second(stack(5), shared);
  // Results that another group has overwritten are an error, never garbage.
  InitialiseEqually({&second}, 1);
  const Batch batch = RandomBatch(32, 8, 8, 1);
  first.Forward(batch);
  second.Forward(batch);
  EXPECT_NE(MessageOf([&] { first.Outputs(); }).find("another program has used the shared memory"), std::string::npos);
  EXPECT_NE(MessageOf([&] { first.Backward(); }).find("another program has used the shared memory"), std::string::npos);
  EXPECT_NO_THROW(second.Outputs()[0].ToHost());
  // What does not fit cannot be shared.
  const Symbol wider = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 9}, "layer0"), {}, "softmax");
  EXPECT_NE(MessageOf([&] { DataParallelExecutorGroup(wider, shared); }).find("layer0_weight"), std::string::npos);
  shared.data[0].dtype = DType::kFloat64;
  EXPECT_NE(MessageOf([&] { DataParallelExecutorGroup(stack(3), shared); }).find("layer0_weight"), std::string::npos);
  shared = options;
  shared.shared_group = &first;
  shared.devices = {TestDevice(0)};
  EXPECT_NE(MessageOf([&] { DataParallelExecutorGroup(stack(3), shared); }).find("on the same devices"),
            std::string::npos);
}

TEST(GroupParams, ANetWithoutParameters) {  // E19
  DataParallelExecutorGroup group(
      Dropout(Variable("data"), {.p = 0.5}, "drop"),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 3}}}, .inputs_need_grad = true});
  EXPECT_TRUE(group.params().empty());
  group.SetParams({}, {});
  Updater updater(&group);
  const HostTensor ones = HostTensor::Full(DType::kFloat32, {4, 3}, 1);
  for (int64_t step = 1; step <= 2; ++step) {
    group.Forward(Batch{.data = {ones}});
    group.Backward(std::vector<HostTensor>{ones});
    updater.Apply(4);
    EXPECT_EQ(updater.step(), step);
    EXPECT_EQ(group.OutputShapes()[0], (Shape{4, 3}));
    // The mask, doubled: of ones, output and gradient are equal.
    const HostTensor output = group.Outputs()[0].ToHost();
    EXPECT_EQ(output.shape(), (Shape{4, 3}));
    EXPECT_EQ(group.InputGradients()[0].ToHost(), output);
    for (int64_t i = 0; i < 12; ++i) EXPECT_TRUE(output.At(i) == 0 || output.At(i) == 2);
  }
  DataParallelExecutorGroup loss(MakeLoss(Dropout(Variable("data"), {.p = 0.5}, "drop"), {}, "loss"),
                                 {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {4, 3}}}});
  Updater whole(&loss);
  whole.Update(std::make_shared<const Batch>(Batch{.data = {ones}}));
  EXPECT_EQ(loss.Outputs()[0].ToHost().shape(), (Shape{4, 3}));
}

TEST(GroupRequests, OneListMapAndFixed) {
  const Symbol net = SmallNet();
  const std::vector<DataDesc> data = {{"data", {4, 6}}}, labels = {{"softmax_label", {4}}};
  using Requests = std::vector<GradReq>;
  constexpr GradReq kNull = GradReq::kNull, kWrite = GradReq::kWrite, kAdd = GradReq::kAdd;
  // data, fc1_weight, fc1_bias, fc2_weight, fc2_bias, softmax_label
  const auto requests = [](const DataParallelExecutorGroup& group) {
    Requests all;
    for (const std::string& name : group.arg_names()) all.push_back(group.grad_req(name));
    return all;
  };
  const auto bound = [&](GradRequest request, std::vector<std::string> fixed = {}, bool inputs = false,
                         bool training = true) {
    return requests(DataParallelExecutorGroup(net, {.data = data,
                                                    .labels = labels,
                                                    .for_training = training,
                                                    .inputs_need_grad = inputs,
                                                    .fixed_params = std::move(fixed),
                                                    .grad_req = std::move(request)}));
  };
  EXPECT_EQ(bound(kAdd), (Requests{kNull, kAdd, kAdd, kAdd, kAdd, kNull}));
  EXPECT_EQ(bound(kAdd, {"fc1_weight"}, true), (Requests{kAdd, kNull, kAdd, kAdd, kAdd, kNull}));
  const Requests list = {kWrite, kNull, kAdd, kWrite, kNull, kNull};
  EXPECT_EQ(bound(list, {"fc2_weight"}), list);  // verbatim
  EXPECT_THROW(bound(Requests{kWrite}), Error);
  const std::map<std::string, GradReq> map = {{"fc1_weight", kAdd}, {"data", kWrite}, {"softmax_label", kWrite}};
  EXPECT_EQ(bound(map, {"fc1_weight", "fc2_bias"}), (Requests{kWrite, kAdd, kWrite, kWrite, kNull, kWrite}));
  EXPECT_THROW(bound(std::map<std::string, GradReq>{{"fc1_wieght", kAdd}}), Error);
  for (const GradRequest& request : {GradRequest(kAdd), GradRequest(list), GradRequest(map)}) {
    EXPECT_EQ(bound(request, {}, false, false), Requests(6, kNull));  // prediction: none, whatever is asked for
  }
}

TEST(GroupRequests, NullHasNoArrayAndCostsNothing) {
  const auto bind = [](const GradRequest& request) {
    return std::make_unique<DataParallelExecutorGroup>(
        SmallNet(), GroupOptions{.data = {{"data", {4, 6}}}, .labels = {{"softmax_label", {4}}}, .grad_req = request});
  };
  const auto all = bind(GradReq::kWrite),
             some = bind(std::map<std::string, GradReq>{{"fc1_weight", GradReq::kNull}, {"fc1_bias", GradReq::kNull}});
  EXPECT_TRUE(some->params()[0].grads.empty());
  EXPECT_EQ(some->params()[2].grads.size(), 1u);
  EXPECT_LT(some->plan().calls.size(), all->plan().calls.size());
  EXPECT_EQ(some->memory().gradients, all->memory().gradients - (5 * 6 + 5) * 4);
  EXPECT_NE(MessageOf([&] { some->GetGradient("fc1_weight", 0); }).find("its gradient request is null"),
            std::string::npos);
  // A label may have a gradient where its operator gives it one.
  const Symbol distance = MakeLoss(Square(Variable("data") - Variable("target")), {}, "loss");
  DataParallelExecutorGroup labels(distance, {.data = {{"data", {4, 6}}},
                                              .labels = {{"target", {4, 6}}},
                                              .grad_req = std::map<std::string, GradReq>{{"target", GradReq::kWrite}}});
  labels.Forward(Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 6}, 1)},
                       .label = {HostTensor::Full(DType::kFloat32, {4, 6}, 3)}});
  labels.Backward();
  const GroupStep::Participant& only = labels.step().participants()[0];  // of the arguments data and target
  EXPECT_EQ(only.executor->InputGradient(*only.bound, 1).ToHost(), HostTensor::Full(DType::kFloat32, {4, 6}, 4));
}

TEST(GroupRequests, WriteOverwritesAndAddAccumulatesUntilZeroed) {  // E17's rule
  const Symbol net = MakeLoss(Variable("data") * Variable("w", {.shape = Shape{1, 1}}), {}, "loss");
  const Batch batch{.data = {HostTensor::Full(DType::kFloat32, {2, 1}, 1)}};
  for (const GradReq req : {GradReq::kWrite, GradReq::kAdd}) {
    DataParallelExecutorGroup group(
        net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {2, 1}}}, .grad_req = req});
    group.SetParams({{"w", HostTensor::Full(DType::kFloat32, {1, 1}, 1)}}, {});
    for (const double times : {1.0, 2.0, 3.0}) {
      group.Forward(batch);
      group.Backward();
      EXPECT_EQ(SumOfGradients(group, "w").At(0), req == GradReq::kAdd ? 2 * times : 2);
    }
    group.ZeroGradients();
    EXPECT_EQ(SumOfGradients(group, "w").At(0), 0);
  }
}

TEST(GroupReshape, KeepsParametersGradientsAndStatistics) {
  const Symbol net = SoftmaxOutput(
      FullyConnected(BatchNorm(Variable("data"), {.fix_gamma = false}, "bn"), {.num_hidden = 3}, "fc"), {}, "softmax");
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {6, 4}}}, .labels = {{"softmax_label", {6}}}});
  InitialiseEqually({&group}, 1);
  group.Forward(RandomBatch(6, 4, 3, 2));
  group.Backward();
  HostTensorMap before, after;
  group.GetParams(&before, &before);
  const HostTensor gradient = group.GetGradient("fc_weight", 1);
  const void* const address = group.params()[0].values[1].address();
  const int64_t misses = group.programs().misses();
  group.Reshape({{"data", {6, 4}}}, {{"softmax_label", {6}}});  // the same: nothing to do
  EXPECT_EQ(group.programs().misses(), misses);
  group.Reshape({{"data", {100, 4}}}, {{"softmax_label", {100}}});
  EXPECT_EQ(group.batch_size(), 100);
  EXPECT_EQ(group.OutputShapes()[0], (Shape{100, 3}));
  EXPECT_THROW(group.Outputs(), Error);  // nothing has run with the new shapes
  group.GetParams(&after, &after);
  EXPECT_EQ(after, before);
  EXPECT_EQ(group.GetGradient("fc_weight", 1), gradient);
  EXPECT_EQ(group.params()[0].values[1].address(), address);
  EXPECT_THROW(group.Reshape({{"date", {6, 4}}}, {{"softmax_label", {6}}}), Error);
  group.Reshape({{"data", {6, 4}}}, {{"softmax_label", {6}}});
  // One program for both shares of 50, or one a kind of device; those of 3 are still there.
  EXPECT_EQ(group.programs().misses(), misses + (TestDevices() == "mixed" ? 2 : 1));
  EXPECT_THROW(group.Reshape({{"data", {6, 5}}}, {{"softmax_label", {6}}}), ShapeError);  // fc_weight has another shape
  EXPECT_EQ(group.OutputShapes()[0], (Shape{6, 3}));
}

TEST(GroupMemory, ManyReshapesOverFewShapesDoNotGrow) {
  DataParallelExecutorGroup group(
      SmallNet(),
      {.devices = {TestDevice(0), TestDevice(1)}, .data = {{"data", {20, 6}}}, .labels = {{"softmax_label", {20}}}});
  InitialiseEqually({&group}, 1);
  const auto run = [&](int64_t n) {
    group.Reshape({{"data", {n, 6}}}, {{"softmax_label", {n}}});
    group.Forward(RandomBatch(n, 6, 3, 2));
    group.Backward();
  };
  // Streams let go of what they kept when they are waited for, workers of their last operation a moment later.
  const auto bytes_in_use = [&](int milliseconds) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < milliseconds; ++i) {
      group.engine()->WaitAll();
      least = std::min(least, DefaultStorage()->Stats(TestDevice(0)).in_use);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return least;
  };
  for (int64_t n = 1; n <= 20; ++n) run(n);
  group.Outputs()[0].ToHost();
  const int programs = group.programs().size();
  const int64_t misses = group.programs().misses(), committed = group.executors()[0]->arena()->committed();
  // What streams of the tests before keep goes within a second (docs/engine.md).
  const int64_t in_use = bytes_in_use(OnCpusOnly() ? 20 : 1200);
  for (int i = 0; i < 1000; ++i) run(1 + i * 7 % 20);
  group.Outputs()[0].ToHost();
  EXPECT_EQ(group.programs().size(), programs);
  EXPECT_EQ(group.programs().misses(), misses);
  EXPECT_EQ(group.executors()[0]->arena()->committed(), committed);
  EXPECT_EQ(bytes_in_use(20), in_use);
}

// More shapes than the budget has room for: programs go, with all that is bound to them, and are made again.
TEST(GroupMemory, ProgramsAndBindingsStayWithinTheirBudget) {
  DataParallelExecutorGroup group(SmallNet(),
                                  {.data = {{"data", {1, 6}}}, .labels = {{"softmax_label", {1}}}, .program_bytes = 1});
  DataParallelExecutorGroup roomy(SmallNet(), {.data = {{"data", {1, 6}}}, .labels = {{"softmax_label", {1}}}});
  InitialiseEqually({&group, &roomy}, 1);
  constexpr int kShapes = 3 * ProgramCache::kKept;
  std::vector<std::weak_ptr<const Program>> programs;
  std::vector<std::weak_ptr<const Instance>> instances;
  const auto run = [&](int64_t n) {
    const Batch batch = RandomBatch(n, 6, 3, static_cast<uint64_t>(n));
    group.Forward(batch);
    roomy.Forward(batch);
    EXPECT_EQ(group.Outputs()[0].ToHost(), roomy.Outputs()[0].ToHost());
  };
  for (int64_t n = 1; n <= kShapes; ++n) {
    run(n);
    programs.push_back(group.step().participants()[0].bound->program);
    instances.push_back(group.step().participants()[0].bound->instance);
  }
  const auto alive = [](const auto& list) {
    return std::ranges::count_if(list, [](const auto& item) { return !item.expired(); });
  };
  EXPECT_EQ(group.programs().size(), ProgramCache::kKept);
  EXPECT_EQ(alive(programs), ProgramCache::kKept);
  EXPECT_LE(alive(instances), ProgramCache::kKept);
  EXPECT_EQ(group.programs().misses(), kShapes);
  EXPECT_EQ(roomy.programs().size(), kShapes);
  EXPECT_LE(roomy.programs().bytes(), ProgramCache::kBytes);
  run(1);  // the first again: made anew
  EXPECT_EQ(group.programs().misses(), kShapes + 1);
  EXPECT_EQ(roomy.programs().misses(), kShapes);
}

}  // namespace
}  // namespace bindery
