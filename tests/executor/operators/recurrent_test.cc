// Recurrent layers against the same made of other operators, one step after the other.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/executor.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(Operators, Recurrent) { CheckOperators(RecurrentCases()); }

constexpr int64_t kSteps = 5, kSamples = 3, kHidden = 4;

Symbol Part(const Symbol& x, int64_t begin, int64_t end) {
  return Slice(x, {.begin = {begin * kHidden}, .end = {end * kHidden}, .axes = {-1}});
}

// y (T, N, H) of x (T, N, G H), from states of 0.
Symbol Unrolled(RecurrentCell cell, const Symbol& x, const Symbol& w, const Symbol& b) {
  const Symbol steps = SliceChannel(x, {.num_outputs = kSteps, .axis = 0, .squeeze_axis = true});
  Symbol h = Part(steps[0], 0, 1) * 0.0, c = h;
  std::vector<Symbol> states;
  for (int t = 0; t < kSteps; ++t) {
    const Symbol product = Dot(h, w, {.transpose_b = true}), sum = steps[t] + product;
    if (cell == RecurrentCell::kLstm) {
      c = Sigmoid(Part(sum, 1, 2)) * c + Sigmoid(Part(sum, 0, 1)) * Tanh(Part(sum, 2, 3));
      h = Sigmoid(Part(sum, 3, 4)) * Tanh(c);
    } else if (cell == RecurrentCell::kGru) {
      const Symbol r = Sigmoid(Part(sum, 0, 1)), z = Sigmoid(Part(sum, 1, 2));
      const Symbol n = Tanh(Part(steps[t], 2, 3) + r * (Part(product, 2, 3) + b));
      h = (1.0 - z) * n + z * h;
    } else {
      h = cell == RecurrentCell::kTanh ? Tanh(sum) : Relu(sum);
    }
    states.push_back(Reshape(h, {.shape = {1, kSamples, kHidden}}));
  }
  return Concat(states, {.axis = 0});
}

TEST(Recurrent, IsItsStepsOneAfterTheOther) {
  const Symbol x = Variable("x"), w = Variable("w"), b = Variable("b");
  for (const RecurrentCell cell :
       {RecurrentCell::kRelu, RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const bool is_gru = cell == RecurrentCell::kGru;
    const int64_t gates = cell == RecurrentCell::kLstm ? 4 : is_gru ? 3 : 1;
    HostTensorMap values = {{"x", Uniform({kSteps, kSamples, gates * kHidden})},
                            {"w", Uniform({gates * kHidden, kHidden})}};
    std::vector<Symbol> inputs = {x, w};
    if (is_gru) {
      values["b"] = Uniform({kHidden});
      inputs.push_back(b);
    }
    GivenTypes given;
    std::vector<std::string> wrt;
    for (const auto& [name, value] : values) {
      given.shapes[name] = value.shape();
      given.dtypes[name] = DType::kFloat64;
      wrt.push_back(name);
    }
    const auto run = [&](const Symbol& y) {
      std::vector<Symbol> all = {y};
      for (const Symbol& gradient : Gradient(MakeLoss(Sum(Square(y))), wrt, given).gradients) all.push_back(gradient);
      return RunGraph(Group(all), values, {.threads = 2}).outputs;
    };
    const std::vector<HostTensor> expected = run(Unrolled(cell, x, w, b));
    const std::vector<HostTensor> actual = run(Recurrent(inputs, {.cell = cell, .hidden = kHidden}, "y")[0]);
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectNear(actual[i], expected[i], 1e-12, fmt::format("cell {}, output {}", static_cast<int>(cell), i));
    }
  }
}

