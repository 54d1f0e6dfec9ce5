// Predictions with batch-norms folded into the weights before them, and sums into convolutions: nothing but rounding
// changes, and nobody sees it but in the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "executor/predictor.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

constexpr int64_t kExtent = 6, kClasses = 4;
constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Symbol Layer(const Symbol& x, int64_t channels, const std::string& name, ConvolutionAttrs attrs = {},
             BatchNormAttrs norm = {}) {
  attrs.num_filter = channels;
  if (attrs.kernel.empty()) attrs.kernel = {3, 3}, attrs.pad = {1, 1};
  return BatchNorm(Convolution(x, attrs, name), norm, name + "_bn");
}

// Layers with and without bias and gamma, of groups, with a stride; residual sums in both orders, of a layer and of two;
// and a full connection. Some norms cut what is negative themselves.
Symbol Net(const Symbol& data = Variable("data")) {
  Symbol x = Relu(Layer(data, 16, "conv1", {.no_bias = true}));
  x = Relu(Layer(x, 16, "conv2", {}, {.fix_gamma = false}) + x);
  Symbol shortcut = Layer(x, 24, "shortcut", {.kernel = {1, 1}, .stride = {2, 2}}, {.fix_gamma = false});
  Symbol y =
      Layer(x, 24, "conv3", {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .no_bias = true}, {.relu = true});
  x = Relu(shortcut + Layer(y, 24, "conv4", {}, {.fix_gamma = false}));
  x = x + Tanh(Layer(x, 24, "conv5", {.kernel = {3, 3}, .pad = {1, 1}, .groups = 24}));
  x = x + Layer(x, 24, "conv6", {.kernel = {1, 1}}, {.fix_gamma = false});
  x = FullyConnected(Flatten(x), {.num_hidden = 10, .no_bias = true}, "fc1");
  x = BatchNorm(x, {.fix_gamma = false, .relu = true}, "fc1_bn");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = kClasses}, "fc2"), {}, "softmax");
}

HostTensor Images(int64_t samples, uint64_t seed, int64_t channels = 3) {
  return RandomTensor({samples, channels, kExtent, kExtent}, seed);
}
Batch BatchOf(int64_t samples, uint64_t seed) {
  Batch batch = RandomBatch(samples, 1, kClasses, seed);
  batch.data[0] = Images(samples, seed);
  return batch;
}

GroupOptions OptionsOf(bool folds, bool trains) {
  return {.devices = {TestDevice(0), TestDevice(1)},
          .data = {{"data", {6, 3, kExtent, kExtent}}},
          .labels = {{"softmax_label", {6}}},
          .for_training = trains,
          .threads_per_device = 1,
          .switches = {.fold = folds}};
}

int64_t CountOf(const Plan& plan, const std::string& op, bool in_run = true) {
  return std::count_if(plan.calls.begin() + (in_run ? plan.derive_calls : 0), plan.calls.end(),
                       [&](const PlanCall& call) { return call.op == op; });
}
Plan PlanOf(const Symbol& symbol, const GroupOptions& options) {
  return DataParallelExecutorGroup::MakePlans(symbol, options)[0].plan;
}

// Means and variances that are no trivial ones, some gammas 0.
HostTensorMap StatesOf(const ParameterStore& store, uint64_t seed) {
  HostTensorMap states;
  for (const StoredParameter& p : store.parameters()) {
    if (!p.auxiliary) continue;
    HostTensor& state = states[p.name] = RandomTensor(p.shape, StreamKey(seed, p.name).k0, p.dtype);
    for (int64_t i = 0; p.name.ends_with("var") && i < state.elements(); ++i) state.Set(i, 1.1 + state.At(i));
  }
  return states;
}

void ExpectNear(const HostTensor& got, const HostTensor& expected, double tolerance = 2e-5) {
  ASSERT_EQ(got.shape(), expected.shape());
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (std::isnan(expected.At(i))) {
      EXPECT_TRUE(std::isnan(got.At(i))) << i << ": " << got.At(i);
    } else if (std::isinf(expected.At(i))) {
      EXPECT_EQ(got.At(i), expected.At(i)) << i;
    } else {
      EXPECT_NEAR(got.At(i), expected.At(i), tolerance * (1 + std::abs(expected.At(i)))) << i;
    }
  }
}

