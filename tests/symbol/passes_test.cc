#include "symbol/passes/passes.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

int NodeCount(const Symbol& symbol) { return static_cast<int>(PostOrder(symbol.entries()).size()); }

Symbol Scalar(float value, const std::string& name) { return Constant(HostTensor::From({1}, {value}), name); }

// E32
TEST(CommonSubexpressions, EqualOnesBecomeOne) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol left = Exp(Mul(a, b, "m1"), "e1"), right = Exp(Mul(a, b, "m2"), "e2");
  const Symbol net = Group({Add(left, right, "s"), right, left});
  const Symbol merged = EliminateCommonSubexpressions(net);
  EXPECT_EQ(NodeCount(net), 7);
  EXPECT_EQ(NodeCount(merged), 5);
  EXPECT_EQ(merged.size(), 3);
  EXPECT_EQ(merged[1].entry(), merged[2].entry());
  EXPECT_EQ(merged.ListOutputs(), (Names{"s_output", "e1_output", "e1_output"}));  // the first is kept
  const std::map<std::string, double> arguments = {{"a", 0.3}, {"b", 1.7}};
  EXPECT_EQ(RunOnScalars(merged, arguments), RunOnScalars(net, arguments));
  EXPECT_EQ(EliminateCommonSubexpressions(merged).DebugString(), merged.DebugString());
}

TEST(CommonSubexpressions, WhatDiffersStays) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol net = Group({a * 2.0, a * 3.0, b * 2.0, a + 2.0, Sub(a, b, "s"), Sub(b, a, "t"), a * 0.0, a * -0.0,
                            Square(a, "plain"), Square(a, "marked").WithAnnotation("ctx_group", "g")});
  EXPECT_EQ(EliminateCommonSubexpressions(net).entries(), net.entries());
}

TEST(CommonSubexpressions, OutputsOfOneNodeAreDifferent) {
  const std::vector<Symbol> fork = Outputs(ForkOp(), {Variable("x")}, "fork");
  const Symbol net = Group({Exp(fork[0], "e0"), Exp(fork[1], "e1"), Exp(fork[0], "e2")});
  const Symbol merged = EliminateCommonSubexpressions(net);
  EXPECT_EQ(Count(merged, Exp.op()), 2);
  EXPECT_EQ(merged[0].entry(), merged[2].entry());
}

TEST(CommonSubexpressions, RandomOnesStay) {
  const Symbol x = Variable("x");
  const Symbol net = Group({Dropout(x, {}, "d1"), Dropout(x, {}, "d2")});
  EXPECT_EQ(Count(EliminateCommonSubexpressions(net), DropoutOp()), 2);
}

TEST(CommonSubexpressions, StatesAndLossesStay) {
  const Symbol x = Variable("x"), scale = Variable("scale"), state = Variable("state");
  const Symbol states =
      Group({Outputs(StatefulOp(), {x, scale, state}, "s1")[0], Outputs(StatefulOp(), {x, scale, state}, "s2")[0]});
  EXPECT_EQ(Count(EliminateCommonSubexpressions(states), StatefulOp()), 2);
  const Symbol losses = Group({Apply(TestLossOp(), {}, {x}, "l1"), Apply(TestLossOp(), {}, {x}, "l2")});
  EXPECT_EQ(Count(EliminateCommonSubexpressions(losses), TestLossOp()), 2);
}

TEST(CommonSubexpressions, ConstantsAreComparedByContent) {
  const Symbol net =
      Group({Scalar(1, "c1"), Scalar(2, "c2"), Scalar(1, "c3"), Constant(HostTensor::From({1, 1}, {1}), "c4")});
  const Symbol merged = EliminateCommonSubexpressions(net);
  EXPECT_EQ(merged.ListOutputs(), (Names{"c1_output", "c2_output", "c1_output", "c4_output"}));
}

TEST(CommonSubexpressions, GradientsGiveEqualValues) {
  const Symbol x = Variable("x"), y = Variable("y");
  const Symbol net = Add(Mul(Exp(x, "e1"), y, "p"), Mul(Exp(x, "e2"), x, "q"), "net");
  const std::string wrt[] = {"x", "y"};
  const Symbol gradients = Group(Gradient(net, wrt, GivenTypes{.shapes = {{"x", Shape{}}, {"y", Shape{}}}}).gradients);
  const Symbol merged = EliminateCommonSubexpressions(gradients);
  EXPECT_LT(NodeCount(merged), NodeCount(gradients));
  const std::map<std::string, double> arguments = {{"x", 0.4}, {"y", -2}, {"net_output_grad", 1.5}};
  EXPECT_EQ(RunOnScalars(merged, arguments), RunOnScalars(gradients, arguments));
}

