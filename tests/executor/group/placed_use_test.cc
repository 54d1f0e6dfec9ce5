// Groups parts of which have devices of their own: states, statistics, requests, watching, parameters, errors.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/executor/group/placed_helpers.h"

namespace bindery {
namespace {

TEST(Placed, StatesStatisticsAndFixedParameters) {
  const Symbol x = On("low", [] {
    return BatchNorm(FullyConnected(Variable("data") + Variable("before"), {.num_hidden = 4}, "fc1"), {}, "bn1");
  });
  const Symbol net = On("high", [&] {
    const Symbol y = BatchNorm(FullyConnected(x + Variable("above"), {.num_hidden = 3}, "fc2"), {.sync = true}, "bn2");
    return SoftmaxOutput(y, {}, "softmax");
  });
  GroupOptions options = OptionsOf(2, {{"data", {6, 4}}}, {{"softmax_label", {6}}});
  options.states = {{"above", {6, 4}}, {"before", {6, 4}}};
  options.fixed_params = {"fc2_bias", "bn1_gamma", "bn1_beta"};
  PlacedExecutorGroup group(net, options);
  const auto one = Unplaced(net, options);
  InitialiseEqually({&group, one.get()}, 3);
  EXPECT_EQ(group.DevicesOf("bn2_running_mean"), options.placements.at("high"));
  const std::vector<HostTensor> states = {RandomTensor({6, 4}, 1), RandomTensor({6, 4}, 2)};
  for (int step = 0; step < 3; ++step) {
    for (ExecutorGroup* g : {static_cast<ExecutorGroup*>(&group), one.get()}) {
      step == 0 ? g->SetStates(0.5) : g->SetStates(states);
    }
    ExpectEqual(&group, one.get(), RandomBatch(6, 4, 3, 1));
  }
  EXPECT_EQ(group.States()[0][1].ToHost(), states[0].Slice(0, 3, 6));
  EXPECT_EQ(group.States()[1][0].device(), TestDevice(0));
  EXPECT_EQ(group.grad_req("fc2_bias"), GradReq::kNull);
}

// Of an early stage's head and state: the later stage, which comes first in backward, has done nothing yet.
TEST(Placed, WhatIsRefusedChangesNoStage) {
  const Symbol early =
      On("low", [] { return (Variable("data") + Variable("h")) * Variable("v", {.shape = Shape{2}}); });
  const Symbol late = On("high", [&] { return (early + Variable("c")) * Variable("w", {.shape = Shape{2}}); });
  GroupOptions options = OptionsOf(1, {{"data", {3, 2}}});
  options.states = {{"h", {3, 2}}, {"c", {3, 2}}};
  options.grad_req = GradReq::kAdd;
  PlacedExecutorGroup group(Group({early, late}), options);
  const HostTensor ones = HostTensor::Full(DType::kFloat32, {3, 2}, 1), wrong(DType::kFloat32, {2, 2});
  const HostTensor param = HostTensor::Full(DType::kFloat32, {2}, 1);
  group.SetParams({{"v", param}, {"w", param}}, {});
  for (const auto& states : {std::vector{ones, wrong}, {wrong, ones}}) {
    EXPECT_THROW(group.SetStates(states), ShapeError);
    for (const std::vector<Tensor>& state : group.States())
      EXPECT_EQ(state[0].ToHost(), HostTensor(DType::kFloat32, {3, 2}));
  }
  group.Forward(Batch{.data = {ones}});
  for (const auto& gradients : {std::vector{ones, wrong}, {wrong, ones}}) {
    EXPECT_THROW(group.Backward(gradients), ShapeError);
    EXPECT_EQ(group.GetGradient("w", 0), HostTensor(DType::kFloat32, {2}));
  }
  group.Backward(std::vector{ones, ones});
  EXPECT_EQ(group.GetGradient("w", 0), HostTensor::Full(DType::kFloat32, {2}, 3));
}

TEST(Placed, GradientsAddUpWhereAsked) {
  const Case c = Cases()[1];
  GroupOptions options = OptionsOf(2, {c.data}, {c.label});
  options.grad_req = GradReq::kAdd;
  PlacedExecutorGroup group(c.net, options);
  const auto one = Unplaced(c.net, options);
  InitialiseEqually({&group, one.get()}, 3);
  for (uint64_t seed = 0; seed < 3; ++seed) ExpectEqual(&group, one.get(), RandomBatchOf(c, 7, seed), {}, 1e-4);
  group.ZeroGradients();
  EXPECT_EQ(MaxAbsDiff(SumOfGradients(group, "conv1_weight"), HostTensor(DType::kFloat32, {4, 1, 3, 3})), 0);
  EXPECT_EQ(MaxAbsDiff(SumOfGradients(group, "fc2_bias"), HostTensor(DType::kFloat32, {5})), 0);
}

TEST(Placed, WatchedValuesComeInTheOrderOfTheWhole) {
  const Case c = Cases()[0];
  const GroupOptions options = OptionsOf(1, {c.data}, {c.label});
  PlacedExecutorGroup group(c.net, options);
  const auto one = Unplaced(c.net, options);
  InitialiseEqually({&group, one.get()}, 3);
  const std::string pattern = "(fc|tanh|softmax).*";
  for (ExecutorGroup* g : {static_cast<ExecutorGroup*>(&group), one.get()}) g->Watch(pattern);
  ExpectEqual(&group, one.get(), RandomBatchOf(c, 7, 1));
  const auto values = group.WatchedValues(), expected = one->WatchedValues();
  std::map<std::string, HostTensor> by_name;
  for (const auto& value : expected) by_name[value.name] = value.value;
  size_t known = 0, last_forward = 0, first_backward = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == "softmax_output") last_forward = i;
    if (values[i].name.find("grad") != std::string::npos) first_backward = std::min(first_backward, i);
    EXPECT_EQ(values[i].device,
              TestDevice(values[i].name.starts_with("fc1") || values[i].name.starts_with("tanh1") ? 0 : 1))
        << values[i].name;
    if (!by_name.contains(values[i].name)) continue;
    ++known;
    EXPECT_LT(MaxAbsDiff(values[i].value, by_name.at(values[i].name)), 2e-5) << values[i].name;
  }
  EXPECT_GE(known, 5u);
  EXPECT_LT(last_forward, first_backward);
}

