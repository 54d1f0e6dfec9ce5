// Shapes, batch axes, checks and gradients of operators that move elements, of reductions and of Dot.
#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

constexpr int64_t kMin = INT64_MIN;

NodeShapes Infer(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return InferNode(op, attrs, std::move(inputs), std::move(outputs), false);
}
std::string ShapeErrorOf(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  return MessageOf<ShapeError>([&] { InferNode(op, attrs, inputs, outputs); });
}
std::string CheckError(const OpDef& op, const AnyAttrs& attrs) {
  return MessageOf<ModelError>([&] { op.check(attrs); });
}
int BatchAxis(const OpDef& op, const AnyAttrs& attrs, const Shape& data, int axis) {
  return OutputBatchAxes(op, attrs, {data}, {axis})[0];
}

std::optional<Shape> Reshaped(std::vector<int64_t> to, const Shape& from) {
  return Infer(ReshapeOp(), ReshapeAttrs{std::move(to)}, {from}).outputs[0];
}

TEST(Reshape, Forward) {
  EXPECT_EQ(Reshaped({2, 12}, {4, 6}), (Shape{2, 12}));
  EXPECT_EQ(Reshaped({0, -1}, {4, 6, 5}), (Shape{4, 30}));
  EXPECT_EQ(Reshaped({-1, 0, 2}, {4, 6, 5}), (Shape{10, 6, 2}));
  EXPECT_EQ(Reshaped({-1}, {4, 6}), (Shape{24}));
  EXPECT_EQ(Reshaped({}, {1, 1}), Shape{});
  EXPECT_EQ(Reshaped({0, -1}, {0, 6, 5}), (Shape{0, 30}));  // an empty batch
  EXPECT_EQ(Reshaped({-1, 5}, {0, 5}), (Shape{0, 5}));
  EXPECT_EQ(Reshaped({0, -1}, {kAny, 6, 5}), (Shape{kAny, 30}));  // a batch that is not known yet
  EXPECT_EQ(Reshaped({-1, 30}, {kAny, 6, 5}), (Shape{kAny, 30}));
}

TEST(Reshape, Backward) {
  EXPECT_EQ(Infer(ReshapeOp(), ReshapeAttrs{{-1, 28, 28}}, {Shape{kAny, 784}}, {Shape{64, 28, 28}}).inputs[0],
            (Shape{64, 784}));
  EXPECT_EQ(Infer(ReshapeOp(), ReshapeAttrs{{0, -1}}, {Shape{kAny, 6, 5}}, {Shape{4, kAny}}),
            (NodeShapes{{Shape{4, 6, 5}}, {Shape{4, 30}}}));
  EXPECT_EQ(Infer(ReshapeOp(), ReshapeAttrs{{6, 4}}, {Shape{3, kAny}}).inputs[0], (Shape{3, 8}));
}

TEST(Reshape, Errors) {
  EXPECT_EQ(ShapeErrorOf(ReshapeOp(), ReshapeAttrs{{5, 5}}, {Shape{4, 6}}),
            "ShapeError: the elements of (4, 6) do not fit into (5, 5)");
  EXPECT_EQ(ShapeErrorOf(ReshapeOp(), ReshapeAttrs{{-1, 5}}, {Shape{4, 6}}),
            "ShapeError: data (4, 6) does not divide into (-1, 5)");
  EXPECT_EQ(ShapeErrorOf(ReshapeOp(), ReshapeAttrs{{1, 1, 0}}, {Shape{1, 1}}),
            "ShapeError: shape (1, 1, 0) keeps axis 2, which data (1, 1) does not have");
  EXPECT_EQ(CheckError(ReshapeOp(), ReshapeAttrs{{-1, -1}}), "ModelError: shape may have one -1, got (-1, -1)");
  EXPECT_EQ(CheckError(ReshapeOp(), ReshapeAttrs{{-3}}),
            "ModelError: shape must have extents, 0 and -1 only, got (-3)");
  EXPECT_EQ(CheckError(ReshapeOp(), ReshapeAttrs{std::vector<int64_t>(9, 1)}),
            "ModelError: shape has 9 entries, more than the 8 axes a shape can have");
}

