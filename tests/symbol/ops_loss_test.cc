// Loss heads: shapes of labels, types, checks, and gradient graphs with their divisors.
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

using Names = std::vector<std::string>;

std::string ShapeErrorOf(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return MessageOf<ShapeError>([&] { InferNode(op, attrs, inputs, outputs); });
}

std::optional<Shape> LabelShape(const SoftmaxOutputAttrs& attrs, const Shape& data) {
  return InferNode(SoftmaxOutputOp(), attrs, {data}).inputs[1];
}

Symbol GradientOf(const Symbol& head, const std::string& name) {
  const Names wrt = {name};
  return Gradient(head, wrt, {.shapes = {{name, {5, 3}}}}).gradients[0];
}

TEST(SoftmaxOutput, LabelShapes) {
  EXPECT_EQ(LabelShape({}, {64, 10}), (Shape{64}));
  EXPECT_EQ(LabelShape({}, {64, 10, 3}), (Shape{64}));  // the other axes join the classes
  EXPECT_EQ(LabelShape({.multi_output = true}, {64, 10, 3, 3}), (Shape{64, 3, 3}));
  EXPECT_EQ(LabelShape({.preserve_shape = true}, {64, 3, 10}), (Shape{64, 3}));
  EXPECT_EQ(LabelShape({}, {kAny, 10}), (Shape{kAny}));
  // Probabilities are known by the label's shape.
  EXPECT_EQ(InferNode(SoftmaxOutputOp(), SoftmaxOutputAttrs{}, {Shape{kAny, 10}, Shape{64, kAny}}).inputs,
            (Shapes{Shape{64, 10}, Shape{64, 10}}));
}

TEST(SoftmaxOutput, DataShapesFromTheLabel) {
  const auto data = [](const SoftmaxOutputAttrs& attrs, const Shape& data, const Shape& label) {
    return InferNode(SoftmaxOutputOp(), attrs, {data, label}, {}, false).inputs[0];
  };
  EXPECT_EQ(data({}, {kAny, 10}, {64}), (Shape{64, 10}));
  EXPECT_EQ(data({.multi_output = true}, {kAny, 10, kAny}, {64, 3}), (Shape{64, 10, 3}));
  EXPECT_EQ(data({.preserve_shape = true}, {kAny, kAny, 10}, {64, 3}), (Shape{64, 3, 10}));
  EXPECT_EQ(InferNode(SoftmaxOutputOp(), SoftmaxOutputAttrs{}, {}, {Shape{64, 10}}).inputs,
            (Shapes{Shape{64, 10}, Shape{64}}));
}

TEST(SoftmaxOutput, ShapeErrors) {
  const SoftmaxOutputAttrs plain, valid{.normalization = Normalization::kValid};
  EXPECT_EQ(ShapeErrorOf(SoftmaxOutputOp(), plain, {Shape{64}}),
            "ShapeError: expected data of 2 or more axes (N, K, ...), got (64)");
  EXPECT_EQ(ShapeErrorOf(SoftmaxOutputOp(), plain, {Shape{64, 10}, Shape{63}}),
            "ShapeError: argument \"label\": expected (64), got (63)");
  EXPECT_EQ(
      ShapeErrorOf(SoftmaxOutputOp(), plain, {Shape{64, 10}, Shape{64, 1}}),
      "ShapeError: label (64, 1) for data (64, 10): expected (64) of class numbers, or (64, 10) of probabilities");
  EXPECT_EQ(ShapeErrorOf(SoftmaxOutputOp(), plain, {Shape{64, 0}}), "ShapeError: data (64, 0) has no classes");
  EXPECT_EQ(ShapeErrorOf(SoftmaxOutputOp(), SoftmaxOutputAttrs{.smooth_alpha = 0.1}, {Shape{64, 1}}),
            "ShapeError: label smoothing needs 2 or more classes, got data (64, 1)");
  EXPECT_EQ(
      ShapeErrorOf(SoftmaxOutputOp(), valid, {Shape{64, 10}, Shape{64, 10}}),
      "ShapeError: use_ignore, normalization valid and class_weights need class numbers, but the label has data's "
      "shape");
  const SoftmaxOutputAttrs weighted{.class_weights = {1, 2}};
  EXPECT_EQ(ShapeErrorOf(SoftmaxOutputOp(), weighted, {Shape{64, 3}}),
            "ShapeError: 2 class_weights for the 3 classes of data (64, 3)");
  EXPECT_EQ(
      ShapeErrorOf(SoftmaxOutputOp(), weighted, {Shape{64, 2}, Shape{64, 2}}),
      "ShapeError: use_ignore, normalization valid and class_weights need class numbers, but the label has data's "
      "shape");
}

