#include "symbol/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/infer/value_index.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

std::vector<std::string> NamesOf(const std::vector<NodePtr>& nodes) {
  std::vector<std::string> names;
  for (const NodePtr& node : nodes) names.push_back(node->name());
  return names;
}

Symbol Chain(int length) {
  Symbol x = Variable("x");
  for (int i = 0; i < length; ++i) x = Apply(Square.op(), {}, {x}, "s");
  return x;
}

TEST(Graph, InputsComeBeforeUsersLeftToRight) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol left = Mul(b, a, "left");
  const Graph graph = Graph::Of(Group({Add(left, Square(a, "sq"), "top"), left, b}));
  EXPECT_EQ(NamesOf(graph.nodes), (std::vector<std::string>{"b", "a", "left", "sq", "top"}));
  ASSERT_EQ(graph.outputs.size(), 3u);
  for (size_t n = 0; n < graph.nodes.size(); ++n) EXPECT_EQ(graph.IndexOf(graph.nodes[n]), static_cast<int>(n));
}

TEST(Graph, RefusesTwoVariablesOfOneName) {
  EXPECT_EQ(
      MessageOf<ModelError>([] { Graph::Of(Add(Variable("a"), Variable("a"), "s")); }),
      "ModelError: two different variables are called \"a\": share one Variable, or name their layers differently "
      "(a NameScope does)");
  const Symbol a = Variable("a");
  EXPECT_EQ(Graph::Of(Add(a, a, "s")).nodes.size(), 2u);
}

TEST(Graph, DescribesNodes) {
  EXPECT_EQ(Describe(*Variable("a").entry().node), "variable \"a\"");
  EXPECT_EQ(Describe(*Square(Variable("a"), "sq").entry().node), "Square \"sq\"");
}

TEST(Graph, KnowsLossesAndTheirLabels) {
  const Symbol x = Variable("x"), wide = Square(x, "label");  // a node's name makes it no label
  const Symbol given = SoftmaxOutput(x, Variable("y"), {}, "given"), own = LinearRegressionOutput(wide, {}, "own");
  const Symbol computed = SoftmaxOutput(x, wide, {.out_grad = true}, "computed");
  EXPECT_EQ(ListLabels(Group({given, own, computed})), (std::set<std::string>{"own_label", "y"}));
  EXPECT_TRUE(IsLoss(*given.entry().node));
  EXPECT_TRUE(IsLoss(*BlockGrad(x).entry().node));
  EXPECT_FALSE(IsLoss(*computed.entry().node));  // it takes a head gradient
  EXPECT_FALSE(IsLoss(*wide.entry().node));
  EXPECT_FALSE(IsLoss(*x.entry().node));
}

TEST(Graph, ValuesAreNumberedWithTheirUsers) {
  const Symbol a = Variable("a");
  const std::vector<Symbol> fork = Outputs(ForkOp(), {a}, "fork");
  const Graph graph = Graph::Of(Group({Add(fork[1], a, "sum"), Mul(fork[1], fork[1], "product")}));
  const ValueIndex values(graph);  // a, fork x 3, sum, product
  EXPECT_EQ(values.size(), 6);
  EXPECT_EQ(values.Of(fork[1].entry()), 2);
  EXPECT_EQ(values.producer(3), 1);
  EXPECT_EQ(std::vector<int>(values.inputs(2).begin(), values.inputs(2).end()), (std::vector<int>{2, 0}));
  EXPECT_EQ(std::vector<int>(values.consumers(2).begin(), values.consumers(2).end()), (std::vector<int>{2, 3, 3}));
  EXPECT_EQ(std::vector<int>(values.consumers(0).begin(), values.consumers(0).end()), (std::vector<int>{1, 2}));
  EXPECT_TRUE(values.consumers(3).empty());
}

TEST(Rewrite, KeepsWhatDoesNotChange) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol kept = Square(b, "kept");
  const Symbol net = Add(Exp(a, "e"), kept, "sum").WithAnnotation("merge", "mean");
  EXPECT_EQ(Rewrite(net, {}).entry(), net.entry());
  const Symbol changed = Rewrite(net, [](const NodePtr& node, const std::vector<Entry>& inputs) {
    if (&node->op() != &Exp.op()) return std::vector<Entry>{};
    return Log(Symbol(inputs[0]), "log").entries();
  });
  EXPECT_EQ(NamesOf(Graph::Of(changed).nodes), (std::vector<std::string>{"a", "log", "b", "kept", "sum"}));
  EXPECT_EQ(changed.Children()[1].entry(), kept.entry());
  EXPECT_EQ(changed.Annotation("merge"), "mean");
}

TEST(Rewrite, AnOutputInUseMustBeGiven) {
  const std::vector<Symbol> fork = Outputs(ForkOp(), {Variable("a")}, "fork");
  const auto drop_second = [](const NodePtr& node, const std::vector<Entry>& inputs) {
    if (&node->op() != &ForkOp()) return std::vector<Entry>{};
    return Square(Symbol(inputs[0]), "first").entries();
  };
  EXPECT_EQ(Rewrite(Exp(fork[0], "e"), drop_second).Children().name(), "first");
  EXPECT_EQ(MessageOf<Error>([&] { Rewrite(Exp(fork[1], "e"), drop_second); }),
            "Error: Fork \"fork\": its output 1 is in use but was not rewritten");
}

TEST(Rewrite, ReplacesVariablesEverywhere) {
  const Symbol a = Variable("a"), c = Variable("c");
  const Symbol net = Group({Square(a, "s"), a});
  const Symbol replaced = Rewrite(net, {}, {{a.entry().node.get(), c.entry()}});
  EXPECT_EQ(replaced.ListOutputs(), (std::vector<std::string>{"s_output", "c"}));
  EXPECT_EQ(replaced.ListArguments(), std::vector<std::string>{"c"});
}

TEST(LongChains, AMillionNodesAreBuiltListedRewrittenAndFreed) {
  constexpr int kLength = 1'000'000;
  Symbol chain = Chain(kLength);
  EXPECT_EQ(Graph::Of(chain).nodes.size(), kLength + 1u);
  EXPECT_EQ(chain.ListArguments().size(), 1u);
  const Symbol y = Variable("y");
  Symbol copy = chain.Compose({{"x", y}});
  EXPECT_EQ(copy.ListArguments()[0], "y");
  chain = {};
  copy = {};
  EXPECT_EQ(y.entry().node.use_count(), 1);  // all that used it is gone
}

TEST(LongChains, SharedTailsOutliveTheirHeads) {
  const Symbol tail = Chain(1000);
  {
    const Symbol a = Exp(tail, "a"), b = Log(tail, "b");
    Group({Add(a, b, "c"), Mul(a, b, "d")});
  }
  EXPECT_EQ(Graph::Of(tail).nodes.size(), 1001u);
}

}  // namespace
}  // namespace bindery
