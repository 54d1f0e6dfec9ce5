// The parameters of modules: on the replicas, flat, told only when they change, of other types.
#include <gtest/gtest.h>

#include "executor/reformat.h"
#include "tests/executor/counting_engine.h"
#include "tests/train/module/module_helpers.h"
#include "train/optimizers/optimizer.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

bool Within(const Tensor& part, const Tensor& whole) {
  const char* const begin = static_cast<const char*>(whole.address());
  const char* const at = static_cast<const char*>(part.address());
  return part.device() == whole.device() && at >= begin && at + part.bytes() <= begin + whole.bytes();
}

TEST(ModuleParameters, FlatOnesAreFiftyFive) {  // T1
  const Symbol net = FullyConnected(Variable("data"), {.num_hidden = 5}, "fc");
  ReplicatedModule module(net,
                          {.devices = TestDeviceList(3), .inputs = DataDesc{"data", {6, 10}}, .threads_per_device = 1});
  EXPECT_EQ(module.num_flat(), 55);
  const Tensor flat = module.FlatValues();
  EXPECT_EQ(flat.shape(), (Shape{55}));
  EXPECT_EQ(flat.device(), TestDevice(0));
  const HostTensorMap params = module.GetParams();
  const HostTensor values = flat.ToHost();
  EXPECT_EQ(values.Slice(0, 0, 50).Reshape({5, 10}), params.at("fc_weight"));  // in the order of param_names()
  EXPECT_EQ(values.Slice(0, 50, 55), params.at("fc_bias"));
  EXPECT_EQ(module.param_names(), (std::vector<std::string>{"fc_weight", "fc_bias"}));

  const HostTensor x = RandomTensor({6, 10}, 1), g = RandomTensor({6, 5}, 2);
  module.Forward(x);
  module.Backward(g);
  const HostTensor gradients = module.FlatGradients().ToHost();
  EXPECT_EQ(gradients.Slice(0, 0, 50).Reshape({5, 10}), module.GetGradient("fc_weight"));
  EXPECT_EQ(gradients.Slice(0, 50, 55), module.GetGradient("fc_bias"));

  // An optimizer of the caller's, on flat arrays: nobody has to be told.
  HostTensor stepped = values;
  for (int64_t i = 0; i < 55; ++i) stepped.Set(i, values.At(i) - 0.25 * gradients.At(i));
  module.SetFlatValues(On(DefaultEngine(), TestDevice(1), stepped));
  ReplicatedModule other(net, {.devices = {Cpu(0)}, .inputs = DataDesc{"data", {6, 10}}});
  other.Forward(x);
  other.Backward(g);
  other.Update(0.25);
  EXPECT_LT(MostDifferent(module.Forward(x), other.Forward(x)), 1e-5);
  EXPECT_LT(MostDifferent(module.GetParams(), other.GetParams()), 1e-6);
  module.SetFlatGradients(On(DefaultEngine(), TestDevice(2), RandomTensor({55}, 3).Cast(DType::kFloat64)));
  EXPECT_EQ(module.FlatGradients().ToHost(), RandomTensor({55}, 3));
  EXPECT_EQ(MessageOf<ShapeError>([&] { module.SetFlatValues(Tensor(Cpu(0), DType::kFloat32, {54})); }),
            "ShapeError: SetFlatValues: expected 55 elements, got (54)");
  EXPECT_EQ(MessageOf([&] { module.SetFlatGradients(Tensor()); }), "Error: SetFlatGradients: an empty tensor");
}

