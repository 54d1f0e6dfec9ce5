// Derived values: casts of parameters are made when these change, not in each run, and change no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/philox.h"
#include "engine/backend.h"
#include "engine/sim/sim.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "executor/predictor.h"
#include "symbol/ops.h"
#include "symbol/passes/mixed_precision.h"
#include "tests/executor/counting_engine.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr int64_t kChannels = 3, kExtent = 6, kClasses = 4;
const std::vector<Device> kTwo = {TestDevice(0), TestDevice(1)};
const int kMemories = ShareMemory(kTwo[0], kTwo[1]) ? 1 : 2;  // in each, derived values are made once

// A convolution, whose kernels want weights in blocks, and a weight that two layers share.
Symbol Net(DType low = DType::kBFloat16) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}, "conv");
  x = Flatten(Pooling(Relu(BatchNorm(x, {.fix_gamma = false}, "bn")), {.kernel = {2, 2}, .stride = {2, 2}}));
  x = Tanh(FullyConnected(x, {.num_hidden = 12}, "fc1"));
  const Symbol shared = Variable("shared_weight", {.shape = Shape{12, 12}});
  x = Tanh(FullyConnected(x, shared, Variable("a_bias"), {.num_hidden = 12}, "a"));
  x = Tanh(FullyConnected(x, shared, Variable("b_bias"), {.num_hidden = 12}, "b"));
  x = FullyConnected(x, {.num_hidden = kClasses}, "fc2");
  return MixedPrecision(SoftmaxOutput(x, {}, "softmax"), {.dtype = low});
}

Batch BatchOf(int64_t samples, uint64_t seed) {
  Batch batch = RandomBatch(samples, kChannels * kExtent * kExtent, kClasses, seed);
  batch.data[0] = batch.data[0].Reshape({samples, kChannels, kExtent, kExtent});
  return batch;
}

GroupOptions OptionsOf(bool derives, const std::vector<Device>& devices = kTwo) {
  return {.devices = devices,
          .data = {{"data", {6, kChannels, kExtent, kExtent}}},
          .labels = {{"softmax_label", {6}}},
          .threads_per_device = 1,
          .switches = {.derive = derives}};
}

bool CastsAParameter(const Plan& plan, const PlanCall& call) {
  return call.op == "Cast" && plan.values[static_cast<size_t>(call.inputs[0])].place == Place::kArgument &&
         plan.arguments[static_cast<size_t>(plan.values[static_cast<size_t>(call.inputs[0])].slot)].is_parameter();
}

TEST(Derived, CastsOfParametersLeaveTheRun) {
  const auto plan_of = [](const GroupOptions& options) {
    return DataParallelExecutorGroup::MakePlans(Net(), options)[0].plan;
  };
  const Plan with = plan_of(OptionsOf(true)), without = plan_of(OptionsOf(false));
  const auto casts = [](const Plan& plan, int begin, int end) {
    return std::count_if(plan.calls.begin() + begin, plan.calls.begin() + end,
                         [&](const PlanCall& call) { return CastsAParameter(plan, call); });
  };
  const int end = static_cast<int>(with.calls.size());
  EXPECT_EQ(casts(with, 0, with.derive_calls), 9);  // four weights and five biases
  EXPECT_EQ(casts(with, with.derive_calls, end), 0);
  EXPECT_EQ(without.derive_calls, 0);
  EXPECT_TRUE(without.derived.empty());
  EXPECT_EQ(casts(without, 0, end), 9);
  EXPECT_EQ(with.calls.size(), without.calls.size());
  // What is derived is counted, and no longer in the arena.
  const MemoryReport report = ReportMemory(with), before = ReportMemory(without);
  int64_t bytes = 0;
  for (const PlanDerived& d : with.derived) bytes += d.bytes;
  EXPECT_EQ(report.derived, bytes);
  EXPECT_GE(bytes, 2 * (16 * kChannels * 9 + 144 * 12 + 12 * 12 + kClasses * 12));
  EXPECT_EQ(before.derived, 0);
  EXPECT_EQ(report.parameters, before.parameters);
  EXPECT_LE(report.arena, before.arena);
  EXPECT_EQ(report.total() - before.total(), bytes + report.arena - before.arena);
  // Reorders of what is derived go with it.
  for (int i = with.derive_calls; i < end; ++i) {
    const PlanCall& call = with.calls[i];
    if (call.op == "Reorder") EXPECT_NE(with.values[call.inputs[0]].place, Place::kDerived) << call.node;
  }
}

