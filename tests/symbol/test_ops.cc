#include "tests/symbol/test_ops.h"

#include "base/error.h"
#include "symbol/ops/elementwise.h"

namespace bindery {
namespace {

void AllOutputsLikeData(InferContext& context) {
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.input(0)) context.SetOutput(i, *context.input(0));
    if (context.output(i)) context.SetInput(0, *context.output(i));
  }
}

std::vector<std::string> Names(std::initializer_list<const char*> names) { return {names.begin(), names.end()}; }

}  // namespace

const OpDef& ForkOp() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "Fork";
    def.outputs = [](const AnyAttrs&) { return Names({"first", "second", "hidden"}); };
    def.num_visible_outputs = [](const AnyAttrs&) { return 2; };
    def.infer_shape = AllOutputsLikeData;
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      std::vector<Symbol> parts;
      for (int i = 0; i < 2; ++i) {
        if (!g.output_grad(i).empty()) parts.push_back(g.output_grad(i));
      }
      return {Apply(AddNOp(), {}, parts, g.NameFor("data"))};
    };
    return def;
  }();
  return op;
}

const OpDef& StatefulOp() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "Stateful";
    def.inputs = [](const AnyAttrs&, int) { return Names({"data", "scale", "state"}); };
    def.auxiliary = {"state"};
    def.infer_shape = [](InferContext& context) {
      AllOutputsLikeData(context);
      context.SetInput(1, {1});
      context.SetInput(2, {1});
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
    def.infer_shape = AllOutputsLikeData;
    def.is_loss = [](const AnyAttrs&) { return true; };
    def.gradient = [](const GradientContext& g) -> std::vector<Symbol> {
      Check(g.output_grad(0).empty(), "a loss gets no head gradient");
      return {g.output(0)};
    };
    return def;
  }();
  return op;
}

std::vector<Symbol> Outputs(const OpDef& op, std::vector<Symbol> inputs, const std::string& name) {
  return ApplyAll(op, {}, std::move(inputs), name);
}

}  // namespace bindery
