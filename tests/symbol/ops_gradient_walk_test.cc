// The gradient of every operator as a graph: its shapes, types and batch axes are those of what it is the gradient of,
// its nodes have different names; and second derivatives, where there are any, fit too. (Numbers: tests/executor.)
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

struct Known {
  ShapeMap shapes;
  DTypeMap dtypes;
  std::map<std::string, int> axes;
};

bool IsLabel(const std::string& name) { return name == "label"; }

// Types of a symbol's outputs.
std::vector<ValueType> TypesOf(const Symbol& symbol, const Known& known) {
  Known mine;
  for (const std::string& name : symbol.ListInputs()) {
    if (known.shapes.contains(name)) mine.shapes[name] = known.shapes.at(name);
    if (known.dtypes.contains(name)) mine.dtypes[name] = known.dtypes.at(name);
    if (known.axes.contains(name)) mine.axes[name] = known.axes.at(name);
  }
  const Graph graph = Graph::Of(symbol);
  const NodeTypes types = InferTypes(graph, mine.shapes, mine.dtypes, mine.axes, kExampleBatch);
  std::vector<ValueType> result;
  for (const Entry& entry : symbol.entries()) result.push_back(types[graph.IndexOf(entry.node)][entry.output]);
  return result;
}

void ExpectUniqueNames(const Symbol& symbol) {
  std::set<std::string> names;
  for (const NodePtr& node : Graph::Of(symbol).nodes) EXPECT_TRUE(names.insert(node->name()).second) << node->name();
}

// Takes the gradient of `heads`, checks its types, adds the head gradients to `known`, and returns it.
Symbol CheckGradient(const Symbol& heads, std::vector<std::string> wrt, Known& known) {
  const std::vector<std::string> inputs = heads.ListInputs();  // a linear operator's gradient needs no data
  std::erase_if(wrt,
                [&](const std::string& name) { return std::find(inputs.begin(), inputs.end(), name) == inputs.end(); });
  GivenTypes given;
  for (const std::string& name : inputs) {
    if (known.shapes.contains(name)) given.shapes[name] = known.shapes.at(name);
    if (known.dtypes.contains(name)) given.dtypes[name] = known.dtypes.at(name);
    if (known.axes.contains(name)) given.batch_axes[name] = known.axes.at(name);
  }
  const GradientResult result = Gradient(heads, wrt, given);
  EXPECT_EQ(result.gradients.size(), wrt.size());
  const std::vector<ValueType> head_types = TypesOf(heads, known);
  for (size_t i = 0; i < head_types.size(); ++i) {
    const std::string& name = result.head_gradients[i];
    if (name.empty()) continue;
    known.shapes[name] = head_types[i].shape;
    known.dtypes[name] = head_types[i].dtype;
    known.axes[name] = head_types[i].batch_axis;
  }
  std::vector<Symbol> found;
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (result.gradients[i].empty()) continue;
    SCOPED_TRACE("gradient of " + wrt[i]);
    const ValueType type = TypesOf(Group({heads, result.gradients[i]}), known).back();
    EXPECT_EQ(type.shape, known.shapes.at(wrt[i]));
    EXPECT_EQ(type.dtype, known.dtypes.at(wrt[i]));
    EXPECT_EQ(type.batch_axis, known.axes.at(wrt[i]));
    found.push_back(result.gradients[i]);
  }
  return Group(found);
}

TEST(GradientWalk, TypesAreThoseOfTheArguments) {
  int first_derivatives = 0, second_derivatives = 0;
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const OpDef& op = *example.op;
    if ((!op.gradient && !op.compose) || example.inputs.empty()) continue;
    const int count = static_cast<int>(example.inputs.size());
    const std::vector<std::string> names = op.inputs.Names(example.attrs, count);
    const std::vector<Symbol> outputs = NodeOf(op, example.attrs, count);
    const bool only_first = op.inputs.has_auxiliary();  // mean and var of BatchNorm have no gradient
    const int heads_count = only_first ? 1 : NumVisibleOutputs(op, example.attrs);
    const Symbol heads = ExpandComposites(Group(std::span(outputs).first(heads_count)));

    Known known;
    std::vector<std::string> wrt;
    for (int i = 0; i < count; ++i) {
      known.shapes[names[i]] = example.inputs[i];
      known.axes[names[i]] = example.batch_axes[i];
      static const std::map<std::string, DType> kFixed = {
          {"state", DType::kUInt8},    {"mask", DType::kUInt8},      {"valid_count", DType::kFloat32},
          {"condition", DType::kBool}, {"quantized", DType::kUInt8}, {"zero_point", DType::kUInt8}};
      const bool fixed = IsLabel(names[i]) || kFixed.contains(names[i]);
      known.dtypes[names[i]] = kFixed.contains(names[i]) ? kFixed.at(names[i]) : DType::kFloat64;
      if (!fixed && !IsAuxiliary(op, names[i])) wrt.push_back(names[i]);
    }
    try {
      const Symbol gradients = CheckGradient(heads, wrt, known);
      first_derivatives += !gradients.empty();
      ExpectUniqueNames(Group({heads, gradients}));
      if (gradients.empty()) continue;
      try {
        SCOPED_TRACE("second derivative");
        second_derivatives += !CheckGradient(gradients, wrt, known).empty();
      } catch (const ModelError& error) {
        EXPECT_NE(std::string(error.what()).find("Grad"), std::string::npos) << error.what();
      }
    } catch (const ModelError& error) {
      EXPECT_NE(std::string(error.what()).find("the second derivative of a maximum is not provided"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_GE(first_derivatives, 60);
  EXPECT_GE(second_derivatives, 35);  // the others do not depend on what they are the gradient of
}

}  // namespace
}  // namespace bindery
