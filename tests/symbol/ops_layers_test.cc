// Shapes, types, batch axes, checks and gradient graphs of layers: FullyConnected, Convolution, Pooling, BatchNorm,
// Dropout.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

// The ShapeError of one node's inference; what the graph adds is left out.
std::string ShapeErrorOf(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return MessageOf<ShapeError>([&] { InferNode(op, attrs, inputs, outputs); });
}
std::string CheckError(const OpDef& op, const AnyAttrs& attrs) {
  return MessageOf<ModelError>([&] { op.check(attrs); });
}
NodeShapes Infer(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return InferNode(op, attrs, std::move(inputs), std::move(outputs), false);
}

TEST(FullyConnected, ShapesForward) {
  const FullyConnectedAttrs attrs{.num_hidden = 10};
  const NodeShapes shapes = Infer(FullyConnectedOp(), attrs, {Shape{64, 3, 4}});
  EXPECT_EQ(shapes.inputs, (Shapes{Shape{64, 3, 4}, Shape{10, 12}, Shape{10}}));
  EXPECT_EQ(shapes.outputs, (Shapes{Shape{64, 10}}));
  EXPECT_EQ(Infer(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = 10, .no_bias = true, .flatten = false},
                  {Shape{64, 3, 4}}),
            (NodeShapes{{Shape{64, 3, 4}, Shape{10, 4}}, {Shape{64, 3, 10}}}));
  EXPECT_EQ(Infer(FullyConnectedOp(), attrs, {Shape{0, 5}}).outputs, (Shapes{Shape{0, 10}}));
}

TEST(FullyConnected, ShapesBackwardAndPartly) {
  const FullyConnectedAttrs attrs{.num_hidden = 10};
  // E27: the batch from the output; the features from the weight.
  EXPECT_EQ(Infer(FullyConnectedOp(), attrs, {Shape{kAny, 12}}, {Shape{5, kAny}}).inputs[0], (Shape{5, 12}));
  EXPECT_EQ(Infer(FullyConnectedOp(), attrs, {Shape{5, kAny, 4}, Shape{10, 12}}).inputs[0], (Shape{5, 3, 4}));
  EXPECT_EQ(Infer(FullyConnectedOp(), attrs, {Shape{kAny, 12}}).outputs[0], (Shape{kAny, 10}));
  EXPECT_EQ(Infer(FullyConnectedOp(), attrs, {}),
            (NodeShapes{{std::nullopt, Shape{10, kAny}, Shape{10}}, {Shape{kAny, 10}}}));
  const FullyConnectedAttrs last{.num_hidden = 10, .no_bias = true, .flatten = false};
  EXPECT_EQ(Infer(FullyConnectedOp(), last, {std::nullopt, Shape{10, 4}}, {Shape{2, 3, 10}}).inputs[0],
            (Shape{2, 3, 4}));
  EXPECT_EQ(Infer(FullyConnectedGradDataOp(), attrs, {Shape{5, 10}, Shape{10, 12}}).outputs[0], (Shape{5, 12}));
  EXPECT_EQ(Infer(FullyConnectedGradWeightOp(), attrs, {std::nullopt, Shape{5, 3, 4}}),
            (NodeShapes{{Shape{5, 10}, Shape{5, 3, 4}}, {Shape{10, 12}, Shape{10}}}));
}

TEST(FullyConnected, Errors) {
  const FullyConnectedAttrs attrs{.num_hidden = 500};
  EXPECT_EQ(ShapeErrorOf(FullyConnectedOp(), attrs, {Shape{64, 800}, Shape{500, 784}}),
            "ShapeError: argument \"weight\": expected (500, 800), got (500, 784)");
  EXPECT_EQ(ShapeErrorOf(FullyConnectedOp(), attrs, {Shape{64}}),
            "ShapeError: expected data of 2 or more axes (N, ...), got (64)");
  EXPECT_EQ(ShapeErrorOf(FullyConnectedOp(), attrs, {Shape{64, 0}}),
            "ShapeError: a sample of data (64, 0) has no elements");
  EXPECT_EQ(ShapeErrorOf(FullyConnectedOp(), attrs, {Shape{64, 8}, std::nullopt, Shape{500, 1}}),
            "ShapeError: argument \"bias\": expected (500), got (500, 1)");
  EXPECT_EQ(CheckError(FullyConnectedOp(), FullyConnectedAttrs{}), "ModelError: num_hidden must be at least 1, got 0");
}