std::vector<HostTensor> Evaluate(const Node& node, const std::vector<HostTensor>& inputs) {
  std::vector<Symbol> constants;
  for (const HostTensor& input : inputs) constants.push_back(Constant(input, "c"));
  const double value = RunOnScalars(Apply(node.op(), node.attrs(), constants, "n"), {})[0];
  return std::vector<HostTensor>(node.num_outputs(), HostTensor::From({1}, {static_cast<float>(value)}));
}

TEST(FoldConstants, ComputesWhatDependsOnNoVariable) {
  const Symbol x = Variable("x");
  const Symbol constant = Mul(Scalar(3, "three"), Scalar(2, "two") + 5.0, "product");
  const Symbol net = Add(Mul(x, constant, "scaled"), Square(x, "sq"), "net");
  const Symbol folded = FoldConstants(GiveScalarsTypes(net, {}), Evaluate);
  EXPECT_EQ(Count(folded, ConstantOp()), 1);
  EXPECT_EQ(NodeCount(folded), 5);
  EXPECT_EQ(folded.Internals().ListOutputs(),
            (Names{"x", "product_output", "scaled_output", "sq_output", "net_output"}));
  EXPECT_EQ(RunOnScalars(folded, {{"x", 2}}), RunOnScalars(net, {{"x", 2}}));
  EXPECT_EQ(FoldConstants(folded, Evaluate).entry(), folded.entry());
}

// Equal numbers become one only where their types are equal.
TEST(GiveScalarsTypes, NumbersFollowWhatTheyAreCombinedWith) {
  const Symbol x = Variable("x"), n = Variable("n");
  const Symbol net = Group({x + 2.0, 2.0 * x, n + 2.0});
  const DTypeMap types = {{"x", DType::kFloat64}, {"n", DType::kInt32}};
  const Symbol typed = EliminateCommonSubexpressions(GiveScalarsTypes(net, types));
  EXPECT_EQ(Count(typed, bindery::ScalarOp()), 0);
  EXPECT_EQ(Count(typed, ConstantOp()), 2);
  EXPECT_EQ(InferDTypes(typed, types).outputs, (std::vector{DType::kFloat64, DType::kFloat64, DType::kInt32}));
  EXPECT_EQ(MessageOf<ModelError>([&] {
              GiveScalarsTypes(n * 0.5, {{"n", DType::kInt32}});
            }),
            "ModelError: Scalar \"0.5\": 0.5 is no int32; cast what it is combined with to a floating point type");
}

TEST(FoldConstants, KeepsAnnotationsAndNamesOfHeads) {
  const Symbol head = Square(Scalar(3, "three"), "head").WithAnnotation("merge", "first");
  const Symbol folded = FoldConstants(head, Evaluate);
  EXPECT_EQ(folded.ListOutputs(), head.ListOutputs());
  EXPECT_EQ(folded.Annotation("merge"), "first");
  EXPECT_EQ(folded.entry().node->attrs().get<ConstantAttrs>().value->At(0), 9);
}

TEST(FoldConstants, EveryOutputBecomesAConstant) {
  const std::vector<Symbol> fork = Outputs(ForkOp(), {Scalar(3, "three")}, "fork");
  const Symbol folded = FoldConstants(Group({fork[1], fork[0]}), Evaluate);
  EXPECT_EQ(Count(folded, ForkOp()), 0);
  EXPECT_EQ(RunOnScalars(folded, {}), (std::vector<double>{3, 3}));
}

TEST(FoldConstants, LargeRandomAndVariableOnesStay) {
  const Symbol large = Square(Constant(HostTensor(DType::kFloat32, {8, 8}), "c"), "large");
  EXPECT_EQ(FoldConstants(large, Evaluate, 63).entry(), large.entry());
  const Symbol random = Dropout(Scalar(1, "one"), {}, "d");
  EXPECT_EQ(FoldConstants(random, Evaluate).entry(), random.entry());
  const Symbol variable = Square(Variable("x"), "s");
  EXPECT_EQ(FoldConstants(variable, Evaluate).entry(), variable.entry());
}

TEST(FoldConstants, AnEvaluatorMustGiveEveryOutput) {
  const auto none = [](const Node&, const std::vector<HostTensor>&) { return std::vector<HostTensor>{}; };
  EXPECT_EQ(MessageOf<Error>([&] { FoldConstants(Square(Scalar(1, "one"), "s"), none); }),
            "Error: Square \"s\": its evaluation gave 0 values for 1 outputs");
}

