#include "symbol/gradient.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

// Every variable has one element.
GradientResult GradientOf(const Symbol& heads, const Names& wrt) {
  GivenTypes scalars;
  for (const std::string& name : heads.ListInputs()) scalars.shapes[name] = {1};
  return Gradient(heads, wrt, scalars);
}

Names InputNames(const Symbol& symbol) {
  Names names;
  for (const Entry& input : symbol.entry().node->inputs()) names.push_back(input.node->name());
  return names;
}

Symbol Loss(const Symbol& x, const std::string& name) { return Apply(TestLossOp(), {}, {x}, name); }

TEST(Gradient, OfOneOperator) {
  const GradientResult result = GradientOf(Square(Variable("x"), "y"), {"x"});
  EXPECT_EQ(result.head_gradients, Names{"y_output_grad"});
  ASSERT_EQ(result.gradients.size(), 1u);
  EXPECT_EQ(RunOnScalars(result.gradients[0], {{"x", 3}, {"y_output_grad", 10}}), std::vector<double>{60});
}

TEST(Gradient, FollowsTheChainRule) {
  // z = exp(x y) / y
  const Symbol x = Variable("x"), y = Variable("y");
  const Symbol z = Div(Exp(Mul(x, y, "p"), "e"), y, "z");
  const GradientResult result = GradientOf(z, {"x", "y"});
  const double a = 0.7, b = 1.3;
  const auto values = RunOnScalars(Group(result.gradients), {{"x", a}, {"y", b}, {"z_output_grad", 1}});
  EXPECT_NEAR(values[0], std::exp(a * b), 1e-12);
  EXPECT_NEAR(values[1], a * std::exp(a * b) / b - std::exp(a * b) / (b * b), 1e-12);
}

TEST(Gradient, AHeadMayBeAVariable) {
  const Symbol x = Variable("x");
  const GradientResult result = GradientOf(Group({x, Square(x, "y")}), {"x"});
  EXPECT_EQ(result.head_gradients, (Names{"x_grad", "y_output_grad"}));
  EXPECT_EQ(RunOnScalars(result.gradients[0], {{"x", 3}, {"x_grad", 5}, {"y_output_grad", 1}}),
            std::vector<double>{11});
}

TEST(Gradient, AHeadListedTwiceCountsTwice) {
  const Symbol y = Square(Variable("x"), "y");
  const GradientResult result = GradientOf(Group({y, y}), {"x"});
  EXPECT_EQ(result.head_gradients, (Names{"y_output_grad", "y_output_grad1"}));
  EXPECT_EQ(RunOnScalars(result.gradients[0], {{"x", 3}, {"y_output_grad", 1}, {"y_output_grad1", 10}}),
            std::vector<double>{66});
}

TEST(Gradient, HeadGradientsAvoidNamesThatAreTaken) {
  const GradientResult result = GradientOf(Mul(Variable("x"), Variable("y_output_grad"), "y"), {"x"});
  EXPECT_EQ(result.head_gradients, Names{"y_output_grad1"});
}

// Each is tried once, not all those before it again.
TEST(Gradient, AnyNumberOfHeadsMayHaveOneName) {
  constexpr size_t kHeads = 30'000;
  const Symbol x = Variable("x");
  std::vector<Symbol> heads;
  for (size_t i = 0; i < kHeads; ++i) heads.push_back(Square(x, "y"));
  const GradientResult result = GradientOf(Group(heads), {"x"});
  EXPECT_EQ(result.head_gradients.front(), "y_output_grad");
  EXPECT_EQ(result.head_gradients.back(), "y_output_grad29999");
}

TEST(Gradient, SumsOnceInTheOrderOfTheGraphHeadsLast) {
  const Symbol a = Variable("a"), z = Square(a, "z");
  const GradientResult result = GradientOf(Group({z, Exp(z, "first"), Exp(Mul(z, z, "second"), "e")}), {"a"});
  const Graph graph = Graph::Of(result.gradients[0]);
  const Node* sum = nullptr;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable() && &node->op() == &AddNOp()) {
      EXPECT_EQ(sum, nullptr);
      sum = node.get();
    }
  }
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->name(), "z_backward_sum");
  ASSERT_EQ(sum->inputs().size(), 4u);
  EXPECT_EQ(sum->inputs()[0].node->name().rfind("first_backward", 0), 0u);
  EXPECT_EQ(sum->inputs()[1].node->name().rfind("second_backward", 0), 0u);
  EXPECT_EQ(sum->inputs()[2].node->name().rfind("second_backward", 0), 0u);
  EXPECT_NE(sum->inputs()[1].node->name(), sum->inputs()[2].node->name());
  EXPECT_EQ(sum->inputs()[3].node->name(), "z_output_grad");
}

