// Batch normalisation: shapes, types, batch axes, checks, gradient, and what `sync` expands to.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using DTypes = std::vector<std::optional<DType>>;
constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kBf16 = DType::kBFloat16, kU8 = DType::kUInt8;

std::string ShapeErrorOf(const OpDef& op, const AnyAttrs& attrs, Shapes inputs) {
  return MessageOf<ShapeError>([&] { InferNode(op, attrs, inputs); });
}

int CountOps(const Symbol& symbol, const std::string& op) {
  const Graph graph = Graph::Of(symbol);
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const NodePtr& node) {
    return !node->is_variable() && node->op().name == op;
  }));
}

TEST(BatchNorm, VariablesAndStates) {
  const Symbol bn = BatchNorm(Variable("x"), {}, "bn");
  EXPECT_EQ(bn.ListArguments(), (std::vector<std::string>{"x", "bn_gamma", "bn_beta"}));
  EXPECT_EQ(bn.ListAuxiliaryStates(), (std::vector<std::string>{"bn_running_mean", "bn_running_var"}));
  EXPECT_EQ(bn.ListOutputs(), (std::vector<std::string>{"bn_output"}));
  EXPECT_EQ(BatchNorm(Variable("x"), {.output_mean_var = true}, "bn").ListOutputs(),
            (std::vector<std::string>{"bn_output", "bn_mean", "bn_var"}));
  EXPECT_EQ(BatchNorm(Variable("x"), {.relu = true}, "bn").entry().node->OutputName(3), "bn_state");
}

TEST(BatchNorm, Shapes) {
  const NodeShapes shapes = InferNode(BatchNormOp(), BatchNormAttrs{}, {Shape{8, 16, 4, 4}}, {}, false);
  EXPECT_EQ(shapes.inputs, (Shapes{Shape{8, 16, 4, 4}, Shape{16}, Shape{16}, Shape{16}, Shape{16}}));
  EXPECT_EQ(shapes.outputs, (Shapes{Shape{8, 16, 4, 4}, Shape{16}, Shape{16}}));
  // The channels from a parameter, the rest from the output.
  EXPECT_EQ(InferNode(BatchNormOp(), BatchNormAttrs{.axis = -1}, {Shape{kAny, kAny}, std::nullopt, Shape{16}},
                      {Shape{8, kAny}}, false)
                .inputs[0],
            (Shape{8, 16}));
  EXPECT_EQ(InferNode(BatchNormOp(), BatchNormAttrs{.relu = true}, {Shape{8, 16}}).outputs[3], (Shape{1}));
  EXPECT_EQ(ShapeErrorOf(BatchNormOp(), BatchNormAttrs{}, {Shape{8, 16, 4}, Shape{4}}),
            "ShapeError: argument \"gamma\": expected (16), got (4)");
  EXPECT_EQ(ShapeErrorOf(BatchNormOp(), BatchNormAttrs{.axis = 3}, {Shape{8, 16, 4}}),
            "ShapeError: axis 3 is out of range for shape (8, 16, 4): expected -3 to 2");
}

TEST(BatchNorm, ParametersAreFloat32For16BitData) {
  const auto infer = [](DTypes inputs, DTypes outputs = {}) {
    return InferNodeDTypes(BatchNormOp(), BatchNormAttrs{.relu = true}, std::move(inputs), std::move(outputs));
  };
  EXPECT_EQ(infer({kBf16}), (NodeDTypes{{kBf16, kF32, kF32, kF32, kF32}, {kBf16, kF32, kF32, kU8}}));
  EXPECT_EQ(infer({kF64}), (NodeDTypes{{kF64, kF64, kF64, kF64, kF64}, {kF64, kF64, kF64, kU8}}));
  EXPECT_EQ(infer({}, {kBf16}).inputs[0], kBf16);
  EXPECT_EQ(infer({std::nullopt, kF64}).inputs[0], kF64);
  EXPECT_EQ(infer({std::nullopt, kF32}).inputs[0], std::nullopt);  // data may be of 16 bits
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              infer({kF32, kBf16});
            }),
            "ShapeError: argument \"gamma\": expected float32, got bfloat16");
  EXPECT_EQ(InferNodeDTypes(BatchNormGradOp(), BatchNormAttrs{}, {kBf16}).outputs, (DTypes{kBf16, kF32, kF32}));
  EXPECT_EQ(InferNodeDTypes(BatchNormStatisticsOp(), BatchNormAttrs{}, {kBf16}).outputs, (DTypes{kF32}));
  EXPECT_EQ(InferNodeDTypes(BatchNormGradInputOp(), BatchNormAttrs{}, {kBf16}).inputs,
            (DTypes{kBf16, kBf16, kF32, kF32, kF32}));
}

TEST(BatchNorm, BatchAxes) {
  const std::vector<Shape> inputs = {{4, 4}, {4}, {4}, {4}, {4}};
  EXPECT_EQ(OutputBatchAxes(BatchNormOp(), BatchNormAttrs{}, inputs, {0, -1, -1, -1, -1}), (std::vector{0, -1, -1}));
  EXPECT_EQ(OutputBatchAxes(BatchNormGradOp(), BatchNormAttrs{}, {{4, 4}, {4, 4}, {4}, {4}, {4}}, {0, 0, -1, -1, -1}),
            (std::vector{0, -1, -1}));
  EXPECT_EQ(OutputBatchAxes(BatchNormStatisticsOp(), BatchNormAttrs{}, {{3, 3}}, {0}), std::vector{-1});
}

