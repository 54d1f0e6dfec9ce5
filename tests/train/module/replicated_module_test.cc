// Modules with replicas against modules without, and against plain loops.
#include "train/module/replicated_module.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/executor/counting_engine.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

ModuleOptions CriterionOptions(const std::vector<Device>& devices, int64_t samples = 8) {
  return {.devices = devices,
          .inputs = ListOf(DataDesc{"scores", {samples, 3}}, DataDesc{"label", {samples}}),
          .threads_per_device = 1};
}

// y = x W' + b; what is known of it by three lines of algebra.
TEST(ReplicatedModule, GradientsArePlainSums) {
  constexpr int64_t kSamples = 7, kIn = 4, kOut = 3;
  const HostTensor x = RandomTensor({kSamples, kIn}, 1), g = RandomTensor({kSamples, kOut}, 2);
  for (const int devices : {1, 2, 3}) {
    ReplicatedModule net(FullyConnected(Variable("data"), {.num_hidden = kOut}, "fc"),
                         MlpOptions(TestDeviceList(devices)));
    const HostTensor w = net.GetParams().at("fc_weight"), b = net.GetParams().at("fc_bias");
    const HostTensor y = net.Forward(x).leaf().ToHost();
    const HostTensor dx = net.Backward(g, 0.5).leaf().ToHost();
    const HostTensor dw = net.GetGradient("fc_weight"), db = net.GetGradient("fc_bias");
    net.Update(2);
    const HostTensor updated = net.GetParams().at("fc_weight");
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = 0;
      for (int64_t n = 0; n < kSamples; ++n) sum += g.At(n * kOut + o);
      EXPECT_NEAR(db.At(o), 0.5 * sum, 1e-5);
      for (int64_t i = 0; i < kIn; ++i) {
        double expected = 0;
        for (int64_t n = 0; n < kSamples; ++n) expected += g.At(n * kOut + o) * x.At(n * kIn + i);
        EXPECT_NEAR(dw.At(o * kIn + i), 0.5 * expected, 1e-5);
        EXPECT_NEAR(updated.At(o * kIn + i), w.At(o * kIn + i) - expected, 1e-5);
      }
    }
    for (int64_t n = 0; n < kSamples; ++n) {
      for (int64_t o = 0; o < kOut; ++o) {
        double expected = b.At(o);
        for (int64_t i = 0; i < kIn; ++i) expected += x.At(n * kIn + i) * w.At(o * kIn + i);
        EXPECT_NEAR(y.At(n * kOut + o), expected, 1e-5);
      }
      for (int64_t i = 0; i < kIn; ++i) {  // the scale is of parameters' gradients alone
        double expected = 0;
        for (int64_t o = 0; o < kOut; ++o) expected += g.At(n * kOut + o) * w.At(o * kIn + i);
        EXPECT_NEAR(dx.At(n * kIn + i), expected, 1e-5);
      }
    }
  }
}

TEST(ReplicatedModule, ThreeBackwardsAreOneOfTheSum) {  // T2
  const HostTensor x = RandomTensor({8, 4}, 1), g = RandomTensor({8, 3}, 2);
  for (const Exchange exchange : {Exchange::kFlat, Exchange::kStore}) {
    ModuleOptions options = MlpOptions(TestDeviceList(3));
    options.exchange = exchange;
    ReplicatedModule thrice(Mlp(), options), once(Mlp(), options), scaled(Mlp(), options), again(Mlp(), options);
    for (int i = 0; i < 3; ++i) {
      thrice.Forward(x);
      thrice.Backward(g);
    }
    once.Forward(x);
    once.Backward(Times(g, 3));
    scaled.Forward(x);
    scaled.Backward(g, 3);
    again.Forward(x);
    again.InputGradients(g);
    for (const double scale : {1.0, 4.0, -2.0}) again.AccumulateGradients(scale);
    for (ReplicatedModule* other : {&thrice, &scaled, &again}) {
      EXPECT_LT(MostDifferent(GradientsOf(*other), GradientsOf(once)), 1e-5);
      other->Update(0.5);
    }
    once.Update(0.5);
    for (ReplicatedModule* other : {&thrice, &scaled, &again}) {
      EXPECT_LT(MostDifferent(other->GetParams(), once.GetParams()), 1e-5);
    }
    once.ZeroGradients();
    for (const auto& [name, gradient] : GradientsOf(once)) {
      EXPECT_EQ(gradient, HostTensor(gradient.dtype(), gradient.shape())) << name;
    }
  }
}