class Pair {
 public:
  explicit Pair(bool trains) {
    for (const bool folds : {true, false}) {
      groups_.push_back(std::make_unique<DataParallelExecutorGroup>(Net(), OptionsOf(folds, trains)));
    }
    InitialiseEqually({groups_[0].get(), groups_[1].get()}, 3);
    SetStates(1);
  }
  template <class F>
  void Both(const F& f) {
    for (auto& group : groups_) f(*group);
  }
  void SetStates(uint64_t seed) {
    Both([&](auto& group) { group.SetParams({}, StatesOf(group.store(), seed), {.allow_missing = true}); });
  }
  void ExpectNearOutputs(int64_t samples, uint64_t seed) {
    Both([&](auto& group) { group.Forward(BatchOf(samples, seed), Mode::kPredict); });
    ExpectNear(groups_[0]->Outputs()[0].ToHost(), groups_[1]->Outputs()[0].ToHost());
  }
  void ExpectSameParams() {
    HostTensorMap params[2], states[2];
    for (size_t i = 0; i < 2; ++i) groups_[i]->GetParams(&params[i], &states[i]);
    EXPECT_EQ(params[0], params[1]);
    EXPECT_EQ(states[0], states[1]);
  }
  DataParallelExecutorGroup& with() { return *groups_[0]; }

 private:
  std::vector<std::unique_ptr<DataParallelExecutorGroup>> groups_;
};

TEST(FoldNorms, LeaveTheRun) {
  const Plan with = PlanOf(Net(), OptionsOf(true, false)), without = PlanOf(Net(), OptionsOf(false, false));
  EXPECT_EQ(CountOf(without, "BatchNorm"), 8);
  EXPECT_EQ(CountOf(with, "BatchNorm", false), 0);
  for (const char* op : {"Sqrt", "Mul", "Div", "Sub", "Constant"}) EXPECT_EQ(CountOf(with, op), 0) << op;
  EXPECT_EQ(CountOf(with, "ConvolutionAdd"), 3);
  EXPECT_EQ(CountOf(with, "Add"), 1);  // of a Tanh
  EXPECT_EQ(CountOf(with, "AddRelu") + CountOf(with, "Activation"), 0);
  for (int i = with.derive_calls; i < static_cast<int>(with.calls.size()); ++i) {  // weights lie as kernels want them
    const PlanCall& call = with.calls[static_cast<size_t>(i)];
    if (call.op != "Reorder") continue;
    EXPECT_NE(with.values[static_cast<size_t>(call.inputs[0])].place, Place::kDerived) << call.node;
    EXPECT_NE(with.values[static_cast<size_t>(call.inputs[0])].place, Place::kArgument) << call.node;
  }
  EXPECT_GT(ReportMemory(with).derived, 0);
  // Not without what keeps them, in training, or where somebody watches.
  GroupOptions options = OptionsOf(true, false);
  options.switches.derive = false;
  EXPECT_EQ(CountOf(PlanOf(Net(), options), "BatchNorm"), 8);
  EXPECT_EQ(CountOf(PlanOf(Net(), OptionsOf(true, true)), "BatchNorm"), 8);
  DataParallelExecutorGroup group(Net(), OptionsOf(true, false));
  group.Watch("conv2_output");
  group.SetParams({}, StatesOf(group.store(), 1), {.allow_missing = true});
  group.Forward(BatchOf(6, 1));
  EXPECT_EQ(CountOf(group.plan(), "BatchNorm"), 8);
}