TEST(FullyConnected, BatchAxes) {
  const FullyConnectedAttrs flat{.num_hidden = 7, .no_bias = true},
      last{.num_hidden = 7, .no_bias = true, .flatten = false};
  EXPECT_EQ(OutputBatchAxes(FullyConnectedOp(), flat, {{5, 3, 2}, {7, 6}}, {0, -1}), std::vector{0});
  EXPECT_EQ(OutputBatchAxes(FullyConnectedOp(), flat, {{5, 3, 2}, {7, 6}}, {1, -1}),
            std::vector{-1});  // joined with others
  EXPECT_EQ(OutputBatchAxes(FullyConnectedOp(), last, {{5, 3, 2}, {7, 2}}, {1, -1}), std::vector{1});
  EXPECT_EQ(OutputBatchAxes(FullyConnectedOp(), last, {{5, 3, 2}, {7, 2}}, {2, -1}), std::vector{-1});
}

TEST(FullyConnected, GradientAppliesTheActivationFirstAndPrunes) {
  const Symbol net = FullyConnected(Variable("x"), {.num_hidden = 4, .activation = ActivationType::kTanh}, "fc");
  const std::vector<std::string> all = {"x", "fc_weight", "fc_bias"};
  const GradientResult result = Gradient(net, all, {.shapes = {{"x", {5, 3}}}});
  const NodePtr data = result.gradients[0].entry().node, weight = result.gradients[1].entry().node;
  EXPECT_EQ(data->op().name, "FullyConnectedGradData");
  EXPECT_EQ(data->attrs().get<FullyConnectedAttrs>().activation, ActivationType::kNone);
  EXPECT_EQ(data->inputs()[0].node->op().name, "ActivationGrad");
  EXPECT_EQ(data->inputs()[0].node->inputs()[1], net.entry());
  EXPECT_EQ(result.gradients[2].entry(), (Entry{weight, 1}));
  EXPECT_EQ(weight->inputs()[0], data->inputs()[0]);  // one ActivationGrad for both

  const std::vector<std::string> only_weight = {"fc_weight"};
  const Symbol pruned = Gradient(net, only_weight).gradients[0];
  EXPECT_EQ(pruned.entry().node->num_outputs(), 1);  // the bias is not asked for
}

TEST(Convolution, Shapes) {
  const ConvolutionAttrs attrs{.num_filter = 20, .kernel = {5, 5}};
  EXPECT_EQ(Infer(ConvolutionOp(), attrs, {Shape{64, 1, 28, 28}}),
            (NodeShapes{{Shape{64, 1, 28, 28}, Shape{20, 1, 5, 5}, Shape{20}}, {Shape{64, 20, 24, 24}}}));
  const ConvolutionAttrs full{
      .num_filter = 6, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .dilate = {1, 2}, .groups = 2};
  EXPECT_EQ(Infer(ConvolutionOp(), full, {Shape{5, 4, 9, 8}}).inputs[1], (Shape{6, 2, 3, 2}));
  EXPECT_EQ(Infer(ConvolutionOp(), full, {Shape{5, 4, 9, 8}}).outputs[0], (Shape{5, 6, 5, 6}));
  EXPECT_EQ(
      Infer(ConvolutionOp(), ConvolutionAttrs{.num_filter = 2, .kernel = {1, 1, 1}}, {Shape{0, 3, 1, 2, 3}}).outputs[0],
      (Shape{0, 2, 1, 2, 3}));
}

