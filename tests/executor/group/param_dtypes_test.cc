// Types of parameters that are given when a symbol is bound.
#include <gtest/gtest.h>

#include "executor/placed_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

// Class numbers, looked up in a table, then float32 whatever the table is.
Symbol Net(const Symbol& table = {}) {
  const Symbol found = Embedding(Variable("data"), table, {.input_dim = 9, .output_dim = 8}, "embed");
  return SoftmaxOutput(FullyConnected(Cast(found, {.dtype = DType::kFloat32}), {.num_hidden = 3}, "fc"), {}, "softmax");
}

GroupOptions Options(ParamDTypes dtypes) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .data = {{"data", {6}}},
          .labels = {{"softmax_label", {6}}},
          .param_dtypes = std::move(dtypes)};
}

Batch Indices() {
  return {.data = {HostTensor::From({6}, {0, 8, 3, 3, 1, 5})},
          .label = {HostTensor::From({6}, {0, 1, 2, 0, 1, 2})},
          .samples = 6};
}

TEST(ParamDTypes, AreThoseOfTheFirstPatternThatFits) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    DataParallelExecutorGroup group(Net(), Options({{"fc_*", DType::kFloat32}, {"*_w?ight", dtype}}));
    DataParallelExecutorGroup plain(Net(), Options({}));
    EXPECT_EQ(group.store().Find("embed_weight")->dtype, dtype);
    EXPECT_EQ(group.store().Find("fc_weight")->dtype, DType::kFloat32);
    EXPECT_EQ(group.store().Find("fc_bias")->dtype, DType::kFloat32);
    InitialiseEqually({&plain}, 1);
    HostTensorMap params, kept, wanted = {{"embed_weight", HostTensor(DType::kFloat32, {9, 8})}};
    plain.GetParams(&params, nullptr);
    group.SetParams(params, {});  // casts
    group.GetParams(&kept, nullptr);
    EXPECT_EQ(kept.at("embed_weight"), params.at("embed_weight").Cast(dtype));
    group.GetParams(&wanted, nullptr);
    EXPECT_EQ(wanted.at("embed_weight").dtype(), DType::kFloat32);
    params["embed_weight"] = kept.at("embed_weight").Cast(DType::kFloat32);
    plain.SetParams(params, {});
    for (DataParallelExecutorGroup* g : {&group, &plain}) g->Forward(Indices());
    EXPECT_LT(MaxAbsDiff(group.Outputs()[0].ToHost(), plain.Outputs()[0].ToHost()), 1e-6);
  }
}

// float64 is trained; a table of 16 bits stays as it is, if that is asked for.
TEST(ParamDTypes, InTraining) {
  const auto train = [](GroupOptions options) {
    DataParallelExecutorGroup group(Net(), options);
    InitialiseEqually({&group}, 1);
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.5, momentum=0.9)")});
    for (int step = 0; step < 3; ++step) updater.Update(std::make_shared<const Batch>(Indices()));
    updater.WaitFor(updater.step());
    HostTensorMap params;
    group.GetParams(&params, nullptr, ReplicaMerge::kCheck);
    return params;
  };
  const HostTensorMap plain = train(Options({})), wide = train(Options({{"embed_weight", DType::kFloat64}}));
  EXPECT_EQ(wide.at("embed_weight").dtype(), DType::kFloat64);
  for (const auto& [name, value] : plain) EXPECT_LT(MaxAbsDiff(wide.at(name).Cast(value.dtype()), value), 1e-5) << name;
  GroupOptions low = Options({{"embed_*", DType::kBFloat16}});
  EXPECT_EQ(MessageOf([&] { train(low); }),
            "ModelError: parameter \"embed_weight\" is bfloat16: parameters are trained in float32 or float64");
  low.fixed_params = {"embed_weight"};
  const HostTensorMap fixed = train(low);
  EXPECT_EQ(fixed.at("embed_weight"), RandomTensor({9, 8}, StreamKey(1, "embed_weight").k0, DType::kBFloat16));
  EXPECT_GT(MaxAbsDiff(fixed.at("fc_weight"), RandomTensor({3, 8}, StreamKey(1, "fc_weight").k0)), 0.01);
}

