// Stores of the user's in trainings: what they give is what is trained by, and one that throws fails the step.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "kvstore/wrapped_store.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/loop/bucketed_model.h"
#include "train/trainer.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 24, kFeatures = 6, kClasses = 3;

enum class Fails : uint8_t { kNot, kAtTheCall, kInAnOperation };

// Sums as its wrapped one, times `factor`, and fails where it is told to: at the n-th exchange, once.
struct Plan {
  double factor = 1;
  Fails fails = Fails::kNot;
  int at = 0;
  std::atomic<int> inits{0}, exchanges{0};
  std::map<std::string, size_t> values = {};  // pushed at once, by key
  std::map<std::string, int> priorities = {};
};

class PlannedStore final : public WrappedStore {
 public:
  PlannedStore(const std::shared_ptr<Engine>& engine, std::shared_ptr<Plan> plan)
      : WrappedStore(KVStore::Create(KVStoreType::kDevice, engine)), engine_(engine), plan_(std::move(plan)) {}

  void Init(const Key& key, const HostTensor& value) override {
    ++plan_->inits;
    EXPECT_EQ(MaxAbsDiff(value, HostTensor(value.dtype(), value.shape())), 0);
    WrappedStore::Init(key, value);
  }
  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out, int priority) override {
    ASSERT_EQ(out.size(), 1u);
    plan_->values[std::get<std::string>(key)] = values.size();
    plan_->priorities[std::get<std::string>(key)] = priority;
    const bool now = ++plan_->exchanges == plan_->at;
    if (now && plan_->fails == Fails::kAtTheCall) Throw<NumericError>("refused {}", ToString(key));
    WrappedStore::PushPull(key, values, out, priority);
    if (plan_->factor == 1 && !now) return;
    Operation scale{.name = "scale", .device = out[0].device(), .reads = {out[0].var()}, .writes = {out[0].var()}};
    scale.run = [sum = out[0], factor = plan_->factor, fails = now && plan_->fails == Fails::kInAnOperation,
                 name = ToString(key)](const OpContext&) {
      if (fails) Throw<NumericError>("failed with {}", name);
      for (int64_t i = 0; i < sum.elements(); ++i) static_cast<float*>(sum.data())[i] *= static_cast<float>(factor);
    };
    engine_->Push(std::move(scale));
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Plan> plan_;
};

StoreFactory FactoryOf(const std::shared_ptr<Plan>& plan) {
  return [plan](const std::shared_ptr<Engine>& engine) { return std::make_unique<PlannedStore>(engine, plan); };
}

class OwnStore : public testing::Test {
 protected:
  std::unique_ptr<DataParallelExecutorGroup> MakeSmallGroup(const std::vector<Device>& devices) const {
    auto group = std::make_unique<DataParallelExecutorGroup>(SmallNet(kClasses),
                                                             GroupOptions{.devices = devices,
                                                                          .data = {{"data", {kSamples, kFeatures}}},
                                                                          .labels = {{"softmax_label", {kSamples}}},
                                                                          .threads_per_device = 1});
    InitialiseEqually({group.get()}, 1);
    return group;
  }
  static UpdaterOptions Options(const std::string& optimizer, StoreFactory store) {
    return {.optimizer = MakeOptimizer(optimizer), .store = std::move(store)};
  }
  static HostTensorMap Params(const DataParallelExecutorGroup& group) {
    HostTensorMap params;
    group.GetParams(&params, nullptr);
    return params;
  }
  static BatchPtr TestBatch(uint64_t seed) {
    Batch batch = RandomBatch(kSamples, kFeatures, kClasses, seed);
    batch.samples = kSamples;
    return std::make_shared<const Batch>(std::move(batch));
  }

  const std::vector<Device> devices_ = {TestDevice(0), TestDevice(1), TestDevice(2)};
  const std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
};