TEST(Convolution, ShapesBackwardAndPartly) {
  // E27: 21 filters 3x3 with padding 1 of (?, 10, ?, ?) into (5, 21, 32, 32).
  const ConvolutionAttrs attrs{.num_filter = 21, .kernel = {3, 3}, .pad = {1, 1}};
  EXPECT_EQ(Infer(ConvolutionOp(), attrs, {Shape{kAny, 10, kAny, kAny}}, {Shape{5, 21, 32, 32}}).inputs[0],
            (Shape{5, 10, 32, 32}));
  ConvolutionAttrs uneven{.num_filter = 21, .kernel = {4, 2}, .pad = {3, 0, 1, 0}};
  EXPECT_EQ(Infer(ConvolutionOp(), uneven, {Shape{kAny, 10, kAny, kAny}}, {Shape{5, 21, 32, 32}}).inputs[0],
            (Shape{5, 10, 31, 33}));
  uneven.pad.clear();
  uneven.auto_pad = AutoPad::kSameLower;
  EXPECT_EQ(Infer(ConvolutionOp(), uneven, {Shape{kAny, 10, kAny, kAny}}, {Shape{5, 21, 32, 32}}).inputs[0],
            (Shape{5, 10, 32, 32}));
  // The channels from the weight; spatial extents not through a stride.
  const ConvolutionAttrs strided{.num_filter = 4, .kernel = {3}, .stride = {2}, .groups = 2};
  const NodeShapes shapes = Infer(ConvolutionOp(), strided, {std::nullopt, Shape{4, 3, 3}}, {Shape{5, 4, 7}});
  EXPECT_EQ(shapes.inputs[0], (Shape{5, 6, kAny}));
  EXPECT_EQ(Infer(ConvolutionGradWeightOp(), attrs, {std::nullopt, Shape{5, 10, 32, 32}}),
            (NodeShapes{{Shape{5, 21, 32, 32}, Shape{5, 10, 32, 32}}, {Shape{21, 10, 3, 3}, Shape{21}}}));
}

// With a stride the data's extents do not follow from the output's: they are attributes, or the smallest there are and
// what is said to be beyond.
TEST(Convolution, TheGradientKnowsTheExtentsThatAStrideHides) {
  const ConvolutionAttrs strided{.num_filter = 4, .kernel = {3}, .stride = {2}}, plain{.num_filter = 4, .kernel = {3}};
  ConvolutionGradDataAttrs smallest{strided}, beyond{strided};
  beyond.beyond = {1};
  smallest.num_filter = beyond.num_filter = 0;  // the output gradient's channels
  EXPECT_EQ(Infer(ConvolutionGradDataOp(), smallest, {Shape{5, 4, 3}, Shape{4, 6, 3}}).outputs[0], (Shape{5, 6, 7}));
  EXPECT_EQ(Infer(ConvolutionGradDataOp(), beyond, {Shape{5, 4, 3}, Shape{4, 6, 3}}).outputs[0], (Shape{5, 6, 8}));
  beyond.beyond = {2};
  EXPECT_EQ(CheckError(ConvolutionGradDataOp(), beyond),
            "ModelError: beyond must be less than the stride, and 0 with extents, got (2)");
  for (int64_t extent : {7, 8}) {
    EXPECT_EQ(
        Infer(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{strided, {extent}}, {Shape{5, 4, 3}, Shape{4, 6, 3}})
            .outputs[0],
        (Shape{5, 6, extent}));
  }
  EXPECT_EQ(
      Infer(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{plain, {}}, {Shape{5, 4, 3}, Shape{4, 6, 3}}).outputs[0],
      (Shape{5, 6, 5}));
  EXPECT_EQ(
      ShapeErrorOf(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{strided, {9}}, {Shape{5, 4, 3}, Shape{4, 6, 3}}),
      "ShapeError: argument \"output_grad\": expected (?, 4, 4), got (5, 4, 3)");
}

