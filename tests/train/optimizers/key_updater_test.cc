#include "train/optimizers/key_updater.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "executor/data_parallel_executor_group.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/initializer.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

// The trained parameters: by an updater in a store, or by Updater.
HostTensorMap Train(bool in_the_store, KVStoreType type) {
  constexpr int64_t kBatch = 12;
  const Symbol weight = Variable("fc1_weight", {.lr_mult = 0.5});
  const Symbol hidden = Relu(FullyConnected(Variable("data"), weight, Symbol(), {.num_hidden = 20}, "fc1"));
  const Symbol net = SoftmaxOutput(FullyConnected(hidden, {.num_hidden = 10}, "fc2"), {}, "softmax");
  const ImageSet digits = DrawDigits(kBatch * 2, 1);
  ArrayIter data(digits.images, digits.labels, {.batch_size = kBatch});
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = data.ProvideData(), .labels = data.ProvideLabel()});
  SetInitialParams(&group, {}, Initializer("xavier"), 1);

  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer("sgd(lr=0.2, momentum=0.9, wd=0.01)");
  const SchedulePtr schedule = ParseSchedule("factor(step=2, factor=0.5)", 0.2);
  Updater updater(&group, {.optimizer = optimizer, .schedule = schedule});
  const std::unique_ptr<KVStore> kv = KVStore::Create(type);
  kv->SetUpdater(
      MakeKeyUpdater(optimizer, {.schedule = schedule, .rescale = 1.0 / kBatch, .annotations = net.AllAnnotations()}));
  for (const ReplicatedParam& p : group.params()) kv->Init(p.name, p.values[0]);
  for (int epoch = 0; epoch < 3; ++epoch, data.Reset()) {
    while (const BatchPtr batch = data.Next()) {
      if (!in_the_store) {
        updater.Update(batch);
        continue;
      }
      group.Forward(batch);
      group.Backward();
      for (const ReplicatedParam& p : group.params()) {
        kv->Push(p.name, p.grads);
        kv->Pull(p.name, p.values);
      }
    }
  }
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  return params;
}

TEST(KeyUpdater, IsTheUpdatersStep) {
  const HostTensorMap expected = Train(false, KVStoreType::kDevice);
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const auto& [name, value] : Train(true, type)) EXPECT_LT(MaxAbsDiff(value, expected.at(name)), 1e-6) << name;
  }
}

TEST(KeyUpdater, CountsStepsAndKeepsStateByKey) {
  const KeyUpdater update = MakeKeyUpdater(MakeOptimizer("sgd(lr=1, momentum=0.5, wd=0.1)"), {.rescale = 0.5});
  const auto push = [&](const Key& key, double gradient, double* weight) {
    update(key, DType::kFloat64, &gradient, weight, 1);
  };
  double a = 0, b = 0, number = 1;
  push("a_bias", 2, &a);
  push("b_bias", 4, &b);
  EXPECT_EQ(a, -1);
  EXPECT_EQ(b, -2);
  push("a_bias", 0, &a);  // the momentum of `a` alone
  EXPECT_EQ(a, -1.5);
  push(7, 0, &number);  // decays
  EXPECT_DOUBLE_EQ(number, 0.9);
}

TEST(KeyedOptimizer, GoesOnFromASavedState) {
  const std::shared_ptr<const Optimizer> sgd = MakeOptimizer("sgd(lr=0.1, momentum=0.9, wd=0.01)");
  const KeyUpdaterOptions options{.schedule = ParseSchedule("factor(step=2, factor=0.5)", 0.1)};
  using Weights = std::map<std::string, std::vector<float>>;
  const auto push = [](const KeyUpdater& update, int steps, Weights* weights) {
    for (int step = 0; step < steps; ++step) {
      for (auto& [key, values] : *weights) {
        std::vector<float> gradient;
        for (const float value : values) gradient.push_back(value * 0.5f + 1);
        update(key, DType::kFloat32, gradient.data(), values.data(), static_cast<int64_t>(values.size()));
      }
    }
  };
  const Weights initial = {{"a_weight", {1, 2, 3}}, {"b_bias", {4}}};
  Weights whole = initial, parts = initial;
  push(MakeKeyUpdater(sgd, options), 7, &whole);

  KeyedOptimizer first(sgd, options);
  push(first.updater(), 3, &parts);
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/optimizer.pb";
  SaveModel({.params = first.State()}, path);
  KeyedOptimizer second(sgd, options);
  second.SetState(LoadModel(path).params);
  EXPECT_EQ(second.State(), first.State());
  EXPECT_EQ(second.State().at("a_weight:step").data<int64_t>()[0], 3);
  EXPECT_EQ(second.State().at("a_weight:momentum").shape(), (Shape{3}));
  push(second.updater(), 4, &parts);
  EXPECT_EQ(parts, whole);
  // A key that the state does not have begins anew; one of another size is an error.
  float weight = 1, gradient = 1;
  second.updater()("new_bias", DType::kFloat32, &gradient, &weight, 1);
  EXPECT_FLOAT_EQ(weight, 0.9f);
  KeyedOptimizer third(sgd, options);
  third.SetState(first.State());
  EXPECT_THROW(third.updater()("a_weight", DType::kFloat32, &gradient, &weight, 1), ShapeError);
}