TEST_F(OwnStore, ThatSumsIsAsNone) {
  for (const char* optimizer : {"sgd(lr=0.1, momentum=0.9, wd=0.01)", "adam(lr=0.01)", "lamb(lr=0.01)"}) {
    const auto own = MakeSmallGroup(devices_), none = MakeSmallGroup(devices_);
    const auto plan = std::make_shared<Plan>();
    Updater with(own.get(), Options(optimizer, FactoryOf(plan))), without(none.get(), Options(optimizer, {}));
    for (uint64_t step = 0; step < 5; ++step) {
      with.Update(TestBatch(step));
      without.Update(TestBatch(step));
    }
    EXPECT_EQ(plan->inits, 4) << optimizer;
    EXPECT_EQ(plan->exchanges, 5 * 4) << optimizer;
    for (const auto& [name, values] : plan->values) EXPECT_EQ(values, 3u) << name;
    int priority = 0;
    for (const std::string& name : own->param_names()) EXPECT_EQ(plan->priorities.at(name), priority--) << name;
    for (const auto& [name, value] : Params(*none)) {
      EXPECT_LT(MaxAbsDiff(value, Params(*own).at(name)), 1e-6) << optimizer << " " << name;
    }
    for (const auto& [name, value] : without.State()) {
      EXPECT_LT(MaxAbsDiff(value, with.State().at(name)), 1e-5) << optimizer << " " << name;
    }
  }
}

// By half the sums the steps are half as long; on one device, too.
TEST_F(OwnStore, DecidesWhatIsTrainedBy) {
  for (size_t count = 1; count <= devices_.size(); ++count) {
    const std::vector<Device> devices(devices_.begin(), devices_.begin() + static_cast<std::ptrdiff_t>(count));
    const auto own = MakeSmallGroup(devices), none = MakeSmallGroup(devices);
    plan_->factor = 0.5;
    Updater with(own.get(), Options("sgd(lr=0.2)", FactoryOf(plan_))), without(none.get(), Options("sgd(lr=0.1)", {}));
    for (uint64_t step = 0; step < 4; ++step) {
      with.Update(TestBatch(step));
      without.Update(TestBatch(step));
    }
    for (const auto& [name, value] : Params(*none)) EXPECT_LT(MaxAbsDiff(value, Params(*own).at(name)), 1e-6) << name;
  }
}

// At any of a step's exchanges, at once or later: the step is not committed, and the next one is as if it had not been.
TEST_F(OwnStore, ThatThrowsLeavesTheParametersOfTheLastGoodStep) {
  const auto good = MakeSmallGroup(devices_);
  Updater updater(good.get(), Options("sgd(lr=0.1, momentum=0.9)", {}));
  std::vector<HostTensorMap> after;
  for (uint64_t step = 0; step < 3; ++step) {
    updater.Update(TestBatch(step));
    after.push_back(Params(*good));
  }
  for (const Fails fails : {Fails::kAtTheCall, Fails::kInAnOperation}) {
    for (int at = 5; at <= 8; ++at) {
      const auto plan = std::make_shared<Plan>();
      plan->fails = fails;
      plan->at = at;
      const auto group = MakeSmallGroup(devices_);
      Updater own(group.get(), Options("sgd(lr=0.1, momentum=0.9)", FactoryOf(plan)));
      own.Update(TestBatch(0));
      own.WaitFor(own.step());
      const HostTensorMap before = Params(*group);
      own.Update(TestBatch(1));
      EXPECT_THROW(own.WaitFor(own.step()), NumericError) << at;
      EXPECT_EQ(Params(*group), before) << at;
      EXPECT_THROW(DefaultEngine()->WaitAll(), NumericError);
      own.GoBack(own.step());
      own.Forgive();
      for (uint64_t step = 1; step < 3; ++step) {
        own.Update(TestBatch(step));
        own.WaitFor(own.step());
        for (const auto& [name, value] : Params(*group)) {
          EXPECT_LT(MaxAbsDiff(value, after[step].at(name)), 1e-6) << at << " " << name;
        }
      }
    }
  }
}

TEST_F(OwnStore, ATrainerGoesOnWithTheBatchThatFailed) {
  const Batch all = RandomBatch(4 * kSamples, kFeatures, kClasses, 5);
  const auto train = [&](Fails fails) {
    const auto plan = std::make_shared<Plan>();
    plan->fails = fails;
    plan->at = 6;  // of the second step's four
    ArrayIter data(all.data[0], all.label[0], {.batch_size = kSamples});
    Trainer trainer(SmallNet(kClasses),
                    {.devices = devices_, .optimizer = "sgd(lr=0.1, momentum=0.9)", .store = FactoryOf(plan)});
    if (fails != Fails::kNot) {
      EXPECT_NE(MessageOf([&] { trainer.Fit(data, {.epochs = 2}); }).find("\"fc"), std::string::npos);
    }
    trainer.Fit(data, {.epochs = 2});
    EXPECT_EQ(trainer.updater()->step(), fails == Fails::kNot ? 8 : 7);
    return trainer.ToModel().params;
  };
  const HostTensorMap failed = train(Fails::kAtTheCall);
  EXPECT_EQ(train(Fails::kInAnOperation), failed);  // both leave out the second batch
  EXPECT_NE(train(Fails::kNot), failed);
  try {
    DefaultEngine()->WaitAll();
  } catch (const NumericError&) {  // what the operation threw
  }
}

