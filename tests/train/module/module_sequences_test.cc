// Whatever is called in whatever order, a module is what one device and sums on the host say it is.
#include <gtest/gtest.h>

#include <random>

#include "engine/backend.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

Symbol Net() { return Dropout(Mlp(), {.p = 0.25}); }

void AddTo(HostTensor* to, const HostTensor& from, double factor) {
  for (int64_t i = 0; i < to->elements(); ++i) to->Set(i, to->At(i) + factor * from.At(i));
}

// Values and gradients in plain maps; a module on one device works out what one backward adds, and nothing else.
class Oracle {
 public:
  explicit Oracle(const ModuleOptions& options) : one_(Net(), options) {
    values = one_.GetParams();
    Zero();
  }
  void Zero() {
    for (const auto& [name, value] : values) gradients[name] = HostTensor(value.dtype(), value.shape());
  }
  void Add(double scale) {
    for (auto& [name, gradient] : gradients) AddTo(&gradient, last_.at(name), scale);
  }
  void Update(double rate) {
    for (auto& [name, value] : values) AddTo(&value, gradients.at(name), -rate);
  }
  Values Forward(const HostTensor& x, bool training) {
    one_.SetParams(values);
    training ? one_.Train() : one_.Evaluate();
    return one_.Forward(x);
  }
  Values Backward(const HostTensor& g) {
    one_.SetParams(values);  // as they are now
    one_.ZeroGradients();
    Values of_input = one_.Backward(g);
    last_ = GradientsOf(one_);
    return of_input;
  }

  HostTensorMap values, gradients;

 private:
  ReplicatedModule one_;
  HostTensorMap last_;
};

class Player {
 public:
  Player(uint64_t seed, Exchange exchange)
      : random_(seed), module_(Net(), Options(exchange)), oracle_(MlpOptions({Cpu(0)})),
        path_(testing::TempDir() + "/sequence_" + TestDevices() + ".pb") {}

  // One call, drawn; its name.
  std::string Play() {
    switch (Draw(13)) {
      case 0:
      case 1:
      case 2: return Forward();
      case 3:
      case 4: return Backward();
      case 5:
        module_.ZeroGradients();
        oracle_.Zero();
        return "ZeroGradients";
      case 6: {
        const double rate = 0.05 * (1 + Draw(3));
        module_.Update(rate);
        oracle_.Update(rate);
        return "Update";
      }
      case 7:
        if (module_.devices().size() == 5) return "";
        module_.AddReplica(TestDevice(Draw(4)), {.workload = 1.0 + Draw(2)});
        ran_ = 0;
        return "AddReplica";
      case 8:
        module_.SetDevices(TestDeviceList(1 + Draw(4)));
        ran_ = 0;
        return "SetDevices";
      case 9: return Leave();
      case 10: {
        const bool training = Draw(2) == 0;
        training ? module_.Train() : module_.Evaluate();
        return training ? "Train" : "Evaluate";
      }
      case 11: return SetFlat();
      default: return Write();
    }
  }

  void Check() {
    EXPECT_LT(MostDifferent(module_.GetParams(), oracle_.values), 1e-4);
    EXPECT_LT(MostDifferent(GradientsOf(module_), oracle_.gradients), 1e-4);
  }

 private:
  static ModuleOptions Options(Exchange exchange) {
    ModuleOptions options = MlpOptions(TestDeviceList(2));
    options.exchange = exchange;
    return options;
  }
  int Draw(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

  std::string Forward() {
    samples_ = 1 + Draw(9);
    const HostTensor x = RandomTensor({samples_, 4}, random_());
    const bool training = module_.training();
    const Values outputs = module_.Forward(x);
    EXPECT_LT(MostDifferent(outputs, oracle_.Forward(x, training)), 1e-4);
    ran_ = training ? 1 : 0;
    return "Forward of " + std::to_string(samples_);
  }

  std::string Backward() {
    const HostTensor g = RandomTensor({samples_, 3}, random_());
    const double scale = 0.5 * (1 + Draw(3));
    if (ran_ == 0) {
      EXPECT_THROW(module_.Backward(g, scale), Error);
      return "Backward without a Forward";
    }
    if (ran_ == 1) {
      EXPECT_LT(MostDifferent(module_.InputGradients(g), oracle_.Backward(g)), 1e-4);
      ran_ = 2;
    }
    module_.AccumulateGradients(scale);
    oracle_.Add(scale);
    return "Backward";
  }

  // It goes away and comes again.
  std::string Leave() {
    ran_ = 0;
    switch (Draw(3)) {
      case 0: module_.ClearState(); return "ClearState";
      case 1:
        module_ = module_.Clone(Draw(2) == 0 ? std::vector<Device>() : TestDeviceList(1 + Draw(3)));
        return "Clone";
      default:
        module_.Save(path_);
        module_ = ReplicatedModule::Load(path_, {.exchange = module_.options().exchange, .threads_per_device = 1});
        oracle_.Zero();
        return "Load";
    }
  }

  std::string SetFlat() {
    const HostTensor flat = RandomTensor({module_.num_flat()}, random_());
    const Tensor tensor = On(DefaultEngine(), TestDevice(Draw(3)), flat);
    const bool values = Draw(2) == 0;
    values ? module_.SetFlatValues(tensor) : module_.SetFlatGradients(tensor);
    int64_t begin = 0;
    for (const std::string& name : module_.param_names()) {
      HostTensor& part = (values ? oracle_.values : oracle_.gradients).at(name);
      part = flat.Slice(0, begin, begin + part.elements()).Reshape(part.shape());
      begin += part.elements();
    }
    return values ? "SetFlatValues" : "SetFlatGradients";
  }

  // By a tensor of a replica's: of the first it counts, and of those that share its memory.
  std::string Write() {
    const int wanted = Draw(static_cast<int>(module_.devices().size()));
    module_.ForEachReplica([&](const ModuleReplica& replica) {
      if (replica.index == wanted) replica.params.at("fc2_bias").Fill(0.25);
    });
    if (ShareMemory(module_.devices()[static_cast<size_t>(wanted)], module_.devices()[0]))
      oracle_.values.at("fc2_bias") = HostTensor::Full(DType::kFloat32, {3}, 0.25);
    if (Draw(2) == 0) module_.SyncParameters();
    return "a write to replica " + std::to_string(wanted);
  }

  std::mt19937_64 random_;
  ReplicatedModule module_;
  Oracle oracle_;
  std::string path_;
  int64_t samples_ = 8;
  int ran_ = 0;  // 1: forward for training, 2: backward, too
};

TEST(ModuleSequences, EqualPlainSums) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Player player(seed, seed % 2 == 0 ? Exchange::kFlat : Exchange::kStore);
    std::string calls;
    for (int i = 0; i < 25; ++i) {
      calls += player.Play() + "; ";
      if (i % 4 == 3) player.Check();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ": " << calls;
    }
    player.Check();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ": " << calls;
  }
}

}  // namespace
}  // namespace bindery