TEST(Reshape, BatchAxisGoesWhereTheSamplesAre) {
  EXPECT_EQ(BatchAxis(ReshapeOp(), ReshapeAttrs{{0, -1}}, {5, 2, 3}, 0), 0);
  EXPECT_EQ(BatchAxis(ReshapeOp(), ReshapeAttrs{{6, 5, 7}}, {2, 3, 5, 7}, 2), 1);
  EXPECT_EQ(BatchAxis(ReshapeOp(), ReshapeAttrs{{-1}}, {5, 2}, 0), 0);     // samples and features in one axis
  EXPECT_EQ(BatchAxis(ReshapeOp(), ReshapeAttrs{{2, 5}}, {5, 2}, 0), -1);  // parts of two samples in a row
  EXPECT_EQ(BatchAxis(FlattenOp(), {}, {5, 2, 3}, 0), 0);
  EXPECT_EQ(BatchAxis(FlattenOp(), {}, {5, 2, 3}, 1), 1);
  EXPECT_EQ(BatchAxis(FlattenOp(), {}, {1, 2, 3}, 0), 0);
  EXPECT_EQ(BatchAxis(ReshapeOp(), ReshapeAttrs{.shape = {2, 0}, .batches = {0, 1}}, {10}, -1), 1);
}

TEST(Flatten, Shapes) {
  EXPECT_EQ(Infer(FlattenOp(), {}, {Shape{5, 2, 3}}).outputs[0], (Shape{5, 6}));
  EXPECT_EQ(Infer(FlattenOp(), {}, {Shape{5}}).outputs[0], (Shape{5, 1}));
  EXPECT_EQ(Infer(FlattenOp(), {}, {Shape{kAny, kAny, 3}}, {Shape{5, 6}}).inputs[0], (Shape{5, 2, 3}));
  EXPECT_EQ(ShapeErrorOf(FlattenOp(), {}, {Shape{}}), "ShapeError: expected 1 or more axes (N, ...), got ()");
}

TEST(Transpose, Shapes) {
  EXPECT_EQ(Infer(TransposeOp(), TransposeAttrs{{2, 0, 1}}, {Shape{4, kAny, 6}}, {Shape{kAny, kAny, 5}}),
            (NodeShapes{{Shape{4, 5, 6}}, {Shape{6, 4, 5}}}));
  EXPECT_EQ(Infer(TransposeOp(), TransposeAttrs{}, {}, {Shape{6, 4, 5}}).inputs[0], (Shape{5, 4, 6}));
  EXPECT_EQ(BatchAxis(TransposeOp(), TransposeAttrs{{2, 0, 1}}, {4, 5, 6}, 0), 1);
  EXPECT_EQ(BatchAxis(TransposeOp(), TransposeAttrs{}, {4, 5, 6}, 0), 2);
  EXPECT_EQ(ShapeErrorOf(TransposeOp(), TransposeAttrs{{1, 0}}, {Shape{2, 3, 4}}),
            "ShapeError: expected 2 axes to permute, got (2, 3, 4)");
  EXPECT_EQ(CheckError(TransposeOp(), TransposeAttrs{{0, 2}}),
            "ModelError: axes must be a permutation of 0 to 1, got (0, 2)");
  EXPECT_EQ(CheckError(TransposeOp(), TransposeAttrs{{0, 0}}), "ModelError: axes names axis 0 twice");
  const std::vector<std::string> wrt = {"x"};
  const Symbol grad = Gradient(Transpose(Variable("x"), {.axes = {2, 0, 1}}, "t"), wrt).gradients[0];
  EXPECT_EQ(grad.entry().node->attrs().get<TransposeAttrs>().axes, (std::vector<int64_t>{1, 2, 0}));
}