TEST(KeyedOptimizer, RefusesAnotherState) {
  KeyedOptimizer optimizer(MakeOptimizer("sgd(lr=0.1, momentum=0.9)"));
  double weight = 1, gradient = 1;
  optimizer.updater()("w", DType::kFloat64, &gradient, &weight, 1);
  const HostTensorMap good = optimizer.State();
  const auto message = [&](auto&& change) {
    HostTensorMap state = good;
    change(state);
    return MessageOf<CheckpointError>([&] { optimizer.SetState(state); });
  };
  EXPECT_EQ(message([](HostTensorMap& s) { s.erase("w:momentum"); }),
            "CheckpointError: the optimizer state \"w:momentum\" is missing");
  EXPECT_EQ(message([](HostTensorMap& s) { s.erase("w:step"); }),
            "CheckpointError: the optimizer state \"w:step\" is missing");
  EXPECT_EQ(message([](HostTensorMap& s) { s["w:variance"] = HostTensor(DType::kFloat64, {1}); }),
            "CheckpointError: optimizer state \"w:variance\": expected <key>:<state> with one of the states of "
            "sgd(lr=0.1, momentum=0.9): momentum, step");
  EXPECT_EQ(message([](HostTensorMap& s) { s["w:step"] = HostTensor(DType::kFloat32, {1}); }),
            "CheckpointError: optimizer state \"w:step\": expected one int64 from 0 to 2^53, got float32 (1)");
  EXPECT_NE(message([](HostTensorMap& s) { s["w:step"].data<int64_t>()[0] = std::numeric_limits<int64_t>::max(); }),
            "");
  EXPECT_EQ(message([](HostTensorMap& s) { s["w"] = HostTensor(DType::kFloat32, {1}); }).substr(0, 36),
            "CheckpointError: optimizer state \"w\"");
  EXPECT_EQ(optimizer.State(), good);
}

// Nobody tells it of epochs.
TEST(KeyUpdater, SchedulesGoBySteps) {
  for (const char* text : {"steps(at=2, unit=epoch)", "plateau(patience=1)"}) {
    const SchedulePtr schedule = ParseSchedule(text);
    EXPECT_NE(MessageOf([&] { MakeKeyUpdater(MakeOptimizer("sgd"), {.schedule = schedule}); }).find("goes by epochs"),
              std::string::npos)
        << text;
  }
}

TEST(KeyUpdater, AKeyKeepsItsSizeAndDtype) {
  const KeyUpdater update = MakeKeyUpdater(MakeOptimizer("sgd(lr=1, momentum=0.5)"));
  const std::vector<double> gradient(3, 1);
  std::vector<double> weight(3, 0);
  update("w", DType::kFloat64, gradient.data(), weight.data(), 2);
  EXPECT_EQ(
      MessageOf<ShapeError>([&] { update("w", DType::kFloat64, gradient.data(), weight.data(), 3); }),
      "ShapeError: key \"w\": the optimizer's state is of 2 elements of float64, but 3 of float64 are updated now");
  EXPECT_THROW(update("w", DType::kFloat32, gradient.data(), weight.data(), 2), ShapeError);
  EXPECT_EQ(weight, (std::vector<double>{-1, -1, 0}));
}

TEST(KeyedOptimizer, WhatFailsIsNoStep) {
  const KeyedOptimizer optimizer(MakeOptimizer("sgd(lr=1)"));
  int64_t gradient = 1, weight = 1;
  EXPECT_NE(MessageOf<Error>([&] {
              optimizer.updater()("w", DType::kInt64, &gradient, &weight, 1);
            }).find("updates float32 or float64 parameters, got int64"),
            std::string::npos);
  EXPECT_EQ(optimizer.State().at("w:step").At(0), 0);
}

}  // namespace
}  // namespace bindery