TEST(Gradient, TwiceTheSameGraphTwiceTheSameGradient) {
  const auto text = [] {
    const Symbol net =
        FullyConnected(Relu(FullyConnected(Variable("d"), {.num_hidden = 3}, "fc1")), {.num_hidden = 2}, "fc2");
    const Names wrt = {"fc1_weight", "d", "fc2_bias"};
    return Group(Gradient(net, wrt, {.shapes = {{"d", {4, 7}}}}).gradients).DebugString();
  };
  EXPECT_EQ(text(), text());
}

TEST(Gradient, OnlyWhatIsAskedForIsComputed) {
  const Symbol net =
      FullyConnected(Tanh(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1")), {.num_hidden = 2}, "fc2");
  const auto gradients = [&](const Names& wrt) { return Gradient(net, wrt, {.shapes = {{"data", {4, 7}}}}).gradients; };
  const Symbol last = Group(gradients({"fc2_weight"}));
  EXPECT_EQ(Count(last, FullyConnectedGradDataOp()), 0);
  EXPECT_EQ(Count(last, FullyConnectedGradWeightOp()), 1);
  EXPECT_EQ(Count(last, ActivationGradOp()), 0);
  const Symbol data = Group(gradients({"data"}));
  EXPECT_EQ(Count(data, FullyConnectedGradDataOp()), 2);
  EXPECT_EQ(Count(data, FullyConnectedGradWeightOp()), 0);
  EXPECT_TRUE(GradientOf(net, {}).gradients.empty());
  EXPECT_EQ(GradientOf(net, {}).head_gradients, Names{""});
}

TEST(Gradient, WhatHeadsDoNotDependOnHasNone) {
  const Symbol x = Variable("x"), y = Variable("y");
  const GradientResult result = GradientOf(Group({Square(x, "a"), Square(y, "b")}), {"x"});
  EXPECT_EQ(result.head_gradients, (Names{"a_output_grad", ""}));
  const GradientResult blocked = GradientOf(Add(Square(x, "a"), BlockGrad(y, "stop"), "s"), {"y", "x"});
  EXPECT_TRUE(blocked.gradients[0].empty());
  EXPECT_FALSE(blocked.gradients[1].empty());
}

TEST(Gradient, HeadGradientsThatEndOnTheWayAreNotAskedFor) {
  const Symbol x = Variable("x");
  const GradientResult result = GradientOf(Group({BlockGrad(x, "stop") * 2.0, Square(x, "y")}), {"x"});
  EXPECT_EQ(result.head_gradients, (Names{"", "y_output_grad"}));
}

TEST(Gradient, UnknownNamesAreErrors) {
  const Symbol net = Square(Variable("data"), "y");
  EXPECT_EQ(MessageOf<Error>([&] { GradientOf(net, {"dta"}); }),
            "Error: unknown argument \"dta\"; did you mean \"data\"?");
}

TEST(Gradient, ANameMayBeAskedForTwice) {
  const GradientResult result = GradientOf(Square(Variable("x"), "y"), {"x", "x"});
  EXPECT_EQ(result.gradients[0].entry(), result.gradients[1].entry());
}

// E30
TEST(Gradient, AnOperatorWithoutOneOnThePathIsAnError) {
  const Symbol state = Outputs(StatefulOp(), {Square(Variable("x"), "sq")}, "st")[0];
  const Symbol net = Mul(state, Variable("w"), "net");
  EXPECT_EQ(
      MessageOf<ModelError>([&] {
        GradientOf(net, {"w", "x"});
      }),
      "ModelError: Stateful \"st\" lies between the heads and what the gradient is asked of, but has no gradient: it "
      "is a test; put BlockGrad behind it to stop the gradient there");
  EXPECT_FALSE(GradientOf(net, {"w"}).gradients[0].empty());  // not on the path
  const GradientResult stopped = GradientOf(Mul(BlockGrad(state, "stop"), Variable("w"), "net"), {"w", "x"});
  EXPECT_FALSE(stopped.gradients[0].empty());
  EXPECT_TRUE(stopped.gradients[1].empty());
}

TEST(Gradient, LossHeadsNeedNoHeadGradient) {
  const Symbol x = Variable("x");
  const GradientResult result = GradientOf(Group({Loss(Square(x, "a"), "l"), Exp(x, "e")}), {"x"});
  EXPECT_EQ(result.head_gradients, (Names{"", "e_output_grad"}));
  EXPECT_NEAR(RunOnScalars(result.gradients[0], {{"x", 2}, {"e_output_grad", 1}})[0], 4 * 4 + std::exp(2.0), 1e-12);
}

TEST(Gradient, ALossInTheMiddleIgnoresWhatFlowsBack) {
  const Symbol x = Variable("x");
  const Symbol net = Loss(Square(x, "a"), "l") * 100.0;
  const GradientResult result = GradientOf(net, {"x"});
  EXPECT_EQ(RunOnScalars(result.gradients[0], {{"x", 2}, {result.head_gradients[0], 7}}), std::vector<double>{16});
  // Where nothing flows back and it is no head, it is no loss of this graph.
  const GradientResult blocked = GradientOf(Add(BlockGrad(Loss(x, "l"), "stop"), x, "s"), {"x"});
  EXPECT_EQ(RunOnScalars(blocked.gradients[0], {{"x", 2}, {"s_output_grad", 7}}), std::vector<double>{7});
}

TEST(Gradient, SoftmaxOutputTakesAHeadGradientOnlyOnRequest) {
  const Symbol x = Variable("x");
  const Names wrt = {"x"};
  EXPECT_EQ(Gradient(SoftmaxOutput(x, {}, "softmax"), wrt).head_gradients, Names{""});
  const GradientResult result = Gradient(SoftmaxOutput(x, {.out_grad = true}, "softmax"), wrt);
  EXPECT_EQ(result.head_gradients, Names{"softmax_output_grad"});
  EXPECT_EQ(result.gradients[0].ListArguments(), (Names{"x", "softmax_label", "softmax_output_grad"}));
}

TEST(Gradient, OutputsThroughWhichNothingFlowsAreEmpty) {
  const std::vector<Symbol> fork = Outputs(ForkOp(), {Variable("x")}, "fork");
  const GradientResult one = GradientOf(Square(fork[1], "y"), {"x"});
  ASSERT_EQ(InputNames(one.gradients[0]).size(), 1u);  // Fork's rule adds what is there
  EXPECT_EQ(RunOnScalars(one.gradients[0], {{"x", 3}, {"y_output_grad", 1}}), std::vector<double>{6});
  const GradientResult both = GradientOf(Mul(fork[0], fork[1], "y"), {"x"});
  EXPECT_EQ(InputNames(both.gradients[0]).size(), 2u);
}

TEST(Gradient, RulesMustAnswerForEveryInput) {
  static const OpDef sloppy = [] {
    OpDef op;
    op.name = "Sloppy";
    op.inputs = {"a", "b"};
    op.infer = [](InferContext&) {};
    op.gradient = [](const GradientContext& g) { return std::vector<Symbol>{g.output_grad(0)}; };
    return op;
  }();
  EXPECT_EQ(MessageOf<ModelError>([] { GradientOf(Apply(sloppy, {}, {Variable("x")}, "s"), {"x"}); }),
            "ModelError: Sloppy \"s\": its gradient rule gives 1 symbols for 2 inputs");
}

TEST(Gradient, NodesInheritAnnotationsAndNothingOfTheCallersScopes) {
  const Symbol x = Variable("x");
  Symbol first;
  {
    AttrScope scope({{"ctx_group", "stage1"}, {"layout", "NC"}});
    first = Exp(Mul(x, x, "product"), "e");
  }
  const Symbol net = Square(first, "y").WithAnnotation("ctx_group", "stage2");
  NameScope names("caller_");
  AttrScope scope({{"mine", "yes"}});
  const Symbol gradient = GradientOf(net, {"x"}).gradients[0];
  for (const NodePtr& node : PostOrder(gradient.entries())) {
    if (node->name().find("backward") == std::string::npos) continue;
    const bool of_x = node->name().rfind("x_", 0) == 0;
    const bool of_y = node->name().rfind("y_", 0) == 0;
    Annotations expected;
    if (!of_x) expected["ctx_group"] = of_y ? "stage2" : "stage1";
    EXPECT_EQ(node->annotations(), expected) << node->name();
  }
  EXPECT_EQ(gradient.DebugString().find("caller_"), std::string::npos);
}

TEST(Gradient, OfAGradient) {
  // y = x^2 w; dy/dx = 2 x w; d2y/dx2 = 2 w; d2y/dxdw = 2 x
  const Symbol x = Variable("x"), w = Variable("w");
  const GradientResult first = GradientOf(Mul(Square(x, "sq"), w, "y"), {"x"});
  const GradientResult second = GradientOf(first.gradients[0], {"x", "w", "y_output_grad"});
  const auto values =
      RunOnScalars(Group(second.gradients), {{"x", 3}, {"w", 5}, {"y_output_grad", 1}, {second.head_gradients[0], 1}});
  EXPECT_EQ(values, (std::vector<double>{10, 6, 30}));
}

TEST(Gradient, ShapesOfAGradientFollow) {
  const Symbol net =
      FullyConnected(Tanh(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc1")), {.num_hidden = 2}, "fc2");
  const Names wrt = {"data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"};
  const GradientResult result = Gradient(net, wrt, {.shapes = {{"data", {4, 7}}}});
  const InferredShapes forward = InferShapes(net, {{"data", {4, 7}}});
  const InferredShapes shapes = InferShapes(Group(result.gradients), {{"data", {4, 7}}, {"fc2_output_grad", {4, 2}}});
  EXPECT_EQ(shapes.outputs, forward.arguments);
}

TEST(Gradient, ARuleThatNeedsAShapeSaysHowToGiveIt) {
  const Names wrt = {"x"};
  EXPECT_EQ(
      MessageOf<ModelError>([&] { Gradient(Add(Variable("x"), Variable("y"), "sum"), wrt); }),
      "ModelError: the gradient of Add \"sum\" needs the shape of its argument \"a\", which is not known: bind the "
      "symbol (the executor knows all types), declare the shapes of its variables, or give them to Gradient");
  EXPECT_NO_THROW(Gradient(Add(Variable("x", {.shape = Shape{2}}), Variable("y", {.shape = Shape{2}})), wrt));
  EXPECT_NO_THROW(Gradient(Add(Variable("x"), Variable("y")), wrt, {.shapes = {{"x", {2}}, {"y", {2}}}}));
  EXPECT_NO_THROW(Gradient(Exp(Variable("x")), wrt));  // needs none
}

// Of an operand that is not stretched there is nothing to sum.
TEST(Gradient, ShapesSpareNodes) {
  const Names wrt = {"a", "b"};
  const Symbol sum = Add(Variable("a"), Variable("b"), "sum");
  const GradientResult result = Gradient(sum, wrt, {.shapes = {{"a", {4, 3}}, {"b", {3}}}});
  EXPECT_EQ(result.gradients[0].name(), "sum_output_grad");
  EXPECT_EQ(result.gradients[1].entry().node->op().name, "SumTo");
}

// Of float16, which ends at 65504.
TEST(Gradient, OfAMeanDividesInATypeThatHoldsTheCount) {
  const GradientResult result = Gradient(Mean(Variable("x"), {}, "m"), Names{"x"},
                                         {.shapes = {{"x", {70000}}}, .dtypes = {{"x", DType::kFloat16}}});
  const Graph graph = Graph::Of(result.gradients[0]);
  const auto dtypes = InferDTypes(graph, {{"m_output_grad", DType::kFloat16}});
  EXPECT_EQ(dtypes[graph.IndexOf(graph.outputs[0].node)][0], DType::kFloat16);
  int divisions = 0;
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable() || node->op().name != "Div") continue;
    EXPECT_EQ(dtypes[graph.IndexOf(node)][0], DType::kFloat32);
    ++divisions;
  }
  EXPECT_EQ(divisions, 1);
}

// A table that is turned around is as long as the axis: of data without elements it could be any.
TEST(Gradient, OfAResampledAxisTooLongForATable) {
  constexpr int64_t kLong = int64_t{1} << 40;
  const Symbol y = Resample(Variable("x"), {.axis = 1, .extent = kLong, .starts = {0, 1}, .indices = {kLong - 1}});
  EXPECT_THROW(Gradient(y, Names{"x"}, {.shapes = {{"x", {0, kLong}}}}), ShapeError);
}

// A head that is made of others is called as it is, whatever its parts are.
TEST(Gradient, OfAComposedHeadIsCalledAfterTheHead) {
  const Symbol x = Variable("x");
  const GradientResult result =
      Gradient(Group({Tile(x, {{2}}, "y"), Square(x, "z")}), Names{"x"}, {.shapes = {{"x", {3}}}});
  EXPECT_EQ(result.head_gradients, (Names{"y_output_grad", "z_output_grad"}));
}

TEST(Gradient, ItsNodesAreCalledAfterTheirOrigin) {
  const Names wrt = {"x"};
  const Symbol gradient = Gradient(Tanh(Variable("x"), "act"), wrt).gradients[0];
  EXPECT_EQ(Describe(*gradient.entry().node), "gradient of Activation \"act\"");
  const Symbol second = Gradient(gradient, wrt).gradients[0];
  EXPECT_EQ(Describe(*second.entry().node).find("gradient of "), 0u);
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferShapes(gradient, {{"x", {2}}, {"act_output_grad", {3}}});
            }),
            "ShapeError: gradient of Activation \"act\", argument \"output\": expected (3), got (2)");
}