// Layers so wide that two threads share the hidden units of a single sample.
struct Wide {
  const char* name;
  RecurrentAttrs attrs;
};
std::vector<Wide> WideLayers() {
  return {{"lstm", {.cell = RecurrentCell::kLstm, .hidden = 370, .initial = true}},
          {"lstm with lengths", {.cell = RecurrentCell::kLstm, .hidden = 363, .reverse = true, .lengths = true}},
          {"gru", {.cell = RecurrentCell::kGru, .hidden = 430, .initial = true}},
          {"gru, reset before", {.cell = RecurrentCell::kGru, .hidden = 423, .reset_after = false}},
          {"tanh", {.cell = RecurrentCell::kTanh, .hidden = 730}}};
}
HostTensorMap ValuesOf(const Wide& wide, DType dtype) {
  const RecurrentAttrs& attrs = wide.attrs;
  const int64_t hidden = attrs.hidden;
  const int64_t gates = attrs.cell == RecurrentCell::kLstm ? 4 : attrs.cell == RecurrentCell::kGru ? 3 : 1;
  HostTensorMap values = {{"x", Uniform({3, 1, gates * hidden}).Cast(dtype)},
                          {"w", Uniform({gates * hidden, hidden}, -0.1, 0.1).Cast(dtype)}};
  if (attrs.cell == RecurrentCell::kGru && attrs.reset_after) values["b"] = Uniform({hidden}).Cast(dtype);
  if (attrs.initial) values["h"] = Uniform({1, hidden}).Cast(dtype);
  if (attrs.initial && attrs.cell == RecurrentCell::kLstm) values["c"] = Uniform({1, hidden}).Cast(dtype);
  if (attrs.lengths) values["n"] = Values({1}, {2}).Cast(DType::kInt32);
  return values;
}
Symbol Layer(const Wide& wide, const HostTensorMap& values) {
  std::vector<Symbol> inputs;
  for (const char* name : {"x", "w", "b", "h", "c", "n"}) {
    if (values.contains(name)) inputs.push_back(Variable(name));
  }
  return Recurrent(inputs, wide.attrs, "y");
}

TEST(Recurrent, NoBitDependsOnWhoseUnitsTheyAre) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const Wide& wide : WideLayers()) {
      const HostTensorMap values = ValuesOf(wide, dtype);
      const Symbol y = Layer(wide, values);
      const std::vector<HostTensor> alone = RunGraph(y, values, {}).outputs;
      EXPECT_EQ(RunGraph(y, values, {.threads = 2}).outputs, alone) << wide.name;
      const auto expected = RunGraph(y, values, {.policy = KernelPolicy::kReference, .watch = false}).outputs;
      for (size_t i = 0; i < alone.size(); ++i) ExpectNear(alone[i], expected[i], 1e3 * EpsilonOf(dtype), wide.name);
    }
  }
}

// Predictions keep the weights as the kernel reads them, which is no bit's matter either, and hear of new ones.
TEST(Recurrent, PredictionsLayWeightsOutOnce) {
  for (const Wide& wide : WideLayers()) {
    HostTensorMap values = ValuesOf(wide, DType::kFloat32);
    const Symbol y = Layer(wide, values);
    ExecutorOptions options{.for_training = false, .threads = 2};
    HostTensorMap inputs, parameters;
    for (const auto& [name, value] : values) {
      const bool is_parameter = name == "w" || name == "b";
      (is_parameter ? parameters : inputs)[name] = value;
      if (!is_parameter) options.inputs.push_back({name, value.shape(), value.dtype(), name == "x" ? "TNC" : ""});
    }
    Executor executor(y, options);
    const Plan& plan = executor.plan();
    ASSERT_EQ(plan.derive_calls, 1) << wide.name;
    EXPECT_EQ(plan.calls[0].implementation, "panels") << wide.name;
    for (int round = 0; round < 2; ++round) {
      executor.SetParams(parameters);
      executor.Forward(inputs);
      EXPECT_EQ(executor.Outputs()[0], RunGraph(y, values, {}).outputs[0]) << wide.name;
      parameters["w"] = values["w"] = Uniform(values["w"].shape(), -0.1, 0.1).Cast(DType::kFloat32);
    }
  }
}