// Heads, what is watched, what grows, inputs.
TEST(Derived, OnlyWhatMayBeKeptIs) {
  const auto derived = [](const Symbol& symbol, const std::string& observe = {}) {
    CompileOptions options{.signature = Signature::Of(symbol), .observe = observe};
    for (Argument& a : options.signature.arguments) {
      a.shape = Shape{2, 3};
      a.is_kept = a.name != "data";
    }
    const Plan plan = Compile(symbol, options)->plan;
    EXPECT_EQ(plan.derive_calls == 0, plan.derived.empty());
    return plan.derived.size();
  };
  const auto cast = [](const char* name, DType dtype = DType::kBFloat16) {
    return Cast(Variable(name), {.dtype = dtype}, std::string(name) + "_low");
  };
  const Symbol data = cast("data"), v = cast("v"), w = cast("w");
  EXPECT_EQ(derived(data * w), 1u);
  EXPECT_EQ(derived(v * w), 2u);
  EXPECT_EQ(derived(w), 0u);                     // a head
  EXPECT_EQ(derived(Group({w, data * w})), 0u);  // the same, and read
  EXPECT_EQ(derived(data * w, "w_low"), 0u);
  EXPECT_EQ(derived(cast("data", DType::kFloat64) * cast("w", DType::kFloat64)), 0u);
}

class Pair {
 public:
  explicit Pair(const std::function<void(GroupOptions*)>& change = {}, DType low = DType::kBFloat16) {
    for (const bool derives : {true, false}) {
      GroupOptions options = OptionsOf(derives);
      if (change) change(&options);
      groups_.push_back(std::make_unique<DataParallelExecutorGroup>(Net(low), options));
    }
    InitialiseEqually({&with(), &without()}, 3);
  }
  DataParallelExecutorGroup& with() { return *groups_[0]; }
  DataParallelExecutorGroup& without() { return *groups_[1]; }
  template <class F>
  void Both(const F& f) {
    for (auto& group : groups_) f(*group);
  }
  void ExpectSameOutputs() { EXPECT_EQ(with().Outputs()[0].ToHost(), without().Outputs()[0].ToHost()); }
  void ExpectSameGradients() {
    for (const std::string& name : with().param_names()) {
      if (with().grad_req(name) == GradReq::kNull) continue;
      EXPECT_EQ(with().GetGradient(name, 0), without().GetGradient(name, 0)) << name;
    }
  }

 private:
  std::vector<std::unique_ptr<DataParallelExecutorGroup>> groups_;
};

// Steps, micro-batches, predictions, batches of all sizes, changed parameters, watching, in any order.
TEST(Derived, TheBitsOfMakingThemInEachRun) {
  for (const DType low : {DType::kBFloat16, DType::kFloat16}) {
    Pair pair([](GroupOptions* options) { options->grad_req = GradReq::kAdd; }, low);
    PhiloxStream random(5, "what is done");
    for (uint64_t i = 0; i < 40; ++i) {
      const int64_t samples = 1 + static_cast<int64_t>(random.Below(7));
      switch (random.Below(6)) {
        case 0:
          pair.Both([&](auto& group) {
            group.SetParams({{"fc1_bias", RandomTensor({12}, i)}}, {}, {.allow_missing = true});
          });
          break;
        case 1:
          pair.Both([&](auto& group) {
            group.SetParams(
                {{"conv_weight", RandomTensor({16, kChannels, 3, 3}, i)}, {"shared_weight", RandomTensor({12, 12}, i)}},
                {}, {.allow_missing = true});
          });
          break;
        case 2: pair.Both([&](auto& group) { group.Watch(i % 2 ? "shared_weight|fc1_output" : ""); }); break;
        case 3:
          pair.Both([&](auto& group) { group.Forward(BatchOf(samples, i), Mode::kPredict); });
          pair.ExpectSameOutputs();
          break;
        default:
          pair.Both([&](auto& group) { group.ForwardBackward(std::make_shared<const Batch>(BatchOf(samples, i))); });
          pair.ExpectSameOutputs();
          pair.ExpectSameGradients();
      }
    }
    EXPECT_FALSE(pair.with().plan().derived.empty());
    EXPECT_TRUE(pair.without().plan().derived.empty());
  }
}