// Values in formats of the kernels' own are watched as copies, which are made when all else is done.
TEST(Placed, WatchedValuesInFormatsOfKernelsKeepTheirOrder) {
  const Symbol low = On("low", [] {
    const Symbol x = Tanh(Convolution(Variable("data"), {.num_filter = 16, .kernel = {3, 3}}, "conv1"));
    return Tanh(Convolution(x, {.num_filter = 16, .kernel = {3, 3}}, "conv2"));
  });
  const Symbol net =
      On("high", [&] { return SoftmaxOutput(FullyConnected(Flatten(low), {.num_hidden = 5}, "fc"), {}, "softmax"); });
  const Case c = {"convolutions", net, {"data", {4, 3, 8, 8}}, {"softmax_label", {4}}, 5};
  PlacedExecutorGroup group(c.net, OptionsOf(1, {c.data}, {c.label}));
  const auto one = Unplaced(c.net, OptionsOf(1, {c.data}, {c.label}));
  InitialiseEqually({&group, one.get()}, 3);
  group.Watch(".*");
  group.ForwardBackward(std::make_shared<const Batch>(RandomBatchOf(c, 4, 1)));
  std::vector<std::string> forward;
  for (const auto& value : group.WatchedValues()) {
    if (std::ranges::find(forward, "softmax_output") == forward.end()) forward.push_back(value.name);
  }
  for (const char* name : {"conv1_output", "conv2_output"}) {
    EXPECT_NE(std::ranges::find(forward, name), forward.end()) << name;
  }
  EXPECT_EQ(std::ranges::count_if(forward, [](const std::string& n) { return n.find("grad") != n.npos; }), 0);
}

// A kernel of the first stage hangs; the host pushes steps of all stages meanwhile.
TEST(Placed, TheHostDoesNotWaitBetweenStages) {
  if (TestDevices() == "cuda") GTEST_SKIP() << "nothing goes from simulated devices to GPUs";
  GroupOptions options = OptionsOf(1, {{"data", {7, 4}}}, {{"softmax_label", {7}}});
  options.devices = options.placements["low"] = {Sim(6)};
  options.placements["high"] = {TestDevice(1)};
  options.engine = MakeThreadedEngine();
  PlacedExecutorGroup group(Mlp(), options);
  const auto one = Unplaced(Mlp(), options);
  InitialiseEqually({&group, one.get()}, 3);
  const auto batch = std::make_shared<const Batch>(RandomBatch(7, 4, 3, 1));
  group.ForwardBackward(batch);
  options.engine->WaitAll();
  sim::HangKernel(Sim(6), 1);
  for (int step = 0; step < 3; ++step) group.ForwardBackward(batch);
  sim::Release(Sim(6));
  for (int step = 0; step < 4; ++step) one->ForwardBackward(batch);
  EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), one->Outputs()[0].ToHost()), 2e-5);
  EXPECT_LT(MaxAbsDiff(SumOfGradients(group, "fc1_weight"), SumOfGradients(*one, "fc1_weight")), 2e-5);
}

TEST(Placed, ParametersGoInAndOutByName) {
  const Case c = Cases()[0];
  PlacedExecutorGroup group(c.net, OptionsOf(2, {c.data}, {c.label}));
  HostTensorMap params, aux;
  group.GetParams(&params, &aux);
  EXPECT_EQ(params.size(), 6u);
  for (auto& [name, value] : params) value = RandomTensor(value.shape(), StreamKey(1, name).k0);
  group.SetParams(params, {});
  const HostTensorMap before = params;
  const auto refused = [&](const std::string& message) {
    EXPECT_EQ(MessageOf<Error>([&] { group.SetParams(params, {}); }), message);
    HostTensorMap now;
    group.GetParams(&now, nullptr);
    EXPECT_EQ(now, before);
    params = before;
  };
  for (auto& [name, value] : params) value = HostTensor(value.dtype(), value.shape());
  params["fc3_wieght"] = HostTensor(DType::kFloat32, {1});
  refused(
      "Error: SetParams: there is no parameter \"fc3_wieght\"; did you mean \"fc3_weight\"?; allow_extra ignores it");
  for (auto& [name, value] : params) value = HostTensor(value.dtype(), value.shape());
  params["fc3_bias"] = HostTensor(DType::kFloat32, {2});  // the last stage's
  refused("ShapeError: parameter \"fc3_bias\": expected (3), got (2)");
  params.erase("fc1_bias");
  refused("Error: SetParams: parameter \"fc1_bias\" is missing; allow_missing leaves it as it is");
}