TEST(Convolution, ShapeErrors) {
  const ConvolutionAttrs attrs{.num_filter = 20, .kernel = {5, 5}, .groups = 2};
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 784}}),
            "ShapeError: expected 4 axes (N, C, H, W), got (64, 784)");
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 3, 28, 28}}),
            "ShapeError: 3 channels are not divisible by groups 2");
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 2, 28, 4}}),
            "ShapeError: the window of 5 along axis 3 is larger than the input with padding, 4");
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 2, 0, 28}}),
            "ShapeError: data (64, 2, 0, 28) has no elements along axis 2");
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 2, 28, 28}, Shape{20, 2, 5, 5}}),
            "ShapeError: argument \"weight\": expected (20, 1, 5, 5), got (20, 2, 5, 5)");
  EXPECT_EQ(ShapeErrorOf(ConvolutionOp(), attrs, {Shape{64, 2, 28, 28}}, {Shape{64, 20, 24, 23}}),
            "ShapeError: output \"output\": expected (64, 20, 24, 24), got (64, 20, 24, 23)");
}

TEST(Convolution, AttributeErrors) {
  const auto error = [](const ConvolutionAttrs& attrs) { return CheckError(ConvolutionOp(), attrs); };
  EXPECT_EQ(error({.num_filter = 0, .kernel = {1}}), "ModelError: num_filter must be at least 1, got 0");
  EXPECT_EQ(error({.num_filter = 1}), "ModelError: kernel must have 1 to 3 extents, got ()");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {1, 1, 1, 1}}),
            "ModelError: kernel must have 1 to 3 extents, got (1, 1, 1, 1)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 0}}), "ModelError: kernel must be at least 1 everywhere, got (3, 0)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 3}, .stride = {0, 1}}),
            "ModelError: stride must be at least 1 everywhere, got (0, 1)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 3}, .pad = {1}}),
            "ModelError: pad must have 2 numbers, one per extent of the kernel, or twice as many, got (1)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 3}, .pad = {1, 0, 1}}),
            "ModelError: pad must have 2 numbers, one per extent of the kernel, or twice as many, got (1, 0, 1)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 3}, .pad = {0, 1}, .auto_pad = AutoPad::kValid}),
            "ModelError: pad must be 0 with auto_pad valid, which says what there is, got (0, 1)");
  EXPECT_EQ(error({.num_filter = 1, .kernel = {3, 3}, .pad = {-1, 0}}),
            "ModelError: pad must be at least 0 everywhere, got (-1, 0)");
  EXPECT_EQ(error({.num_filter = 6, .kernel = {3}, .groups = 4}),
            "ModelError: num_filter 6 is not divisible by groups 4");
  EXPECT_EQ(error({.num_filter = 6, .kernel = {3}, .groups = 0}), "ModelError: groups must be at least 1, got 0");
}

// Output extents of both ways to round and of all ways to pad, each side told.
// The addend is behind a bias that may be absent.
TEST(ConvolutionAdd, TakesOneType) {
  const ConvolutionAttrs attrs{.num_filter = 2, .kernel = {1, 1}, .no_bias = true};
  const Graph graph =
      Graph::Of(Apply(ConvolutionAddOp(), attrs, {Variable("x"), Variable("w"), Variable("addend")}, "y"));
  const auto types = [&](const DTypeMap& dtypes) { return InferTypes(graph, ShapeMap{{"x", {1, 3, 2, 2}}}, dtypes); };
  const NodeTypes known = types({{"x", DType::kFloat64}});
  for (const std::vector<ValueType>& node : known) EXPECT_EQ(node[0].dtype, DType::kFloat64);
  EXPECT_THROW(types({{"x", DType::kFloat64}, {"addend", DType::kFloat32}}), ShapeError);
}