// One array for all values on each replica, one for all gradients: what the addresses say.
TEST(ModuleParameters, LieOneBehindTheOther) {
  ReplicatedModule module(
      ConvNet(), {.devices = TestDeviceList(3), .inputs = DataDesc{"data", {6, 2, 4, 4}}, .threads_per_device = 1});
  std::vector<const ParameterBuffer*> trained;
  for (const ParameterBuffer& buffer : module.buffers()) {
    ASSERT_EQ(buffer.values.size(), 3u);
    if (buffer.gradients.defined()) trained.push_back(&buffer);
  }
  ASSERT_EQ(trained.size(), 1u);
  std::vector<std::string> names = trained[0]->names, wanted = module.param_names();
  std::ranges::sort(names);
  std::ranges::sort(wanted);
  EXPECT_EQ(names, wanted);
  EXPECT_EQ(trained[0]->gradients.elements(), trained[0]->values[0].elements());
  int seen = 0;
  module.ForEachReplica([&](const ModuleReplica& replica) {
    EXPECT_EQ(replica.index, seen++);
    EXPECT_EQ(replica.device, TestDevice(replica.index));
    EXPECT_EQ(replica.params.size(), wanted.size());
    EXPECT_EQ(replica.aux.size(), 2u);
    std::map<const void*, int64_t> places;  // without overlaps
    for (const auto& [name, values] : replica.params) {
      EXPECT_TRUE(Within(values, trained[0]->values[static_cast<size_t>(replica.index)])) << name;
      places[values.address()] = values.bytes();
    }
    const void* end = nullptr;
    for (const auto& [begin, bytes] : places) {
      EXPECT_GE(begin, end);
      end = static_cast<const char*>(begin) + bytes;
    }
  });
  EXPECT_EQ(seen, 3);
}

// Kernels' layouts do not show: of convolutions on CPUs they are blocks.
TEST(ModuleParameters, FlatOnesArePlainWhateverTheLayout) {
  const auto options = [](const std::vector<Device>& devices) {
    return ModuleOptions{.devices = devices, .inputs = DataDesc{"data", {6, 2, 4, 4}}, .threads_per_device = 1};
  };
  ReplicatedModule module(ConvNet(), options(TestDeviceList(2)));
  const HostTensorMap params = module.GetParams();
  const HostTensor flat = module.FlatValues().ToHost();
  int64_t begin = 0;
  for (const std::string& name : module.param_names()) {
    const HostTensor& value = params.at(name);
    EXPECT_EQ(flat.Slice(0, begin, begin + value.elements()).Reshape(value.shape()), value) << name;
    begin += value.elements();
  }
  EXPECT_EQ(begin, module.num_flat());
  ReplicatedModule other(ConvNet(), options({TestDevice(1)}));
  other.Reset("normal(0.3)", 7);
  EXPECT_GT(MostDifferent(module.GetParams(), other.GetParams()), 0.1);
  module.SetFlatValues(other.FlatValues());
  const HostTensor x = RandomTensor({6, 2, 4, 4}, 1);
  module.Evaluate();
  other.Evaluate();
  EXPECT_LT(MostDifferent(module.Forward(x), other.Forward(x)), 1e-5);
  EXPECT_LT(MostDifferent(module.GetParams(), other.GetParams()), 1e-9);
}