TEST(ExpandComposites, PutsInThePartsWithNamesAndAnnotations) {
  static const OpDef composite = [] {
    OpDef op;
    op.name = "SquareSum";
    op.inputs = {"a", "b"};
    op.infer = [](InferContext&) {};
    op.expand = [](const NodePtr& node) {
      const Symbol a(node->inputs()[0]), b(node->inputs()[1]);
      const Symbol squares[] = {Square(a), Square(b)};
      return std::vector<Symbol>{Add(squares[0], squares[1], node->name())};
    };
    return op;
  }();
  AttrScope scope({{"ctx_group", "g"}});
  const Symbol inner = Apply(composite, {}, {Variable("a"), Variable("b")}, "inner");
  const Symbol net = Exp(Apply(composite, {}, {inner, Variable("c")}, "outer"), "e");
  const Symbol expanded = ExpandComposites(net);
  EXPECT_EQ(Count(expanded, composite), 0);
  EXPECT_EQ(Count(expanded, Square.op()), 4);
  EXPECT_EQ(expanded.ListArguments(), net.ListArguments());
  EXPECT_EQ(expanded.Internals().ListOutputs(),
            (Names{"a", "inner_square0_output", "b", "inner_square1_output", "inner_output", "outer_square0_output",
                   "c", "outer_square1_output", "outer_output", "e_output"}));
  for (const auto& [name, annotations] : expanded.AllAnnotations()) EXPECT_EQ(annotations.at("ctx_group"), "g") << name;
  EXPECT_EQ(expanded.AllAnnotations().size(), 10u);
}

TEST(LongChains, AMillionNodesAreDifferentiated) {
  Symbol x = Variable("x");
  for (int i = 0; i < 1'000'000; ++i) x = Identity(x, "s");
  EXPECT_EQ(GradientOf(x, {"x"}).gradients[0].name(), "s_output_grad");  // each passes on what comes
  x = Variable("x");
  for (int i = 0; i < 200'000; ++i) x = Apply(Exp.op(), {}, {x}, "s");
  EXPECT_EQ(Count(GradientOf(x, {"x"}).gradients[0], Mul.op()), 200'000);
}

TEST(LongChains, StatesOfManyNormsMove) {
  constexpr int kNorms = 30'000;
  Symbol y = Variable("x");
  for (int i = 0; i < kNorms; ++i) y = BatchNorm(y, {}, "bn" + std::to_string(i));
  const NodeTypes types = InferTypes(Graph::Of(y), {{"x", {4, 1}}}, {});
  const std::vector<NextState> next = NextStates(y, types);
  ASSERT_EQ(next.size(), size_t{2 * kNorms});
  EXPECT_EQ(next.back().name, "bn29999_running_var");
}

}  // namespace
}  // namespace bindery
