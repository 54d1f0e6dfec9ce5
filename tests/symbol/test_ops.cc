#include "tests/symbol/test_ops.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

double RunOnScalars(const Node& node, const std::vector<double>& x) {
  const std::string& op = node.op().name;
  if (op == "Add") return x[0] + x[1];
  if (op == "Sub") return x[0] - x[1];
  if (op == "Mul") return x[0] * x[1];
  if (op == "Div") return x[0] / x[1];
  if (op == "AddN") return std::accumulate(x.begin(), x.end(), 0.0);
  if (op == "Exp") return std::exp(x[0]);
  if (op == "Log") return std::log(x[0]);
  if (op == "Square") return x[0] * x[0];
  if (op == "Negative") return -x[0];
  if (op == "Scalar") return node.attrs().get<ScalarAttrs>().scalar;
  if (op == "Constant") return node.attrs().get<ConstantAttrs>().value->At(0);
  // On scalars of one type these are all the identity.
  for (const char* identity : {"SumTo", "BroadcastTo", "Identity", "Cast", "Transpose", "Fork", "TestLoss"}) {
    if (op == identity) return x[0];
  }
  Throw("a scalar {} is not known to the test", op);
}

}  // namespace

const OpDef& ForkOp() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "Fork";
    def.outputs = {"first", "second", Hidden("hidden")};
    def.infer = rule::Like(0);
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      std::vector<Symbol> parts;
      for (int i = 0; i < 2; ++i) {
        if (!g.output_grad(i).empty()) parts.push_back(g.output_grad(i));
      }
      return {Apply(AddNOp(), {}, parts)};
    };
    return def;
  }();
  return op;
}

const OpDef& StatefulOp() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "Stateful";
    def.inputs = {"data", "scale", Auxiliary("state")};
    def.infer = [](InferContext& c) {
      rule::SameDTypes(c);
      rule::SameShape({c.in(0), c.out(0)});
      c.in(0).Carry(c.out(0));
      c.in(1).Set({1});
      c.in(2).Set({1});
    };
    def.not_differentiable = "it is a test";
    return def;
  }();
  return op;
}

const OpDef& TestLossOp() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "TestLoss";
    def.infer = rule::Like(0);
    def.is_loss = [](const AnyAttrs&) { return true; };
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      Check(g.output_grad(0).empty(), "a loss gets no head gradient");
      return {g.output(0)};
    };
    return def;
  }();
  return op;
}

std::vector<double> RunOnScalars(const Symbol& symbol, const std::map<std::string, double>& arguments) {
  const Graph graph = Graph::Of(symbol);
  std::vector<double> values;
  for (const NodePtr& node : graph.nodes) {
    std::vector<double> inputs;
    for (const Entry& input : node->inputs()) inputs.push_back(values[graph.IndexOf(input.node)]);
    values.push_back(node->is_variable() ? arguments.at(node->name()) : RunOnScalars(*node, inputs));
  }
  std::vector<double> outputs;
  for (const Entry& entry : graph.outputs) outputs.push_back(values[graph.IndexOf(entry.node)]);
  return outputs;
}

int Count(const Symbol& symbol, const OpDef& op) {
  int count = 0;
  for (const NodePtr& node : PostOrder(symbol.entries())) count += !node->is_variable() && &node->op() == &op;
  return count;
}

std::vector<Symbol> Outputs(const OpDef& op, std::vector<Symbol> inputs, const std::string& name) {
  return ApplyAll(op, {}, std::move(inputs), name);
}

}  // namespace bindery
