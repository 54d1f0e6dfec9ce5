// Shapes, types, batch axes, checks and gradient graphs of element-wise operators, activations and softmax.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

std::string ShapeErrorOf(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return MessageOf<ShapeError>([&] { InferNode(op, attrs, inputs, outputs); });
}
NodeShapes Certain(Shapes inputs, Shapes outputs = {}) {
  return InferNode(Add.op(), {}, std::move(inputs), std::move(outputs), false);
}
NodeShapes Assumed(Shapes inputs, Shapes outputs = {}) {
  return InferNode(Add.op(), {}, std::move(inputs), std::move(outputs), true);
}
NodeShapes Node(const Shape& a, const Shape& b, const Shape& output) { return {{a, b}, {output}}; }

// The operators of a gradient from what flows back to the argument, for a chain of first inputs: "Negative Mul".
std::string Chain(const Symbol& symbol) {
  std::string text;
  for (NodePtr node = symbol.entry().node; !node->is_variable(); node = node->inputs()[0].node) {
    text += (text.empty() ? "" : " ") + node->op().name;
  }
  return text;
}

Symbol GradientOf(const Symbol& head, const std::string& name) {
  const std::vector<std::string> wrt = {name};
  GivenTypes given;
  for (const std::string& input : head.ListInputs()) given.shapes[input] = {5, 3};
  return Gradient(head, wrt, given).gradients[0];
}

TEST(Broadcast, KnownShapes) {
  EXPECT_EQ(Certain({Shape{2, 3}, Shape{2, 3}}).outputs[0], (Shape{2, 3}));
  EXPECT_EQ(Certain({Shape{5, 1, 4}, Shape{3, 1}}).outputs[0], (Shape{5, 3, 4}));
  EXPECT_EQ(Certain({Shape{}, Shape{3, 1}}).outputs[0], (Shape{3, 1}));
  EXPECT_EQ(Certain({Shape{0, 3}, Shape{1, 3}}).outputs[0], (Shape{0, 3}));
  EXPECT_EQ(Certain({Shape{0, 3}, Shape{3}}).outputs[0], (Shape{0, 3}));
  EXPECT_EQ(ShapeErrorOf(Add.op(), {}, {Shape{2, 3}, Shape{2, 4}}),
            "ShapeError: shapes (2, 3) and (2, 4) do not broadcast: extents must be equal or 1");
  EXPECT_EQ(ShapeErrorOf(Add.op(), {}, {Shape{0, 3}, Shape{2, 3}}),
            "ShapeError: shapes (0, 3) and (2, 3) do not broadcast: extents must be equal or 1");
  EXPECT_EQ(ShapeErrorOf(Add.op(), {}, {Shape{2, 3}, Shape{3}}, {Shape{3}}),
            "ShapeError: output \"output\": expected (?, ?), got (3)");
  EXPECT_EQ(ShapeErrorOf(Add.op(), {}, {Shape{2, 1}, Shape{2, 1}}, {Shape{2, 5}}),
            "ShapeError: output \"output\": expected (2, 1), got (2, 5)");
}

TEST(Broadcast, WhatFollowsForCertain) {
  EXPECT_EQ(Certain({Shape{kAny, 10}, Shape{12, kAny}}), Node({kAny, 10}, {12, kAny}, {12, 10}));
  EXPECT_EQ(Certain({Shape{kAny, 10}, Shape{1, 10}}), Node({kAny, 10}, {1, 10}, {kAny, 10}));
  EXPECT_EQ(Certain({Shape{kAny, 10}, Shape{1, 10}}, {Shape{7, kAny}}), Node({7, 10}, {1, 10}, {7, 10}));
  EXPECT_EQ(Certain({Shape{kAny, 10}, Shape{10}}, {Shape{7, 10}}), Node({7, 10}, {10}, {7, 10}));
  EXPECT_EQ(Certain({Shape{kAny}, Shape{kAny}}, {Shape{1}}), Node({1}, {1}, {1}));
  EXPECT_EQ(Certain({Shape{4, 5}}), (NodeShapes{{Shape{4, 5}, std::nullopt}, {std::nullopt}}));
}

