// Branches, loops and functions of ONNX files: what they compute, what becomes of parameters in them, and that files
// which ask for more steps than there is room for are refused.
#include <gtest/gtest.h>

#include "symbol/graph.h"
#include "symbol/onnx/onnx.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

constexpr int kInt64 = 7, kBool = 9;  // ONNX' numbers of types

Model Import(const std::string& graph, const std::string& functions = "") {
  return ParseOnnx(OnnxBytes(graph, 17, functions), "m.onnx");
}
std::string ErrorOf(const std::string& graph, const std::string& functions = "") {
  return MessageOf<ModelError>([&] { Import(graph, functions); });
}

// The first output for inputs x and perhaps others.
HostTensor Computed(const Model& model, HostTensorMap inputs) {
  inputs.insert(model.params.begin(), model.params.end());
  const RunOptions options{.mode = Mode::kPredict, .batch_axes = OpenAxesOf(model.symbol)};
  return RunGraph(model.symbol, inputs, options).outputs.at(0);
}

const std::string kX = OnnxInput("x", "N, 2");
const HostTensor kValue = HostTensor::From({1, 2}, {1, 2});

std::string Trips(int64_t trips) { return OnnxInt64s("trips", "", std::to_string(trips)); }

// (step, condition, h) -> (condition, next, next) with next = h w; the loop gives the last h and all of them.
std::string PowerLoop() {
  return OnnxFloats("w", "2, 2", "2, 0, 0, 3") +
         OnnxNode("Loop", "trips - x", "y all",
                  OnnxGraph("body", OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxInput("h", "N, 2") +
                                        OnnxNode("Identity", "go", "on") + OnnxNode("MatMul", "h w", "next") +
                                        OnnxOutput("on") + OnnxOutput("next") + OnnxOutput("next")));
}

TEST(OnnxControl, ALoopsStepsShareItsWeights) {
  const Model last = Import(kX + Trips(3) + PowerLoop() + OnnxOutput("y"));
  EXPECT_EQ(last.symbol.ListArguments(), (std::vector<std::string>{"x", "w_transposed"}));
  EXPECT_EQ(Computed(last, {{"x", kValue}}), HostTensor::From({1, 2}, {8, 54}));
  const Model all = Import(kX + Trips(3) + PowerLoop() + OnnxOutput("all"));
  EXPECT_EQ(Computed(all, {{"x", kValue}}), HostTensor::From({3, 1, 2}, {2, 6, 4, 18, 8, 54}));
  EXPECT_EQ(Computed(Import(kX + Trips(0) + PowerLoop() + OnnxOutput("y")), {{"x", kValue}}), kValue);
  EXPECT_NE(ErrorOf(kX + Trips(0) + PowerLoop() + OnnxOutput("all")).find("it has no steps"), std::string::npos);
}

// Of graphs within a body, too, which are met at each step.
TEST(OnnxControl, ALoopsStepsShareTheWeightsOfItsBranches) {
  const auto branch = [](const std::string& weight, const std::string& values) {
    const std::string result = weight + "_h";
    return OnnxFloats(weight, "2", values) + OnnxNode("Mul", "h " + weight, result) + OnnxOutput(result);
  };
  const std::string choice = OnnxNode(
      "If", "c", "next", OnnxGraph("then_branch", branch("w", "2, 3")) + OnnxGraph("else_branch", branch("v", "4, 5")));
  const Model model =
      Import(kX + OnnxInput("c", "1", kBool) + Trips(3) +
             OnnxNode("Loop", "trips - x", "y",
                      OnnxGraph("body", OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) +
                                            OnnxInput("h", "N, 2") + choice + OnnxOutput("go") + OnnxOutput("next"))) +
             OnnxOutput("y"));
  EXPECT_EQ(model.symbol.ListArguments(), (std::vector<std::string>{"c", "x", "w", "v"}));
  EXPECT_EQ(Computed(model, {{"x", kValue}, {"c", HostTensor::Full(DType::kBool, {1}, 1)}}),
            HostTensor::From({1, 2}, {8, 54}));
}