// T3, and no merging or host between the network and its criterion.
TEST(ReplicatedModule, TenStepsEqualThoseOfASingleOne) {
  const auto train = [](ReplicatedModule& net, ReplicatedModule& loss) {
    std::vector<double> losses;
    for (int step = 0; step < 10; ++step) {
      const Batch batch = RandomBatch(9, 4, 3, 100 + static_cast<uint64_t>(step));
      net.ZeroGradients();
      const Values values = loss.Forward(ListOf(net.Forward(batch.data[0]), Array(batch.label[0])));
      net.Backward(loss.Backward()[0]);
      net.Update(0.5 / 9);
      const HostTensor all = values.leaf().ToHost();
      double sum = 0;
      for (int64_t i = 0; i < all.elements(); ++i) sum += all.At(i);
      losses.push_back(sum);
    }
    return losses;
  };
  ReplicatedModule single(Mlp(), MlpOptions({TestDevice(0)})),
      single_loss(Criterion(), CriterionOptions({TestDevice(0)}));
  const HostTensorMap before = single.GetParams();
  const std::vector<double> expected = train(single, single_loss);
  EXPECT_GT(MostDifferent(before, single.GetParams()), 1e-2);
  for (const int devices : {2, 3, 4}) {
    for (const int of_loss : {1, 2}) {
      for (const Exchange exchange : {Exchange::kFlat, Exchange::kStore}) {
        ModuleOptions options = MlpOptions(TestDeviceList(devices));
        options.exchange = exchange;
        ReplicatedModule net(Mlp(), options), loss(Criterion(), CriterionOptions(TestDeviceList(of_loss)));
        const std::vector<double> losses = train(net, loss);
        for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4);
        EXPECT_LT(MostDifferent(net.GetParams(), single.GetParams()), 1e-5);
      }
    }
  }
}

TEST(ReplicatedModule, SharesDifferByOneAndMayBeEmpty) {  // E7
  const auto shares = [](int64_t samples, int devices) {
    ReplicatedModule net(Mlp(), MlpOptions(TestDeviceList(devices)));
    std::vector<int64_t> sizes;
    const Values outputs = net.Forward(RandomTensor({samples, 4}, 1));
    for (const Tensor& piece : outputs.leaf().pieces()) sizes.push_back(piece.shape()[0]);
    EXPECT_EQ(outputs.leaf().shape(), (Shape{samples, 3}));
    return sizes;
  };
  EXPECT_EQ(shares(15, 4), (std::vector<int64_t>{4, 4, 4, 3}));
  EXPECT_EQ(shares(9, 2), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(shares(3, 4), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(shares(1, 4), (std::vector<int64_t>{1}));
  for (const int64_t samples : {3, 1, 15, 9}) {
    ReplicatedModule net(Mlp(), MlpOptions(TestDeviceList(4))), single(Mlp(), MlpOptions({Cpu(0)}));
    const HostTensor x = RandomTensor({samples, 4}, 1), g = RandomTensor({samples, 3}, 2);
    for (int run = 0; run < 2; ++run) {
      EXPECT_LT(MostDifferent(net.Forward(x), single.Forward(x)), 1e-6);
      EXPECT_LT(MostDifferent(net.Backward(g), single.Backward(g)), 1e-6);
    }
    EXPECT_LT(MostDifferent(GradientsOf(net), GradientsOf(single)), 1e-5);
  }
  // Of a network that changes nothing, the gradient is what came.
  ReplicatedModule identity(Identity(Variable("data")), MlpOptions(TestDeviceList(4)));
  const HostTensor x = RandomTensor({3, 4}, 1), g = RandomTensor({3, 4}, 2);
  EXPECT_EQ(identity.Forward(x).leaf().ToHost(), x);
  EXPECT_EQ(identity.Backward(g).leaf().ToHost(), g);
  EXPECT_EQ(identity.num_flat(), 0);  // and nothing to be exchanged
  identity.Update(1);
  EXPECT_TRUE(identity.buffers().empty());
}

TEST(ReplicatedModule, IsCutAlongAnyDimension) {
  const Symbol net = Tanh(Variable("data")) * 2.0;
  for (const int dimension : {0, 1, 2}) {
    ReplicatedModule module(net, {.devices = TestDeviceList(2),
                                  .inputs = DataDesc{"data", {5, 7, 4}},
                                  .dimension = dimension,
                                  .threads_per_device = 1});
    ReplicatedModule single(net, {.inputs = DataDesc{"data", {5, 7, 4}}});
    const HostTensor x = RandomTensor({5, 7, 4}, 1), g = RandomTensor({5, 7, 4}, 2);
    const Values outputs = module.Forward(x);
    ASSERT_EQ(outputs.leaf().pieces().size(), 2u);
    EXPECT_EQ(outputs.leaf().pieces()[0].shape()[dimension], (x.shape()[dimension] + 1) / 2);
    EXPECT_LT(MostDifferent(outputs, single.Forward(x)), 1e-6);
    EXPECT_EQ(outputs.leaf().Whole().ToHost(), outputs.leaf().ToHost());
    EXPECT_LT(MostDifferent(module.Backward(g), single.Backward(g)), 1e-6);
    // Pieces that were cut otherwise are put together first.
    ReplicatedModule across(net, {.devices = TestDeviceList(2),
                                  .inputs = DataDesc{"data", {5, 7, 4}},
                                  .dimension = (dimension + 1) % 3,
                                  .threads_per_device = 1});
    EXPECT_LT(MostDifferent(across.Forward(outputs), single.Forward(outputs)), 1e-6);
    EXPECT_LT(MostDifferent(across.Backward(outputs), single.Backward(outputs)), 1e-6);
  }
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              ReplicatedModule(net, {.inputs = DataDesc{"data", {5, 7}}, .dimension = 2});
            }),
            "ShapeError: input \"data\" of shape (5, 7) has no dimension 2 to be cut along; give it a layout");
}