TEST(SoftmaxOutput, AttributeErrors) {
  const auto error = [](const SoftmaxOutputAttrs& attrs) {
    return MessageOf<ModelError>([&] { SoftmaxOutputOp().check(attrs); });
  };
  EXPECT_EQ(error({.grad_scale = HUGE_VAL}), "ModelError: grad_scale must be a finite number, got inf");
  EXPECT_EQ(error({.class_weights = {1, -2}}), "ModelError: class_weights must not be negative, got -2");
  EXPECT_EQ(error({.class_weights = {NAN}}), "ModelError: class_weights must be a finite number, got nan");
  EXPECT_EQ(error({.smooth_alpha = -0.5}), "ModelError: smooth_alpha must be from 0 to 1, got -0.5");
  EXPECT_EQ(error({.multi_output = true, .preserve_shape = true}),
            "ModelError: multi_output and preserve_shape exclude each other");
}

TEST(SoftmaxOutput, LabelsAreOfAnyType) {
  using DTypes = std::vector<std::optional<DType>>;
  EXPECT_EQ(InferNodeDTypes(SoftmaxOutputOp(), SoftmaxOutputAttrs{}, {DType::kBFloat16, DType::kInt32}),
            (NodeDTypes{DTypes{DType::kBFloat16, DType::kInt32}, DTypes{DType::kBFloat16}}));
  EXPECT_EQ(InferNodeDTypes(SoftmaxOutputGradOp(),
                            SoftmaxOutputAttrs{.normalization = Normalization::kValid, .out_grad = true},
                            {DType::kBFloat16, DType::kInt64})
                .inputs,
            (DTypes{DType::kBFloat16, DType::kInt64, DType::kFloat32, DType::kBFloat16}));
}

TEST(SoftmaxOutput, NeedsNoHeadGradientUnlessAsked) {
  const Names wrt = {"x"};
  const Symbol plain = SoftmaxOutput(Variable("x"), {}, "sm");
  EXPECT_EQ(plain.ListArguments(), (Names{"x", "sm_label"}));
  const GradientResult result = Gradient(plain, wrt);
  EXPECT_EQ(result.head_gradients, Names{""});
  EXPECT_EQ(result.gradients[0].ListArguments(), (Names{"x", "sm_label"}));

  const GradientResult asked = Gradient(SoftmaxOutput(Variable("x"), {.out_grad = true}, "sm"), wrt);
  EXPECT_EQ(asked.head_gradients, Names{"sm_output_grad"});
  EXPECT_EQ(asked.gradients[0].entry().node->inputs().at(2).node->name(), "sm_output_grad");

  const Names label = {"sm_label"};
  EXPECT_TRUE(Gradient(plain, label).gradients[0].empty());
}

TEST(SoftmaxOutput, ValidCountsOverAllDevices) {
  const SoftmaxOutputAttrs attrs{
      .normalization = Normalization::kValid, .use_ignore = true, .ignore_label = 7, .out_grad = true};
  const Symbol grad = GradientOf(SoftmaxOutput(Variable("x"), Variable("l"), attrs, "sm"), "x");
  const NodePtr sum = grad.entry().node->inputs().at(2).node;
  EXPECT_EQ(sum->op().name, "SumOverDevices");
  EXPECT_EQ(sum->op().across_devices, AcrossDevices::kSum);
  EXPECT_EQ(Symbol(sum->inputs()[0]).ListArguments(), Names{"l"});
  EXPECT_EQ(grad.entry().node->inputs().at(3).node->name(), "sm_output_grad");
}