TEST(BatchNorm, AttributeErrors) {
  const auto error = [](const BatchNormAttrs& attrs) {
    return MessageOf<ModelError>([&] { BatchNormOp().check(attrs); });
  };
  EXPECT_EQ(error({.eps = 0}), "ModelError: eps must be above 0, got 0");
  EXPECT_EQ(error({.momentum = 1.5}), "ModelError: momentum must be from 0 to 1, got 1.5");
  EXPECT_EQ(error({.axis = 8}), "ModelError: axis must be from -8 to 7, got 8");
  EXPECT_EQ(error({.sync = true, .relu = true}),
            "ModelError: relu and sync do not go together: put Relu after the operator");
}

TEST(BatchNorm, GradientUsesTheStatisticsOfTheForwardPass) {
  const Symbol bn = BatchNorm(Variable("x"), {.relu = true}, "bn");
  const std::vector<std::string> wrt = {"x", "bn_gamma", "bn_beta"};
  const GradientResult result = Gradient(bn, wrt);
  const NodePtr node = result.gradients[0].entry().node, forward = bn.entry().node;
  EXPECT_EQ(node->op().name, "BatchNormGrad");
  EXPECT_EQ(node->inputs()[2], (Entry{forward, 1}));
  EXPECT_EQ(node->inputs()[3], (Entry{forward, 2}));
  EXPECT_EQ(node->inputs()[5], (Entry{forward, 3}));
  EXPECT_EQ(result.gradients[1].entry(), (Entry{node, 1}));
  EXPECT_EQ(result.gradients[2].entry(), (Entry{node, 2}));
}

TEST(BatchNorm, MeanAndVarianceHaveNoGradient) {
  const std::vector<std::string> wrt = {"x"};
  const Symbol bn = BatchNorm(Variable("x"), {.output_mean_var = true}, "bn");
  EXPECT_EQ(MessageOf<ModelError>([&] { Gradient(bn, wrt); }),
            "ModelError: BatchNorm \"bn\": the outputs mean and var have no gradient; put BlockGrad behind them");
  EXPECT_NO_THROW(Gradient(Group({bn[0], BlockGrad(bn[1], "m"), BlockGrad(bn[2], "v")}), wrt));
}

TEST(SyncBatchNorm, ExpandsIntoItsParts) {
  const Symbol bn =
      BatchNorm(Variable("x"), {.eps = 0.5, .fix_gamma = false, .output_mean_var = true, .sync = true}, "bn");
  const Symbol expanded = ExpandComposites(bn);
  EXPECT_EQ(expanded.ListOutputs(), bn.ListOutputs());
  EXPECT_EQ(expanded.ListArguments(), bn.ListArguments());
  EXPECT_EQ(expanded.ListAuxiliaryStates(), bn.ListAuxiliaryStates());
  const Node& normalize = *expanded.entries()[0].node;
  EXPECT_EQ(normalize.op().name, "BatchNormNormalize");
  EXPECT_FALSE(normalize.attrs().get<BatchNormAttrs>().sync);
  EXPECT_EQ(normalize.attrs().get<BatchNormAttrs>().eps, 0.5);
  const Node& merge = *normalize.inputs()[3].node;
  EXPECT_EQ(merge.op().name, "MergeStatistics");
  EXPECT_EQ(merge.op().across_devices, AcrossDevices::kGather);
  EXPECT_EQ(merge.inputs()[0].node->op().name, "BatchNormStatistics");
  // Local normalisation and frozen statistics stay as they are.
  for (const BatchNormAttrs& attrs : {BatchNormAttrs{}, BatchNormAttrs{.use_global_stats = true, .sync = true}}) {
    const Symbol local = BatchNorm(Variable("x"), attrs, "bn");
    EXPECT_EQ(ExpandComposites(local).entry().node, local.entry().node);
  }
}

TEST(SyncBatchNorm, ParametersGradientsAreLocalSums) {
  const Symbol bn = ExpandComposites(BatchNorm(Variable("x"), {.fix_gamma = false, .sync = true}, "bn"));
  const std::vector<std::string> all = {"x", "bn_gamma", "bn_beta"}, parameters = {"bn_gamma", "bn_beta"};
  const GradientResult result = Gradient(bn, all);
  EXPECT_EQ(result.gradients[0].entry().node->op().name, "BatchNormGradInput");
  EXPECT_EQ(CountOps(result.gradients[0], "SumOverDevices"), 1);
  for (int i : {1, 2}) EXPECT_EQ(CountOps(result.gradients[i], "SumOverDevices"), 0);
  const Symbol together = Group(result.gradients);
  EXPECT_EQ(CountOps(together, "BatchNormGradSums"), 1);
  // No second path to the data through the statistics.
  EXPECT_EQ(CountOps(together, "AddN"), 0);
  // With nothing to do for the data nothing is exchanged.
  EXPECT_EQ(CountOps(Group(Gradient(bn, parameters).gradients), "SumOverDevices"), 0);
  const Symbol fixed = ExpandComposites(BatchNorm(Variable("x"), {.sync = true}, "bn"));
  EXPECT_TRUE(Gradient(fixed, all).gradients[1].empty());  // gamma's is zero
}

TEST(SyncBatchNorm, HasToBeExpandedBeforeItsGradient) {
  const std::vector<std::string> wrt = {"x"};
  EXPECT_EQ(MessageOf<ModelError>([&] { Gradient(BatchNorm(Variable("x"), {.sync = true}, "bn"), wrt); }),
            "ModelError: BatchNorm \"bn\": sync has to be expanded before gradients are taken (ExpandComposites)");
}

}  // namespace
}  // namespace bindery
