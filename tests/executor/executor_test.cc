// Executor and compiler: published expectations, and that no optimisation changes what is computed.
#include "executor/executor.h"

#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"

namespace bindery {
namespace {

using BinaryFn = Symbol (*)(const Symbol&, const Symbol&, const std::string&);
const std::map<std::string, GradReq> kBoth = {{"a", GradReq::kWrite}, {"b", GradReq::kWrite}};

TEST(Executor, GradientsOfArithmetic) {   // E22
  for (const Shape& shape : {Shape{6}, Shape{3, 4}, Shape{2, 3, 4}}) {
    const HostTensor x = RandomTensor(shape, 1);
    HostTensor y = RandomTensor(shape, 2);
    for (int64_t i = 0; i < y.elements(); ++i) y.Set(i, y.At(i) + (y.At(i) < 0 ? -1 : 1));   // away from 0
    for (const auto& [name, f] : {std::pair<std::string, BinaryFn>("add", Add), {"sub", Sub}, {"mul", Mul}, {"div", Div}, {"max", Maximum}, {"min", Minimum}}) {
      Executor e(f(Variable("a"), Variable("b"), "out"), {.inputs = {{"a", shape}, {"b", shape}}, .grad_req = kBoth});
      e.Forward({{"a", x}, {"b", y}});
      e.Backward(HostTensor::Full(DType::kFloat32, shape, 1));
      const HostTensor da = e.Gradient("a"), db = e.Gradient("b");
      for (int64_t i = 0; i < x.elements(); ++i) {
        const double a = x.At(i), b = y.At(i);
        const bool left = name == "max" ? a >= b : a <= b;
        const double ga = name == "mul" ? b : name == "div" ? 1 / b : name == "max" || name == "min" ? left : 1;
        const double gb = name == "sub" ? -1 : name == "mul" ? a : name == "div" ? -a / (b * b) : name == "max" || name == "min" ? !left : 1;
        EXPECT_NEAR(da.At(i), ga, 1e-5) << name;
        EXPECT_NEAR(db.At(i), gb, 1e-5) << name;
      }
    }
  }
}

TEST(Executor, GradientsOfDot) {   // E23
  Executor e(Dot(Variable("a"), Variable("b")), {.inputs = {{"a", {2, 3}}, {"b", {3, 4}}}, .grad_req = kBoth});
  const HostTensor a = RandomTensor({2, 3}, 1), b = RandomTensor({3, 4}, 2), g = RandomTensor({2, 4}, 3);
  e.Forward({{"a", a}, {"b", b}});
  e.Backward(g);
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 3; ++k) {
      double expected = 0;
      for (int j = 0; j < 4; ++j) expected += g.At(i * 4 + j) * b.At(k * 4 + j);
      EXPECT_NEAR(e.Gradient("a").At(i * 3 + k), expected, 1e-5);
    }
  }
}

TEST(Executor, HeadGradientFromOutside) {   // E24
  Executor e(2.0 * Variable("a") + Variable("b"), {.inputs = {{"a", {2}}, {"b", {2}}}, .grad_req = kBoth});
  e.Forward({{"a", HostTensor::From({2}, {1, 2})}, {"b", HostTensor::From({2}, {2, 3})}});
  EXPECT_EQ(e.Output(0), HostTensor::From({2}, {4, 7}));
  e.Backward(e.Output(0));
  EXPECT_EQ(e.Gradient("a"), HostTensor::From({2}, {8, 14}));
  EXPECT_EQ(e.Gradient("b"), HostTensor::From({2}, {4, 7}));
}

TEST(Executor, ReshapeUpAndDownKeepsWeights) {   // E25 by our rule
  Executor e(FullyConnected(Variable("x"), {.num_hidden = 4}, "fc"), {.inputs = {{"x", {5, 4}}}, .for_training = false});
  e.SetParams({{"fc_weight", HostTensor::Full(DType::kFloat32, {4, 4}, 1)}, {"fc_bias", HostTensor(DType::kFloat32, {4})}});
  for (const int64_t n : {5, 3, 6, 5}) {
    e.Forward({{"x", HostTensor::Full(DType::kFloat32, {n, 4}, 1)}});
    EXPECT_EQ(e.Output(0), HostTensor::Full(DType::kFloat32, {n, 4}, 4));
  }
}