// T5: ((a, nothing), b) -> (a + b, (nothing, a * b)).
TEST(ReplicatedModule, NestedInputsAndOutputsWithEmptyLeaves) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol net = Group({Identity(a + b, "sum"), Identity(a * b, "product")});
  for (const int devices : {1, 2, 3}) {
    ReplicatedModule module(net, {.devices = TestDeviceList(devices),
                                  .inputs = ListOf(ListOf(DataDesc{"a", {4, 2}}, DataDesc{}), DataDesc{"b", {4, 2}}),
                                  .outputs = ListOf("sum_output", ListOf("", "product_output")),
                                  .threads_per_device = 1});
    for (const int64_t samples : {4, 1}) {
      const HostTensor x = RandomTensor({samples, 2}, 1), y = RandomTensor({samples, 2}, 2);
      const HostTensor g = RandomTensor({samples, 2}, 3), h = RandomTensor({samples, 2}, 4);
      const Values outputs = module.Forward(ListOf(ListOf(x, Values()), y));
      ASSERT_EQ(outputs.Form(), "(_, (_, _))");
      EXPECT_TRUE(outputs[1][0].leaf().empty());
      const Values gradients = module.Backward(ListOf(g, ListOf(HostTensor(), h)));
      ASSERT_EQ(gradients.Form(), "((_, _), _)");
      EXPECT_TRUE(gradients[0][1].leaf().empty());
      const HostTensor sum = outputs[0].leaf().ToHost(), product = outputs[1][1].leaf().ToHost();
      const HostTensor da = gradients[0][0].leaf().ToHost(), db = gradients[1].leaf().ToHost();
      for (int64_t i = 0; i < x.elements(); ++i) {
        EXPECT_NEAR(sum.At(i), x.At(i) + y.At(i), 1e-6);
        EXPECT_NEAR(product.At(i), x.At(i) * y.At(i), 1e-6);
        EXPECT_NEAR(da.At(i), g.At(i) + h.At(i) * y.At(i), 1e-6);
        EXPECT_NEAR(db.At(i), g.At(i) + h.At(i) * x.At(i), 1e-6);
      }
      // On devices, whole and in pieces, as another module gives them.
      const HostTensor again = module.Forward(ListOf(ListOf(outputs[0], Values()), outputs[1][1]))[0].leaf().ToHost();
      for (int64_t i = 0; i < x.elements(); ++i) EXPECT_NEAR(again.At(i), sum.At(i) + product.At(i), 1e-6);
    }
    EXPECT_EQ(MessageOf<DataError>([&] {
                module.Forward(ListOf(RandomTensor({4, 2}, 1), RandomTensor({4, 2}, 1)));
              }),
              "DataError: Forward: expected inputs nested as ((_, _), _), got (_, _)");
    EXPECT_EQ(
        MessageOf<DataError>([&] {
          module.Forward(ListOf(ListOf(RandomTensor({4, 2}, 1), RandomTensor({4, 2}, 1)), RandomTensor({4, 2}, 1)));
        }),
        "DataError: Forward: input 1 has no name: nobody looks at it, and it must be empty, got (4, 2)");
    EXPECT_EQ(MessageOf<DataError>([&] {
                module.Forward(ListOf(ListOf(Values(), Values()), RandomTensor({4, 2}, 1)));
              }),
              "DataError: Forward: input \"a\" is nothing");
    module.Forward(ListOf(ListOf(RandomTensor({4, 2}, 1), Values()), RandomTensor({4, 2}, 1)));
    EXPECT_EQ(MessageOf<DataError>([&] {
                module.Backward(ListOf(RandomTensor({4, 2}, 1), RandomTensor({4, 2}, 1)));
              }),
              "DataError: Backward: expected gradients of the outputs nested as (_, (_, _)), got (_, _)");
    EXPECT_EQ(MessageOf<DataError>([&] {
                module.Backward(ListOf(RandomTensor({4, 2}, 1), ListOf(RandomTensor({4, 2}, 1), Values())));
              }),
              "DataError: Backward: output 1 is empty, and so its gradient must be, got (4, 2)");
    EXPECT_NE(MessageOf([&] { module.Backward(); }).find("is not a loss, so its gradient must be given"),
              std::string::npos);
    EXPECT_NO_THROW(module.Backward(ListOf(RandomTensor({4, 2}, 1), ListOf(Values(), RandomTensor({4, 2}, 1)))));
  }
}