TEST(Broadcast, WhatIsAssumed) {
  EXPECT_EQ(Assumed({Shape{kAny, 10}, Shape{12, kAny}}), Node({12, 10}, {12, 10}, {12, 10}));  // E27
  EXPECT_EQ(Assumed({Shape{4, 5}}), Node({4, 5}, {4, 5}, {4, 5}));
  EXPECT_EQ(Assumed({}, {Shape{4, 5}}), Node({4, 5}, {4, 5}, {4, 5}));
  EXPECT_EQ(Assumed({Shape{5}}, {Shape{4, 5}}), Node({5}, {4, 5}, {4, 5}));
  EXPECT_EQ(Assumed({Shape{kAny, kAny}, Shape{kAny, 1}}, {Shape{4, 5}}), Node({4, 5}, {4, 1}, {4, 5}));
  for (const Shape& number : {Shape{}, Shape{1}, Shape{1, 1}}) {  // which may be combined with any shape
    EXPECT_EQ(Assumed({number}), (NodeShapes{{number, std::nullopt}, {std::nullopt}}));
  }
  const InferredShapes one = InferShapes(Variable("prediction") - Variable("label"), {{"prediction", {1, 1}}});
  EXPECT_EQ(one.arguments[1], (Shape{1, 1})) << "a batch of one sample";
}

// An operand that gets its shape elsewhere later is not taken for the other's likeness.
TEST(Broadcast, AssumesLast) {
  const Symbol bias = Variable("bias");
  const Symbol x = Variable("x");
  const Symbol net = Group({Add(x, bias, "sum"), FullyConnected(x, Variable("w"), bias, {.num_hidden = 4}, "fc")});
  const InferredShapes shapes = InferShapes(net, {{"x", {3, 4}}});
  EXPECT_EQ(shapes.arguments, (std::vector<std::optional<Shape>>{Shape{3, 4}, Shape{4}, Shape{4, 4}}));
}

TEST(Broadcast, BatchAxes) {
  const auto axis = [](const Shape& a, const Shape& b, int axis_a, int axis_b) {
    return OutputBatchAxes(Add.op(), {}, {a, b}, {axis_a, axis_b})[0];
  };
  EXPECT_EQ(axis({5, 3}, {5, 3}, 0, 0), 0);
  EXPECT_EQ(axis({5, 3}, {2, 5, 3}, 0, 1), 1);
  EXPECT_EQ(axis({3}, {5, 3}, -1, 0), 0);
  EXPECT_EQ(axis({5, 1}, {1, 5}, 0, 1), -1);   // every sample with every other
  EXPECT_EQ(axis({1, 3}, {5, 3}, 0, -1), -1);  // one sample stretched over what is no batch
  EXPECT_EQ(axis({2, 3}, {2, 3}, -1, -1), -1);
}