// It ends when its condition says so, which follows from the number of the step.
TEST(OnnxControl, ALoopEndsByItsCondition) {
  const std::string body = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxInput("h", "N, 2") +
                           OnnxNode("Less", "i two", "on") + OnnxNode("Add", "h h", "next") + OnnxOutput("on") +
                           OnnxOutput("next");
  const Model model = Import(kX + OnnxInt64s("two", "", "2") + OnnxNode("Loop", "- - x", "y", OnnxGraph("body", body)) +
                             OnnxOutput("y"));
  EXPECT_EQ(Computed(model, {{"x", kValue}}), HostTensor::From({1, 2}, {8, 16}));
}

// As TensorFlow's recurrent layers have it: counters are compared as floating point, before the loop and in it.
TEST(OnnxControl, ALoopsConditionMayCompareFloats) {
  const auto loop = [](const std::string& first, const std::string& counter) {
    const std::string body = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxInput("h", "N, 2") +
                             OnnxNode("Cast", counter, "count", OnnxInt("to", 1)) +
                             OnnxNode("Less", "count two", "less") + OnnxNode("And", "less less", "on") +
                             OnnxNode("Add", "h h", "next") + OnnxOutput("on") + OnnxOutput("next");
    return kX + OnnxFloats("zero", "", "0") + OnnxFloats("two", "", "2") +
           OnnxNode("Greater", "two " + first, "first") + OnnxNode("Loop", "- first x", "y", OnnxGraph("body", body)) +
           OnnxOutput("y");
  };
  EXPECT_EQ(Computed(Import(loop("zero", "i")), {{"x", kValue}}), HostTensor::From({1, 2}, {8, 16}));
  EXPECT_EQ(Computed(Import(loop("two", "i")), {{"x", kValue}}), kValue);
  const std::string unknown = " but how many steps a loop has must be known while the file is read";
  EXPECT_NE(ErrorOf(loop("x", "i")).find("input 1, the condition of its first step, is computed from data"),
            std::string::npos);
  EXPECT_NE(ErrorOf(loop("zero", "h"))
                .find("the condition to go on after step 0 is computed from data or the batch," + unknown),
            std::string::npos);
}

TEST(OnnxControl, AScanGoesAlongItsAxis) {
  const std::string body = OnnxInput("sum", "N") + OnnxInput("next", "N") + OnnxNode("Add", "sum next", "more") +
                           OnnxNode("Identity", "more", "seen") + OnnxOutput("more") + OnnxOutput("seen");
  const auto scan = [&](const std::string& more) {
    return Import(
        OnnxInput("zero", "N") + OnnxInput("x", "N, 3") +
        OnnxNode("Scan", "zero x", "last all",
                 OnnxInt("num_scan_inputs", 1) + OnnxInts("scan_input_axes", "1") + more + OnnxGraph("body", body)) +
        OnnxOutput("all"));
  };
  const HostTensorMap inputs = {{"zero", HostTensor::From({2}, {0, 10})},
                                {"x", HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6})}};
  EXPECT_EQ(Computed(scan(""), inputs), HostTensor::From({3, 2}, {1, 14, 3, 19, 6, 25}));
  EXPECT_EQ(Computed(scan(OnnxInts("scan_input_directions", "1") + OnnxInts("scan_output_directions", "1") +
                          OnnxInts("scan_output_axes", "-1")),
                     inputs),
            HostTensor::From({2, 3}, {6, 5, 3, 25, 21, 16}));
}