// Arrays without samples go to all replicas, and their gradients are those of all; heads without say how they merge.
TEST(ReplicatedModule, WhatHasNoSamplesIsEverybodys) {
  const Symbol scaled = Variable("data") * Variable("scale");
  const Symbol net = Group({scaled, Sum(scaled).WithAnnotation("merge", "sum")});
  const Nest<DataDesc> inputs = ListOf(DataDesc{"data", {5, 3}}, DataDesc{"scale", {1, 3}, DType::kFloat32, "--"});
  ReplicatedModule single(net, {.inputs = inputs});
  const HostTensor x = RandomTensor({5, 3}, 1), scale = RandomTensor({1, 3}, 2), g = RandomTensor({5, 3}, 3);
  const Values expected = single.Forward(ListOf(x, scale));
  EXPECT_EQ(expected[1].leaf().shape(), Shape());
  const Values of_inputs = single.Backward(ListOf(g, HostTensor::Full(DType::kFloat32, {}, 2)));
  for (const int devices : {2, 3}) {
    ReplicatedModule module(net, {.devices = TestDeviceList(devices), .inputs = inputs, .threads_per_device = 1});
    EXPECT_LT(MostDifferent(module.Forward(ListOf(x, scale)), expected), 1e-5);
    const Values gradients = module.Backward(ListOf(g, HostTensor::Full(DType::kFloat32, {}, 2)));
    EXPECT_EQ(gradients[1].leaf().pieces().size(), 1u);
    EXPECT_LT(MostDifferent(gradients, of_inputs), 1e-5);
  }
}

// Samples that are not in the middle of an axis but all over it: such outputs come in one piece.
TEST(ReplicatedModule, SamplesFoldedIntoAnotherAxis) {
  Symbol x = Reshape(Variable("data"), {.shape = {-1, 4}});  // (T, N, C) as (T N, C)
  const Symbol net = FullyConnected(x, {.num_hidden = 3}, "fc");
  const auto options = [](const std::vector<Device>& devices) {
    return ModuleOptions{
        .devices = devices, .inputs = DataDesc{"data", {6, 5, 4}}, .dimension = 1, .threads_per_device = 1};
  };
  ReplicatedModule module(net, options(TestDeviceList(2))), single(net, options({Cpu(0)}));
  const HostTensor data = RandomTensor({6, 5, 4}, 1), g = RandomTensor({30, 3}, 2);
  const Values outputs = module.Forward(data);
  EXPECT_EQ(outputs.leaf().pieces().size(), 1u);
  EXPECT_LT(MostDifferent(outputs, single.Forward(data)), 1e-6);
  const Array cut(
      {On(DefaultEngine(), TestDevice(1), g.Slice(0, 0, 7)), On(DefaultEngine(), TestDevice(0), g.Slice(0, 7, 30))}, 0);
  EXPECT_LT(MostDifferent(module.Backward(cut), single.Backward(g)), 1e-6);
  EXPECT_LT(MostDifferent(GradientsOf(module), GradientsOf(single)), 1e-5);
}

