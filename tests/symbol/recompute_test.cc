// The pass that computes values of forward again: what it chooses, and what the graph is then.
#include "symbol/passes/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

// A net with its gradients: nodes of forward, then those of backward.
struct Joint {
  Graph graph;
  NodeTypes types;
  int forward = 0;

  explicit Joint(const Symbol& net, const Shape& data = {32, 10}) {
    const ShapeMap shapes = {{"data", data}};
    GivenTypes given{.shapes = shapes};
    std::vector<std::string> names = net.ListArguments();
    std::erase(names, "data");
    std::erase(names, "softmax_label");
    std::vector<Entry> outputs = net.entries();
    forward = static_cast<int>(PostOrder(outputs).size());
    for (const Symbol& gradient : Gradient(net, names, given).gradients) {
      if (!gradient.empty()) outputs.push_back(gradient.entry());
    }
    graph = Graph::Of(Symbol(outputs));
    types = InferTypes(graph, shapes, {});
  }
  std::vector<std::string> Names(const std::vector<int>& nodes) const {
    std::vector<std::string> names;
    for (const int n : nodes) names.push_back(graph.nodes[static_cast<size_t>(n)]->name());
    return names;
  }
};
using Names = std::vector<std::string>;

Symbol Layers(int layers, int64_t width) {
  Symbol x = Variable("data");
  for (int i = 0; i < layers; ++i) {
    const std::string number = std::to_string(i);
    x = Tanh(FullyConnected(x, {.num_hidden = width}, "fc" + number), "tanh" + number);
  }
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "scores"), {}, "softmax");
}

TEST(Recompute, AStepHasAllThatItNeeds) {
  const Joint joint(Layers(3, 40));
  const RecomputeSteps steps = StepsToRecompute(joint.graph, joint.types, joint.forward);
  ASSERT_FALSE(steps.ends.empty());
  EXPECT_EQ(steps.forced, 0);
  // tanh's output is read, its input is not: it is computed again with the layer before.
  int begin = 0;
  for (const int end : steps.ends) {
    const Names names = joint.Names({steps.nodes.begin() + begin, steps.nodes.begin() + end});
    ASSERT_EQ(names.size(), 2u);
    EXPECT_EQ(names[0].substr(0, 2), "fc");
    EXPECT_EQ(names[1], "tanh" + names[0].substr(2));
    begin = end;
  }
  EXPECT_EQ(steps.nodes.size(), 6u);
  EXPECT_EQ(std::ranges::count(joint.Names(steps.nodes), "softmax"), 0);  // heads stay
}

TEST(Recompute, TheCheapestForItsBytesComesFirst) {
  // Of both branches tanh is read; behind exp's, whose output is read, too, it costs no product.
  const Symbol x = FullyConnected(Variable("data"), {.num_hidden = 200}, "fc");
  const Symbol cheap = Tanh(Exp(x, "exp"), "cheap");
  const Symbol dear = Tanh(FullyConnected(cheap, {.num_hidden = 200}, "product"), "dear");
  const Joint joint(SoftmaxOutput(FullyConnected(dear, {.num_hidden = 3}, "scores"), {}, "softmax"));
  const RecomputeSteps steps = StepsToRecompute(joint.graph, joint.types, joint.forward);
  const Names names = joint.Names(steps.nodes);
  ASSERT_GE(names.size(), 3u);
  EXPECT_EQ(names[0], "cheap");
  EXPECT_LT(std::ranges::find(names, "cheap"), std::ranges::find(names, "dear"));
}

TEST(Recompute, BackwardReadsTheSecondOnes) {
  const Joint joint(Layers(2, 20));
  const RecomputeSteps steps = StepsToRecompute(joint.graph, joint.types, joint.forward);
  const Recomputed again = Recompute(joint.graph, joint.types, joint.forward, steps.nodes);
  ASSERT_EQ(again.of.size(), again.graph.nodes.size());
  EXPECT_EQ(again.graph.nodes.size(), joint.graph.nodes.size() + steps.nodes.size());
  // Forward is as it was, and nothing of backward reads its activations.
  for (int n = 0; n < joint.forward; ++n) EXPECT_EQ(again.graph.nodes[n], joint.graph.nodes[n]);
  for (size_t n = static_cast<size_t>(joint.forward); n < again.graph.nodes.size(); ++n) {
    for (const Entry& input : again.graph.nodes[n]->inputs()) {
      if (again.graph.IndexOf(input.node) >= joint.forward) continue;
      EXPECT_FALSE(input.node->name().starts_with("tanh")) << again.graph.nodes[n]->name();
    }
    const int of = again.of[n];
    if (of < 0) continue;
    EXPECT_EQ(again.graph.nodes[n]->name(), joint.graph.nodes[static_cast<size_t>(of)]->name());
  }
  EXPECT_EQ(std::ranges::count_if(again.of, [](int of) { return of >= 0; }), 4);
}

TEST(Recompute, WithoutNodesTheGraphStays) {
  const Joint joint(Layers(2, 20));
  EXPECT_EQ(Recompute(joint.graph, joint.types, joint.forward, {}).graph.nodes, joint.graph.nodes);
}

// A BatchNorm is computed again by the statistics that forward has found: what moves is read once.
TEST(Recompute, NoSecondNodeReadsAStateThatMoves) {
  Symbol x = Variable("data");
  for (const char* name : {"norm1", "norm2"}) {
    x = BatchNorm(FullyConnected(x, {.num_hidden = 30}, std::string("fc_") + name), {}, name);
    x = Tanh(x, std::string("tanh_") + name);
  }
  const Joint joint(SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "scores"), {}, "softmax"));
  const RecomputeSteps steps = StepsToRecompute(joint.graph, joint.types, joint.forward);
  const Recomputed again = Recompute(joint.graph, joint.types, joint.forward, steps.nodes);
  int norms = 0;
  for (size_t n = 0; n < again.of.size(); ++n) {
    const Node& node = *again.graph.nodes[n];
    if (again.of[n] < 0 || &node.op() != &BatchNormOp()) continue;
    ++norms;
    EXPECT_TRUE(node.attrs().get<BatchNormAttrs>().known);
    for (const int slot : {3, 4}) {
      EXPECT_EQ(node.inputs()[slot].node, joint.graph.nodes[static_cast<size_t>(again.of[n])]);
      EXPECT_EQ(node.inputs()[slot].output, slot - 2);
    }
  }
  EXPECT_EQ(norms, 2);
}

TEST(Recompute, CostsAreBytesAndProducts) {
  const Joint joint(Layers(1, 20));
  const auto cost = [&](const std::string& name) {
    for (size_t n = 0; n < joint.graph.nodes.size(); ++n) {
      if (joint.graph.nodes[n]->name() == name) return CostOf(joint.graph, joint.types, static_cast<int>(n));
    }
    return 0.0;
  };
  EXPECT_EQ(cost("tanh0"), 2 * 32 * 20 * 4);
  EXPECT_DOUBLE_EQ(cost("fc0"), (32 * 10 + 20 * 10 + 20 + 32 * 20) * 4 + 2.0 * 32 * 20 * 10 / 24);
}

}  // namespace
}  // namespace bindery