TEST(SoftmaxOutput, BatchAxes) {
  EXPECT_EQ(OutputBatchAxes(SoftmaxOutputOp(), SoftmaxOutputAttrs{}, {{5, 4}, {5}}, {0, 0}), std::vector{0});
  EXPECT_EQ(OutputBatchAxes(SoftmaxOutputOp(), SoftmaxOutputAttrs{.preserve_shape = true}, {{3, 5, 4}, {3, 5}}, {1, 1}),
            std::vector{1});
  EXPECT_EQ(OutputBatchAxes(SoftmaxOutputOp(), SoftmaxOutputAttrs{.multi_output = true}, {{5, 4, 3}, {5, 3}}, {1, -1}),
            std::vector{-1});
}

TEST(LinearRegressionOutput, Shapes) {
  const LinearRegressionOutputAttrs attrs;
  EXPECT_EQ(InferNode(LinearRegressionOutputOp(), attrs, {Shape{5, 3}}).inputs[1], (Shape{5, 3}));
  EXPECT_EQ(InferNode(LinearRegressionOutputOp(), attrs, {Shape{5, 1}, Shape{5}}).inputs[1], (Shape{5}));
  EXPECT_EQ(InferNode(LinearRegressionOutputOp(), attrs, {Shape{kAny, 3}, Shape{5, kAny}}).outputs[0], (Shape{5, 3}));
  EXPECT_EQ(ShapeErrorOf(LinearRegressionOutputOp(), attrs, {Shape{5, 2}, Shape{5}}),
            "ShapeError: data (5, 2) and label (5) differ in their number of elements");
  EXPECT_EQ(ShapeErrorOf(LinearRegressionOutputOp(), attrs, {Shape{}}),
            "ShapeError: expected data of 1 or more axes (N, ...), got ()");
  EXPECT_EQ(GradientOf(LinearRegressionOutput(Variable("x"), attrs, "r"), "x").ListArguments(),
            (Names{"x", "r_label"}));
}

TEST(MakeLoss, Gradient) {
  const Symbol grad = GradientOf(MakeLoss(Variable("x"), {.grad_scale = 3}, "loss"), "x");
  EXPECT_EQ(grad.entry().node->op().name, "BroadcastTo");
  EXPECT_EQ(grad.Children().entry().node->op().name, "MakeLossGrad");
  EXPECT_TRUE(grad.ListArguments().empty());
  const Symbol valid =
      GradientOf(MakeLoss(Variable("x"), {.normalization = Normalization::kValid, .valid_thresh = 0.5}, "loss"), "x");
  const Symbol count = valid.Children().Children();
  EXPECT_EQ(count.entry().node->op().name, "SumOverDevices");
  EXPECT_EQ(count.ListArguments(), Names{"x"});
  EXPECT_TRUE(Gradient(MakeLoss(Variable("x", {.shape = Shape{5}}), {}, "loss"), Names{"x"}).head_gradients[0].empty());
}

// E30: what has no gradient is an error on the way to an argument, unless BlockGrad stops the gradient there.
TEST(BlockGrad, StopsWhereThereIsNoGradient) {
  const Symbol sum = SumExactly(Variable("x"), "sum");
  const Names wrt = {"x"};
  EXPECT_EQ(MessageOf<ModelError>([&] { Gradient(sum, wrt); }),
            "ModelError: SumExactly \"sum\" lies between the heads and what the gradient is asked of, but has no "
            "gradient: it serves metrics and checks; put BlockGrad behind it to stop the gradient there");
  EXPECT_TRUE(Gradient(BlockGrad(sum, "stop"), wrt).gradients[0].empty());
}

}  // namespace
}  // namespace bindery