TEST(Concat, Shapes) {
  EXPECT_EQ(Infer(ConcatOp(), ConcatAttrs{}, {Shape{2, 10}, Shape{2, 5}}).outputs[0], (Shape{2, 15}));
  // E27
  EXPECT_EQ(Infer(ConcatOp(), ConcatAttrs{}, {Shape{kAny, 10}, Shape{kAny, 5}}, {Shape{2, kAny}}),
            (NodeShapes{{Shape{2, 10}, Shape{2, 5}}, {Shape{2, 15}}}));
  EXPECT_EQ(Infer(ConcatOp(), ConcatAttrs{.axis = -1}, {Shape{2, kAny}, Shape{kAny, 5}}, {Shape{kAny, 15}}).inputs[0],
            (Shape{2, 10}));
  EXPECT_EQ(Infer(ConcatOp(), ConcatAttrs{}, {Shape{2, 10}, std::nullopt}).inputs[1], (Shape{2, kAny}));
  EXPECT_EQ(ShapeErrorOf(ConcatOp(), ConcatAttrs{}, {Shape{2, 10}, Shape{3, 5}}),
            "ShapeError: argument \"arg1\": expected (2, ?), got (3, 5)");
  EXPECT_EQ(ShapeErrorOf(ConcatOp(), ConcatAttrs{}, {Shape{2, 10}, std::nullopt}, {Shape{2, 5}}),
            "ShapeError: the parts have 10 along axis 1, more than the whole's 5");
  EXPECT_EQ(ShapeErrorOf(ConcatOp(), ConcatAttrs{.axis = 2}, {Shape{2, 10}}),
            "ShapeError: axis 2 is out of range for shape (2, 10): expected -2 to 1");
  EXPECT_EQ(ShapeErrorOf(ConcatOp(), ConcatAttrs{}, {Shape{2, INT64_MAX}, Shape{2, 1}}),
            "ShapeError: the joined extent overflows: 9223372036854775807 + 1");
  EXPECT_EQ(MessageOf<ModelError>([] { Concat({}, {}, "c"); }),
            "ModelError: Concat: expected 1 or more inputs, got none");
  EXPECT_EQ(OutputBatchAxes(ConcatOp(), ConcatAttrs{}, {{5, 2}, {5, 3}}, {0, 0}), std::vector{0});
  EXPECT_EQ(OutputBatchAxes(ConcatOp(), ConcatAttrs{.axis = 0}, {{5, 2}, {5, 2}}, {0, 0}), std::vector{-1});
}

TEST(Concat, Gradient) {
  const std::vector<std::string> wrt = {"a", "b"};
  const Symbol c = Concat({Variable("a"), Variable("b")}, {}, "c");
  const GradientResult result = Gradient(c, wrt, {.shapes = {{"a", {5, 2}}, {"b", {5, 3}}}});
  EXPECT_EQ(result.gradients[0].entry().node->attrs(), AnyAttrs(SliceAttrs{.begin = {0}, .end = {2}, .axes = {1}}));
  EXPECT_EQ(result.gradients[1].entry().node->attrs(), AnyAttrs(SliceAttrs{.begin = {2}, .end = {5}, .axes = {1}}));
  // Along the batch the parts are as large as the batch.
  const GradientResult batches =
      Gradient(Concat({Variable("a"), Variable("b")}, {.axis = 0}, "c"), wrt,
               {.shapes = {{"a", {5, 2}}, {"b", {5, 2}}}, .batch_axes = {{"a", 0}, {"b", 0}}});
  EXPECT_EQ(batches.gradients[1].entry().node->attrs(),
            AnyAttrs(SliceAttrs{.begin = {0}, .end = {0}, .axes = {0}, .begin_batches = {1}, .end_batches = {2}}));
}

SliceRange RangeOf(int64_t begin, int64_t end, int64_t step, int64_t extent) {
  return SliceRanges({.begin = {begin}, .end = {end}, .step = {step}}, Shape{extent}, {}).at(0);
}