TEST(Elementwise, GradientsAsTheFormulasSay) {
  const Symbol a = Variable("a"), b = Variable("b");
  EXPECT_EQ(Chain(GradientOf(Add(a, b, "y"), "a")), "");
  EXPECT_EQ(Chain(GradientOf(Sub(a, b, "y"), "b")), "Negative");
  EXPECT_EQ(Chain(GradientOf(Mul(a, b, "y"), "a")), "Mul");
  EXPECT_EQ(GradientOf(Mul(a, b, "y"), "a").Children()[1].name(), "b");
  EXPECT_EQ(GradientOf(Mul(a, b, "y"), "b").Children()[1].name(), "a");
  EXPECT_EQ(Chain(GradientOf(Div(a, b, "y"), "a")), "Div");
  EXPECT_EQ(Chain(GradientOf(Div(a, b, "y"), "b")), "Negative Mul Div");
  EXPECT_EQ(Chain(GradientOf(Maximum(a, b, "y"), "a")), "Where GreaterEqual");
  EXPECT_EQ(Chain(GradientOf(Minimum(a, b, "y"), "b")), "Where LessEqual");
  EXPECT_EQ(GradientOf(Maximum(a, b, "y"), "a").Children()[2].entry().node->op().name, "Scalar");
  EXPECT_EQ(GradientOf(Maximum(a, b, "y"), "b").Children()[1].entry().node->op().name, "Scalar");
  EXPECT_EQ(Chain(GradientOf(Exp(a, "y"), "a")), "Mul");
  EXPECT_EQ(Chain(GradientOf(Log(a, "y"), "a")), "Div");
  EXPECT_EQ(Chain(GradientOf(Square(a, "y"), "a")), "Mul Mul");
  EXPECT_EQ(Chain(GradientOf(Sqrt(a, "y"), "a")), "Mul Div");
  EXPECT_EQ(Chain(GradientOf(2.0 / a, "a")), "Negative Mul Div");
  EXPECT_TRUE(GradientOf(Sign(a, "y"), "a").empty());
  EXPECT_TRUE(GradientOf(GreaterEqual(a, b, "y"), "a").empty());
  EXPECT_TRUE(GradientOf(BlockGrad(a, "y"), "a").empty());
}

TEST(Elementwise, OnlyWhatIsAskedForIsMade) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol grad = GradientOf(Mul(a, b, "y"), "a");
  EXPECT_EQ(grad.ListArguments(), (std::vector<std::string>{"y_output_grad", "b"}));
}

TEST(Elementwise, Operators) {
  const Symbol a = Variable("a"), b = Variable("b");
  const auto made = [](const Symbol& symbol) {
    const NodePtr node = symbol.entry().node;
    std::string text = node->op().name;
    for (const Entry& input : node->inputs()) {
      const bool is_number = !input.node->is_variable() && &input.node->op() == &ScalarOp();
      text += " " + (is_number ? fmt::format("{}", input.node->attrs().get<ScalarAttrs>().scalar) : input.node->name());
    }
    return text;
  };
  EXPECT_EQ(made(a + b), "Add a b");
  EXPECT_EQ(made(a - b), "Sub a b");
  EXPECT_EQ(made(a * b), "Mul a b");
  EXPECT_EQ(made(a / b), "Div a b");
  EXPECT_EQ(made(a + 1.5), "Add a 1.5");
  EXPECT_EQ(made(a - 1.5), "Sub a 1.5");
  EXPECT_EQ(made(a * 1.5), "Mul a 1.5");
  EXPECT_EQ(made(a / 1.5), "Div a 1.5");
  EXPECT_EQ(made(1.5 + a), "Add 1.5 a");
  EXPECT_EQ(made(1.5 - a), "Sub 1.5 a");
  EXPECT_EQ(made(1.5 * a), "Mul 1.5 a");
  EXPECT_EQ(made(1.5 / a), "Div 1.5 a");
  EXPECT_EQ(made(-a), "Negative a");
}

TEST(Elementwise, AttributeErrors) {
  EXPECT_EQ(MessageOf<ModelError>([] { Activation(Variable("a"), {ActivationType::kNone}, "act"); }),
            "ModelError: Activation \"act\": type must be relu, sigmoid, tanh, softrelu or softsign, got none");
  EXPECT_EQ(MessageOf<ModelError>([] { Apply(ConstantOp(), ConstantAttrs{}, {}, "c"); }),
            "ModelError: Constant \"c\": value is missing");
  EXPECT_EQ(MessageOf<ModelError>([] { Softmax(Variable("a"), {.temperature = 1e-39}, "s"); }),
            "ModelError: Softmax \"s\": temperature must be a finite number of at least 1e-30, got 1e-39");
  EXPECT_EQ(MessageOf<ModelError>([] {
              Apply(EmbeddingOp(), EmbeddingAttrs{.input_dim = 10, .padding_idx = 100}, {Variable("a")}, "e");
            }),
            "ModelError: Embedding \"e\": padding_idx 100 is none of 10 rows");
  EXPECT_EQ(MessageOf<ModelError>([] { Softmax(Variable("a"), {.axis = 8}, "s"); }),
            "ModelError: Softmax \"s\": axis must be from -8 to 7, got 8");
}

