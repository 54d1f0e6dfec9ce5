// Modules that exchange by a store of the user's.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

#include "kvstore/wrapped_store.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

// Clips each sum to +-limit, and fails with the parameter that is named.
class ClippingStore final : public WrappedStore {
 public:
  struct Told {
    double limit = 1e9;
    std::string fails = {};  // in an operation
    std::string refuses = {};
    std::map<std::string, int> pushed = {};
  };
  ClippingStore(const std::shared_ptr<Engine>& engine, std::shared_ptr<Told> told)
      : WrappedStore(KVStore::Create(KVStoreType::kDevice, engine)), engine_(engine), told_(std::move(told)) {}

  void PushPull(const Key& key, std::span<const Tensor> values, std::span<const Tensor> out, int priority) override {
    const std::string name = std::get<std::string>(key);
    ++told_->pushed[name];
    if (name == told_->refuses) Throw<NumericError>("refused {}", name);
    const Tensor sum(engine_, Cpu(), values[0].dtype(), values[0].shape());
    WrappedStore::PushPull(key, values, std::span(&sum, 1), priority);
    Operation clip{.name = "clip", .device = Cpu(), .reads = {sum.var()}, .writes = {sum.var()}};
    clip.run = [sum, limit = static_cast<float>(told_->limit), fails = name == told_->fails, name](const OpContext&) {
      if (fails) Throw<NumericError>("failed with {}", name);
      float* const values = static_cast<float*>(sum.data());
      for (int64_t i = 0; i < sum.elements(); ++i) values[i] = std::clamp(values[i], -limit, limit);
    };
    engine_->Push(std::move(clip));
    for (const Tensor& tensor : out) tensor.CopyFrom(sum);
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Told> told_;
};

class ModuleStore : public testing::Test {
 protected:
  ModuleOptions Options(int devices) const {
    ModuleOptions options = MlpOptions(TestDeviceList(devices));
    options.exchange = Exchange::kStore;
    options.store = [told = told_](const std::shared_ptr<Engine>& engine) {
      return std::make_unique<ClippingStore>(engine, told);
    };
    return options;
  }
  void Backward(ReplicatedModule& module) const {
    module.Forward(x_);
    module.Backward(g_);
  }

  const std::shared_ptr<ClippingStore::Told> told_ = std::make_shared<ClippingStore::Told>();
  const HostTensor x_ = RandomTensor({8, 4}, 1), g_ = RandomTensor({8, 3}, 2);
};

TEST_F(ModuleStore, GradientsAreWhatTheStoreMakesOfThem) {
  ReplicatedModule plain(Mlp(), MlpOptions(TestDeviceList(1)));
  Backward(plain);
  for (int devices = 1; devices <= 3; ++devices) {
    for (const double limit : {1e9, 0.05}) {
      told_->limit = limit;
      told_->pushed.clear();
      ReplicatedModule module(Mlp(), Options(devices));
      Backward(module);
      Backward(module);  // adds up
      EXPECT_EQ(told_->pushed.size(), 4u);
      bool clipped = false;
      for (const auto& [name, gradient] : GradientsOf(plain)) {
        EXPECT_EQ(told_->pushed[name], 2);
        HostTensor expected = gradient;
        for (int64_t i = 0; i < expected.elements(); ++i) {
          expected.Set(i, 2 * std::clamp(gradient.At(i), -limit, limit));
          clipped |= std::abs(gradient.At(i)) > limit;
        }
        EXPECT_LT(MaxAbsDiff(module.GetGradient(name), expected), 1e-5) << name << " of " << devices;
      }
      EXPECT_EQ(clipped, limit < 1);
      module.AddReplica(TestDevice(devices));  // binds again: with another store, and the gradients that there are
      told_->pushed.clear();
      module.ZeroGradients();
      Backward(module);
      EXPECT_EQ(told_->pushed.size(), 4u);
    }
  }
}

// Whichever parameter it is: its failure is seen though others follow.
TEST_F(ModuleStore, ThatThrowsChangesNothing) {
  for (const bool at_once : {true, false}) {
    for (const std::string name : {"fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"}) {
      told_->fails = told_->refuses = {};
      ReplicatedModule module(Mlp(), Options(2));
      Backward(module);
      module.Update(0.1);
      const HostTensorMap params = module.GetParams();
      module.ZeroGradients();
      (at_once ? told_->refuses : told_->fails) = name;
      Backward(module);
      module.Update(0.1);
      EXPECT_THROW(module.GetGradient(name), NumericError) << name;
      EXPECT_EQ(MostDifferent(module.GetParams(), params), 0) << name;
      EXPECT_THROW(module.Wait(), NumericError);
      told_->fails = told_->refuses = {};
      module.ZeroGradients();
      Backward(module);
      module.Update(0.1);
      EXPECT_GT(MostDifferent(module.GetParams(), params), 0) << name;
      module.Wait();
    }
  }
}

TEST_F(ModuleStore, StaysForWhatIsStillToRunWhereItsModuleGoesInAnOperation) {
  const auto engine = MakeThreadedEngine();
  ModuleOptions options = Options(2);
  options.engine = engine;
  auto module = std::make_shared<ReplicatedModule>(Mlp(), options);
  Backward(*module);
  std::atomic<bool> is_gone = false;
  engine->Push({.name = "wait", .device = TestDevice(0), .run = [&](const OpContext&) {
                  while (!is_gone) std::this_thread::yield();
                }});
  Backward(*module);
  engine->Push({.name = "let go", .device = Cpu(9), .run = [&, held = std::move(module)](const OpContext&) mutable {
                  held = nullptr;
                  is_gone = true;
                }});
  EXPECT_NO_THROW(engine->WaitAll());
}

TEST_F(ModuleStore, ThatIsNotForFlatBuffers) {
  ModuleOptions options = Options(2);
  options.exchange = Exchange::kFlat;
  EXPECT_EQ(MessageOf([&] { ReplicatedModule(Mlp(), options); }),
            "Error: a store of one's own is for Exchange::kStore");
  options = Options(2);
  options.store = [](const std::shared_ptr<Engine>&) { return nullptr; };
  EXPECT_EQ(MessageOf([&] { ReplicatedModule(Mlp(), options); }), "Error: ModuleOptions::store made no store");
}

}  // namespace
}  // namespace bindery