// Against Python's rule, by trying every index.
TEST(Slice, RangesAreAsInPython) {
  for (int64_t extent = 0; extent <= 5; ++extent) {
    for (int64_t step : {int64_t{-7}, int64_t{-2}, int64_t{-1}, int64_t{1}, int64_t{2}, int64_t{7}}) {
      for (int64_t begin = -7; begin <= 7; ++begin) {
        for (int64_t end = -7; end <= 7; ++end) {
          const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? extent : extent - 1;
          const auto place = [&](int64_t i) { return std::min(std::max(i < 0 ? i + extent : i, lowest), highest); };
          std::vector<int64_t> expected;
          for (int64_t i = place(begin); step > 0 ? i < place(end) : i > place(end); i += step) expected.push_back(i);
          const SliceRange range = RangeOf(begin, end, step, extent);
          ASSERT_EQ(range.count, static_cast<int64_t>(expected.size()));
          for (int64_t i = 0; i < range.count; ++i) EXPECT_EQ(range.begin + i * range.step, expected[i]);
        }
      }
    }
  }
  EXPECT_EQ(RangeOf(2, kSliceEnd, 1, 5).count, 3);
  EXPECT_EQ(RangeOf(-1, kSliceEnd, -1, 5).count, 5);  // all, backward
  EXPECT_EQ(RangeOf(-1, kMin, -1, 5).count, 5);
  EXPECT_EQ(RangeOf(kSliceEnd, kMin, kMin, 5).count, 1);
  EXPECT_EQ(RangeOf(kMin, kSliceEnd, INT64_MAX, 5).count, 1);
}

TEST(Slice, Shapes) {
  const SliceAttrs attrs{.begin = {1}, .end = {3}, .axes = {1}};
  EXPECT_EQ(Infer(SliceOp(), attrs, {Shape{kAny, 7}}, {Shape{4, kAny}}), (NodeShapes{{Shape{4, 7}}, {Shape{4, 2}}}));
  EXPECT_EQ(Infer(SliceOp(), attrs, {}, {Shape{4, 2}}).inputs[0], (Shape{4, kAny}));
  EXPECT_EQ(BatchAxis(SliceOp(), attrs, {5, 7}, 0), 0);
  EXPECT_EQ(BatchAxis(SliceOp(), attrs, {5, 7}, 1), -1);
  EXPECT_EQ(BatchAxis(SliceOp(), SliceAttrs{.begin = {0}, .end = {kSliceEnd}}, {5, 7}, 0), 0);
  EXPECT_EQ(BatchAxis(SliceOp(), SliceAttrs{.begin = {-1}, .end = {kSliceEnd}, .step = {-1}}, {5, 7}, 0),
            -1);  // another order
  EXPECT_EQ(ShapeErrorOf(SliceOp(), attrs, {Shape{4}}),
            "ShapeError: axis 1 is out of range for shape (4): expected -1 to 0");
  EXPECT_EQ(ShapeErrorOf(SliceOp(), SliceAttrs{.begin = {0, 0}, .end = {1, 1}, .axes = {1, -1}}, {Shape{4, 4}}),
            "ShapeError: axis 1 of (4, 4) is named twice");
  EXPECT_EQ(CheckError(SliceOp(), SliceAttrs{.begin = {1}}),
            "ModelError: end must have as many entries as begin, 1, got ()");
  EXPECT_EQ(CheckError(SliceOp(), SliceAttrs{.begin = {1}, .end = {2}, .step = {0}}),
            "ModelError: step must not be 0, got (0)");
}