TEST(Pooling, Windows) {
  const auto window = [](int64_t size, PoolingAttrs attrs) {
    EXPECT_EQ(InferNode(PoolingOp(), attrs, {Shape{1, 1, size}}).outputs[1], (Shape{1}));  // the state
    const Window w = PoolWindows(attrs, {1, 1, size}).at(0);
    EXPECT_EQ((*InferNode(PoolingOp(), attrs, {Shape{1, 1, size}}).outputs[0])[2], w.output);
    return std::array{w.output, w.pad_begin, w.pad_end};
  };
  using W = std::array<int64_t, 3>;
  constexpr AutoPad kUpper = AutoPad::kSameUpper, kLower = AutoPad::kSameLower;
  EXPECT_EQ(window(7, {.kernel = {2}, .stride = {2}}), (W{3, 0, 0}));
  EXPECT_EQ(window(7, {.kernel = {2}, .stride = {2}, .auto_pad = AutoPad::kValid}), (W{3, 0, 0}));
  EXPECT_EQ(window(7, {.kernel = {2}, .stride = {2}, .ceil_mode = true}), (W{4, 0, 0}));
  EXPECT_EQ(window(8, {.kernel = {2}, .stride = {2}, .ceil_mode = true}), (W{4, 0, 0}));
  EXPECT_EQ(window(1, {.kernel = {3}, .stride = {3}, .pad = {1}, .ceil_mode = true}), (W{1, 1, 1}));
  // A third window would start in the padding at the end.
  EXPECT_EQ(window(4, {.kernel = {2}, .stride = {3}, .pad = {1}, .ceil_mode = true}), (W{2, 1, 1}));
  EXPECT_EQ(window(4, {.kernel = {3}, .stride = {2}, .pad = {0, 2}}), (W{2, 0, 2}));
  EXPECT_EQ(window(4, {.kernel = {3}, .stride = {2}, .pad = {2, 0}, .ceil_mode = true}), (W{3, 2, 0}));
  EXPECT_EQ(window(9, {.kernel = {3}, .stride = {2}, .dilate = {3}}), (W{2, 0, 0}));
  EXPECT_EQ(window(7, {.kernel = {2}, .stride = {2}, .auto_pad = kUpper}), (W{4, 0, 1}));
  EXPECT_EQ(window(7, {.kernel = {2}, .stride = {2}, .auto_pad = kLower}), (W{4, 1, 0}));
  EXPECT_EQ(window(5, {.kernel = {3}, .auto_pad = kUpper}), (W{5, 1, 1}));
  EXPECT_EQ(window(5, {.kernel = {2}, .dilate = {3}, .auto_pad = kLower}), (W{5, 2, 1}));
  EXPECT_EQ(window(5, {.kernel = {1}, .stride = {4}, .auto_pad = kUpper}), (W{2, 0, 0}));
}