TEST(ModuleParameters, ReplicasAreToldOnlyWhatHasChanged) {
  for (const Exchange exchange : {Exchange::kFlat, Exchange::kStore}) {
    const auto engine = std::make_shared<CountingEngine>();
    ModuleOptions options{.devices = {ApartDevice(0), ApartDevice(1), ApartDevice(2)},
                          .inputs = DataDesc{"data", {6, 2, 4, 4}},
                          .exchange = exchange,
                          .engine = engine,
                          .threads_per_device = 1};
    ReplicatedModule module(ConvNet(), options);
    const HostTensor x = RandomTensor({6, 2, 4, 4}, 1), g = RandomTensor({6, 3}, 2);
    // Operations that copy values from replica to replica, of one forward.
    const auto copies_of_forward = [&] {
      const auto all = [&] {
        return engine->Runs("values of the first replica") + engine->Runs("copy") - engine->Runs("copy from host") -
               engine->Runs("copy to host");
      };
      const int before = all();
      module.Forward(x);
      return all() - before - 3;  // those of three outputs
    };
    for (int i = 0; i < 3; ++i) {
      module.Forward(x);
      module.Backward(g);  // changes no value, and the states of all replicas together
    }
    module.Evaluate();
    EXPECT_EQ(copies_of_forward(), 0);
    EXPECT_EQ(module.num_syncs(), 0);
    EXPECT_FALSE(module.NeedsSync());
    EXPECT_EQ(engine->Runs("values of the first replica"), 0);

    module.Update(0.1);
    module.Update(0.1);  // two changes, one copy of one buffer
    EXPECT_TRUE(module.NeedsSync());
    const int copied = copies_of_forward();
    EXPECT_EQ(module.num_syncs(), 1);
    if (exchange == Exchange::kStore) {
      EXPECT_EQ(copied, 2 * static_cast<int>(module.param_names().size()));
    } else {
      EXPECT_GT(copied, 0);
    }
    EXPECT_EQ(copies_of_forward(), 0);
    EXPECT_EQ(module.SyncParameters(), 0);
    EXPECT_EQ(module.num_syncs(), 1);

    // Whoever writes by the engine is seen, on the first replica or on others.
    module.ForEachReplica([](const ModuleReplica& replica) {
      if (replica.index == 1) replica.params.at("fc_bias").Fill(1000);
    });
    const Values outputs = module.Forward(x);
    EXPECT_EQ(module.num_syncs(), 2);
    module.ForEachReplica([](const ModuleReplica& replica) {
      if (replica.index == 0) replica.aux.at("bn1_running_mean").Fill(0.5);
    });
    EXPECT_GT(MostDifferent(outputs, module.Forward(x)), 1e-3);
    EXPECT_EQ(module.num_syncs(), 3);
    std::vector<HostTensor> biases, means;
    module.ForEachReplica([&](const ModuleReplica& replica) {
      biases.push_back(replica.params.at("fc_bias").ToHost());
      means.push_back(replica.aux.at("bn1_running_mean").ToHost());
    });
    EXPECT_EQ(biases[1], biases[0]);
    EXPECT_EQ(biases[2], biases[0]);
    EXPECT_LT(biases[0].At(0), 100);
    EXPECT_EQ(means[2].At(0), 0.5);
    // Part of the values by name: the rest is not forgotten.
    module.Update(0.1);
    module.SetParams({{"fc_bias", HostTensor::Full(DType::kFloat32, {3}, 2)}}, {}, {.allow_missing = true});
    EXPECT_EQ(module.num_syncs(), 4);
    EXPECT_FALSE(module.NeedsSync());
    std::vector<HostTensor> weights;
    module.ForEachReplica([&](const ModuleReplica& r) { weights.push_back(r.params.at("fc_weight").ToHost()); });
    EXPECT_EQ(weights[1], weights[0]);
    EXPECT_EQ(weights[2], weights[0]);
  }
}

// Replicas whose devices share memory have one value of a parameter, whoever writes it; states are each one's own.
TEST(ModuleParameters, ReplicasThatShareMemoryNeedNotBeTold) {
  for (const Exchange exchange : {Exchange::kFlat, Exchange::kStore}) {
    const auto make = [exchange](const std::vector<Device>& devices) {
      return ReplicatedModule(ConvNet(), {.devices = devices,
                                          .inputs = DataDesc{"data", {6, 2, 4, 4}},
                                          .exchange = exchange,
                                          .threads_per_device = 1});
    };
    ReplicatedModule module = make({Cpu(0), Cpu(1), Cpu(2)}), one = make({Cpu(0)});
    const HostTensor x = RandomTensor({6, 2, 4, 4}, 1), g = RandomTensor({6, 3}, 2);
    module.Evaluate();
    const HostTensor before = module.Forward(x).leaf().ToHost();
    module.Train();
    module.Forward(x);
    module.Backward(g);
    module.Update(0.1);
    EXPECT_FALSE(module.NeedsSync());
    one.SetParams(module.GetParams(), module.GetStates());
    one.Evaluate();
    module.Evaluate();
    EXPECT_LT(MostDifferent(module.Forward(x), one.Forward(x)), 1e-5);
    EXPECT_GT(MaxAbsDiff(module.Forward(x).leaf().ToHost(), before), 1e-3);
    module.ForEachReplica([](const ModuleReplica& r) {
      if (r.index == 1) r.params.at("fc_bias").Fill(0.5);
    });
    EXPECT_EQ(module.SyncParameters(), 0);
    EXPECT_EQ(module.GetParams().at("fc_bias"), HostTensor::Full(DType::kFloat32, {3}, 0.5));
    one.SetParams(module.GetParams(), module.GetStates());
    EXPECT_LT(MostDifferent(module.Forward(x), one.Forward(x)), 1e-5);
    EXPECT_EQ(module.num_syncs(), 0);
    module.ForEachReplica([](const ModuleReplica& r) {
      if (r.index == 1) r.aux.at("bn1_running_mean").Fill(0.5);
    });
    EXPECT_EQ(module.SyncParameters(), 1);
  }
}