TEST(SliceChannel, Shapes) {
  const SliceChannelAttrs ten{.num_outputs = 10, .squeeze_axis = true}, three{.num_outputs = 3};
  // E27
  EXPECT_EQ(Infer(SliceChannelOp(), ten, {Shape{kAny, 10}}, {Shape{5}}).inputs[0], (Shape{5, 10}));
  EXPECT_EQ(Infer(SliceChannelOp(), three, {Shape{kAny, 15, kAny}}, {std::nullopt, Shape{3, 5, 2}}),
            (NodeShapes{{Shape{3, 15, 2}}, {Shape{3, 5, 2}, Shape{3, 5, 2}, Shape{3, 5, 2}}}));
  EXPECT_EQ(Infer(SliceChannelOp(), three, {}, {Shape{3, 5}}).inputs[0], (Shape{3, 15}));
  EXPECT_EQ(ShapeErrorOf(SliceChannelOp(), three, {Shape{2, 10}}),
            "ShapeError: data (2, 10) has 10 along axis 1: expected a multiple of 3");
  EXPECT_EQ(ShapeErrorOf(SliceChannelOp(), ten, {Shape{2, 20}}),
            "ShapeError: data (2, 20) has 20 along axis 1: expected exactly 10");
  EXPECT_EQ(CheckError(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 0}),
            "ModelError: num_outputs must be at least 1, got 0");
  EXPECT_EQ(CheckError(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 1 << 20}),
            "ModelError: num_outputs must be at most 65536, got 1048576");
  EXPECT_EQ(OutputBatchAxes(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 2, .axis = 0, .squeeze_axis = true},
                            {{2, 5}}, {1}),
            (std::vector{0, 0}));
  EXPECT_EQ(OutputBatchAxes(SliceChannelOp(), SliceChannelAttrs{.num_outputs = 2, .axis = 0}, {{2, 5}}, {0}),
            (std::vector{-1, -1}));
}

TEST(SliceChannel, PartsWithoutGradientAreZero) {
  const Symbol parts = SliceChannel(Variable("x"), {.num_outputs = 2}, "s");
  const std::vector<std::string> wrt = {"x"};
  const NodePtr node = Gradient(parts[1], wrt, {.shapes = {{"x", {5, 6}}}}).gradients[0].entry().node;
  EXPECT_EQ(node->op().name, "Concat");
  EXPECT_EQ(node->inputs()[0].node->op().name, "BroadcastTo");
  EXPECT_EQ(node->inputs()[1].node->name(), "s_output1_grad");
}

// Whatever is cut out, Pad puts back where it was.
TEST(Slice, TheGradientIsAPad) {
  const std::vector<std::string> wrt = {"x"};
  const auto pad = [&](const SliceAttrs& attrs) {
    const Symbol y = Slice(Variable("x"), attrs, "y");
    return Gradient(y, wrt, {.shapes = {{"x", {7}}}}).gradients[0].entry().node->attrs();
  };
  EXPECT_EQ(pad({.begin = {2}, .end = {5}}), AnyAttrs(PadAttrs{.begin = {2}, .end = {2}, .step = {1}, .axes = {0}}));
  EXPECT_EQ(pad({.begin = {1}, .end = {7}, .step = {3}}),
            AnyAttrs(PadAttrs{.begin = {1}, .end = {2}, .step = {3}, .axes = {0}}));
  EXPECT_EQ(pad({.begin = {-1}, .end = {0}, .step = {-2}}),
            AnyAttrs(PadAttrs{.begin = {2}, .end = {0}, .step = {2}, .axes = {0}}));
}

TEST(Pad, ShapesAndErrors) {
  EXPECT_EQ(Infer(PadOp(), PadAttrs{.begin = {1, 2}, .end = {0, 3}, .step = {2, 1}}, {Shape{3, 4}}).outputs[0],
            (Shape{6, 9}));
  EXPECT_EQ(Infer(PadOp(), PadAttrs{.begin = {1}, .end = {0}, .axes = {1}}, {Shape{kAny, 4}}, {Shape{2, kAny}}),
            (NodeShapes{{Shape{2, 4}}, {Shape{2, 5}}}));
  EXPECT_EQ(Infer(PadOp(), PadAttrs{.begin = {1}, .end = {0}, .step = {5}}, {Shape{0}}).outputs[0], (Shape{1}));
  EXPECT_EQ(CheckError(PadOp(), PadAttrs{.begin = {-1}, .end = {0}}),
            "ModelError: begin must be 0 or more everywhere, got (-1); Slice takes elements away");
  EXPECT_EQ(CheckError(PadOp(), PadAttrs{.begin = {1}, .end = {0}, .step = {0}}),
            "ModelError: step must be at least 1, got 0");
  EXPECT_EQ(ShapeErrorOf(PadOp(), PadAttrs{.begin = {INT64_MAX}, .end = {1}}, {Shape{3}}),
            "ShapeError: the padded extent overflows: 9223372036854775807 + 3");
  EXPECT_EQ(BatchAxis(PadOp(), PadAttrs{.begin = {1}, .end = {0}, .axes = {1}}, {5, 2}, 0), 0);
  EXPECT_EQ(BatchAxis(PadOp(), PadAttrs{.begin = {1}, .end = {0}}, {5, 2}, 0), -1);
}