TEST(Executor, WeightSharedByTwoPlacesBindsFromTheDataAlone) {   // E28
  const Symbol w = Variable("W");
  const Symbol y = Sum(Abs(w)) + Sum(FullyConnected(Variable("x"), w, {}, {.num_hidden = 7, .no_bias = true}, "fc"));
  Executor e(y, {.inputs = {{"x", {5, 13}}}});
  EXPECT_EQ(e.group().store().Find("W")->shape, (Shape{7, 13}));
}

TEST(Executor, MemoryFollowsWhatIsAskedFor) {   // E29
  const auto bytes = [](bool stop, GradReq req) {
    Symbol x = Variable("x");
    for (int i = 0; i < 10; ++i) x = Square(x);
    if (stop) x = BlockGrad(x);
    Executor e(MakeLoss(x, {}, "loss"), {.inputs = {{"x", {10, 3, 32, 32}}}, .grad_req = std::map<std::string, GradReq>{{"x", req}}});
    return e.memory().total();
  };
  const int64_t with = bytes(false, GradReq::kWrite), stopped = bytes(true, GradReq::kWrite), without = bytes(false, GradReq::kNull);
  EXPECT_GT(with, stopped);
  EXPECT_GT(with, without);
}

TEST(Executor, NoGradientThroughOperatorsThatHaveNone) {   // E30
  OpDef op;
  op.name = "Opaque";
  op.doc = "An operator without a gradient.";
  op.infer_shape = [](InferContext& c) { if (c.input(0)) c.SetOutput(0, *c.input(0)); };
  op.not_differentiable = "it is a test";
  AddOp(std::move(op));
  AddKernel("Opaque", [](const KernelSpec&) -> std::optional<Kernel> {
    return Kernel{.implementation = "test", .input_formats = {Format::Plain()}, .output_formats = {Format::Plain()}, .bind = [](const KernelArgs&) -> Call { return [] {}; }};
  });
  const Symbol y = Apply(FindOp("Opaque"), {}, {Variable("x")}, "y");
  const ExecutorOptions options{.inputs = {{"x", {3}}}, .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}};
  try {
    Executor e(MakeLoss(y, {}, "loss"), options);
    FAIL() << "bound";
  } catch (const ModelError& e) {
    EXPECT_NE(std::string(e.what()).find("it is a test"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(Executor(MakeLoss(BlockGrad(y), {}, "loss"), options));
}

// A net with views, residuals, normalisation, dropout, pooling, shared values: everything the compiler treats specially.
Symbol Everything() {
  Symbol x = Convolution(Variable("data"), {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "conv1");
  x = Relu(BatchNorm(x, {.fix_gamma = false}, "bn1"));
  const Symbol y = BatchNorm(Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true}, "conv2"), {.fix_gamma = false}, "bn2");
  x = Relu(x + y);
  x = Concat({x, Tanh(x) * 0.5}, {.axis = 1});
  x = Pooling(x, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}});
  x = Dropout(Flatten(x), {.p = 0.3}, "drop");
  x = Relu(FullyConnected(x, {.num_hidden = 12}, "fc1"));
  const Symbol z = Exp(x * 0.1) - Exp(x * 0.1);   // one expression twice
  return SoftmaxOutput(FullyConnected(x + z, {.num_hidden = 5}, "fc2"), {}, "softmax");
}

struct Outcome {
  HostTensor output;
  HostTensorMap gradients;
};
Outcome RunEverything(GroupOptions options) {
  options.data = {{"data", {6, 3, 8, 8}}};
  options.labels = {{"softmax_label", {6}}};
  options.seed = 5;
  DataParallelExecutorGroup group(Everything(), options);
  InitialiseEqually({&group}, 1);
  group.SetStep({.step = 3});
  Batch batch = RandomBatch(6, 192, 5, 2);
  batch.data[0] = batch.data[0].Reshape({6, 3, 8, 8});
  group.Forward(batch);
  group.Backward();
  Outcome outcome{group.Outputs()[0].ToHost(), {}};
  for (const std::string& name : group.param_names()) outcome.gradients[name] = SumOfGradients(group, name);
  return outcome;
}
void ExpectNear(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_LE(MaxAbsDiff(a.output, b.output), tolerance);
  for (const auto& [name, gradient] : a.gradients) EXPECT_LE(MaxAbsDiff(gradient, b.gradients.at(name)), tolerance) << name;
}