TEST(OnnxControl, ABranchIsChosenWhenItIsReadOrWhenItIsRun) {
  const std::string branches = OnnxGraph("then_branch", OnnxNode("Add", "x x", "a") + OnnxOutput("a")) +
                               OnnxGraph("else_branch", OnnxNode("Neg", "x", "b") + OnnxOutput("b"));
  const auto constant = [&](int truth) {
    return Import(kX + fmt::format("initializer {{ name: 'c' data_type: 9 int32_data: {} }} ", truth) +
                  OnnxNode("If", "c", "y", branches) + OnnxOutput("y"));
  };
  EXPECT_EQ(Computed(constant(1), {{"x", kValue}}), HostTensor::From({1, 2}, {2, 4}));
  EXPECT_EQ(Computed(constant(0), {{"x", kValue}}), HostTensor::From({1, 2}, {-1, -2}));
  EXPECT_EQ(Graph::Of(constant(0).symbol).nodes.size(), 2u);

  const Model computed = Import(kX + OnnxInput("c", "1", kBool) + OnnxNode("If", "c", "y", branches) + OnnxOutput("y"));
  for (const double truth : {0.0, 1.0}) {
    const HostTensor condition = HostTensor::Full(DType::kBool, {1}, truth);
    EXPECT_EQ(Computed(computed, {{"x", kValue}, {"c", condition}}),
              truth != 0 ? HostTensor::From({1, 2}, {2, 4}) : HostTensor::From({1, 2}, {-1, -2}));
  }
  const std::string other = OnnxGraph("then_branch", OnnxNode("Transpose", "x", "a") + OnnxOutput("a")) +
                            OnnxGraph("else_branch", OnnxNode("Neg", "x", "b") + OnnxOutput("b"));
  EXPECT_NE(ErrorOf(kX + OnnxInput("c", "1", kBool) + OnnxNode("If", "c", "y", other) + OnnxOutput("y"))
                .find("its branches give other shapes"),
            std::string::npos);
}

std::string Function(const std::string& name, const std::string& text) {
  return fmt::format("functions {{ name: '{}' domain: 'mine' opset_import {{ version: 17 }} {} }} ", name, text);
}
std::string Call(const std::string& name, const std::string& inputs, const std::string& outputs,
                 const std::string& attributes = "") {
  return OnnxNode(name, inputs, outputs, "domain: 'mine' " + attributes);
}

// x W^T + b, with an activation whose slope the call may say.
const std::string kLayer =
    Function("Layer",
             "input: 'x' input: 'w' input: 'b' output: 'y' " + OnnxNode("Transpose", "w", "t") +
                 OnnxNode("MatMul", "x t", "m") + Call("Biased", "m b", "s") +
                 OnnxNode("LeakyRelu", "s", "y", "attribute { name: 'alpha' ref_attr_name: 'slope' type: 1 }") +
                 "attribute_proto { name: 'slope' type: 1 f: 0.5 }") +
    Function("Biased", "input: 'm' input: 'b' output: 's' " + OnnxNode("Add", "m b", "s"));

TEST(OnnxControl, FunctionsAreWhatTheyStandFor) {
  const std::string weights =
      OnnxFloats("w1", "2, 2", "1, 0, 0, -1") + OnnxFloats("b1", "2", "1, 1") + OnnxFloats("w2", "2, 2", "0, 1, 1, 0");
  const Model model =
      Import(kX + weights + Call("Layer", "x w1 b1", "h") +
                 Call("Layer", "h w2 b1", "y", "attribute { name: 'slope' type: 1 f: 0.25 }") + OnnxOutput("y"),
             kLayer);
  EXPECT_EQ(model.params.size(), 3u);
  EXPECT_TRUE(model.params.contains("w1") && model.params.contains("w2") && model.params.contains("b1"));
  // h = leaky(2, -1) = (2, -0.5); y = leaky(-0.5 + 1, 2 + 1)
  EXPECT_EQ(Computed(model, {{"x", kValue}}), HostTensor::From({1, 2}, {0.5, 3}));
}

TEST(OnnxControl, FunctionsMayBeCalledWithLess) {
  const std::string optional =
      Function("Clipped", "input: 'x' input: 'low' input: 'high' output: 'y' " + OnnxNode("Clip", "x low high", "y"));
  const Model model =
      Import(kX + OnnxFloats("h", "", "1.5") + Call("Clipped", "x - h", "y") + OnnxOutput("y"), optional);
  EXPECT_EQ(Computed(model, {{"x", kValue}}), HostTensor::From({1, 2}, {1, 1.5}));
  EXPECT_EQ(ErrorOf(kX + Call("Clipped", "x", "y", OnnxInt("k", 1)) + OnnxOutput("y"), optional),
            "ModelError: m.onnx: node 0, mine.Clipped \"y\": attribute \"k\" is not known");
}

