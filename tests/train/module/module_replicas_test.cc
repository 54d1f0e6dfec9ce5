// Replicas that come and go; clones and files of modules.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "engine/memory/storage.h"
#include "tests/log_lines.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

ModuleOptions ConvOptions(const std::vector<Device>& devices) {
  return {.devices = devices, .inputs = DataDesc{"data", {6, 2, 4, 4}}, .threads_per_device = 1};
}

std::string TemporaryFile(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(ModuleReplicas, ComeOneByOne) {
  ReplicatedModule module(Mlp(), MlpOptions({}));
  const HostTensor x = RandomTensor({7, 4}, 1), g = RandomTensor({7, 3}, 2);
  for (const auto& use : std::vector<std::function<void()>>{[&] { module.Forward(x); }, [&] { module.GetParams(); },
                                                            [&] { module.FlatValues(); }, [&] { module.Update(1); },
                                                            [&] { module.OnReplicas([](int, Device) {}); }}) {
    EXPECT_EQ(MessageOf(use), "Error: the module has no replicas: call AddReplica(device) first");
  }
  ReplicatedModule single(Mlp(), MlpOptions({Cpu(0)}));
  for (int replicas = 1; replicas <= 3; ++replicas) {
    module.AddReplica(TestDevice(replicas - 1));
    EXPECT_EQ(module.devices().size(), static_cast<size_t>(replicas));
    EXPECT_EQ(MessageOf([&] { module.Backward(g); }), "Error: Backward: nothing has run yet; call Forward first");
    const Values outputs = module.Forward(x);
    EXPECT_EQ(outputs.leaf().pieces().size(), static_cast<size_t>(replicas));
    EXPECT_LT(MostDifferent(outputs, single.Forward(x)), 1e-6);
    EXPECT_LT(MostDifferent(module.Backward(g), single.Backward(g)), 1e-6);
    EXPECT_LT(MostDifferent(GradientsOf(module), GradientsOf(single)),
              1e-5);  // they have added up, with the others
    module.Update(0.1);
    single.Update(0.1);
  }
  EXPECT_LT(MostDifferent(module.GetParams(), single.GetParams()), 1e-5);
  module.AddReplica(TestDevice(0), {.workload = 4});  // a device may serve twice
  const Values outputs = module.Forward(x);
  EXPECT_EQ(outputs.leaf().pieces().size(), 4u);
  EXPECT_EQ(outputs.leaf().pieces()[3].shape()[0], 4);
  EXPECT_LT(MostDifferent(outputs, single.Forward(x)), 1e-6);
  // One that cannot be: nothing has changed.
  EXPECT_THROW(module.AddReplica(Sim(99)), DeviceError);
  EXPECT_EQ(module.devices().size(), 4u);
  EXPECT_LT(MostDifferent(module.Forward(x), single.Forward(x)), 1e-6);
}

TEST(ModuleReplicas, AFunctionRunsOnEachWorker) {
  std::mutex mutex;
  std::vector<std::pair<int, Device>> calls;
  std::set<std::thread::id> threads;
  const auto note = [&](int replica, Device device) {
    const std::lock_guard lock(mutex);
    calls.emplace_back(replica, device);
    threads.insert(std::this_thread::get_id());
  };
  ModuleOptions options = MlpOptions(TestDeviceList(2));
  options.init = note;
  options.engine = MakeThreadedEngine();
  ReplicatedModule module(Mlp(), options);
  std::ranges::sort(calls);
  EXPECT_EQ(calls, (std::vector<std::pair<int, Device>>{{0, TestDevice(0)}, {1, TestDevice(1)}}));
  EXPECT_EQ(threads.size(), 2u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
  module.AddReplica(TestDevice(2));
  EXPECT_EQ(calls.back(), (std::pair<int, Device>(2, TestDevice(2))));
  EXPECT_EQ(threads.size(), 3u);
  module.OnReplicas(note);
  EXPECT_EQ(calls.size(), 6u);
  EXPECT_EQ(threads.size(), 3u);  // the same workers
  // It is the thread that works: what it leaves there, an operation finds.
  static thread_local int mark = 0;
  module.OnReplicas([](int replica, Device) { mark = 10 + replica; });
  std::atomic<int> found{0};
  module.OnReplicas([&](int replica, Device) { found += mark == 10 + replica; });
  EXPECT_EQ(found, 3);
  EXPECT_EQ(mark, 0);
  EXPECT_NE(MessageOf<NumericError>([&] {
              module.OnReplicas([](int replica, Device) {
                if (replica >= 1) throw NumericError("no luck");
              });
            }).find("function of replica 1"),
            std::string::npos);
  EXPECT_NO_THROW(module.Forward(RandomTensor({8, 4}, 1)).leaf().ToHost());
  options.init = [](int replica, Device) {
    if (replica == 2) Throw("library missing");
  };
  ReplicatedModule two(Mlp(), options);
  EXPECT_NE(MessageOf([&] { two.AddReplica(TestDevice(2)); }).find("library missing"), std::string::npos);
  EXPECT_EQ(two.devices().size(), 2u);
  EXPECT_NO_THROW(two.Forward(RandomTensor({8, 4}, 1)).leaf().ToHost());
}

TEST(ModuleReplicas, AClonesOutputsAreTheSame) {  // with batch-norm, too, in both modes, and with dropout
  const Symbol net = Dropout(ConvNet(), {.p = 0.5});
  ReplicatedModule module(net, ConvOptions(TestDeviceList(3)));
  const HostTensor g = RandomTensor({6, 3}, 2);
  for (uint64_t step = 0; step < 3; ++step) {
    module.Forward(RandomTensor({6, 2, 4, 4}, step));
    module.Backward(g);
    module.Update(0.01);
  }
  const HostTensor x = RandomTensor({6, 2, 4, 4}, 9);
  for (const std::vector<Device>& devices : {std::vector<Device>(), TestDeviceList(1)}) {
    ReplicatedModule clone = module.Clone(devices);
    EXPECT_EQ(clone.devices(), devices.empty() ? module.devices() : devices);
    EXPECT_EQ(MostDifferent(clone.GetParams(), module.GetParams()), 0);
    EXPECT_EQ(MostDifferent(clone.GetStates(), module.GetStates()), 0);
    EXPECT_EQ(MostDifferent(GradientsOf(clone), GradientsOf(module)), 0);
    module.Evaluate();
    clone.Evaluate();
    const Values before = module.Forward(x);
    EXPECT_LT(MostDifferent(clone.Forward(x), before), 1e-5);
    module.Train();
    clone.Train();
    if (devices.empty()) {
      EXPECT_LT(MostDifferent(clone.Forward(x), module.Forward(x)), 1e-5);
    }
    // It has nothing in common with its original.
    clone.SetFlatValues(On(DefaultEngine(), Cpu(0), HostTensor(DType::kFloat32, {clone.num_flat()})));
    clone.Evaluate();
    module.Evaluate();
    EXPECT_EQ(MaxAbsDiff(clone.Forward(x).leaf().ToHost(), HostTensor(DType::kFloat32, {6, 3})), 0);
    ReplicatedModule again = module.Clone();
    EXPECT_FALSE(again.training());
    EXPECT_LT(MostDifferent(again.Forward(x), module.Forward(x)), 1e-5);
    module.Train();
  }
}

TEST(ModuleReplicas, StateClearedItGoesOnAsBefore) {
  const HostTensor x = RandomTensor({6, 2, 4, 4}, 1), g = RandomTensor({6, 3}, 2);
  ReplicatedModule module(ConvNet(), ConvOptions(TestDeviceList(2))), other(ConvNet(), ConvOptions(TestDeviceList(2)));
  for (ReplicatedModule* each : {&module, &other}) {
    each->Forward(x);
    each->Backward(g);
    each->Update(0.1);
  }
  const auto in_use = [] {
    DefaultEngine()->WaitAll();
    return DefaultStorage()->Stats(TestDevice(0)).in_use;
  };
  const Values kept = module.Forward(x), expected = other.Forward(x);
  const int64_t before = in_use();
  module.ClearState();
  EXPECT_LT(in_use(), before);
  EXPECT_LT(MostDifferent(kept, expected), 1e-5);  // what somebody holds stays
  EXPECT_FALSE(module.NeedsSync());
  EXPECT_EQ(MessageOf([&] { module.Backward(g); }), "Error: Backward: nothing has run yet; call Forward first");
  EXPECT_LT(MostDifferent(GradientsOf(module), GradientsOf(other)), 1e-5);
  module.ClearState();
  module.ClearState();
  module.Evaluate();
  other.Evaluate();
  EXPECT_LT(MostDifferent(module.Forward(x), other.Forward(x)), 1e-5);
  EXPECT_EQ(MostDifferent(module.GetStates(), other.GetStates()), 0);
}

TEST(ModuleReplicas, AreThereAgainAfterALoad) {  // T4
  const std::string path = TemporaryFile("module_" + TestDevices() + ".pb");
  ModuleOptions options = ConvOptions(TestDeviceList(3));
  options.workload = {2, 1, 1};
  options.fixed_params = {"conv1_bias"};
  options.seed = 11;
  ReplicatedModule module(ConvNet(), options);
  const HostTensor x = RandomTensor({6, 2, 4, 4}, 1), g = RandomTensor({6, 3}, 2);
  for (int step = 0; step < 2; ++step) {
    module.Forward(x);
    module.Backward(g);
    module.Update(0.05);
  }
  module.Evaluate();
  const Values expected = module.Forward(x);
  module.Save(path);

  ReplicatedModule loaded = ReplicatedModule::Load(path);
  EXPECT_EQ(loaded.devices(), module.devices());
  EXPECT_EQ(loaded.options().workload, options.workload);
  EXPECT_EQ(loaded.options().fixed_params, options.fixed_params);
  EXPECT_EQ(loaded.options().seed, 11u);
  EXPECT_FALSE(loaded.training());
  EXPECT_EQ(MostDifferent(loaded.Forward(x), expected), 0);
  for (const std::vector<Device>& devices : {TestDeviceList(1), TestDeviceList(2)}) {
    ReplicatedModule elsewhere = ReplicatedModule::Load(path, {.devices = devices});
    EXPECT_EQ(elsewhere.devices(), devices);
    EXPECT_LT(MostDifferent(elsewhere.Forward(x), expected), 1e-5);
    elsewhere.Train();
    elsewhere.Forward(x);
    elsewhere.Backward(g);
    EXPECT_GT(MaxAbsDiff(elsewhere.GetGradient("fc_weight"), HostTensor(DType::kFloat32, {3, 256})), 0);
  }
  EXPECT_EQ(LoadModel(path).params.size(), module.param_names().size());  // any program's
  EXPECT_EQ(MessageOf<ModelError>([&] {
              SaveModel({.symbol = Mlp()}, path);
              ReplicatedModule::Load(path);
            }),
            "ModelError: " + path + ": the file has no \"module.inputs\": it is no module's");
}

TEST(ModuleReplicas, NestedFormsComeBack) {
  const std::string path = TemporaryFile("nested_" + TestDevices() + ".pb");
  const Symbol b = Variable("b");
  const Symbol net = Group({Identity(Variable("a") + b, "sum"), Tanh(b, "tanh")});
  ModuleOptions options{
      .devices = TestDeviceList(2),
      .inputs = ListOf(ListOf(DataDesc{"a", {3, 4, 2}, DType::kFloat32, "TNC"}, DataDesc{}), DataDesc{"b", {3, 4, 2}}),
      .outputs = ListOf(ListOf("tanh_output"), ListOf("", "sum_output")),
      .dimension = 1};
  ReplicatedModule module(net, options);
  module.Save(path);
  ReplicatedModule loaded = ReplicatedModule::Load(path);
  const Values x = ListOf(ListOf(RandomTensor({3, 5, 2}, 1), Values()), RandomTensor({3, 5, 2}, 2));
  const Values outputs = loaded.Forward(x);
  EXPECT_EQ(outputs.Form(), "((_), (_, _))");
  EXPECT_LT(MostDifferent(outputs, module.Forward(x)), 1e-7);
  EXPECT_EQ(loaded.options().inputs.Leaves(), module.options().inputs.Leaves());
}

TEST(ModuleReplicas, DevicesThatAreNotThere) {
  const std::string path = TemporaryFile("absent_" + TestDevices() + ".pb");
  ReplicatedModule module(Mlp(), MlpOptions({TestDevice(0), TestDevice(1)}));
  const HostTensor x = RandomTensor({8, 4}, 1);
  const Values expected = module.Forward(x);
  Model model = module.ToModel();
  model.metadata["module.devices"] = "cpu:0,sim:77";
  model.metadata["module.workload"] = "1,3";
  SaveModel(model, path);
  EXPECT_EQ(MessageOf<DeviceError>([&] { ReplicatedModule::Load(path); }),
            "DeviceError: " + path +
                ": the module was saved on cpu:0,sim:77, and this machine has no sim:77: say which devices are to be "
                "used, or that missing ones are left out");
  {
    const LogLines warnings(LogLevel::kWarning);
    ReplicatedModule fewer = ReplicatedModule::Load(path, {.missing = MissingDevices::kLeaveOut});
    EXPECT_EQ(fewer.devices(), std::vector<Device>{Cpu(0)});
    EXPECT_LT(MostDifferent(fewer.Forward(x), expected), 1e-6);
    EXPECT_NE(warnings.text().find("this machine has no sim:77: the module is on cpu:0"), std::string::npos);
  }
  EXPECT_EQ(ReplicatedModule::Load(path, {.devices = TestDeviceList(3)}).devices().size(), 3u);
  // A pinned one goes to the first device of the kind.
  model.metadata["module.devices"] = "sim:77";
  model.metadata["module.workload"] = "";
  model.metadata["module.output_device"] = "sim:78";
  SaveModel(model, path);
  ReplicatedModule pinned = ReplicatedModule::Load(path, {.missing = MissingDevices::kLeaveOut});
  EXPECT_EQ(pinned.devices(), std::vector<Device>{Sim(0)});
  EXPECT_EQ(pinned.options().output_device, Sim(0));
  EXPECT_LT(MostDifferent(pinned.Forward(x), expected), 1e-6);
}

TEST(ModuleReplicas, DamagedFilesAreErrors) {
  const std::string path = TemporaryFile("damaged_" + TestDevices() + ".pb");
  ReplicatedModule module(Mlp(), MlpOptions({Cpu(0)}));
  const Model good = module.ToModel();
  const auto with = [&](const std::string& key, const std::string& value) {
    Model model = good;
    model.metadata["module." + key] = value;
    SaveModel(model, path);
    return MessageOf([&] { ReplicatedModule::Load(path); });
  };
  EXPECT_EQ(with("seed", "0"), "nothing was thrown");
  for (const char* form : {"", "(", "_)", "(_", "(_,_)", "((_)", "_ ", "(,)", "(_ _)"}) {
    EXPECT_NE(with("inputs", form).find("\"module.inputs\" of the file is no form"), std::string::npos) << form;
  }
  EXPECT_NE(with("inputs", std::string(200, '(') + std::string(200, ')')).find("is no form"), std::string::npos);
  EXPECT_NE(with("inputs", "(_, _)").find("the file has no \"module.input.1.name\""), std::string::npos);
  EXPECT_NE(with("input.0.shape", "8,x").find("is no list of numbers"), std::string::npos);
  EXPECT_NE(with("input.0.shape", "-8,4").find("module.input.0.shape"), std::string::npos);
  EXPECT_NE(with("input.0.shape", "1,1,1,1,1,1,1,1,1").find("module.input.0.shape"), std::string::npos);
  EXPECT_NE(with("input.0.dtype", "float31").find("module.input.0.dtype"), std::string::npos);
  EXPECT_NE(with("devices", "gpu").find("module.devices"), std::string::npos);
  EXPECT_NE(with("workload", "1,2,3").find("3 numbers of workload for 1 replicas"), std::string::npos);
  EXPECT_NE(with("placement.low", "").find("placement \"low\" of the file has 0 devices"), std::string::npos);
  EXPECT_NE(with("dimension", "one").find("is no number"), std::string::npos);
  EXPECT_NE(with("steps", "-1").find("is no number"), std::string::npos);
  EXPECT_NE(with("outputs", "_").find("the file has no \"module.output.0\""), std::string::npos);
}

// Parts of each replica on devices of their own.
TEST(ModuleReplicas, PartsHaveTheirPlaces) {
  Symbol x = Variable("data");
  {
    const AttrScope here({{"ctx_group", "low"}});
    x = Tanh(FullyConnected(x, {.num_hidden = 5}, "fc1"));
  }
  {
    const AttrScope here({{"ctx_group", "high"}});
    x = FullyConnected(x, {.num_hidden = 3}, "fc2");
  }
  ModuleOptions options = MlpOptions({TestDevice(0)});
  options.placements = {{"low", {TestDevice(0)}}, {"high", {TestDevice(1)}}};
  ReplicatedModule module(x, options), single(Mlp(), MlpOptions({Cpu(0)}));
  module.AddReplica(TestDevice(2), {.placements = {{"low", TestDevice(2)}, {"high", TestDevice(3)}}});
  EXPECT_EQ(module.options().placements.at("high"), (std::vector<Device>{TestDevice(1), TestDevice(3)}));
  const HostTensor data = RandomTensor({7, 4}, 1), g = RandomTensor({7, 3}, 2);
  for (int step = 0; step < 3; ++step) {
    for (ReplicatedModule* each : {&module, &single}) {
      each->ZeroGradients();
      each->Forward(data);
    }
    EXPECT_LT(MostDifferent(module.Backward(g), single.Backward(g)), 1e-5);
    EXPECT_LT(MostDifferent(GradientsOf(module), GradientsOf(single)), 1e-5);
    module.Update(0.1);
    single.Update(0.1);
  }
  EXPECT_LT(MostDifferent(module.GetParams(), single.GetParams()), 1e-5);
  EXPECT_EQ(module.num_flat(), single.num_flat());
  EXPECT_LT(MaxAbsDiff(module.FlatValues().ToHost(), single.FlatValues().ToHost()), 1e-5);
  const std::string path = TemporaryFile("placed_" + TestDevices() + ".pb");
  module.Save(path);
  ReplicatedModule loaded = ReplicatedModule::Load(path);
  EXPECT_EQ(loaded.options().placements, module.options().placements);
  EXPECT_LT(MostDifferent(loaded.Forward(data), module.Forward(data)), 1e-6);
  EXPECT_EQ(MessageOf([&] { module.SetDevices({Cpu(0)}); }),
            "Error: SetDevices: the module's parts have devices of their own");
}

}  // namespace
}  // namespace bindery