TEST(ModuleParameters, ResetAndSetAreOfAllReplicas) {
  ReplicatedModule module(Mlp(), MlpOptions(TestDeviceList(3)));
  const HostTensorMap first = module.GetParams();
  module.Reset("constant(0.25)");
  EXPECT_EQ(module.GetParams().at("fc1_weight"), HostTensor::Full(DType::kFloat32, {5, 4}, 0.25));
  EXPECT_EQ(module.GetParams().at("fc1_bias"), HostTensor(DType::kFloat32, {5}));
  module.ForEachReplica([](const ModuleReplica& r) { EXPECT_EQ(r.params.at("fc2_weight").ToHost().At(14), 0.25); });
  module.Reset();  // as at first
  EXPECT_EQ(MostDifferent(module.GetParams(), first), 0);
  module.Reset({}, 5);
  EXPECT_GT(MostDifferent(module.GetParams(), first), 1e-2);
  EXPECT_NE(MessageOf([&] { module.Reset("gauss"); }).find("gauss"), std::string::npos);
  EXPECT_NE(MessageOf([&] {
              module.SetParams({{"fc1_bias", HostTensor(DType::kFloat32, {5})}});
            }).find("is missing"),
            std::string::npos);
  EXPECT_THROW(module.SetParams({{"fc1_bias", HostTensor(DType::kFloat32, {6})}}, {}, {.allow_missing = true}),
               ShapeError);
  EXPECT_EQ(module.num_syncs(), 0);
}

TEST(ModuleParameters, FixedOnesGetNoGradient) {
  ModuleOptions options = MlpOptions(TestDeviceList(2));
  options.fixed_params = {"fc1_weight", "fc1_bias"};
  ReplicatedModule module(Mlp(), options);
  const HostTensorMap before = module.GetParams();
  module.Forward(RandomTensor({8, 4}, 1));
  module.Backward(RandomTensor({8, 3}, 2));
  module.Update(0.5);
  EXPECT_EQ(module.num_flat(), 5 * 3 + 3);
  EXPECT_EQ(module.GetParams().at("fc1_weight"), before.at("fc1_weight"));
  EXPECT_GT(MaxAbsDiff(module.GetParams().at("fc2_weight"), before.at("fc2_weight")), 1e-3);
  EXPECT_EQ(MessageOf([&] { module.GetGradient("fc1_bias"); }), "Error: \"fc1_bias\" has no gradient");
}

TEST(ModuleParameters, OtherTypes) {
  const HostTensor x = RandomTensor({8, 4}, 1), g = RandomTensor({8, 3}, 2);
  ReplicatedModule module(Mlp(), MlpOptions(TestDeviceList(2)));
  const HostTensor outputs = module.Forward(x).leaf().ToHost();
  module.Backward(g);
  const HostTensorMap gradients = GradientsOf(module), values = module.GetParams();
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat64, 1e-6), {DType::kBFloat16, 3e-2}, {DType::kFloat16, 3e-3}, {DType::kFloat32, 3e-2}}) {
    module.ConvertTo(dtype);
    EXPECT_EQ(module.FlatValues().dtype(), dtype);
    EXPECT_EQ(module.FlatGradients().dtype(), dtype);
    const Values converted = module.Forward(x);  // cast on its way in
    EXPECT_EQ(converted.leaf().dtype(), dtype);
    EXPECT_LT(MaxAbsDiff(converted.leaf().ToHost().Cast(DType::kFloat32), outputs), tolerance) << ToString(dtype);
    EXPECT_EQ(module.GetGradient("fc1_weight").dtype(), dtype);
    EXPECT_LT(MaxAbsDiff(module.GetGradient("fc1_weight").Cast(DType::kFloat32), gradients.at("fc1_weight")),
              tolerance);
    EXPECT_EQ(module.Backward(g).leaf().dtype(), dtype);
    module.SetFlatGradients(module.FlatGradients());
    module.ZeroGradients();
    module.AccumulateGradients();
    EXPECT_LT(MaxAbsDiff(module.GetGradient("fc2_weight").Cast(DType::kFloat32), gradients.at("fc2_weight")),
              10 * tolerance);
    module.Update(0.5);
    HostTensor expected = values.at("fc2_weight");
    for (int64_t i = 0; i < expected.elements(); ++i) {
      expected.Set(i, expected.At(i) - 0.5 * gradients.at("fc2_weight").At(i));
    }
    EXPECT_LT(MaxAbsDiff(module.GetParams().at("fc2_weight").Cast(DType::kFloat32), expected), 10 * tolerance);
    module.SetParams(values);  // for the next type
    module.SetFlatGradients([&] {
      HostTensor flat(DType::kFloat32, {module.num_flat()});
      int64_t at = 0;
      for (const std::string& name : module.param_names()) {
        for (int64_t i = 0; i < gradients.at(name).elements(); ++i) flat.Set(at++, gradients.at(name).At(i));
      }
      return On(DefaultEngine(), Cpu(0), flat);
    }());
  }
  EXPECT_EQ(MessageOf([&] { module.ConvertTo(DType::kInt32); }),
            "Error: ConvertTo: expected float32, float64, bfloat16 or float16, got int32");
  // A type that a variable insists on: nothing has changed.
  const Symbol typed = FullyConnected(Variable("data"), Variable("w", {.dtype = DType::kFloat32, .init = "one"}),
                                      Symbol(), {.num_hidden = 3, .no_bias = true}, "fc");
  ReplicatedModule insists(typed, MlpOptions(TestDeviceList(2)));
  EXPECT_THROW(insists.ConvertTo(DType::kFloat64), Error);
  EXPECT_EQ(insists.Forward(x).leaf().dtype(), DType::kFloat32);
}

