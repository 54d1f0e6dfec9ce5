// The compiler: that no optimisation changes what is computed, and that a broken plan is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "engine/isa.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "symbol/passes/mixed_precision.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

// A net with views, residuals, normalisation, dropout, pooling, shared values: everything the compiler treats
// specially.
Symbol Everything() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "conv1");
  x = Relu(BatchNorm(x, {.fix_gamma = false}, "bn1"));
  const Symbol y =
      BatchNorm(Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true}, "conv2"),
                {.fix_gamma = false}, "bn2");
  x = Relu(x + y);
  x = Concat({x, Tanh(x) * 0.5}, {.axis = 1});
  x = Pooling(x, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
  x = Dropout(Flatten(x), {.p = 0.3}, "drop");
  x = Relu(FullyConnected(x, {.num_hidden = 12}, "fc1"));
  const Symbol z = Exp(x * 0.1) - Exp(x * 0.1);  // one expression twice
  return SoftmaxOutput(FullyConnected(x + z, {.num_hidden = 5}, "fc2"), {}, "softmax");
}

struct Outcome {
  HostTensor output;
  HostTensorMap gradients;
};
Outcome RunEverything(GroupOptions options, bool trains = true, bool low = false) {
  options.data = {{"data", {6, 3, 8, 8}}};
  options.labels = {{"softmax_label", {6}}};
  options.seed = 5;
  options.for_training = trains;
  DataParallelExecutorGroup group(low ? MixedPrecision(Everything()) : Everything(), options);
  InitialiseEqually({&group}, 1);
  // Classes that are all likely, and statistics that are no trivial ones: or rounding would not show.
  HostTensorMap states, weights;
  HostTensor& last = weights["fc2_weight"] = RandomTensor({5, 12}, 3);
  for (int64_t i = 0; i < last.elements(); ++i) last.Set(i, 0.05 * last.At(i));
  for (const StoredParameter& p : group.store().parameters()) {
    if (!p.auxiliary) continue;
    HostTensor& state = states[p.name] = RandomTensor(p.shape, StreamKey(2, p.name).k0, p.dtype);
    for (int64_t i = 0; p.name.ends_with("var") && i < state.elements(); ++i) state.Set(i, 1.1 + state.At(i));
  }
  group.SetParams(weights, states, {.allow_missing = true});
  group.SetStep({.step = 3});
  Batch batch = RandomBatch(6, 192, 5, 2);
  batch.data[0] = batch.data[0].Reshape({6, 3, 8, 8});
  group.Forward(batch, trains ? Mode::kTrain : Mode::kPredict);
  Outcome outcome{group.Outputs()[0].ToHost(), {}};
  if (!trains) return outcome;
  group.Backward();
  for (const std::string& name : group.param_names()) outcome.gradients[name] = SumOfGradients(group, name);
  return outcome;
}
void ExpectNear(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_LE(MaxAbsDiff(a.output, b.output), tolerance);
  for (const auto& [name, gradient] : a.gradients)
    EXPECT_LE(MaxAbsDiff(gradient, b.gradients.at(name)), tolerance) << name;
}

// docs/plan.md has a row of each. Training and predictions, in float32 and with casts to bfloat16, whose rounding is
// coarser than what two orders of a sum should be apart: of these only what gives the same bits.
TEST(Compiler, NothingThatCanBeSwitchedOffChangesTheResult) {
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    for (const auto& [trains, low] : {std::pair{true, false}, {true, true}, {false, false}, {false, true}}) {
      SCOPED_TRACE(fmt::format("{} kernels, {}, {}", policy == KernelPolicy::kFast ? "fast" : "reference",
                               trains ? "training" : "predicting", low ? "bfloat16" : "float32"));
      const auto run = [=, trains = trains, low = low](const CompileSwitches& switches, int threads = 1,
                                                       const std::shared_ptr<Engine>& engine = nullptr) {
        return RunEverything({.engine = engine, .threads_per_device = threads, .switches = switches}, trains, low);
      };
      const Outcome all = run({.policy = policy});
      ExpectNear(all, run({.policy = policy}), 0);                    // twice: bits
      ExpectNear(all, run({.policy = policy, .inplace = false}), 0);  // memory: bits
      ExpectNear(all, run({.policy = policy, .reuse_memory = false}), 0);
      ExpectNear(all, run({.policy = policy}, 1, MakeInlineEngine()), 0);
      const Outcome unfolded = run({.policy = policy, .fold = false});
      ExpectNear(unfolded, run({.policy = policy, .derive = false}),
                 0);                                        // when, not what: bits; it folds nothing, either
      ExpectNear(all, unfolded, trains || low ? 0 : 2e-5);  // only predictions in float32 fold
      if (low) continue;
      ExpectNear(all, run({.policy = policy, .passes = false}), 2e-5);
      ExpectNear(all, run({.policy = policy, .fusion = false}), 2e-5);
      ExpectNear(all, run({.policy = policy}, 2), 2e-5);
    }
  }
  for (const bool trains : {true, false}) {
    const Outcome reference = RunEverything({.switches = {.policy = KernelPolicy::kReference}}, trains);
    ExpectNear(RunEverything({}, trains), reference, 1e-4);
  }
}