TEST(Placed, WhatDoesNotFitIsNamed) {
  const Case c = Cases()[0];
  const GroupOptions good = OptionsOf(2, {c.data}, {c.label});
  const auto message = [&](const auto& change, const Symbol& net = Mlp()) {
    GroupOptions options = good;
    change(&options);
    return MessageOf<Error>([&] { MakeGroup(net, options); });
  };
  EXPECT_EQ(message([](GroupOptions* o) { o->placements.erase("high"); }),
            "Error: placement \"high\", which nodes have as their ctx_group, is given no device: add it to the "
            "placements; known: low");
  EXPECT_EQ(message([](GroupOptions* o) {
              o->placements.emplace("hihg", o->placements["high"]);
              o->placements.erase("high");
            }),
            "Error: placements: no node has ctx_group = \"hihg\"; did you mean \"high\"?");
  EXPECT_EQ(message([](GroupOptions* o) { o->placements["low"].resize(3, Cpu(0)); }),
            "Error: placement \"low\": expected 1 device, or 2 for the replicas, got 3");
  EXPECT_EQ(message([](GroupOptions* o) { o->placements["low"] = {Cpu(0)}; }), "nothing was thrown");
  EXPECT_NE(message([](GroupOptions* o) { o->placements["low"] = {Sim(99)}; }).find("sim:99"), std::string::npos);
  EXPECT_EQ(message([](GroupOptions* o) { o->placements.clear(); }),
            "ModelError: variable \"data\": its annotation ctx_group = \"low\" asks for a device of its own, which a "
            "whole graph on one device has not: name one in GroupOptions::placements (MakeGroup), or bind "
            "WithoutPlacements(symbol)");
  EXPECT_THROW(DataParallelExecutorGroup(Mlp(), good), Error);

  const Symbol rows = On("low", [] { return Reshape(Variable("data"), {.shape = {-1, 2}}, "rows"); });
  EXPECT_EQ(
      message([](GroupOptions* o) { o->labels.clear(); },
              On("high", [&] { return MakeLoss(FullyConnected(rows, {.num_hidden = 2}, "fc"), {}, "loss"); })),
      "ModelError: Reshape \"rows\": the samples of its output (14, 2) share axis 0 with something else, and so it "
      "cannot go to another placement, \"high\": place the Reshape that folds them, and what reads it, together");
  const Symbol mean = On("low", [] { return Sum(Variable("data"), {}, "all"); });
  EXPECT_EQ(message([](GroupOptions* o) { o->labels.clear(); }, On("high", [&] { return MakeLoss(mean, {}, "loss"); })),
            "ModelError: placement \"high\": nothing that it reads has a batch axis for several replicas to share");
  const std::vector<std::map<std::string, Device>> per_replica = {{{"low", Cpu(0)}, {"high", Cpu(1)}},
                                                                  {{"low", Cpu(2)}}};
  EXPECT_EQ(MessageOf<Error>([&] { PlacementsOf(per_replica); }),
            "Error: placement \"high\": replica 1 has no device for it");
  EXPECT_EQ(PlacementsOf({per_replica[0]}), (Placements{{"high", {Cpu(1)}}, {"low", {Cpu(0)}}}));
}

TEST(Placed, ReplicasAreChecked) {
  const Case c = Cases()[0];
  GroupOptions options = OptionsOf(2, {c.data}, {c.label});  // but that no device shares another's memory
  options.devices = {ApartDevice(0), ApartDevice(2)};
  options.placements = {{"low", {ApartDevice(0), ApartDevice(2)}}, {"high", {ApartDevice(1), ApartDevice(3)}}};
  PlacedExecutorGroup group(Mlp(), options);
  const auto one = Unplaced(Mlp(), options);
  InitialiseEqually({&group, one.get()}, 1);
  HostTensorMap params;
  group.GetParams(&params, nullptr, ReplicaMerge::kCheck);
  const std::vector<ReplicatedParam> all = group.params();
  const auto bias = std::ranges::find(all, "fc3_bias", &ReplicatedParam::name);
  bias->values[1].Fill(7);
  const std::string message = MessageOf([&] { group.GetParams(&params, nullptr, ReplicaMerge::kCheck); });
  EXPECT_NE(message.find("parameter \"fc3_bias\" is not equal on all devices: element 0 of (3) is"), std::string::npos);
  EXPECT_NE(message.find(fmt::format("on {} and 7 on {}", ApartDevice(1), ApartDevice(3))), std::string::npos)
      << message;
}

}  // namespace
}  // namespace bindery
