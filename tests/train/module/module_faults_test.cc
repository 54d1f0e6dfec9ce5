// What becomes of a module whose devices fail, and of exchanges that cannot be.
#include <gtest/gtest.h>

#include <memory>

#include "engine/sim/sim.h"
#include "tests/log_lines.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

class ModuleFaults : public testing::Test {
 protected:
  void TearDown() override { sim::Reset(); }

  const Device failing_ = Sim(7);
  const HostTensor x_ = RandomTensor({8, 4}, 1), g_ = RandomTensor({8, 3}, 2);
};

TEST_F(ModuleFaults, AForwardThatFailsSaysSoAndHarmsNothing) {
  ReplicatedModule module(Mlp(), MlpOptions({TestDevice(0), failing_}));
  const HostTensorMap params = module.GetParams();
  const HostTensor expected = module.Forward(x_).leaf().ToHost();
  module.Wait();
  int failed = 0;
  for (int kernel = 1; kernel < 30; ++kernel) {
    sim::FailKernel(failing_, kernel);
    const Values outputs = module.Forward(x_);
    try {
      EXPECT_EQ(outputs.leaf().ToHost(), expected) << kernel;  // what failed was of no account, or came later
    } catch (const DeviceError& e) {
      EXPECT_NE(e.message().find("sim:7"), std::string::npos) << e.message();
      EXPECT_THROW(module.Wait(), DeviceError);
      ++failed;
    }
    sim::Reset();
    DefaultEngine()->Recover();
    EXPECT_EQ(module.Forward(x_).leaf().ToHost(), expected) << kernel;
  }
  EXPECT_GT(failed, 3);
  EXPECT_EQ(MostDifferent(module.GetParams(), params), 0);
}

// At any kernel of a whole step: nothing is updated by what is not whole, and the next step is as ever.
TEST_F(ModuleFaults, AStepThatFailsAnywhereChangesNothingHalf) {
  ReplicatedModule module(Mlp(), MlpOptions({TestDevice(0), failing_}));
  ReplicatedModule good(Mlp(), MlpOptions({TestDevice(0)}));
  const HostTensorMap params = module.GetParams();
  const auto step = [&](ReplicatedModule& net) {
    net.ZeroGradients();
    net.Forward(x_);
    net.Backward(g_);
    net.Update(0.5);
  };
  step(good);
  const HostTensorMap updated = good.GetParams();
  step(module);
  module.SyncParameters();
  module.Wait();
  EXPECT_LT(MostDifferent(module.GetParams(), updated), 1e-5);
  int failed = 0, untouched = 0;
  bool fails = true;
  for (int kernel = 1; fails && kernel < 100; ++kernel) {
    module.SetParams(params);
    module.ZeroGradients();
    module.Wait();
    sim::FailKernel(failing_, kernel);
    fails = false;
    try {
      step(module);
      module.Wait();
      GradientsOf(module);
    } catch (const DeviceError&) {
      fails = true;
      ++failed;
    }
    sim::Reset();
    module.Mend();
    const HostTensorMap now = module.GetParams();
    const bool as_before = MostDifferent(now, params) == 0, as_after = MostDifferent(now, updated) < 1e-5;
    EXPECT_TRUE(as_before || as_after) << kernel;
    untouched += as_before;
    module.SetParams(params);
    step(module);
    EXPECT_LT(MostDifferent(module.GetParams(), updated), 1e-5) << kernel;
    EXPECT_NO_THROW(module.Forward(x_).leaf().ToHost());
    module.Wait();
  }
  EXPECT_FALSE(fails);
  EXPECT_GT(failed, 5);
  EXPECT_GT(untouched, 0);
}