TEST(Compiler, TwoBindsGiveEqualPlansThatPrint) {
  const GroupOptions options{.data = {{"data", {6, 3, 8, 8}}}, .labels = {{"softmax_label", {6}}}};
  const DataParallelExecutorGroup a(Everything(), options), b(Everything(), options);
  EXPECT_EQ(a.plan(), b.plan());
  EXPECT_NE(ToString(a.plan()).find("conv1"), std::string::npos);
  EXPECT_GE(a.plan().arena_bytes, a.plan().peak_live_bytes);
  // The scratch memory of oneDNN's kernels for the least instruction set is of sizes that pack less well in a net as
  // small as this one: 1.09 was seen.
  EXPECT_LE(a.plan().arena_bytes, a.plan().peak_live_bytes * (MachineIsa() == Isa::kBaseline ? 1.1 : 1.05));
  EXPECT_EQ(a.memory().arena, a.plan().arena_bytes);
}

TEST(Compiler, PlacementOfPartsIsRefused) {
  const Symbol hidden = Tanh(Variable("data"), "stage1").WithAnnotation("ctx_group", "dev1");
  EXPECT_EQ(MessageOf<ModelError>([&] {
              Executor(MakeLoss(hidden, {}, "loss"), {.inputs = {{"data", {2, 3}}}});
            }),
            "ModelError: Activation \"stage1\": its annotation ctx_group = \"dev1\" asks for a device of its own, "
            "which a whole graph on one device has not: name one in GroupOptions::placements (MakeGroup), or bind "
            "WithoutPlacements(symbol)");
}

TEST(Compiler, TheVerifierFindsBrokenPlans) {
  const DataParallelExecutorGroup group(Everything(),
                                        {.data = {{"data", {6, 3, 8, 8}}}, .labels = {{"softmax_label", {6}}}});
  const Plan good = group.plan();
  EXPECT_NO_THROW(VerifyPlan(good));
  int found = 0;
  for (size_t i = 0; i < good.storages.size(); ++i) {  // put each storage where another one that is alive with it lies
    for (size_t j = 0; j < good.storages.size(); ++j) {
      const PlanStorage &s = good.storages[i], &t = good.storages[j];
      if (i == j || s.last < t.first || t.last < s.first || s.bytes == 0 || t.bytes == 0) continue;
      Plan bad = good;
      bad.storages[i].offset = t.offset;
      bad.arena_bytes += s.bytes;
      EXPECT_THROW(VerifyPlan(bad), Error) << i << " over " << j;
      ++found;
      break;
    }
  }
  EXPECT_GT(found, 10);
  for (size_t i = 0; i + 1 < good.calls.size(); ++i) {  // exchange a call with the next where the next reads its result
    bool reads = false;
    for (const int in : good.calls[i + 1].inputs)
      for (const int out : good.calls[i].outputs)
        reads |= in >= 0 && in == out && good.values[in].place == Place::kArena;
    if (!reads) continue;
    Plan bad = good;
    std::swap(bad.calls[i], bad.calls[i + 1]);
    EXPECT_THROW(VerifyPlan(bad), Error) << i;
  }
  Plan shifted = good;
  shifted.segments.back().begin += 1;
  EXPECT_THROW(VerifyPlan(shifted), Error);
  Plan lost = good;
  for (PlanCall& call : lost.calls)
    for (int& out : call.outputs)
      if (out >= 0 && lost.values[out].place == Place::kGradient) out = -1;
  EXPECT_THROW(VerifyPlan(lost), Error);
}

TEST(Compiler, SynchronisedNormalisationDoesNotDependOnTheDevices) {
  const auto run = [](const std::vector<Device>& devices, std::vector<double> workload) {
    Symbol x = Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 4}, "fc1"),
                              {.fix_gamma = false, .sync = true}, "bn"));
    x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc2"),
                      {.normalization = Normalization::kValid, .use_ignore = true, .ignore_label = 1}, "softmax");
    DataParallelExecutorGroup group(x, {.devices = devices,
                                        .workload = std::move(workload),
                                        .data = {{"data", {7, 6}}},
                                        .labels = {{"softmax_label", {7}}}});
    InitialiseEqually({&group}, 1);
    group.Forward(RandomBatch(7, 6, 3, 2));
    group.Backward();
    Outcome outcome{group.Outputs()[0].ToHost(), {}};
    for (const std::string& name : group.param_names()) outcome.gradients[name] = SumOfGradients(group, name);
    group.GetParams(nullptr, &outcome.gradients);  // the running statistics too
    return outcome;
  };
  const Outcome one = run({TestDevice(0)}, {});
  ExpectNear(one, run({TestDevice(0), TestDevice(1)}, {}), 2e-6);
  ExpectNear(one, run({TestDevice(0), TestDevice(1)}, {5, 1}), 2e-6);
  ExpectNear(one, run({TestDevice(0), TestDevice(1), TestDevice(2)}, {}), 2e-6);
}

}  // namespace
}  // namespace bindery