TEST(FoldNorms, OnlyWhereItMeansTheSame) {
  const auto norms = [](const Symbol& symbol, std::vector<DataDesc> more = {}) {
    GroupOptions options = OptionsOf(true, false);
    options.labels.clear();
    options.data.insert(options.data.end(), more.begin(), more.end());
    return CountOf(PlanOf(symbol, options), "BatchNorm");
  };
  const ConvolutionAttrs attrs{.num_filter = kExtent, .kernel = {1, 1}};
  const Symbol conv = Convolution(Variable("data"), attrs, "conv"), norm = BatchNorm(conv, {}, "bn");
  EXPECT_EQ(norms(norm), 0);
  EXPECT_EQ(norms(Group({norm, conv})), 1);  // a head
  EXPECT_EQ(norms(norm + Tanh(conv)), 1);    // read by somebody else
  EXPECT_EQ(norms(BatchNorm(conv, {.output_mean_var = true}, "bn").WithAnnotation("merge", "mean")), 1);  // read, too
  EXPECT_EQ(norms(BatchNorm(Relu(conv), {}, "bn")), 1);      // something in between
  EXPECT_EQ(norms(BatchNorm(conv, {.axis = 2}, "bn")), 1);   // along another axis
  EXPECT_EQ(norms(BatchNorm(conv, {.axis = -3}, "bn")), 0);  // the same
  EXPECT_EQ(norms(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 5, .flatten = false}, "fc"), {}, "bn")), 1);
  EXPECT_EQ(
      norms(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 5, .flatten = false}, "fc"), {.axis = -1}, "bn")),
      0);
  // A weight that comes with the data.
  const Symbol given = Convolution(Variable("data"), Variable("w"), Variable("b"), attrs, "conv");
  EXPECT_EQ(norms(BatchNorm(given, {}, "bn"), {{"w", {kExtent, 3, 1, 1}, DType::kFloat32, "----"}}), 1);
}

TEST(FoldNorms, FollowParametersAndStates) {
  Pair pair(/*trains=*/true);
  PhiloxStream random(5, "what is done");
  for (uint64_t i = 0; i < 24; ++i) {
    switch (random.Below(4)) {
      case 0:
        pair.Both([&](auto& group) {
          group.SetParams({{"conv2_bn_gamma", RandomTensor({16}, i)}, {"conv1_weight", RandomTensor({16, 3, 3, 3}, i)}},
                          {}, {.allow_missing = true});
        });
        break;
      case 1: pair.SetStates(i); break;
      case 2:
        pair.Both([&](auto& group) { group.ForwardBackward(std::make_shared<const Batch>(BatchOf(6, i))); });
        break;
      default: break;
    }
    pair.ExpectNearOutputs(1 + static_cast<int64_t>(random.Below(7)), i);
    pair.ExpectSameParams();
  }
  EXPECT_GT(pair.with().memory().derived, 0);
}

TEST(FoldNorms, OfAnExecutorsArrays) {
  const auto make = [](bool folds) {
    return std::make_unique<Executor>(
        Net(), ExecutorOptions{.device = TestDevice(0),
                               .inputs = {{"data", {5, 3, kExtent, kExtent}}, {"softmax_label", {5}}},
                               .threads = 1,
                               .switches = {.fold = folds}});
  };
  const auto with = make(true), without = make(false);
  for (const auto& e : {&with, &without}) Initialise(e->get(), 4);
  for (uint64_t i = 0; i < 4; ++i) {
    const Batch batch = BatchOf(5, i);
    for (const auto& e : {&with, &without}) {
      (*e)->AuxiliaryArray("conv2_bn_running_mean").CopyFrom(RandomTensor({16}, i));
      (*e)->Forward({{"data", batch.data[0]}, {"softmax_label", batch.label[0]}}, Mode::kPredict);
    }
    ExpectNear(with->Output(0), without->Output(0));
  }
}

