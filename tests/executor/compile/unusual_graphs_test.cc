// The compiler on graphs that a net written by hand rarely has: gradients that run without the net, gradients that are
// also heads, heads and auxiliary states that cannot be, a value that is made of many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/executor.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"
#include "symbol/passes/mixed_precision.h"
#include "tests/executor/group_helpers.h"

namespace bindery {
namespace {

const std::vector<KernelPolicy> kPolicies = {KernelPolicy::kFast, KernelPolicy::kReference};

int CallsOf(const Plan& plan, const std::string& op) {
  return static_cast<int>(
      std::count_if(plan.calls.begin(), plan.calls.end(), [&](const PlanCall& call) { return call.op == op; }));
}

void ExpectSameBits(const HostTensor& a, const HostTensor& b, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << what;
}

// The gradient knows shapes without values.
TEST(UnusualGraphs, WhatTheGradientDoesNotReadIsNotComputed) {
  const Symbol fc = FullyConnected(Variable("data"), {.num_hidden = 4}, "fc");
  const std::vector<std::string> wrt = {"fc_bias"};
  const Symbol gradient = Gradient(MakeLoss(Sum(fc), {}, "loss"), wrt, {.shapes = {{"data", {5, 3}}}}).gradients[0];
  for (const KernelPolicy policy : kPolicies) {
    for (const Symbol& symbol : {gradient, Group({gradient, BlockGrad(fc)})}) {
      Executor e(symbol, {.inputs = {{"data", {5, 3}}}, .for_training = false, .switches = {.policy = policy}});
      e.Forward({{"data", RandomTensor({5, 3}, 1)}});
      EXPECT_EQ(e.Output(0), HostTensor::Full(DType::kFloat32, {4}, 5));
      EXPECT_EQ(CallsOf(e.plan(), "FullyConnected"), symbol.size() - 1);
    }
  }
}

// No kernel is asked for values without elements: where nothing comes out there is no call, and what a reduction of
// nothing gives is known when the plan is made.
TEST(UnusualGraphs, ExtentsOfZero) {
  const Symbol x = Variable("data");
  const Symbol heads = Group({Sum(Exp(x), {.axes = {1}}, "sum"), Mean(x, {.axes = {1}}, "mean"), Exp(x, "exp"),
                              Concat({x, Variable("more")}, {}, "both")});
  const HostTensor empty(DType::kFloat32, {2, 0}), more = RandomTensor({2, 3}, 1);
  for (const KernelPolicy policy : kPolicies) {
    Executor e(heads,
               {.inputs = {{"data", {2, 0}}, {"more", {2, 3}}}, .for_training = false, .switches = {.policy = policy}});
    e.Forward({{"data", empty}, {"more", more}});
    EXPECT_EQ(e.Output(0), HostTensor(DType::kFloat32, {2}));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(std::isnan(e.Output(1).At(i)));
    EXPECT_EQ(e.Output(2), empty);
    EXPECT_EQ(e.Output(3), more);
    EXPECT_EQ(CallsOf(e.plan(), "Exp"), 0) << ToString(e.plan());
    for (const PlanCall& call : e.plan().calls) {
      if (call.op != "Concat") {
        EXPECT_EQ(call.implementation, "constant") << call.op;
      }
    }
  }
}

// A product without elements reads no weight, so no cast of it either.
TEST(UnusualGraphs, CastsThatNobodyReads) {
  const Shape shape{2, 0, 4};
  const Symbol y = FullyConnected(Variable("data"), {.num_hidden = 3, .flatten = false}, "fc");
  Executor e(MixedPrecision(y), {.inputs = {{"data", shape}}, .for_training = false});
  e.Forward({{"data", HostTensor(DType::kFloat32, shape)}});
  EXPECT_EQ(e.Output(0), HostTensor(DType::kFloat32, {2, 0, 3}));
  EXPECT_TRUE(e.plan().derived.empty());
}

// The gradient of an argument without elements needs nobody who writes it, whether it replaces or is added to.
TEST(UnusualGraphs, GradientsWithoutElements) {
  const HostTensor empty(DType::kFloat32, {2, 0});
  const Symbol loss = MakeLoss(Square(Sum(Exp(Variable("data")), {.axes = {1}})), {}, "loss");
  for (const GradReq req : {GradReq::kWrite, GradReq::kAdd}) {
    Executor e(loss, {.inputs = {{"data", {2, 0}}}, .grad_req = std::map<std::string, GradReq>{{"data", req}}});
    e.Forward({{"data", empty}});
    e.Backward();
    EXPECT_EQ(e.Gradient("data"), empty);
  }
}

// Where backward reads a hidden output, a kernel is made all the same: the reference's, which divides by no extent.
TEST(UnusualGraphs, HiddenOutputsWithoutElements) {
  const Symbol x = Variable("data");
  const std::vector<std::pair<Symbol, Shape>> nets = {
      {Dropout(x, {.p = 0.5}, "drop"), {2, 0}},
      {BatchNorm(x, {.fix_gamma = false}, "bn"), {2, 3, 0}},
      {Max(x, {.axes = {1}}), {2, 3, 0}},
  };
  for (const auto& [symbol, shape] : nets) {
    for (const KernelPolicy policy : kPolicies) {
      Executor e(MakeLoss(symbol, {}, "loss"), {.inputs = {{"data", shape}},
                                                .grad_req = std::map<std::string, GradReq>{{"data", GradReq::kWrite}},
                                                .switches = {.policy = policy}});
      e.Forward({{"data", HostTensor(DType::kFloat32, shape)}});
      e.Backward();
      EXPECT_EQ(e.Gradient("data"), HostTensor(DType::kFloat32, shape)) << ToString(e.plan());
    }
  }
}

// The hidden outputs of an operator are computed along with its first, which has memory even if nobody reads it.
TEST(UnusualGraphs, HiddenOutputsAlone) {
  const Symbol x = Variable("data");
  const Symbol pool = Pooling(x, {.kernel = {2, 2}, .stride = {2, 2}}, "pool");
  const Symbol mean = BatchNorm(x, {.output_mean_var = true}, "bn")[1];
  const HostTensor data = RandomTensor({2, 3, 4, 4}, 1);
  for (const KernelPolicy policy : kPolicies) {
    // The sum's gradient needs to know who won, but not the maximum itself.
    const GivenTypes given{.shapes = {{"data", data.shape()}}};
    Executor won(Gradient(MakeLoss(Sum(pool), {}, "loss"), std::vector<std::string>{"data"}, given).gradients[0],
                 {.inputs = {{"data", data.shape()}}, .for_training = false, .switches = {.policy = policy}});
    won.Forward({{"data", data}}, Mode::kTrain);
    double winners = 0;
    for (int64_t i = 0; i < data.elements(); ++i) winners += won.Output(0).At(i);
    EXPECT_EQ(winners, 2 * 3 * 2 * 2);

    // Nobody reads the normalisation, but it moves the running statistics.
    Executor n(BlockGrad(mean), {.inputs = {{"data", data.shape()}}, .switches = {.policy = policy}});
    const HostTensor moving = HostTensor::Full(DType::kFloat32, {3}, 10);
    n.SetParams({}, {{"bn_running_mean", moving}, {"bn_running_var", moving}}, {.allow_missing = true});
    n.Forward({{"data", data}});
    EXPECT_EQ(n.Output(0).shape(), (Shape{3}));
    HostTensorMap args, aux;
    n.GetParams(&args, &aux);
    for (int i = 0; i < 3; ++i) EXPECT_LT(aux.at("bn_running_mean").At(i), 9.5);
  }
}

struct Net {
  std::string name;
  Symbol symbol;
  Shape data;
};
std::vector<Net> NetsWithGradients() {
  const Symbol x = Variable("data");
  Symbol image = Convolution(x, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, "conv");
  image = Relu(BatchNorm(image, {.fix_gamma = false}, "bn"));
  image = Pooling(image, {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}}, "pool");
  image = Dropout(Flatten(image), {.p = 0.3}, "drop");
  const Symbol parts = SliceChannel(Concat({x * 2, Exp(x), x}, {.axis = 1}), {.num_outputs = 3}, "parts");
  return {{"sum of a product", MakeLoss(Sum(x * Variable("w")), {}, "loss"), {3, 4}},
          {"sum", MakeLoss(Sum(x * Variable("w") * 2, {.axes = {1}}), {}, "loss"), {3, 4}},
          {"perceptron",
           SoftmaxOutput(FullyConnected(Tanh(FullyConnected(x, {.num_hidden = 5}, "fc1")), {.num_hidden = 3}, "fc2"),
                         {}, "softmax"),
           {4, 6}},
          {"parts", MakeLoss(parts[1] * Variable("w"), {}, "loss"), {3, 4}},
          {"images", SoftmaxOutput(FullyConnected(image, {.num_hidden = 3}, "fc"), {}, "softmax"), {4, 3, 6, 6}}};
}

// The gradients bound as a symbol of their own give the bits of those that a training executor computes.
TEST(UnusualGraphs, GradientsAlone) {
  for (const Net& net : NetsWithGradients()) {
    for (const KernelPolicy policy : kPolicies) {
      std::vector<DataDesc> inputs = {{"data", net.data}};
      HostTensorMap values = {{"data", RandomTensor(net.data, 1)}};
      if (net.symbol.ListArguments().back() == "softmax_label") {
        inputs.push_back({"softmax_label", Shape{net.data[0]}});
        values["softmax_label"] = HostTensor::Full(DType::kFloat32, Shape{net.data[0]}, 2);
      }
      const ExecutorOptions options{.inputs = inputs, .seed = 3, .switches = {.policy = policy, .fusion = false}};
      Executor joint(net.symbol, options);
      Initialise(&joint, 1);
      HostTensorMap args, aux;
      joint.GetParams(&args, &aux);
      joint.Forward(values);
      joint.Backward();

      const std::vector<std::string>& names = joint.param_names();
      GivenTypes given{.batch_axes = {{"data", 0}}};
      for (const DataDesc& input : inputs) given.shapes[input.name] = input.shape;
      const GradientResult gradients = Gradient(net.symbol, names, given);
      ExecutorOptions alone_options = options;
      alone_options.for_training = false;
      Executor alone(Group(gradients.gradients), alone_options);
      alone.SetParams(args, aux, {.allow_extra = true});
      alone.Forward(values, Mode::kTrain);
      for (size_t i = 0; i < names.size(); ++i) {
        ExpectSameBits(alone.Output(static_cast<int>(i)), joint.Gradient(names[i]),
                       net.name + ", " + names[i] + (policy == KernelPolicy::kFast ? ", fast" : ", reference"));
      }
    }
  }
}

// What reads nothing is known when the plan is made, also where its extents follow the batch.
TEST(UnusualGraphs, GradientsAloneWithoutElements) {
  const Symbol x = Variable("data");
  const std::vector<std::string> wrt = {"data"};
  const Shape shape{3, 0};
  const GradientResult result = Gradient(Maximum(x, Sum(x, {.axes = {1}, .keepdims = true}), "y"), wrt,
                                         {.shapes = {{"data", shape}}, .batch_axes = {{"data", 0}}});
  const HostTensor empty(DType::kFloat32, shape);
  for (const KernelPolicy policy : kPolicies) {
    Executor e(
        result.gradients[0],
        {.inputs = {{"data", shape}, {"y_output_grad", shape}}, .for_training = false, .switches = {.policy = policy}});
    e.Forward({{"data", empty}, {"y_output_grad", empty}});
    EXPECT_EQ(e.Output(0), empty);
  }
}

// A head that is the gradient of another, or what that is a view of: forward computes it, and leaves the gradient's
// array to backward.
TEST(UnusualGraphs, ForwardLeavesGradientsAlone) {
  const Symbol w = Reshape(Variable("w", {.shape = Shape{2, 3}}), {.shape = {6}}, "row");
  const Symbol loss = MakeLoss(Square(Variable("data") * w), {}, "loss");
  const Symbol gradient = Gradient(loss, std::vector<std::string>{"w"}, {.shapes = {{"data", {4, 6}}}}).gradients[0];
  const std::vector<Symbol> heads = {gradient, gradient.Children()[0]};
  const HostTensor value = RandomTensor({2, 3}, 1);
  const std::vector<HostTensor> data = {RandomTensor({4, 6}, 2), RandomTensor({4, 6}, 3)};
  for (const Symbol& head : heads) {
    for (const GradReq req : {GradReq::kWrite, GradReq::kAdd}) {
      for (const bool passes : {false, true}) {
        Executor e(Group({loss, BlockGrad(head, "head")}),
                   {.inputs = {{"data", {4, 6}}}, .grad_req = req, .switches = {.passes = passes}});
        e.SetParams({{"w", value}});
        HostTensor expected(DType::kFloat32, {2, 3});
        for (const HostTensor& x : data) {
          e.Forward({{"data", x}});
          EXPECT_EQ(e.Gradient("w"), expected);
          const HostTensor now = e.Output(1).Reshape({2, 3});
          e.Backward();
          for (int64_t i = 0; i < 6; ++i) expected.Set(i, now.At(i) + (req == GradReq::kAdd ? expected.At(i) : 0));
          EXPECT_EQ(e.Gradient("w"), expected);
        }
      }
    }
  }
}

// The running statistics are moved after forward: its last call must not have overwritten what moves them.
TEST(UnusualGraphs, TheLastStepKeepsTheStatistics) {
  const Symbol norm = BatchNorm(Variable("data"), {.momentum = 0, .output_mean_var = true}, "bn");
  for (const int i : {1, 2}) {
    Executor e(Exp(norm[i], "out"), {.inputs = {{"data", {8, 3}}}, .for_training = false});
    e.SetParams({},
                {{"bn_running_mean", HostTensor(DType::kFloat32, {3})},
                 {"bn_running_var", HostTensor::Full(DType::kFloat32, {3}, 1)}},
                {.allow_missing = true});
    e.Forward({{"data", RandomTensor({8, 3}, 1)}}, Mode::kTrain);
    HostTensorMap args, aux;
    e.GetParams(&args, &aux);
    for (int c = 0; c < 3; ++c) {
      EXPECT_NEAR(e.Output(0).At(c), std::exp(aux.at(i == 1 ? "bn_running_mean" : "bn_running_var").At(c)), 1e-6);
    }
  }
}

TEST(UnusualGraphs, TheSignatureIsTheSymbols) {
  const Symbol symbol = FullyConnected(Variable("data"), {.num_hidden = 4}, "fc");
  const auto message = [&](auto&& change) {
    CompileOptions options{.signature = Signature::Of(symbol)};
    options.signature.arguments[0].shape = Shape{2, 3};
    change(options.signature.arguments);
    return MessageOf([&] { Compile(symbol, options); });
  };
  EXPECT_EQ(message([](std::vector<Argument>&) {}), "nothing was thrown");
  EXPECT_EQ(message([](std::vector<Argument>& a) { a.pop_back(); }),
            "Error: variable \"fc_bias\" is not in the signature that the symbol is compiled for");
  EXPECT_EQ(message([](std::vector<Argument>& a) { a.push_back({.name = "fc_wait"}); }),
            "Error: the signature has 4 variables and 1 heads, the symbol that is compiled for it 3 and 1");
  const auto program = [&] {
    CompileOptions options{.signature = Signature::Of(symbol)};
    options.signature.arguments[0].shape = Shape{2, 3};
    return Compile(symbol, options);
  }();
  const Plan& plan = program->plan;
  ASSERT_EQ(plan.arguments.size(), 3u);
  EXPECT_EQ(plan.arguments[1].name, "fc_weight");
  EXPECT_EQ(plan.arguments[1].type.shape, (Shape{4, 3}));
}

TEST(UnusualGraphs, HiddenOutputsAreNoHeads) {
  const Symbol x = Variable("data");
  const Symbol norm = BatchNorm(x, {}, "bn"), pool = Pooling(x, {.kernel = {2}}, "pool");
  const auto message = [](const Symbol& s, int output) {
    const Symbol head(Entry{s.entries()[0].node, output});
    return MessageOf([&] { Executor(head, {.inputs = {{"data", {2, 3, 4}}}, .for_training = false}); });
  };
  EXPECT_EQ(message(norm, 2), "ModelError: BatchNorm \"bn\": its output \"bn_var\" is hidden and cannot be a head");
  EXPECT_EQ(message(pool, 1), "ModelError: Pooling \"pool\": its output \"pool_state\" is hidden and cannot be a head");
  // Nor can others read what only kernels understand; the message tells who wanted to.
  const Symbol read = Relu(Symbol(Entry{pool.entries()[0].node, 1}), "read");
  const std::string error = MessageOf([&] {
    Executor(read, {.inputs = {{"data", {2, 3, 4}}}, .for_training = false});
  });
  EXPECT_NE(error.find("Activation \"read\": a value cannot be reordered"), std::string::npos) << error;
}

TEST(UnusualGraphs, NoGradientThroughOperatorsThatHaveNone) {  // E30
  OpDef op;
  op.name = "Opaque";
  op.doc = "An operator without a gradient.";
  op.infer = rule::Like(0);
  op.not_differentiable = "it is a test";
  AddOp(std::move(op));
  AddKernel("Opaque", [](const KernelSpec&) -> std::optional<Kernel> {
    return Kernel{.implementation = "test",
                  .input_formats = {Format::Plain()},
                  .output_formats = {Format::Plain()},
                  .bind = [](const KernelArgs&) -> Call { return [] {}; }};
  });
  const Symbol y = Apply(FindOp("Opaque"), {}, {Variable("x")}, "y");
  const ExecutorOptions options{.inputs = {{"x", {3}}},
                                .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}};
  try {
    Executor e(MakeLoss(y, {}, "loss"), options);
    FAIL() << "bound";
  } catch (const ModelError& e) {
    EXPECT_NE(std::string(e.what()).find("it is a test"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(Executor(MakeLoss(BlockGrad(y), {}, "loss"), options));
}

// A name that told all of what a value is made of would be twice as long with each step here.
TEST(UnusualGraphs, NamesOfWhatIsMadeOfMuchAreShort) {
  const auto plan_of = [](int64_t columns, int steps) {
    Symbol p = Variable("p", {.shape = Shape{1}});
    for (int i = 0; i < steps; ++i) p = Tanh(p) * Sigmoid(p);
    const GroupOptions options{
        .data = {{"data", {2, columns}}}, .for_training = false, .switches = {.fusion = false, .derive = true}};
    return DataParallelExecutorGroup::MakePlans(Variable("data") + p, options)[0].plan;
  };
  const Plan plan = plan_of(3, 16), wider = plan_of(5, 16), other = plan_of(3, 15);
  ASSERT_EQ(plan.derived.size(), 1u);
  EXPECT_LT(plan.derived[0].name.size(), 1000u);
  ASSERT_EQ(wider.derived.size(), 1u);
  EXPECT_EQ(wider.derived[0].name, plan.derived[0].name) << "it is made once for both";
  ASSERT_EQ(other.derived.size(), 1u);
  EXPECT_NE(other.derived[0].name, plan.derived[0].name);
}

}  // namespace
}  // namespace bindery