TEST(Pooling, WindowsAlwaysHoldAnElement) {
  int tried = 0;
  const auto expect_elements = [&](const PoolingAttrs& attrs, int64_t size) {
    Window w;
    try {
      PoolingOp().check(attrs);
      w = PoolWindows(attrs, {1, 1, size}).at(0);
    } catch (const Error&) {
      return;
    }
    ++tried;
    ASSERT_GE(w.output, 1);
    for (int64_t p = 0; p < w.output; ++p) {
      int64_t inside = 0;
      for (int64_t k = 0; k < w.kernel; ++k) {
        const int64_t at = p * w.stride - w.pad_begin + k * w.dilate;
        inside += at >= 0 && at < size;
      }
      EXPECT_GT(inside, 0) << AnyAttrs(attrs).ToMap().size() << " " << size << " " << p;
    }
    const int64_t left = size + w.pad_begin + w.pad_end - (w.output - 1) * w.stride - w.extent();
    if (attrs.auto_pad != AutoPad::kNone) {
      EXPECT_EQ(w.output, (size + w.stride - 1) / w.stride);
      EXPECT_EQ(std::abs(w.pad_end - w.pad_begin), (w.pad_end + w.pad_begin) % 2);
    } else if (!attrs.ceil_mode) {
      EXPECT_TRUE(left >= 0 && left < w.stride);
    }
  };
  for (int64_t size = 1; size <= 7; ++size) {
    for (int64_t kernel = 1; kernel <= 4; ++kernel) {
      for (int64_t stride = 1; stride <= 5; ++stride) {
        for (int64_t dilate = 1; dilate <= 3; ++dilate) {
          for (AutoPad auto_pad : {AutoPad::kSameUpper, AutoPad::kSameLower}) {
            expect_elements({.kernel = {kernel}, .stride = {stride}, .dilate = {dilate}, .auto_pad = auto_pad}, size);
          }
          for (int64_t pad = 0; pad < 49; ++pad) {
            expect_elements({.kernel = {kernel},
                             .stride = {stride},
                             .pad = {pad / 7, pad % 7},
                             .dilate = {dilate},
                             .ceil_mode = size % 2 == 0},
                            size);
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 3000);
}

TEST(Pooling, GlobalAndErrors) {
  const PoolingAttrs global{.type = PoolType::kAvg, .global = true};
  EXPECT_EQ(Infer(PoolingOp(), global, {Shape{2, 3, 7, 5}}), (NodeShapes{{Shape{2, 3, 7, 5}}, {Shape{2, 3, 1, 1}}}));
  EXPECT_EQ(PoolWindows(global, {2, 3, 7, 5})[1].kernel, 5);
  EXPECT_EQ(Infer(PoolingOp(), PoolingAttrs{.type = PoolType::kAvg, .kernel = {2, 2}}, {Shape{kAny, 3, kAny, 5}},
                  {Shape{4, kAny, kAny, kAny}}),
            (NodeShapes{{Shape{4, 3, kAny, 5}}, {Shape{4, 3, kAny, 4}}}));
  EXPECT_EQ(ShapeErrorOf(PoolingOp(), global, {Shape{2, 3}}),
            "ShapeError: expected 3 to 5 axes (N, C, spatial...), got (2, 3)");
  EXPECT_EQ(ShapeErrorOf(PoolingOp(), PoolingAttrs{.kernel = {3, 3}}, {Shape{2, 3, 2, 5}}),
            "ShapeError: the window of 3 along axis 2 is larger than the input with padding, 2");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{}), "ModelError: kernel must have 1 to 3 extents, got ()");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{.kernel = {2}, .pad = {2}}),
            "ModelError: pad (2) must be smaller than kernel (2)");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{.kernel = {2}, .pad = {0, 3}, .dilate = {2}}),
            "ModelError: pad (0, 3) must be smaller than kernel (2) dilated by (2)");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{.kernel = {2}, .pad = {1}, .auto_pad = AutoPad::kSameUpper}),
            "ModelError: pad must be 0 with auto_pad same_upper, which says what there is, got (1)");
  EXPECT_EQ(ShapeErrorOf(PoolingOp(), PoolingAttrs{.kernel = {2}, .pad = {1}, .dilate = {2}}, {Shape{2, 3, 1}}),
            "ShapeError: a window dilated by 2 along axis 2 of 1 could see nothing but padding");
}

TEST(Pooling, TheGradientOfMaxUsesTheState) {
  const std::vector<std::string> x = {"x"};
  const GivenTypes given{.shapes = {{"x", {5, 3, 7, 8}}}};
  const Symbol max = Gradient(Pooling(Variable("x"), {.kernel = {2, 2}}, "p"), x, given).gradients[0];
  EXPECT_EQ(max.entry().node->inputs().size(), 2u);
  EXPECT_EQ(max.entry().node->inputs()[1].output, 1);
  EXPECT_EQ(max.entry().node->attrs().get<PoolingGradAttrs>().extents, (std::vector<int64_t>{7, 8}));
  const Symbol avg =
      Gradient(Pooling(Variable("x"), {.type = PoolType::kAvg, .kernel = {2, 2}}, "p"), x, given).gradients[0];
  EXPECT_EQ(avg.entry().node->inputs().size(), 1u);
  EXPECT_EQ(InferNodeDTypes(PoolingOp(), PoolingAttrs{.kernel = {2}}, {DType::kBFloat16}).outputs,
            (std::vector<std::optional<DType>>{DType::kBFloat16, DType::kUInt8}));
}