TEST(ToShape, ShapesAndErrors) {
  EXPECT_EQ(Infer(BroadcastToOp(), ToShapeAttrs{{5, 3, 2}}, {Shape{3, 1}}).outputs[0], (Shape{5, 3, 2}));
  EXPECT_EQ(ShapeErrorOf(BroadcastToOp(), ToShapeAttrs{{5, 3}}, {Shape{5, 2}}),
            "ShapeError: (5, 2) does not broadcast to (5, 3)");
  EXPECT_EQ(Infer(SumToOp(), ToShapeAttrs{{3, 1}}, {Shape{5, 3, 2}}).outputs[0], (Shape{3, 1}));
  EXPECT_EQ(ShapeErrorOf(SumToOp(), ToShapeAttrs{{2, 1}}, {Shape{5, 3, 2}}),
            "ShapeError: (5, 3, 2) does not come from broadcasting (2, 1)");
  EXPECT_EQ(CheckError(SumToOp(), ToShapeAttrs{{-1}}), "ModelError: shape must have extents of 0 or more, got (-1)");
  EXPECT_EQ(CheckError(SumToOp(), ToShapeAttrs{{1}, {1, 2}}),
            "ModelError: batches must be empty or have 1 entries, got (1, 2)");
  EXPECT_EQ(OutputBatchAxes(SumToOp(), ToShapeAttrs{{3}}, {{5, 3}}, {0}), std::vector{-1});  // a parameter's gradient
  EXPECT_EQ(OutputBatchAxes(BroadcastToOp(), ToShapeAttrs{{0, 3}, {1, 0}}, {{3}}, {-1}), std::vector{0});
  EXPECT_EQ(Infer(BroadcastToOp(), ToShapeAttrs{{1, 3}, {2, 0}}, {Shape{3}}).outputs[0],
            (Shape{2 * kExampleBatch + 1, 3}));
  // Without a batch there is no extent that follows it.
  const Symbol free = BroadcastTo(Variable("x"), {.shape = {0, 3}, .batches = {1, 0}}, "y");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferTypes(Graph::Of(free), {{"x", {3}}}, {});
            }),
            "ShapeError: BroadcastTo \"y\": the shape of its output \"y_output\" does not follow from its inputs; it "
            "follows the batch: say which axis of an input is that, by a layout with N");
}

TEST(Reduce, Shapes) {
  EXPECT_EQ(Infer(SumOp(), ReduceAttrs{}, {}).outputs[0], Shape{});  // E28: known whatever the data is
  EXPECT_EQ(Infer(SumOp(), ReduceAttrs{.keepdims = true}, {Shape{2, 3}}).outputs[0], (Shape{1, 1}));
  EXPECT_EQ(Infer(SumOp(), ReduceAttrs{.axes = {-1}}, {Shape{kAny, kAny, 3}}, {Shape{4, 5}}).inputs[0],
            (Shape{4, 5, 3}));
  EXPECT_EQ(Infer(SumOp(), ReduceAttrs{.axes = {1}, .keepdims = true}, {}, {Shape{4, 1, 5}}).inputs[0],
            (Shape{4, kAny, 5}));
  EXPECT_EQ(Infer(MeanOp(), ReduceAttrs{.axes = {1}, .exclude = true}, {Shape{2, 3, 4}}).outputs[0], (Shape{3}));
  EXPECT_EQ(Infer(MaxOp(), ReduceAttrs{.axes = {1}}, {Shape{0, 3}}).outputs[0], (Shape{0}));
  EXPECT_EQ(Infer(MaxOp(), ReduceAttrs{.axes = {0}}, {Shape{0, 3}}).outputs[0], (Shape{3}));  // the least number
  EXPECT_EQ(Infer(MinOp(), ReduceAttrs{.noop_with_empty_axes = true}, {Shape{2, 3}}).outputs[0], (Shape{2, 3}));
  EXPECT_EQ(ShapeErrorOf(SumOp(), ReduceAttrs{.axes = {0, -2}}, {Shape{2, 3}}),
            "ShapeError: axis -2 of (2, 3) is named twice");
  EXPECT_EQ(ShapeErrorOf(SumOp(), ReduceAttrs{.axes = {2}}, {Shape{2, 3}}),
            "ShapeError: axis 2 is out of range for shape (2, 3): expected -2 to 1");
  EXPECT_EQ(CheckError(SumOp(), ReduceAttrs{.axes = {kMin}}),
            "ModelError: axes must be from -8 to 7, got -9223372036854775808");
}