// What is whole numbers stays so, and has no gradient.
TEST(ModuleParameters, IndicesHaveNoGradient) {
  const Symbol net = Embedding(Variable("words"), {.input_dim = 6, .output_dim = 3}, "table") * Variable("weights");
  ReplicatedModule module(net, {.devices = TestDeviceList(2),
                                .inputs = ListOf(DataDesc{"words", {5}, DType::kInt32}, DataDesc{"weights", {5, 1}}),
                                .threads_per_device = 1});
  HostTensor words(DType::kInt32, {5});
  for (int64_t i = 0; i < 5; ++i) words.Set(i, static_cast<double>(i));
  const Values outputs = module.Forward(ListOf(words, RandomTensor({5, 1}, 1)));
  const Values gradients = module.Backward(outputs);
  EXPECT_TRUE(gradients[0].leaf().empty());
  EXPECT_EQ(gradients[1].leaf().shape(), (Shape{5, 1}));
  EXPECT_GT(MaxAbsDiff(module.GetGradient("table_weight"), HostTensor(DType::kFloat32, {6, 3})), 0);
  module.ConvertTo(DType::kFloat64);
  EXPECT_EQ(module.options().inputs[0].leaf().dtype, DType::kInt32);
  EXPECT_LT(MostDifferent(outputs.Map([](const Array& a) { return Array(a.ToHost().Cast(DType::kFloat64)); }),
                          module.Forward(ListOf(words, RandomTensor({5, 1}, 1)))),
            1e-6);

  ModuleOptions none = MlpOptions(TestDeviceList(2));
  none.input_gradients = false;
  ReplicatedModule without(Mlp(), none);
  without.Forward(RandomTensor({8, 4}, 1));
  EXPECT_TRUE(without.Backward(RandomTensor({8, 3}, 2)).leaf().empty());
  EXPECT_GT(MaxAbsDiff(without.GetGradient("fc1_weight"), HostTensor(DType::kFloat32, {5, 4})), 0);
}

// An optimizer of the library's may do the step, on all replicas at once.
TEST(ModuleParameters, AnUpdaterTakesTheGroup) {
  const Symbol net = SoftmaxOutput(Mlp(), Variable("label"), {}, "softmax");
  ModuleOptions options{.devices = TestDeviceList(2),
                        .inputs = ListOf(DataDesc{"data", {8, 4}}, DataDesc{"label", {8}}),
                        .threads_per_device = 1};
  ReplicatedModule module(net, options), plain(net, options);
  Updater updater(&module.group(), {.optimizer = MakeOptimizer("sgd(lr=0.5)")});
  for (int step = 0; step < 3; ++step) {
    const Batch batch = RandomBatch(8, 4, 3, static_cast<uint64_t>(step));
    for (ReplicatedModule* each : {&module, &plain}) {
      each->Forward(ListOf(batch.data[0], batch.label[0]));
      each->ZeroGradients();
      each->Backward();
    }
    updater.Apply(8);
    plain.Update(0.5 / 8);
  }
  EXPECT_LT(MostDifferent(module.GetParams(), plain.GetParams()), 1e-5);
}

}  // namespace
}  // namespace bindery