TEST(ReplicatedModule, BatchesOfAnySizeAndShapeFollowEachOther) {
  ReplicatedModule module(
      ConvNet(), {.devices = TestDeviceList(3), .inputs = DataDesc{"data", {6, 2, 4, 4}}, .threads_per_device = 1});
  ReplicatedModule single(ConvNet(), {.inputs = DataDesc{"data", {6, 2, 4, 4}}});
  module.Evaluate();
  single.Evaluate();
  for (const int64_t samples : {6, 1, 20, 2, 6}) {
    const HostTensor x = RandomTensor({samples, 2, 4, 4}, static_cast<uint64_t>(samples));
    EXPECT_LT(MostDifferent(module.Forward(x), single.Forward(x)), 1e-5);
  }
  EXPECT_THROW(module.Forward(RandomTensor({6, 2, 5, 5}, 1)), ShapeError);  // the last layer's weight says how large
  EXPECT_NO_THROW(module.Forward(RandomTensor({6, 2, 4, 4}, 1)).leaf().ToHost());
}

TEST(ReplicatedModule, TheHostTakesNoPartBetweenModules) {
  const auto engine = std::make_shared<CountingEngine>();
  ModuleOptions options = MlpOptions(TestDeviceList(2)), of_loss = CriterionOptions(TestDeviceList(2));
  options.engine = of_loss.engine = engine;
  {
    ReplicatedModule net(Mlp(), options), loss(Criterion(), of_loss);
    const Batch batch = RandomBatch(8, 4, 3, 1);
    const Array data(On(engine, TestDevice(0), batch.data[0])), label(On(engine, TestDevice(1), batch.label[0]));
    const auto host_copies = [&] { return engine->Runs("copy to host") + engine->Runs("copy from host"); };
    const auto step = [&] {
      const Values scores = net.Forward(data);
      loss.Forward(ListOf(scores, label));
      return net.Backward(loss.Backward()[0]);
    };
    step();
    const int copies = host_copies(), merges = engine->Runs("merge"), on_cpus = engine->RunsOn(DeviceKind::kCpu);
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(host_copies(), copies);
    EXPECT_EQ(engine->Runs("merge"), merges);
    if (TestDevices() == "sim") {
      EXPECT_EQ(engine->RunsOn(DeviceKind::kCpu), on_cpus);
    }
    EXPECT_GT(MaxAbsDiff(step().leaf().ToHost(), HostTensor(DType::kFloat32, {8, 4})), 0);
  }
}