TEST(Dropout, MaskAndErrors) {
  const DropoutAttrs attrs{.p = 0.5, .axes = {2, -1}};
  EXPECT_EQ(Infer(DropoutOp(), attrs, {Shape{4, 3, 8, 8}}).outputs, (Shapes{Shape{4, 3, 8, 8}, Shape{4, 3, 1, 1}}));
  EXPECT_EQ(Infer(DropoutOp(), attrs, {}, {Shape{4, 3, 8, kAny}}),
            (NodeShapes{{Shape{4, 3, 8, kAny}}, {Shape{4, 3, 8, kAny}, Shape{4, 3, 1, 1}}}));
  EXPECT_EQ(InferNodeDTypes(DropoutOp(), attrs, {DType::kFloat16}).outputs,
            (std::vector<std::optional<DType>>{DType::kFloat16, DType::kUInt8}));
  EXPECT_EQ(OutputBatchAxes(DropoutOp(), DropoutAttrs{}, {{4, 3}}, {1}), (std::vector{1, 1}));
  EXPECT_EQ(OutputBatchAxes(DropoutOp(), DropoutAttrs{.axes = {0}}, {{1, 3}}, {0}), (std::vector{0, -1}));
  EXPECT_EQ(ShapeErrorOf(DropoutOp(), attrs, {Shape{4, 3}}),
            "ShapeError: axis 2 is out of range for shape (4, 3): expected -2 to 1");
  EXPECT_EQ(CheckError(DropoutOp(), DropoutAttrs{.p = 1}), "ModelError: p must be at least 0 and less than 1, got 1");
  EXPECT_EQ(CheckError(DropoutOp(), DropoutAttrs{.p = NAN}),
            "ModelError: p must be at least 0 and less than 1, got nan");
  EXPECT_EQ(CheckError(DropoutOp(), DropoutAttrs{.axes = {1, 1}}), "ModelError: axes names axis 1 twice");
}

// Products of two of them stay far from overflow.
TEST(Windows, AreBounded) {
  const int64_t most = INT32_MAX, more = most + 1;
  EXPECT_EQ(CheckError(ConvolutionOp(), ConvolutionAttrs{.num_filter = 1, .kernel = {1}, .stride = {more}}),
            "ModelError: stride must be at most 2147483647 everywhere, got (2147483648)");
  EXPECT_EQ(CheckError(ConvolutionOp(), ConvolutionAttrs{.num_filter = 1, .kernel = {1}, .pad = {more}}),
            "ModelError: pad must be at most 2147483647 everywhere, got (2147483648)");
  EXPECT_EQ(CheckError(ConvolutionOp(), ConvolutionAttrs{.num_filter = 1, .kernel = {1}, .dilate = {more}}),
            "ModelError: dilate must be at most 2147483647 everywhere, got (2147483648)");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{.kernel = {1, more}}),
            "ModelError: kernel must be at most 2147483647 everywhere, got (1, 2147483648)");
  EXPECT_EQ(CheckError(PoolingOp(), PoolingAttrs{.kernel = {most}, .stride = {most}, .pad = {most - 1}}),
            "nothing was thrown");
}

TEST(Softmax, KnowsItsScores) {
  const Symbol x = Variable("x");
  EXPECT_EQ(ScoresOf(Softmax(x)).entry(), x.entry());
  EXPECT_EQ(ScoresOf(Softmax(x, {.axis = 1})).entry(), x.entry());
  for (const Symbol& other : {x, Exp(x), Softmax(x, {.axis = 0}), Softmax(x, {.temperature = 2})}) {
    EXPECT_EQ(ScoresOf(other).entry(), other.entry());
  }
}

}  // namespace
}  // namespace bindery