// Convolutions of every kind that kernels tell apart: sizes that are computed at once and in parts, channels in blocks
// and not, strides, groups, sums of what is read again and of what is not.
TEST(FoldNorms, RandomNetworks) {
  PhiloxStream random(9, "networks");
  const auto draw = [&](std::initializer_list<int64_t> of) { return of.begin()[random.Below(of.size())]; };
  for (int round = 0; round < 24; ++round) {
    const int64_t samples = draw({1, 2, 5}), extent = draw({3, 8, 33}), first = draw({1, 3, 8});
    Symbol x = Variable("data");
    int64_t channels = first;
    for (int layer = 0; layer < 4; ++layer) {
      const std::string name = "conv" + std::to_string(layer);
      const int64_t out = draw({channels, channels, 4, 16, 20}), kernel = draw({1, 3});
      ConvolutionAttrs attrs{
          .kernel = {kernel, kernel}, .pad = {kernel / 2, kernel / 2}, .no_bias = random.Below(2) == 0};
      if (out == channels && random.Below(4) == 0) attrs.groups = channels;
      Symbol y = Layer(x, out, name, attrs, {.fix_gamma = random.Below(2) == 0});
      if (out == channels && layer > 0 && random.Below(3) > 0) y = random.Below(2) == 0 ? y + x : x + y;
      switch (random.Below(4)) {
        case 0: x = y; break;
        case 1: x = Tanh(y); break;
        default: x = Relu(y);
      }
      channels = out;
    }
    Model model{.symbol = x};
    const GroupOptions options{
        .devices = {TestDevice(0)}, .data = {{"data", {samples, first, extent, extent}}}, .for_training = false};
    {
      DataParallelExecutorGroup group(x, options);
      InitialiseEqually({&group}, static_cast<uint64_t>(round));
      group.SetParams({}, StatesOf(group.store(), static_cast<uint64_t>(round)), {.allow_missing = true});
      group.GetParams(&model.params, &model.aux);
    }
    const auto predict = [&](CompileSwitches switches) {
      const Predictor predictor(model,
                                {.device = TestDevice(0), .inputs = options.data, .threads = 2, .switches = switches});
      return predictor.Predict({{"data", RandomTensor(options.data[0].shape, 7)}})[0];
    };
    SCOPED_TRACE(fmt::format("round {}", round));
    const HostTensor expected = predict({.fusion = false, .fold = false});
    ExpectNear(predict({}), expected, 1e-4);
    ExpectNear(predict({.fold = false}), expected, 1e-4);
    ExpectNear(predict({.inplace = false, .reuse_memory = false}), expected, 1e-4);
    ExpectNear(predict({.policy = KernelPolicy::kReference}), expected, 1e-4);
  }
}

// One element of the data, of the addend, or of a parameter that is no number reaches exactly what it reaches unfolded.
TEST(FoldNorms, WhatIsNoNumberPasses) {
  for (const int64_t channels : {4, 16}) {
    for (const int64_t extent : {int64_t{kExtent}, int64_t{40}}) {
      const Symbol data = Variable("data"), addend = Variable("addend");
      const Symbol sum = Layer(data, channels, "conv", {}, {.fix_gamma = false}) + addend;
      for (const Symbol& symbol : {Relu(sum), Tanh(sum), sum}) {
        Model model{.symbol = symbol};
        GroupOptions options{
            .devices = {TestDevice(0)},
            .data = {{"data", {8, channels, extent, extent}}, {"addend", {8, channels, extent, extent}}},
            .for_training = false};
        {
          DataParallelExecutorGroup group(symbol, options);
          InitialiseEqually({&group}, 1);
          group.SetParams({}, StatesOf(group.store(), 1), {.allow_missing = true});
          group.GetParams(&model.params, &model.aux);
        }
        for (const float value : {kNan, kInf, -kInf}) {
          for (const char* where : {"data", "addend", "conv_bias", "conv_bn_beta", "conv_bn_running_mean"}) {
            HostTensorMap inputs;
            for (const DataDesc& desc : options.data) inputs[desc.name] = RandomTensor(desc.shape, 3);
            Model changed = model;
            HostTensor& target = inputs.contains(where)           ? inputs[where]
                                 : changed.params.contains(where) ? changed.params[where]
                                                                  : changed.aux[where];
            target.Set(1, value);
            const auto predict = [&](bool folds) {
              return Predictor(changed, {.device = TestDevice(0),
                                         .inputs = options.data,
                                         .switches = {.fusion = folds, .fold = folds}})
                  .Predict(inputs)[0];
            };
            SCOPED_TRACE(fmt::format("{} in {}, {} channels", value, where, channels));
            ExpectNear(predict(true), predict(false));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery
