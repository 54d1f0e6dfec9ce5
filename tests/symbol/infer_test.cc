#include "symbol/infer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

constexpr int64_t kAny = kUnknownDim;
using Shapes = std::vector<std::optional<Shape>>;

std::optional<Shape> ArgumentShape(const Symbol& symbol, const InferredShapes& shapes, const std::string& name) {
  const auto names = symbol.ListArguments();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return shapes.arguments[i];
  }
  return std::nullopt;
}

// A sum of operands of one shape: knowledge flows both ways.
Symbol AddN2(const Symbol& a, const Symbol& b) { return Apply(AddNOp(), {}, {a, b}, "sum"); }

Symbol Mlp2() {
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 1000}, "fc1");
  x = Relu(x, "relu1");
  return FullyConnected(x, {.num_hidden = 10}, "fc2");
}

// E26
TEST(InferShapes, TwoLayers) {
  const InferredShapes shapes = InferShapes(Mlp2(), {{"data", {100, 100}}});
  EXPECT_TRUE(shapes.complete);
  EXPECT_EQ(shapes.arguments, (Shapes{Shape{100, 100}, Shape{1000, 100}, Shape{1000}, Shape{10, 1000}, Shape{10}}));
  EXPECT_EQ(shapes.outputs, (Shapes{Shape{100, 10}}));
  EXPECT_TRUE(shapes.auxiliary.empty());
}

TEST(InferShapes, ContradictionsNameTheArgument) {
  EXPECT_EQ(MessageOf<ShapeError>([] {
              InferShapes(Mlp2(), {{"data", {100, 100}}, {"fc1_weight", {1, 100}}});
            }),
            "ShapeError: FullyConnected \"fc1\", argument \"weight\": expected (1000, 100), got (1, 100)");
  EXPECT_EQ(MessageOf<ShapeError>([] {
              InferShapesPartial(Mlp2(), {{"data", {100, 100}}, {"fc2_bias", {1, 10}}});
            }),
            "ShapeError: FullyConnected \"fc2\", argument \"bias\": expected (10), got (1, 10)");
}

TEST(InferShapes, DeclaredAndGivenShapesMustAgree) {
  const Symbol net = Square(Variable("data", {.shape = Shape{kAny, 5}}), "sq");
  EXPECT_EQ(InferShapes(net, {{"data", {3, kAny}}}).outputs, (Shapes{Shape{3, 5}}));
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferShapes(net, {{"data", {3, 4}}});
            }),
            "ShapeError: variable \"data\": declared as (?, 5), got (3, 4)");
}

TEST(InferShapes, UnknownNamesAreErrors) {
  EXPECT_EQ(MessageOf<Error>([] {
              InferShapes(Mlp2(), {{"dta", {1, 1}}});
            }),
            "Error: unknown argument \"dta\"; did you mean \"data\"?");
  EXPECT_EQ(MessageOf<Error>([] {
              InferDTypes(Mlp2(), {{"fc1_weigt", DType::kFloat32}});
            }),
            "Error: unknown argument \"fc1_weigt\"; did you mean \"fc1_weight\"?");
}

TEST(InferShapes, WhatRemainsUnknownIsListed) {
  EXPECT_EQ(MessageOf<ShapeError>([] {
              InferShapes(Mlp2(), {{"data", {kAny, 4}}});
            }),
            "ShapeError: the shapes of these arguments do not follow from what is known: data (?, 4)");
  EXPECT_EQ(MessageOf<ShapeError>([] { InferShapes(Square(Variable("a"), "s"), {}); }),
            "ShapeError: the shapes of these arguments do not follow from what is known: a");
  ShapeMap given;
  std::vector<Symbol> heads = {Square(Variable("a00"))};
  for (int i = 10; i < 35; ++i) {
    given[fmt::format("a{}", i)] = {2};
    heads.push_back(Square(Variable(fmt::format("a{}", i))));
  }
  const std::string message = MessageOf<ShapeError>([&] { InferShapes(Group(heads), given); });
  EXPECT_NE(message.find(": a00; given: a10 (2), a11 (2), "), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with(", a29 (2) and 5 more")) << message;
  const InferredShapes partial = InferShapesPartial(Mlp2(), {{"data", {kAny, 4}}});
  EXPECT_FALSE(partial.complete);
  EXPECT_EQ(partial.arguments[1], (Shape{1000, 4}));
  EXPECT_EQ(partial.outputs[0], (Shape{kAny, 10}));
}

TEST(InferShapes, AShapeThatNeverFollowsNamesTheOperator) {
  static const OpDef vague = [] {
    OpDef op;
    op.name = "Vague";
    op.inputs = {};
    op.infer = [](InferContext&) {};
    return op;
  }();
  EXPECT_EQ(MessageOf<ShapeError>([] { InferShapes(Apply(vague, {}, {}, "v"), {}); }),
            "ShapeError: Vague \"v\": the shape of its output \"v_output\" does not follow from its inputs");
}

TEST(InferShapes, ComplaintsOfRulesNameTheNode) {
  static const OpDef strict = [] {
    OpDef op;
    op.name = "Strict";
    op.infer = [](InferContext& c) {
      if (c.in(0).shape()) Throw<ShapeError>("expected something else, got {}", *c.in(0).shape());
    };
    return op;
  }();
  EXPECT_EQ(MessageOf<ShapeError>([] {
              InferShapesPartial(Apply(strict, {}, {Variable("a")}, "s"), {{"a", {2}}});
            }),
            "ShapeError: Strict \"s\": expected something else, got (2)");
}

TEST(InferShapes, AuxiliaryStatesAreApart) {
  const Symbol net = Outputs(StatefulOp(), {Variable("data")}, "st")[0];
  const InferredShapes shapes = InferShapes(net, {{"data", {4, 2}}});
  EXPECT_EQ(shapes.arguments, (Shapes{Shape{4, 2}, Shape{1}}));
  EXPECT_EQ(shapes.auxiliary, (Shapes{Shape{1}}));
}

TEST(InferShapes, ScalarsAndEmptyBatchesAreShapes) {
  const Symbol net = Square(Variable("a"), "s");
  EXPECT_EQ(InferShapes(net, {{"a", Shape{}}}).outputs, (Shapes{Shape{}}));
  EXPECT_EQ(InferShapes(net, {{"a", {0, 3}}}).outputs, (Shapes{Shape{0, 3}}));
}

// E27, with a sum of operands of one shape and with the one that broadcasts.
Symbol AddTwo(const Symbol& a, const Symbol& b) { return Add(a, b, "sum"); }
class PartialInference : public testing::TestWithParam<Symbol (*)(const Symbol&, const Symbol&)> {};
INSTANTIATE_TEST_SUITE_P(Sums, PartialInference, testing::Values(AddN2, AddTwo),
                         [](const auto& info) { return info.index == 0 ? "alike" : "broadcast"; });

TEST_P(PartialInference, BothOperandsOfASum) {
  const Symbol net = GetParam()(Variable("a", {.shape = Shape{kAny, 10}}), Variable("b", {.shape = Shape{12, kAny}}));
  const InferredShapes shapes = InferShapesPartial(net, {});
  EXPECT_EQ(shapes.arguments, (Shapes{Shape{12, 10}, Shape{12, 10}}));
  EXPECT_EQ(shapes.outputs, (Shapes{Shape{12, 10}}));
}

TEST_P(PartialInference, BackwardThroughFullyConnected) {
  const Symbol fc = FullyConnected(Variable("a", {.shape = Shape{kAny, 10}}), {.num_hidden = 21}, "fc");
  const Symbol net = GetParam()(fc, Variable("c", {.shape = Shape{5, kAny}}));
  const InferredShapes shapes = InferShapesPartial(net, {});
  EXPECT_EQ(ArgumentShape(net, shapes, "a"), (Shape{5, 10}));
  EXPECT_EQ(ArgumentShape(net, shapes, "c"), (Shape{5, 21}));
}

TEST_P(PartialInference, BackwardThroughConvolution) {
  const Symbol conv = Convolution(Variable("a", {.shape = Shape{kAny, 10, kAny, kAny}}),
                                  {.num_filter = 21, .kernel = {3, 3}, .pad = {1, 1}}, "conv");
  const Symbol net = GetParam()(conv, Variable("c", {.shape = Shape{5, 21, 32, 32}}));
  EXPECT_EQ(ArgumentShape(net, InferShapesPartial(net, {}), "a"), (Shape{5, 10, 32, 32}));
}

TEST_P(PartialInference, BackwardThroughConcat) {
  const Symbol joined =
      Concat({Variable("a", {.shape = Shape{kAny, 10}}), Variable("b", {.shape = Shape{kAny, 5}})}, {}, "cat");
  const Symbol net = GetParam()(joined, Variable("c", {.shape = Shape{2, kAny}}));
  const InferredShapes shapes = InferShapesPartial(net, {});
  EXPECT_EQ(shapes.arguments, (Shapes{Shape{2, 10}, Shape{2, 5}, Shape{2, 15}}));
}

TEST_P(PartialInference, BackwardThroughSliceChannel) {
  const Symbol squeezed =
      SliceChannel(Variable("a", {.shape = Shape{kAny, 10}}), {.num_outputs = 10, .squeeze_axis = true}, "cut");
  const Symbol net = GetParam()(squeezed[1], Variable("b", {.shape = Shape{5}}));
  EXPECT_EQ(ArgumentShape(net, InferShapesPartial(net, {}), "a"), (Shape{5, 10}));

  const Symbol cut = SliceChannel(Variable("a", {.shape = Shape{kAny, 15, kAny}}), {.num_outputs = 3}, "cut");
  const Symbol net3 = GetParam()(cut[1], Variable("b", {.shape = Shape{3, 5, 2}}));
  EXPECT_EQ(ArgumentShape(net3, InferShapesPartial(net3, {}), "a"), (Shape{3, 15, 2}));
}

// E28
TEST(InferShapes, AWeightKnownFromOneUseServesTheOther) {
  const Symbol w = Variable("w");
  const Symbol fc = FullyConnected(Variable("x"), w, {}, {.num_hidden = 13, .no_bias = true}, "fc");
  const Symbol net = Add(Sum(Abs(w, "abs"), {}, "sum1"), Sum(fc, {}, "sum2"), "total");
  const InferredShapes shapes = InferShapes(net, {{"x", {5, 13}}});
  EXPECT_EQ(ArgumentShape(net, shapes, "w"), (Shape{13, 13}));
}

TEST(InferDTypes, DefaultIsFloat32) {
  const InferredDTypes types = InferDTypes(Mlp2(), {});
  EXPECT_EQ(types.arguments, std::vector<DType>(5, DType::kFloat32));
  EXPECT_EQ(types.outputs, std::vector<DType>{DType::kFloat32});
}

TEST(InferDTypes, OneKnownTypeSpreadsForwardAndBackward) {
  EXPECT_EQ(InferDTypes(Mlp2(), {{"data", DType::kFloat64}}).arguments, std::vector<DType>(5, DType::kFloat64));
  EXPECT_EQ(InferDTypes(Mlp2(), {{"fc2_bias", DType::kBFloat16}}).arguments, std::vector<DType>(5, DType::kBFloat16));
}

TEST(InferDTypes, WhatFollowsIsNotGuessed) {
  // b is declared: a follows from it although it comes first.
  const Symbol net = Add(Variable("a"), Variable("b", {.dtype = DType::kInt32}), "sum");
  EXPECT_EQ(InferDTypes(net, {}).arguments, std::vector<DType>(2, DType::kInt32));
}

// Neither is it by what is made of others, whose parts may depend on the type.
TEST(InferDTypes, WhatFollowsThroughANormIsNotGuessed) {
  for (const L2Mode mode : {L2Mode::kInstance, L2Mode::kChannel}) {
    const Symbol net = FullyConnected(L2Normalization(Variable("data"), mode), {.num_hidden = 3}, "fc");
    const Graph graph = Graph::Of(net);
    const NodeTypes types = InferTypes(graph, {{"data", {4, 5}}}, {{"fc_weight", DType::kFloat16}});
    EXPECT_EQ(types[graph.IndexOf(net.entry().node)][0].dtype, DType::kFloat16);
    EXPECT_EQ(types[0][0].dtype, DType::kFloat16);
  }
}

TEST(InferDTypes, ContradictionsNameTheArgument) {
  const Symbol net = Add(Variable("a"), Variable("b", {.dtype = DType::kInt32}), "sum");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferDTypes(net, {{"a", DType::kFloat32}});
            }),
            "ShapeError: Add \"sum\", argument \"b\": expected float32, got int32");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferDTypes(net, {{"b", DType::kFloat32}});
            }),
            "ShapeError: variable \"b\": declared as int32, got float32");
}

TEST(InferTypes, EverythingPerNode) {
  const Symbol data = Variable("data"), w = Variable("w");
  const Symbol net = Square(Outputs(ForkOp(), {data}, "fork")[1], "sq");
  const Graph graph = Graph::Of(Group({net, w}));
  const NodeTypes types = InferTypes(graph, {{"data", {2, 3}}, {"w", {4}}}, {{"data", DType::kFloat64}}, {{"data", 0}});
  ASSERT_EQ(types.size(), 4u);
  EXPECT_EQ(types[0], (std::vector<ValueType>{{DType::kFloat64, {2, 3}, 0}}));
  EXPECT_EQ(types[1], std::vector<ValueType>(3, {DType::kFloat64, {2, 3}, 0}));
  EXPECT_EQ(types[2], (std::vector<ValueType>{{DType::kFloat64, {2, 3}, 0}}));
  EXPECT_EQ(types[3], (std::vector<ValueType>{{DType::kFloat32, {4}, -1}}));
  EXPECT_THROW(InferTypes(graph, {{"data", {2, 3}}}, {}), ShapeError);
}

int BatchAxis(const Symbol& net, const ShapeMap& shapes, const std::map<std::string, int>& axes) {
  const Graph graph = Graph::Of(net);
  return InferTypes(graph, shapes, {}, axes)[graph.IndexOf(net.entry().node)][0].batch_axis;
}

TEST(BatchAxes, ComeFromTheMapOrTheLayout) {
  const Symbol plain = Square(Variable("a"), "sq");
  EXPECT_EQ(BatchAxis(plain, {{"a", {2, 3}}}, {}), -1);
  EXPECT_EQ(BatchAxis(plain, {{"a", {2, 3}}}, {{"a", 1}}), 1);
  const Symbol tnc = Square(Variable("a", {.layout = "TNC"}), "sq");
  EXPECT_EQ(BatchAxis(tnc, {{"a", {2, 3, 4}}}, {}), 1);
  EXPECT_EQ(BatchAxis(tnc, {{"a", {2, 3, 4}}}, {{"a", -1}}), -1);
  EXPECT_EQ(BatchAxis(Square(Variable("a", {.layout = "TC"}), "sq"), {{"a", {2, 3}}}, {}), -1);
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              BatchAxis(plain, {{"a", {2, 3}}}, {{"a", 2}});
            }),
            "ShapeError: variable \"a\": its batch axis cannot be 2, its shape is (2, 3)");
  EXPECT_EQ(MessageOf<Error>([&] {
              BatchAxis(plain, {{"a", {2, 3}}}, {{"b", 0}});
            }),
            "Error: unknown argument \"b\"; known: a");
}

// (N, T, C) and (T, N, C) seen as rows: every sample has T of them, together or apart.
TEST(BatchAxes, AReshapeFoldsOtherAxesIntoTheBatch) {
  const auto type = [](const Symbol& symbol, const Shape& shape) {
    const Graph graph = Graph::Of(symbol);
    return InferTypes(graph, {{"x", shape}}, {})[graph.IndexOf(symbol.entry().node)][0];
  };
  const Symbol ntc = Variable("x", {.layout = "NTC"}), tnc = Variable("x", {.layout = "TNC"});
  const Symbol rows = Reshape(ntc, {.shape = {-1, 4}}), apart = Reshape(tnc, {.shape = {-1, 4}});
  EXPECT_EQ(type(rows, {5, 3, 4}).batch_fold, (BatchFold{1, 3}));
  EXPECT_EQ(type(apart, {3, 5, 4}).batch_fold, (BatchFold{3, 1}));
  EXPECT_EQ(type(apart, {3, 5, 4}).SampleView(), (Shape{3, 5, 4}));
  // Through what keeps the axis, and back.
  const Symbol layer = Tanh(FullyConnected(apart, {.num_hidden = 7}, "fc"));
  EXPECT_EQ(type(layer, {3, 5, 4}), (ValueType{DType::kFloat32, {15, 7}, 0, {3, 1}}));
  EXPECT_EQ(type(Reshape(layer, {.shape = {3, -1, 7}}), {3, 5, 4}), (ValueType{DType::kFloat32, {3, 5, 7}, 1}));
  EXPECT_EQ(type(Reshape(layer, {.shape = {-1}}), {3, 5, 4}), (ValueType{DType::kFloat32, {105}, 0, {3, 7}}));
  const Symbol cut = Exp(Reshape(layer, {.shape = {7, -1}}, "cut"));
  EXPECT_EQ(type(cut, {3, 5, 4}).batch_axis, -1);
  const Graph graph = Graph::Of(cut);
  const Node* loses = LosesBatch(graph, InferTypes(graph, {{"x", {3, 5, 4}}}, {}), cut.entry());
  ASSERT_NE(loses, nullptr);
  EXPECT_EQ(loses->name(), "cut");
}

// (N, 1) and (N) give (N, N) only because shapes are aligned at the last axis.
TEST(BatchAxes, SamplesDoNotMeetByTheWayShapesAreAligned) {
  const Symbol x = Variable("x", {.layout = "NC"}), y = Variable("y", {.layout = "N"});
  const auto message = [](const Symbol& symbol, const Shape& x, const Shape& y) {
    return MessageOf([&] { InferTypes(Graph::Of(symbol), {{"x", x}, {"y", y}}, {}); });
  };
  const std::string expected =
      "ShapeError: Sub \"d\": the samples of (5, 1) are along axis 0, those of (5) would be along axis 1, each beside "
      "all "
      "others; Reshape the latter so that they are along axis 0, or, if all pairs are meant, to (1, 5)";
  EXPECT_EQ(message(Sub(x, y, "d"), {5, 1}, {5}), expected);
  EXPECT_EQ(message(Sub(y, x, "d"), {5, 1}, {5}), expected);
  EXPECT_NE(message(Where(Less(x, 0.0), y, x, "w"), {5, 5}, {5}), "nothing was thrown");
  EXPECT_EQ(message(Sub(x, y, "d"), {1, 1}, {1}), "nothing was thrown");
  EXPECT_EQ(message(Sub(x, Reshape(y, {.shape = {-1, 1}})), {5, 1}, {5}), "nothing was thrown");
  EXPECT_EQ(message(Sub(x, Reshape(y, {.shape = {1, -1}})), {5, 1}, {5}), "nothing was thrown");  // all pairs
  EXPECT_EQ(message(Sub(Variable("x", {.layout = "TN"}), y), {3, 5}, {5}), "nothing was thrown");
}

TEST(BatchAxes, AreCarriedToAxesOfEqualExtent) {
  static const OpDef cut = [] {  // (n, k) -> (n, 1), (1, k), and (n, k) of which nothing is said
    OpDef op;
    op.name = "Cut";
    op.outputs = {"left", "top", "all"};
    op.infer = [](InferContext& c) {
      if (!c.in(0).shape()) return;
      c.out(0).Set(c.in(0).shape()->With(1, 1));
      c.out(1).Set(c.in(0).shape()->With(0, 1));
      c.out(2).Set(*c.in(0).shape());
      for (int o : {0, 1}) c.in(0).Carry(c.out(o));
    };
    return op;
  }();
  const Graph graph = Graph::Of(Apply(cut, {}, {Variable("a")}, "cut"));
  const auto types = InferTypes(graph, {{"a", {4, 3}}}, {}, {{"a", 0}})[1];
  EXPECT_EQ(types[0].batch_axis, 0);
  EXPECT_EQ(types[1].batch_axis, -1);  // its extent there is another
  EXPECT_EQ(types[2].batch_axis, -1);
}

TEST(InferTypes, ElementsCanBeCounted) {
  static const OpDef outer = [] {  // (n) -> (n, n)
    OpDef op;
    op.name = "Outer";
    op.infer = [](InferContext& c) {
      if (c.in(0).shape()) c.out(0).Set({(*c.in(0).shape())[0], (*c.in(0).shape())[0]});
    };
    return op;
  }();
  const Graph graph = Graph::Of(Apply(outer, {}, {Variable("a")}, "y"));
  EXPECT_NO_THROW(InferTypes(graph, {{"a", {int64_t{1} << 31}}}, {}));
  const std::string error = MessageOf<ShapeError>([&] { InferTypes(graph, {{"a", {int64_t{1} << 32}}}, {}); });
  EXPECT_TRUE(error.starts_with("ShapeError: Outer \"y\": ")) << error;
}

TEST(LongChains, InferenceIsLinearInBothDirections) {
  Symbol x = Variable("x");
  for (int i = 0; i < 1'000'000; ++i) x = Apply(Square.op(), {}, {x}, "s");
  EXPECT_EQ(InferShapes(x, {{"x", {2, 3}}}).outputs, (Shapes{Shape{2, 3}}));
  x = {};
  for (int i = 0; i < 100'000; ++i) x = Apply(Square.op(), {}, {i == 0 ? Variable("x") : x}, "s");
  const Symbol net = AddN2(x, Variable("y", {.shape = Shape{4, 5}, .dtype = DType::kFloat64}));
  EXPECT_EQ(InferShapes(net, {}).arguments[0], (Shape{4, 5}));
  EXPECT_EQ(InferDTypes(net, {}).arguments[0], DType::kFloat64);
}

}  // namespace
}  // namespace bindery