TEST(Elementwise, ConstantsAreEqualByContent) {
  const auto constant = [](std::initializer_list<float> values) {
    return AnyAttrs(ConstantAttrs{std::make_shared<const HostTensor>(HostTensor::From({2}, values))});
  };
  EXPECT_EQ(constant({1, 2}), constant({1, 2}));
  EXPECT_NE(constant({1, 2}), constant({1, 3}));
  EXPECT_NE(constant({1, 2}), AnyAttrs(ConstantAttrs{}));
  EXPECT_EQ(AnyAttrs(ConstantAttrs{}), AnyAttrs(ConstantAttrs{}));
  const Symbol symbol = Constant(HostTensor(DType::kInt32, {2, 3}), "c");
  const NodeTypes types = InferTypes(Graph::Of(symbol), {}, {});
  EXPECT_EQ(types[0][0], (ValueType{DType::kInt32, {2, 3}, -1}));
}

TEST(AddN, OneShapeForAll) {
  EXPECT_EQ(InferNode(AddNOp(), {}, {Shape{kAny, 2}, std::nullopt, Shape{3, kAny}}),
            (NodeShapes{{Shape{3, 2}, Shape{3, 2}, Shape{3, 2}}, {Shape{3, 2}}}));
  EXPECT_EQ(ShapeErrorOf(AddNOp(), {}, {Shape{3}, Shape{1}}), "ShapeError: argument \"arg1\": expected (3), got (1)");
}

TEST(Cast, Types) {
  using DTypes = std::vector<std::optional<DType>>;
  EXPECT_EQ(InferNodeDTypes(CastOp(), CastAttrs{DType::kBFloat16}, {DType::kInt32}).outputs,
            (DTypes{DType::kBFloat16}));
  EXPECT_EQ(InferNodeDTypes(CastOp(), CastAttrs{DType::kBFloat16}, {}).inputs, (DTypes{std::nullopt}));
  const Symbol net = Cast(Variable("x", {.dtype = DType::kFloat64}), {.dtype = DType::kFloat16}, "c");
  const Symbol grad = GradientOf(net, "x");
  const InferredDTypes types = InferDTypes(Group({net, grad}), {{"c_output_grad", DType::kFloat16}});
  EXPECT_EQ(types.outputs, (std::vector{DType::kFloat16, DType::kFloat64}));
}

TEST(Softmax, AxesAndBatch) {
  EXPECT_EQ(ShapeErrorOf(SoftmaxOp(), SoftmaxAttrs{.axis = 2}, {Shape{5, 3}}),
            "ShapeError: axis 2 is out of range for shape (5, 3): expected -2 to 1");
  EXPECT_EQ(OutputBatchAxes(SoftmaxOp(), SoftmaxAttrs{.axis = -1}, {{5, 3}}, {0}), std::vector{0});
  EXPECT_EQ(OutputBatchAxes(SoftmaxOp(), SoftmaxAttrs{.axis = -2}, {{5, 3}}, {0}), std::vector{-1});
  EXPECT_EQ(OutputBatchAxes(SoftmaxGradOp(), SoftmaxAttrs{}, {{5, 3}, {5, 3}}, {-1, 0}), std::vector{0});
}

TEST(Activation, IsNamedByItsFunction) {
  const Symbol fc = FullyConnected(Variable("data"), {.num_hidden = 2}, "fc1");
  EXPECT_EQ(Tanh(fc).name(), "fc1_tanh1");
  EXPECT_EQ(SoftSign(Relu(fc)).name(), "fc1_softsign2");
  NameScope scope("net_");
  EXPECT_EQ(Sigmoid(fc).name(), "net_sigmoid0");
}

}  // namespace
}  // namespace bindery