// A network over two devices: what nn.GPU is for.
TEST(ReplicatedModule, PinnedModulesHandTheirOutputsOver) {
  const Symbol below = Tanh(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc1"));
  const Symbol above = FullyConnected(Variable("hidden"), {.num_hidden = 3}, "fc2");
  ReplicatedModule single(Mlp(), MlpOptions({Cpu(0)}));
  ReplicatedModule low(
      below, {.devices = {TestDevice(1)}, .inputs = DataDesc{"data", {8, 4}}, .output_device = TestDevice(2)});
  ReplicatedModule high(
      above, {.devices = {TestDevice(2)}, .inputs = DataDesc{"hidden", {8, 5}}, .output_device = TestDevice(0)});
  low.SetParams(single.GetParams(), {}, {.allow_extra = true});
  high.SetParams(single.GetParams(), {}, {.allow_extra = true});
  const HostTensor x = RandomTensor({8, 4}, 1), g = RandomTensor({8, 3}, 2);
  const Array here(On(DefaultEngine(), TestDevice(0), x));
  const Values hidden = low.Forward(here), scores = high.Forward(hidden);
  EXPECT_EQ(hidden.leaf().device(), TestDevice(2));
  EXPECT_EQ(scores.leaf().device(), TestDevice(0));
  EXPECT_EQ(high.buffers()[0].values[0].device(), TestDevice(2));
  EXPECT_LT(MostDifferent(scores, single.Forward(x)), 1e-6);
  const Values back = high.Backward(g);
  EXPECT_EQ(back.leaf().device(), TestDevice(2));  // where the input lay
  const Values gradients = low.Backward(back);
  EXPECT_EQ(gradients.leaf().device(), TestDevice(0));
  EXPECT_LT(MostDifferent(gradients, single.Backward(g)), 1e-6);
  EXPECT_LT(MaxAbsDiff(low.GetGradient("fc1_weight"), single.GetGradient("fc1_weight")), 1e-5);
  // Elsewhere, with what it has.
  low.SetDevices({TestDevice(3), TestDevice(0)}, TestDevice(3));
  EXPECT_EQ(low.Forward(here).leaf().device(), TestDevice(3));
  EXPECT_LT(MostDifferent(high.Forward(low.Forward(here)), scores), 1e-6);
  EXPECT_LT(MaxAbsDiff(low.GetGradient("fc1_weight"), single.GetGradient("fc1_weight")), 1e-5);
}

TEST(ReplicatedModule, WrongUseIsAnError) {
  ReplicatedModule net(Mlp(), MlpOptions(TestDeviceList(2)));
  const HostTensor x = RandomTensor({8, 4}, 1), g = RandomTensor({8, 3}, 2);
  EXPECT_EQ(MessageOf([&] { net.Backward(g); }), "Error: Backward: nothing has run yet; call Forward first");
  EXPECT_EQ(MessageOf([&] { net.AccumulateGradients(); }),
            "Error: AccumulateGradients: call Backward or InputGradients first");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MessageOf([&] { net.AccumulateGradients(infinity); }),
            "Error: AccumulateGradients: expected a scale that is finite, got inf");
  EXPECT_EQ(MessageOf([&] { net.Backward(g, infinity); }), "Error: Backward: expected a scale that is finite, got inf");
  EXPECT_EQ(MessageOf([&] { net.Update(infinity); }), "Error: Update: expected a rate that is finite, got inf");
  net.Evaluate();
  net.Forward(x);
  EXPECT_EQ(MessageOf([&] { net.Backward(g); }), "Error: Backward: the last Forward was in prediction mode");
  net.Train();
  net.Forward(x);
  EXPECT_EQ(MessageOf<ShapeError>([&] { net.Backward(RandomTensor({7, 3}, 1)); }).substr(0, 10), "ShapeError");
  net.Backward(g);
  EXPECT_NE(MessageOf([&] { net.Backward(g); }).find("used up"), std::string::npos);
  EXPECT_NE(MessageOf<DataError>([&] {
              net.Forward(RandomTensor({8, 4, 1}, 1));
            }).find("expected 2 axes"),
            std::string::npos);
  EXPECT_EQ(MessageOf([&] { net.GetGradient("fc1_wieght"); }),
            "Error: there is no parameter \"fc1_wieght\"; did you mean \"fc1_weight\"?");
  EXPECT_EQ(MessageOf([&] { ReplicatedModule(Mlp(), {}); }),
            "Error: a module needs at least one input with a name (ModuleOptions::inputs)");
  const auto with_outputs = [&](const Nest<std::string>& outputs) {
    return MessageOf([&] {
      ModuleOptions options = MlpOptions({Cpu(0)});
      options.outputs = outputs;
      ReplicatedModule(Mlp(), options);
    });
  };
  EXPECT_EQ(with_outputs("fc2_outptu"),
            "Error: outputs: \"fc2_outptu\" is not an output; did you mean \"fc2_output\"?");
  EXPECT_EQ(with_outputs(ListOf("fc2_output", "fc2_output")), "Error: outputs: \"fc2_output\" is named twice");
  EXPECT_EQ(with_outputs(""), "Error: outputs: \"fc2_output\" has no place");
  const Tensor elsewhere(MakeInlineEngine(), Cpu(0), DType::kFloat32, {8, 4});
  EXPECT_NE(MessageOf<DataError>([&] { net.Forward(elsewhere); }).find("belongs to another engine"), std::string::npos);
}

}  // namespace
}  // namespace bindery