TEST(RemoveIdentities, WhatChangesNothingGoes) {
  const Symbol x = Variable("x");
  Symbol y = Identity(Identity(x, "i1"), "i2");
  y = Transpose(y, {.axes = {0, 1}}, "t");
  y = Apply(AddNOp(), {}, {y}, "sum");
  y = Cast(Cast(y, {.dtype = DType::kFloat16}, "c1"), {.dtype = DType::kFloat16}, "c2");
  const Symbol net = Exp(y, "e");
  const Symbol removed = RemoveIdentities(net);
  EXPECT_EQ(removed.Internals().ListOutputs(), (Names{"x", "c1_output", "e_output"}));
  EXPECT_EQ(RunOnScalars(removed, {{"x", 2}}), RunOnScalars(net, {{"x", 2}}));
  EXPECT_EQ(InferShapes(removed, {{"x", {2, 3}}}).outputs, InferShapes(net, {{"x", {2, 3}}}).outputs);
  EXPECT_EQ(InferDTypes(removed, {{"x", DType::kFloat64}}).outputs, InferDTypes(net, {{"x", DType::kFloat64}}).outputs);
}

TEST(RemoveIdentities, WhatChangesSomethingStays) {
  const Symbol x = Variable("x");
  const Symbol net = Group({Exp(Transpose(x, {}, "reversed"), "a"), Exp(Transpose(x, {.axes = {1, 0}}, "swapped"), "b"),
                            Exp(Cast(Cast(x, {.dtype = DType::kFloat16}, "c1"), {.dtype = DType::kFloat32}, "c2"), "c"),
                            Exp(Cast(x, {.dtype = DType::kFloat32}, "c3"), "d"), Exp(BlockGrad(x, "stop"), "e"),
                            Exp(Apply(AddNOp(), {}, {x, x}, "sum"), "f")});
  EXPECT_EQ(RemoveIdentities(net).entries(), net.entries());
}

TEST(RemoveIdentities, HeadsKeepTheirNames) {
  const Symbol net = Identity(Identity(Variable("x"), "inner"), "head");
  const Symbol removed = RemoveIdentities(net);
  EXPECT_EQ(removed.ListOutputs(), net.ListOutputs());
  EXPECT_EQ(NodeCount(removed), 2);
}

Symbol Fused(const Symbol& net, const ShapeMap& shapes) {
  const Graph graph = Graph::Of(net);
  return Fuse(graph, InferTypes(graph, shapes, {}, {}));
}

TEST(Fusion, NeighboursBecomeOne) {
  const ShapeMap image = {{"x", {2, 3, 4, 4}}};
  const Symbol x = Variable("x");
  const Symbol layer = Convolution(x, {.num_filter = 3, .kernel = {3, 3}, .pad = {1, 1}}, "conv");
  const Symbol norm = BatchNorm(layer, {}, "bn");
  const Symbol net = Fused(Group({Tanh(Add(x, Relu(norm), "add"))}), image);
  EXPECT_EQ(Count(net, ActivationOp()), 1);  // no kernel adds and takes the tanh
  const Symbol fused = Fused(FullyConnected(Relu(Add(x, Relu(norm))), {.num_hidden = 4}, "fc"), image);
  EXPECT_EQ(Count(fused, ActivationOp()), 0);
  EXPECT_EQ(Count(fused, AddRelu.op()), 1);
  EXPECT_EQ(Count(fused, BatchNormOp()), 1);
  EXPECT_EQ(Count(Fused(Tanh(layer), image), ActivationOp()), 0);
  EXPECT_EQ(Count(Fused(Sigmoid(Relu(layer)), image), ActivationOp()), 1);  // a layer takes one
}

TEST(Fusion, OnlyWhereNobodyElseReads) {
  const ShapeMap shapes = {{"x", {2, 3}}};
  const Symbol x = Variable("x"), one = Constant(HostTensor(DType::kFloat32, {1, 3}), "one"),
               layer = FullyConnected(x, {.num_hidden = 3}, "fc");
  for (const Symbol& net :
       {Group({Relu(layer), layer}), Relu(layer) + layer, Group({Relu(layer), Tanh(layer)}), Relu(Add(x, one))}) {
    EXPECT_EQ(Fused(net, shapes).entries(), net.entries());
  }
}

// The gradient of a fused operator needs nothing of what is between the two, and is fused in its turn.
TEST(Fusion, GradientsAreThoseOfFusedOperators) {
  const ShapeMap image = {{"x", {2, 3, 4, 4}}};
  const Symbol x = Variable("x");
  Symbol net = Relu(BatchNorm(Convolution(x, {.num_filter = 3, .kernel = {1, 1}}, "conv"), {}, "bn"));
  net = Fused(MakeLoss(Relu(net + x)), image);
  const GradientResult result = Gradient(net, std::vector<std::string>{"conv_weight", "x"}, {.shapes = image});
  const Symbol joint = EliminateCommonSubexpressions(Group({net, result.gradients[0], result.gradients[1]}));
  EXPECT_EQ(Count(joint, ActivationGradOp()), 1);  // that of the sum; the normalisation's does the other
  EXPECT_EQ(Count(joint, BatchNormGradOp()), 1);
}

}  // namespace
}  // namespace bindery