TEST(OnnxControl, ErrorsLeadToTheNode) {
  const std::string body = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxNode("Identity", "go", "on") +
                           OnnxNode("Relu", "nothing", "r") + OnnxOutput("on") + OnnxOutput("r");
  EXPECT_EQ(ErrorOf(kX + Trips(2) + OnnxNode("Loop", "trips -", "y", "name: 'l' " + OnnxGraph("body", body)) +
                    OnnxOutput("y")),
            "ModelError: m.onnx: node 0, Loop \"l\": step 0: node 1, Relu \"l_0_r\": input 0: nothing before it is "
            "called \"nothing\"");
  EXPECT_EQ(ErrorOf(kX + Call("F", "x", "y") + OnnxOutput("y"),
                    Function("F", "input: 'x' output: 'y' " + OnnxNode("Foo", "x", "y"))),
            "ModelError: m.onnx: operators of opset 17 that cannot be imported, with the nodes that use them: "
            "Foo (\"y\")");
}

// --- Files that ask for more than there is room for.

TEST(OnnxControl, WhatIsUnrolledIsLimited) {
  const auto limited = [](const std::string& graph, const std::string& functions = "") {
    return ErrorOf(graph, functions).find("make more than 100000 nodes") != std::string::npos;
  };
  EXPECT_TRUE(limited(kX + Trips(INT64_MAX) + PowerLoop() + OnnxOutput("y")));
  const std::string forever = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxOutput("go");
  EXPECT_TRUE(limited(kX + OnnxNode("Loop", "-", "", OnnxGraph("body", forever)) + OnnxOutput("x")));

  const std::string inner = OnnxInput("j", "", kInt64) + OnnxInput("on", "", kBool) + OnnxOutput("on");
  const std::string outer = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) +
                            OnnxNode("Loop", "trips", "", OnnxGraph("body", inner)) + OnnxOutput("go");
  EXPECT_TRUE(limited(kX + Trips(1000) + OnnxNode("Loop", "trips", "", OnnxGraph("body", outer)) + OnnxOutput("x")));

  std::string tenfold = Function("f0", "input: 'x' output: 'x'");
  for (int i = 1; i < 9; ++i) {
    std::string calls;
    for (int call = 0; call < 10; ++call) calls += Call(fmt::format("f{}", i - 1), "x", fmt::format("y{}", call));
    tenfold += Function(fmt::format("f{}", i), "input: 'x' output: 'x' " + calls);
  }
  EXPECT_TRUE(limited(kX + Call("f8", "x", "y") + OnnxOutput("y"), tenfold));
  EXPECT_NE(ErrorOf(kX + Call("f", "x", "y") + OnnxOutput("y"),
                    Function("f", "input: 'x' output: 'y' " + Call("f", "x", "y")))
                .find("more than 64 graphs within graphs"),
            std::string::npos);
}

TEST(OnnxControl, GraphsWithinGraphsAreLimited) {
  std::string graph = OnnxNode("Relu", "x", "y") + OnnxOutput("y");
  for (int i = 0; i < 40; ++i) {
    graph = OnnxNode("If", "c", "y", OnnxGraph("then_branch", graph) + OnnxGraph("else_branch", graph.substr(0, 0))) +
            OnnxOutput("y");
  }
  EXPECT_EQ(ErrorOf(kX + graph), "ModelError: m.onnx: more than 100 messages deep");
}

TEST(OnnxControl, LongNamesInManyStepsAreLimited) {
  const std::string name(4096, 'n');
  const std::string body = OnnxInput("i", "", kInt64) + OnnxInput("go", "", kBool) + OnnxInput("h", "N, 2") +
                           OnnxNode("Relu", "h", name) + OnnxOutput("go") + OnnxOutput(name);
  EXPECT_NE(ErrorOf(kX + Trips(90'000) + OnnxNode("Loop", "trips - x", "y", OnnxGraph("body", body)) + OnnxOutput("y"))
                .find("268435456 bytes of them"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