TEST(Compiler, NothingThatCanBeSwitchedOffChangesTheResult) {
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    const Outcome all = RunEverything({.threads_per_device = 1, .policy = policy});
    ExpectNear(all, RunEverything({.threads_per_device = 1, .policy = policy}), 0);                              // twice: bits
    ExpectNear(all, RunEverything({.threads_per_device = 1, .policy = policy, .inplace = false}), 0);            // memory: bits
    ExpectNear(all, RunEverything({.threads_per_device = 1, .policy = policy, .reuse_memory = false}), 0);
    ExpectNear(all, RunEverything({.engine = MakeInlineEngine(), .threads_per_device = 1, .policy = policy}), 0);
    ExpectNear(all, RunEverything({.threads_per_device = 1, .policy = policy, .passes = false}), 2e-5);
    ExpectNear(all, RunEverything({.threads_per_device = 1, .policy = policy, .fusion = false}), 2e-5);
    ExpectNear(all, RunEverything({.threads_per_device = 2, .policy = policy}), 2e-5);
  }
  ExpectNear(RunEverything({.policy = KernelPolicy::kFast}), RunEverything({.policy = KernelPolicy::kReference}), 1e-4);
}

TEST(Compiler, TwoBindsGiveEqualPlansThatPrint) {
  const GroupOptions options{.data = {{"data", {6, 3, 8, 8}}}, .labels = {{"softmax_label", {6}}}};
  const DataParallelExecutorGroup a(Everything(), options), b(Everything(), options);
  EXPECT_EQ(a.plan(), b.plan());
  EXPECT_NE(ToString(a.plan()).find("conv1"), std::string::npos);
  EXPECT_GE(a.plan().arena_bytes, a.plan().peak_live_bytes);
  EXPECT_LE(a.plan().arena_bytes, a.plan().peak_live_bytes * 1.05);
  EXPECT_EQ(a.memory().arena, a.plan().arena_bytes);
}

TEST(Compiler, TheVerifierFindsBrokenPlans) {
  const DataParallelExecutorGroup group(Everything(), {.data = {{"data", {6, 3, 8, 8}}}, .labels = {{"softmax_label", {6}}}});
  const Plan good = group.plan();
  EXPECT_NO_THROW(VerifyPlan(good));
  int found = 0;
  for (size_t i = 0; i < good.storages.size(); ++i) {   // put each storage where another one that is alive with it lies
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
  for (size_t i = 0; i + 1 < good.steps.size(); ++i) {   // exchange a step with the next where the next reads its result
    bool reads = false;
    for (const int in : good.steps[i + 1].inputs) for (const int out : good.steps[i].outputs) reads |= in >= 0 && in == out && good.values[in].place == Place::kArena;
    if (!reads) continue;
    Plan bad = good;
    std::swap(bad.steps[i], bad.steps[i + 1]);
    EXPECT_THROW(VerifyPlan(bad), Error) << i;
  }
  Plan shifted = good;
  shifted.segments.back().begin += 1;
  EXPECT_THROW(VerifyPlan(shifted), Error);
  Plan lost = good;
  for (PlanStep& step : lost.steps) for (int& out : step.outputs) if (out >= 0 && lost.values[out].place == Place::kGradient) out = -1;
  EXPECT_THROW(VerifyPlan(lost), Error);
}

TEST(Compiler, SynchronisedNormalisationDoesNotDependOnTheDevices) {
  const auto run = [](const std::vector<Device>& devices, std::vector<double> workload) {
    Symbol x = Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 4}, "fc1"), {.fix_gamma = false, .sync = true}, "bn"));
    x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc2"), {.normalization = Normalization::kValid, .use_ignore = true, .ignore_label = 1}, "softmax");
    DataParallelExecutorGroup group(x, {.devices = devices, .workload = std::move(workload), .data = {{"data", {7, 6}}}, .labels = {{"softmax_label", {7}}}});
    InitialiseEqually({&group}, 1);
    group.Forward(RandomBatch(7, 6, 3, 2));
    group.Backward();
    Outcome outcome{group.Outputs()[0].ToHost(), {}};
    for (const std::string& name : group.param_names()) outcome.gradients[name] = SumOfGradients(group, name);
    group.GetParams(nullptr, &outcome.gradients);   // the running statistics too
    return outcome;
  };
  const Outcome one = run({Cpu(0)}, {});
  ExpectNear(one, run({Cpu(0), Cpu(1)}, {}), 2e-6);
  ExpectNear(one, run({Cpu(0), Cpu(1)}, {5, 1}), 2e-6);
  ExpectNear(one, run({Cpu(0), Cpu(1), Cpu(2)}, {}), 2e-6);
}

}  // namespace
}  // namespace bindery