// Groups that share their parameters share the store, too.
TEST_F(OwnStore, OfSeveralNetworks) {
  const auto train = [&](const StoreFactory& store) {
    BucketedModel model(
        [](int64_t key) {
          return BucketNet{
              .symbol = SmallNet(kClasses), .data = {{"data", {key, kFeatures}}}, .labels = {{"softmax_label", {key}}}};
        },
        8, {.devices = devices_}, {.optimizer = "sgd(lr=0.1, momentum=0.9)", .store = store});
    for (const int64_t key : {8, 4, 8, 6}) {
      Batch batch = RandomBatch(key, kFeatures, kClasses, static_cast<uint64_t>(key));
      batch.samples = key;
      model.Step(key, std::make_shared<const Batch>(std::move(batch)));
    }
    model.Settle();
    return model.ToModel().params;
  };
  const HostTensorMap own = train(FactoryOf(plan_)), none = train({});
  EXPECT_EQ(plan_->inits, 4);
  EXPECT_EQ(plan_->exchanges, 4 * 4);
  for (const auto& [name, value] : none) EXPECT_LT(MaxAbsDiff(value, own.at(name)), 1e-6) << name;
}

// What a store sends in fewer bits comes later, but comes.
TEST_F(OwnStore, SendsFewerBits) {
  const auto group = MakeSmallGroup(devices_), whole = MakeSmallGroup(devices_);
  const StoreFactory two_bits = [](const std::shared_ptr<Engine>& engine) {
    auto store = KVStore::Create(KVStoreType::kDevice, engine);
    store->SetCompression({.kind = CompressionKind::kTwoBits, .threshold = 2});
    return store;
  };
  Updater own(group.get(), Options("sgd(lr=0.05)", two_bits)), exact(whole.get(), Options("sgd(lr=0.05)", {}));
  const HostTensorMap first = Params(*group);
  for (int step = 0; step < 200; ++step) {
    own.Update(TestBatch(0));
    exact.Update(TestBatch(0));
  }
  for (const auto& [name, value] : Params(*whole)) {
    EXPECT_GT(MaxAbsDiff(value, first.at(name)), 0.05) << name;
    EXPECT_GT(MaxAbsDiff(value, Params(*group).at(name)), 0) << name;
    EXPECT_LT(MaxAbsDiff(value, Params(*group).at(name)), 0.3 * MaxAbsDiff(value, first.at(name))) << name;
  }
}

TEST_F(OwnStore, WhatDoesNotFitIsRefused) {
  const auto group = MakeSmallGroup(devices_);
  const StoreFactory none = [](const std::shared_ptr<Engine>&) { return nullptr; };
  EXPECT_EQ(MessageOf([&] { Updater(group.get(), Options("sgd", none)); }),
            "Error: UpdaterOptions::store made no store");
  EXPECT_EQ(MessageOf([] { WrappedStore(nullptr); }), "Error: a wrapped store needs one that it wraps");
  if (!OnCpusOnly()) return;  // elsewhere gradients are whole
  DataParallelExecutorGroup table(
      LinearRegressionOutput(
          Embedding(Variable("data"), {.input_dim = 9, .output_dim = 2, .sparse_grad = true}, "table"),
          Variable("label"), {}, "out"),
      {.data = {{.name = "data", .shape = {4}, .dtype = DType::kInt64}},
       .labels = {{"label", {4, 2}}},
       .sparse_gradients = true});
  EXPECT_EQ(MessageOf([&] { Updater(&table, Options("sgd", FactoryOf(plan_))); }),
            "Error: parameter \"table_weight\": its gradient is kept by rows, but a store of one's own sums whole "
            "gradients: bind without sparse_gradients");
}

}  // namespace
}  // namespace bindery