// And of operators of sequences, of which one asks for a last step.
TEST(Recurrent, LengthsThatCannotBeAreErrors) {
  const Symbol x = Variable("x"), n = Variable("n");
  const RecurrentAttrs attrs{.cell = RecurrentCell::kTanh, .hidden = 4, .lengths = true};
  const HostTensor data = Uniform({kSteps, 2, 4}).Cast(DType::kFloat32), w = Uniform({4, 4}).Cast(DType::kFloat32);
  const auto message = [&](const Symbol& y, double of_second, KernelPolicy policy) {
    HostTensorMap values = {{"x", data}, {"w", w}, {"n", Values({2}, {2, of_second}).Cast(DType::kFloat32)}};
    if (y.ListArguments().size() == 2) values.erase("w");
    return MessageOf<DataError>([&] { RunGraph(y, values, {.policy = policy}); });
  };
  const std::vector<Symbol> all = {Recurrent({x, Variable("w"), n}, attrs, "y")[0], SequenceMask(x, n, {}, "y"),
                                   SequenceReverse(x, n, {}, "y"), SequenceLast(x, n, {}, "y")};
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t least = i == 3 ? 1 : 0;
      const std::string range = fmt::format("{}..{}", least, kSteps);
      for (const double bad : {least - 1.0, -3.0, -0.5, 0.5, 1.5, 6.0, 99.0, static_cast<double>(NAN)}) {
        EXPECT_NE(message(all[i], bad, policy).find(range), std::string::npos) << "operator " << i << ", " << bad;
      }
      for (const int64_t good : {least, kSteps}) {
        EXPECT_EQ(message(all[i], static_cast<double>(good), policy), "nothing was thrown") << i << ", " << good;
      }
    }
  }
}

TEST(Recurrent, LayersAndDirectionsHaveWeightsOfTheirOwn) {
  const RnnResult gru =
      Rnn(Variable("x"), {.cell = RecurrentCell::kGru, .hidden = 3, .layers = 2, .bidirectional = true, .dropout = 0.5},
          "rnn");
  EXPECT_EQ(gru.states.size(), 4u);
  EXPECT_TRUE(gru.cells.empty());
  const std::vector<std::string> arguments = gru.output.ListArguments();
  EXPECT_EQ(arguments.size(), 1u + 4 * 4);
  const std::vector<std::string> of_first = {
      "x", "rnn_l0_input_weight", "rnn_l0_input_bias", "rnn_l0_weight", "rnn_l0_bias", "rnn_l0_reverse_input_weight"};
  EXPECT_EQ(std::vector(arguments.begin(), arguments.begin() + 6), of_first);
  const Graph graph = Graph::Of(gru.output);
  ShapeMap shapes = {{"x", {7, 2, 5}}};
  const NodeTypes types = InferTypes(graph, shapes, {}, {{"x", 1}}, 2);
  EXPECT_EQ(types.back()[0].shape, (Shape{7, 2, 6}));
  EXPECT_EQ(MessageOf<ModelError>([] { Rnn(Variable("x"), {.hidden = 3}, "rnn", {Variable("h")}); }),
            "ModelError: Rnn \"rnn\": expected 1 initial states and, of an LSTM, as many cells, got 1 and 0");
  EXPECT_EQ(MessageOf<ModelError>([] { Rnn(Variable("x"), {.hidden = 3}, "rnn", {}, {Variable("c")}); }),
            "ModelError: Rnn \"rnn\": expected 1 initial states and, of an LSTM, as many cells, got 0 and 1");
  EXPECT_EQ(MessageOf<ModelError>([] { Rnn(Variable("x"), {.hidden = 3, .dropout = NAN}, "rnn"); }),
            "ModelError: Rnn \"rnn\": dropout must be from 0 to below 1, got nan");
}

}  // namespace
}  // namespace bindery