// By kernels that take weights as they are, for batches of all sizes.
TEST(Derived, OnceBetweenChangesForAllPrograms) {
  const auto engine = std::make_shared<CountingEngine>();
  GroupOptions options{.devices = kTwo,
                       .data = {{"data", {6, 4}}},
                       .labels = {{"softmax_label", {6}}},
                       .engine = engine,
                       .threads_per_device = 1,
                       .switches = {.policy = KernelPolicy::kReference}};
  const Symbol net = MixedPrecision(SmallNet());
  DataParallelExecutorGroup group(net, options);
  InitialiseEqually({&group}, 1);
  int seen = 0;
  const auto made = [&] { return engine->Runs("derive ") - std::exchange(seen, engine->Runs("derive ")); };
  const auto run = [&](int64_t samples, bool trains) {
    group.Forward(RandomBatch(samples, 4, 3, 1), trains ? Mode::kTrain : Mode::kPredict);
    if (trains) group.Backward();
  };
  EXPECT_EQ(made(), 0);
  for (const int64_t samples : {6, 6, 4, 7}) {
    for (const bool trains : {true, false}) run(samples, trains);
  }
  EXPECT_EQ(made(), kMemories);
  run(1, false);  // on one device
  EXPECT_EQ(made(), 0);
  const std::vector<ReplicatedParam> params = group.params();
  params[0].values[0].Fill(0.5);  // somebody's own
  run(6, true);
  EXPECT_EQ(made(), 1);
  params[0].values[1].Fill(0.5);
  group.SetParams({{"fc1_weight", RandomTensor({5, 4}, 7)}}, {}, {.allow_missing = true});
  run(1, false);
  EXPECT_EQ(made(), 1);  // the other is asked for nothing
  for (int i = 0; i < 3; ++i) run(6, false);
  EXPECT_EQ(made(), kMemories - 1);
  // A group that shares the parameters shares what is made of them.
  options.shared_group = &group;
  options.for_training = false;
  DataParallelExecutorGroup other(net, options);
  other.Forward(RandomBatch(6, 4, 3, 1));
  EXPECT_EQ(made(), 0);
  engine->Recover();  // whatever had failed, parameters may be others now
  other.Forward(RandomBatch(6, 4, 3, 1));
  EXPECT_EQ(made(), kMemories);
}

// Those of fixed parameters are not made anew with the others: zeros in their place stay until these are set.
TEST(Derived, WhatIsFixedStays) {
  Pair pair([](GroupOptions* options) { options->fixed_params = {"conv_weight", "fc1_weight"}; });
  const auto run = [&](const char* changed, const Shape& shape, uint64_t seed) {
    pair.Both([&](auto& group) {
      group.SetParams({{changed, RandomTensor(shape, seed)}}, {}, {.allow_missing = true});
      group.Forward(BatchOf(6, 1));
      group.Backward();
    });
  };
  run("fc1_bias", {12}, 1);
  pair.ExpectSameOutputs();
  pair.ExpectSameGradients();
  const std::shared_ptr<Engine>& engine = pair.with().engine();
  engine->WaitAll();
  for (int d = 0; d < kMemories; ++d) {
    for (const auto& [name, value] : pair.with().store().derived(d)->values) {
      if (name.find("conv_weight") == std::string::npos) continue;
      engine->Push({.name = "spoil", .device = kTwo[d], .run = [chunk = value.chunk](const OpContext& context) {
                      Backend::Of(chunk->device().kind).flat().Zero(context.stream, chunk->data(), chunk->bytes());
                    }});
    }
  }
  engine->WaitAll();
  run("fc1_bias", {12}, 2);
  EXPECT_NE(pair.with().Outputs()[0].ToHost(), pair.without().Outputs()[0].ToHost());
  run("conv_weight", {16, kChannels, 3, 3}, 3);
  pair.ExpectSameOutputs();
  pair.ExpectSameGradients();
}

// A parameter that fails fails what is made of it, until it is whole again.
TEST(Derived, AFailedParameterIsNotCovered) {
  for (const bool recovers : {false, true}) {
    Pair pair([recovers](GroupOptions* options) {
      if (!recovers) options->devices = {ApartDevice(0), ApartDevice(1)};  // the second has what the first loses
    });
    const auto forward = [&] { pair.Both([](auto& group) { group.Forward(BatchOf(6, 2)); }); };
    forward();
    pair.ExpectSameOutputs();
    pair.Both([&](auto& group) {
      for (const ParameterStore::Block& block : group.store().blocks()) {
        if (block.auxiliary) continue;
        group.engine()->Push({.name = "break",
                              .device = group.devices()[0],
                              .writes = {block.values[0].var()},
                              .run = [](const OpContext&) { throw NumericError("broken on purpose"); }});
      }
    });
    forward();
    pair.Both([](auto& group) {
      EXPECT_NE(MessageOf([&] { group.Outputs()[0].ToHost(); }).find("broken on purpose"), std::string::npos);
    });
    if (recovers) {
      pair.Both([](auto& group) { group.engine()->Recover(); });
    } else {
      pair.Both([](auto& group) { group.store().Mend(); });
    }
    forward();
    pair.ExpectSameOutputs();
    pair.Both([&](auto& group) {
      for (const ParameterStore::Block& block : group.store().blocks()) {
        if (!block.auxiliary) block.values[0].Fill(0.25);
      }
    });
    forward();
    pair.ExpectSameOutputs();
    try {
      pair.with().engine()->WaitAll();
    } catch (const NumericError&) {  // of the broken ones
    }
  }
}

