// Gradients of what has a batch: they fit every batch, or the one that they were taken for.
#include <gtest/gtest.h>

#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

// A graph in which every rule of a shape has a part: one gradient of it serves all batches.
TEST(GradientOfABatch, FollowsTheBatch) {
  const Symbol x = Variable("x", {.shape = Shape{kUnknownDim, 2, 6}, .layout = "NCW"});
  const Symbol pair = Concat({x, Slice(x, {.begin = {-3}, .end = {kSliceEnd}, .axes = {0}})}, {.axis = 0});
  Symbol y = Mean(Flatten(pair) * Variable("w", {.shape = Shape{12}}), {.axes = {0}}, "mean");
  y = Group({Sum(y, {}, "s"), Sum(FullyConnected(x, {.num_hidden = 3}, "fc"), {.axes = {0, 1}}, "t")});
  const Names wrt = {"x", "w", "fc_weight", "fc_bias"};
  const GradientResult result = Gradient(y, wrt);
  for (const int64_t batch : {3, 5, 8}) {
    const Graph graph = Graph::Of(Group(result.gradients));
    const NodeTypes types = InferTypes(graph, {{"x", {batch, 2, 6}}, {"s_output_grad", {}}, {"t_output_grad", {}}}, {});
    std::vector<Shape> shapes;
    for (const Entry& entry : graph.outputs) shapes.push_back(types[graph.IndexOf(entry.node)][entry.output].shape);
    EXPECT_EQ(shapes, (std::vector<Shape>{{batch, 2, 6}, {12}, {3, 12}, {3}}));
    EXPECT_EQ(types[graph.IndexOf(graph.outputs[0].node)][0].batch_axis, 0);
  }
}

// Indices beyond every batch are the ends of the axis, whatever the step.
TEST(GradientOfABatch, OfSlicesOfABatchFollowsTheBatch) {
  const Symbol x = Variable("x", {.shape = Shape{kUnknownDim, 2}, .layout = "NC"});
  struct Cut {
    int64_t begin, end, step;
    Extent zeros_before;
  };
  for (const Cut& cut :
       {Cut{INT64_MIN, 2, 1, {0, 0}}, Cut{kSliceEnd, -kSliceEnd, INT64_MIN, {-1, 1}}, Cut{2, -kSliceEnd, -1, {0, 0}},
        Cut{kSliceEnd, -3, -1, {-2, 1}}, Cut{-2, kSliceEnd, 1, {-2, 1}}, Cut{INT64_MIN, kSliceEnd, 1, {0, 0}},
        Cut{1, INT64_MAX, INT64_MAX, {1, 0}}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", cut.begin, cut.end, cut.step));
    const Symbol s = Sum(Slice(x, {.begin = {cut.begin}, .end = {cut.end}, .step = {cut.step}, .axes = {0}}), {}, "s");
    const Symbol dx = Gradient(s, Names{"x"}).gradients[0];
    const auto& pad = dx.entry().node->attrs().get<PadAttrs>();
    EXPECT_EQ((Extent{pad.begin[0], pad.begin_batches.empty() ? 0 : pad.begin_batches[0]}), cut.zeros_before);
    for (const int64_t batch : {3, 5, 8}) {
      const ShapeMap shapes = {{"x", {batch, 2}}, {"s_output_grad", {}}};
      EXPECT_EQ(InferShapes(Group({s, dx}), shapes).outputs[1], (Shape{batch, 2}));
    }
  }
}

// The first 100 samples are all of a small batch, but not of every batch: the gradient fits the one it was taken for.
TEST(GradientOfABatch, OfALimitedPartOfABatchFitsThatBatchAlone) {
  const Symbol x = Variable("x", {.shape = Shape{kUnknownDim, 2}, .layout = "NC"});
  for (const SliceAttrs& part : {SliceAttrs{.begin = {0}, .end = {100}, .axes = {0}},
                                 SliceAttrs{.begin = {0}, .end = {kSliceEnd}, .step = {2}, .axes = {0}}}) {
    const Symbol m = Mean(Slice(x, part), {}, "m");
    const Symbol dx = Gradient(m, Names{"x"}, {.shapes = {{"x", {6, 2}}}}).gradients[0];
    EXPECT_EQ(InferShapes(Group({m, dx}), {{"x", {200, 2}}, {"m_output_grad", {}}}).outputs[1], (Shape{6, 2}));
  }
}

}  // namespace
}  // namespace bindery