// What failed cannot be added to, nor updated by, until it is zeroed.
TEST_F(ModuleFaults, GradientsThatFailedStopUpdates) {
  ReplicatedModule module(Mlp(), MlpOptions({TestDevice(0), TestDevice(1)}));
  const HostTensorMap params = module.GetParams();
  module.Forward(x_);
  const Tensor broken(DefaultEngine(), TestDevice(1), DType::kFloat32, {8, 3});
  DefaultEngine()->Push(
      {.name = "break", .device = TestDevice(1), .writes = {broken.var()}, .run = [](const OpContext&) {
         throw NumericError("broken on purpose");
       }});
  module.Backward(broken);
  module.Update(0.5);
  EXPECT_NE(MessageOf<NumericError>([&] { module.GetGradient("fc1_weight"); }).find("broken on purpose"),
            std::string::npos);
  EXPECT_EQ(MostDifferent(module.GetParams(), params), 0);
  module.Forward(x_);
  module.Backward(g_);
  module.Update(0.5);
  EXPECT_EQ(MostDifferent(module.GetParams(), params), 0);
  EXPECT_THROW(module.Wait(), NumericError);
  module.ZeroGradients();
  module.AccumulateGradients();
  module.Update(0.5);
  EXPECT_GT(MostDifferent(module.GetParams(), params), 1e-3);
  EXPECT_NO_THROW(module.Wait());
}

// A device that is lost: the module goes on with the others.
TEST_F(ModuleFaults, ALostDeviceIsReplaced) {
  ReplicatedModule module(Mlp(), MlpOptions({TestDevice(0), failing_}));
  const HostTensor expected = module.Forward(x_).leaf().ToHost();
  module.Wait();
  sim::Lose(failing_);
  EXPECT_THROW(module.Forward(x_).leaf().ToHost(), DeviceError);
  EXPECT_THROW(module.Wait(), DeviceError);
  module.SetDevices({TestDevice(0), TestDevice(1)});
  EXPECT_LT(MaxAbsDiff(module.Forward(x_).leaf().ToHost(), expected), 1e-6);
}

// Collectives of another kind, which count, or refuse.
class OfOthers final : public Collectives {
 public:
  OfOthers(const std::shared_ptr<Engine>& engine, int* appended, bool refuses)
      : memory_(MemoryCollectives(engine, true)), appended_(appended), refuses_(refuses) {}
  void Append(Collective what, const std::string& name, std::vector<Bucket> buckets, StepParts* parts) const override {
    if (refuses_) Throw("no such network between {} and others", buckets[0].sources[0].device());
    ++*appended_;
    memory_->Append(what, name, std::move(buckets), parts);
  }

 private:
  std::unique_ptr<Collectives> memory_;
  int* appended_;
  bool refuses_;
};

TEST_F(ModuleFaults, OtherCollectivesOrThoseOfMemory) {
  ReplicatedModule plain(Mlp(), MlpOptions(TestDeviceList(2)));
  plain.Forward(x_);
  plain.Backward(g_);
  plain.Update(0.5);
  LogLines warnings(LogLevel::kWarning);
  int appended = 0;
  using Make = std::function<std::unique_ptr<Collectives>(const std::shared_ptr<Engine>&)>;
  const std::vector<std::pair<Make, std::string>> kinds = {
      {[&](const auto& engine) { return std::make_unique<OfOthers>(engine, &appended, false); }, ""},
      {[&](const auto& engine) { return std::make_unique<OfOthers>(engine, &appended, true); }, "no such network"},
      {[](const auto&) -> std::unique_ptr<Collectives> { Throw("the library is not there"); },
       "the library is not there"},
      {[](const auto&) { return std::unique_ptr<Collectives>(); }, "no collectives were given"}};
  for (const auto& [make, warning] : kinds) {
    warnings.clear();
    ModuleOptions options = MlpOptions({ApartDevice(0), ApartDevice(1)});
    options.collectives = make;
    ReplicatedModule module(Mlp(), options);
    EXPECT_EQ(module.by_given_collectives(), warning.empty());
    EXPECT_EQ(warnings.lines().empty(), warning.empty()) << warnings.text();
    EXPECT_NE(warnings.text().find(warning), std::string::npos) << warnings.text();
    module.Forward(x_);
    module.Backward(g_);
    module.Update(0.5);
    module.Forward(x_);
    EXPECT_LT(MostDifferent(module.GetParams(), plain.GetParams()), 1e-6);
  }
  EXPECT_EQ(appended, 2);  // one sum and one copy, of one buffer
}

}  // namespace
}  // namespace bindery