// What is not given follows from what is: the table's type becomes that of all that is computed from it.
TEST(ParamDTypes, OthersFollowThroughTheGraph) {
  const Symbol found = Embedding(Variable("data"), {.input_dim = 9, .output_dim = 8}, "embed");
  const Symbol net = FullyConnected(found, {.num_hidden = 3}, "fc");
  GroupOptions options = Options({{"embed_*", DType::kFloat64}});
  options.labels.clear();
  options.for_training = false;
  const DataParallelExecutorGroup group(net, options);
  for (const StoredParameter& p : group.store().parameters()) EXPECT_EQ(p.dtype, DType::kFloat64) << p.name;
  EXPECT_EQ(group.OutputType(0).dtype, DType::kFloat64);
}

TEST(ParamDTypes, OfPartsWithDevicesOfTheirOwn) {
  Symbol found;
  {
    const AttrScope low({{"ctx_group", "low"}});
    found = Cast(Embedding(Variable("data"), {.input_dim = 9, .output_dim = 8}, "embed"), {.dtype = DType::kFloat32});
  }
  const Symbol net = SoftmaxOutput(FullyConnected(found, {.num_hidden = 3}, "fc"), {}, "softmax");
  GroupOptions options = Options({{"embed_*", DType::kFloat64}});
  options.placements = {{"low", {TestDevice(2), TestDevice(3)}}};
  const auto group = MakeGroup(net, options);
  for (const ReplicatedParam& p : group->params()) {
    EXPECT_EQ(p.values[0].dtype(), p.name == "embed_weight" ? DType::kFloat64 : DType::kFloat32) << p.name;
  }
  group->ForwardBackward(std::make_shared<const Batch>(Indices()));
  EXPECT_EQ(group->GetGradient("embed_weight", 0).dtype(), DType::kFloat64);
}

TEST(ParamDTypes, OfAnExecutor) {
  const auto options = [](ParamDTypes dtypes) {
    return ExecutorOptions{
        .device = TestDevice(1), .inputs = {{"data", {6}}, {"softmax_label", {6}}}, .param_dtypes = std::move(dtypes)};
  };
  const Executor executor(Net(), options({{"embed*", DType::kFloat64}}));
  EXPECT_EQ(executor.ArgumentArray("embed_weight").dtype(), DType::kFloat64);
  EXPECT_EQ(executor.ArgumentArray("fc_weight").dtype(), DType::kFloat32);
  ExecutorOptions given = options({{"embed*", DType::kFloat64}});
  given.arguments["embed_weight"] = Tensor(TestDevice(1), DType::kFloat32, {9, 8});
  EXPECT_EQ(MessageOf([&] { Executor(Net(), given); }),
            "Error: the array given for \"embed_weight\" is float32, its type by param_dtypes float64");
}

TEST(ParamDTypes, WhatDoesNotFitIsNamed) {
  const auto message = [](const Symbol& net, ParamDTypes dtypes) {
    return MessageOf([&] { DataParallelExecutorGroup(net, Options(std::move(dtypes))); });
  };
  EXPECT_EQ(message(Net(), {{"embed_wieght", DType::kFloat16}}),
            "Error: param_dtypes: \"embed_wieght\" fits no parameter; did you mean \"embed_weight\"?");
  EXPECT_NE(message(Net(), {{"data", DType::kFloat16}}).find("\"data\" fits no parameter"), std::string::npos);
  const std::string other = message(Net(), {{"fc_weight", DType::kFloat64}});  // the cast says float32
  EXPECT_NE(other.find("ShapeError"), std::string::npos) << other;
  EXPECT_NE(other.find("FullyConnected \"fc\""), std::string::npos) << other;
  EXPECT_NE(other.find("float64"), std::string::npos) << other;
  const std::string declared =
      message(Net(Variable("table", {.dtype = DType::kFloat32})), {{"table", DType::kFloat16}});
  EXPECT_NE(declared.find("\"table\""), std::string::npos) << declared;
  EXPECT_NE(declared.find("declared as float32, got float16"), std::string::npos) << declared;
}

}  // namespace
}  // namespace bindery