TEST(Reduce, BatchAxes) {
  EXPECT_EQ(BatchAxis(SumOp(), ReduceAttrs{.axes = {0, 3}}, {2, 3, 5, 4}, 2), 1);
  EXPECT_EQ(BatchAxis(SumOp(), ReduceAttrs{.axes = {0, 3}, .keepdims = true}, {2, 3, 5, 4}, 2), 2);
  EXPECT_EQ(BatchAxis(SumOp(), ReduceAttrs{.axes = {2}}, {2, 3, 5, 4}, 2), -1);
  EXPECT_EQ(BatchAxis(SumOp(), ReduceAttrs{}, {5, 2}, 0), -1);
}

TEST(Dot, ShapesAndBatchAxes) {
  EXPECT_EQ(Infer(DotOp(), DotAttrs{}, {Shape{2, kAny}, Shape{3, 4}}),
            (NodeShapes{{Shape{2, 3}, Shape{3, 4}}, {Shape{2, 4}}}));
  EXPECT_EQ(Infer(DotOp(), DotAttrs{true, true}, {Shape{3, 2}, Shape{4, 3}}).outputs[0], (Shape{2, 4}));
  EXPECT_EQ(Infer(DotOp(), DotAttrs{false, true}, {}, {Shape{2, 4}}),
            (NodeShapes{{Shape{2, kAny}, Shape{4, kAny}}, {Shape{2, 4}}}));
  EXPECT_EQ(Infer(DotOp(), DotAttrs{}, {Shape{5}, Shape{kAny}}), (NodeShapes{{Shape{5}, Shape{5}}, {Shape{1}}}));
  EXPECT_EQ(Infer(DotOp(), DotAttrs{false, true}, {Shape{kAny}, Shape{5}}),
            (NodeShapes{{Shape{1}, Shape{5}}, {Shape{5}}}));
  EXPECT_EQ(ShapeErrorOf(DotOp(), DotAttrs{true, false}, {Shape{2, 3}, Shape{3, 4}}),
            "ShapeError: (2, 3)^T x (3, 4): the inner extents 2 and 3 differ");
  EXPECT_EQ(ShapeErrorOf(DotOp(), DotAttrs{}, {Shape{2, 3}, Shape{3}}),
            "ShapeError: expected two matrices or two vectors, got (2, 3) and (3)");
  EXPECT_EQ(OutputBatchAxes(DotOp(), DotAttrs{}, {{5, 3}, {3, 4}}, {0, -1}), std::vector{0});
  EXPECT_EQ(OutputBatchAxes(DotOp(), DotAttrs{}, {{4, 3}, {3, 5}}, {-1, 1}), std::vector{1});
  EXPECT_EQ(OutputBatchAxes(DotOp(), DotAttrs{true, false}, {{5, 3}, {5, 4}}, {0, 0}),
            std::vector{-1});  // a weight's gradient
  EXPECT_EQ(OutputBatchAxes(DotOp(), DotAttrs{}, {{5, 3}, {3, 5}}, {0, 1}), std::vector{-1});
}

}  // namespace
}  // namespace bindery