// Whichever kernel it is that fails, those that derive among them: what runs when it is known is right.
TEST(Derived, WhatFailsIsMadeAnew) {
  const auto simulated = std::ranges::find(kTwo, DeviceKind::kSim, &Device::kind);
  if (simulated == kTwo.end()) GTEST_SKIP() << "no simulated device";
  Pair pair;
  int64_t failures = 0, kernels = 1;
  for (int64_t nth = 0; nth <= kernels; ++nth) {  // at first none
    pair.Both([&](auto& group) {
      group.SetParams({{"fc2_bias", RandomTensor({kClasses}, static_cast<uint64_t>(nth))}}, {},
                      {.allow_missing = true});
    });
    pair.with().engine()->WaitAll();
    sim::Reset();
    if (nth > 0) sim::FailKernel(*simulated, nth);
    pair.with().Forward(BatchOf(6, 2), Mode::kPredict);
    try {
      pair.with().Outputs()[0].ToHost();
    } catch (const DeviceError&) {
      ++failures;
    }
    try {
      pair.with().engine()->WaitAll();
    } catch (const DeviceError&) {
    }
    if (nth == 0) kernels = sim::KernelsRun(*simulated);
    sim::Reset();
    pair.Both([](auto& group) { group.Forward(BatchOf(6, 2), Mode::kPredict); });
    pair.ExpectSameOutputs();
  }
  EXPECT_GT(kernels, 20);
  EXPECT_GT(failures, kernels / 2);
}

TEST(Derived, OfAnExecutorsArrays) {
  const auto make = [](bool derives, const TensorMap& arrays) {
    return std::make_unique<Executor>(
        Net(), ExecutorOptions{.device = TestDevice(0),
                               .inputs = {{"data", {5, kChannels, kExtent, kExtent}}, {"softmax_label", {5}}},
                               .arguments = arrays,
                               .threads = 1,
                               .switches = {.derive = derives}});
  };
  const auto own = make(true, {}), plain = make(false, {});
  Initialise(own.get(), 4);
  Initialise(plain.get(), 4);
  TensorMap arrays;
  for (const std::string& name : own->param_names()) arrays[name] = own->ArgumentArray(name);
  const auto same = make(true, arrays);  // the arrays of the first
  Initialise(same.get(), 4);
  const auto expect_same = [&](uint64_t seed) {
    const Batch batch = BatchOf(5, seed);
    for (const auto& e : {&own, &plain, &same}) {
      (*e)->Forward({{"data", batch.data[0]}, {"softmax_label", batch.label[0]}}, Mode::kPredict);
    }
    EXPECT_EQ(own->Output(0), plain->Output(0));
    EXPECT_EQ(same->Output(0), plain->Output(0));
  };
  expect_same(1);
  expect_same(2);  // inputs are no parameters
  for (const auto& e : {&same, &plain}) (*e)->ArgumentArray("shared_weight").CopyFrom(RandomTensor({12, 12}, 9));
  expect_same(3);
  EXPECT_GT(own->memory().derived, 0);
  EXPECT_EQ(plain->memory().derived, 0);
}

TEST(Derived, OnceForAllThreadsOfAPredictor) {
  Model model{.symbol = Net()};
  {
    Pair values;
    values.without().GetParams(&model.params, &model.aux);
  }
  const auto options = [](bool derives, int calls) {
    return PredictorOptions{.device = TestDevice(0),
                            .inputs = {{"data", {8, kChannels, kExtent, kExtent}}},
                            .calls = calls,
                            .threads = 1,
                            .switches = {.derive = derives}};
  };
  const Predictor plain(model, options(false, 1)), many(model, options(true, 4));
  EXPECT_EQ(plain.memory().derived, 0);
  EXPECT_GT(many.memory().derived, 0);
  std::vector<HostTensor> data, expected;
  for (int64_t n = 1; n <= 8; ++n) {
    data.push_back(BatchOf(n, static_cast<uint64_t>(n)).data[0]);
    expected.push_back(plain.Predict({{"data", data.back()}})[0]);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t run = 0; run < 24; ++run) {
        const size_t i = (3 * run + 5 * t) % data.size();
        if (many.Predict({{"data", data[i]}})[0] != expected[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace bindery
