#include <algorithm>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

bool MayFold(const Node& node, const std::vector<Entry>& inputs) {
  const OpDef& op = node.op();
  return !ConstantValue(node) && !op.is_random && !op.reads_step && op.across_devices == AcrossDevices::kNothing &&
         !op.inputs.has_auxiliary() &&
         std::ranges::all_of(inputs, [](const Entry& input) { return ConstantValue(*input.node) != nullptr; });
}

bool IsSmall(const NodePtr& node, int64_t max_elements) {
  const InferredShapes shapes = InferShapesPartial(Symbol(OutputsOf(node)), {});
  return std::all_of(shapes.outputs.begin(), shapes.outputs.end(), [&](const std::optional<Shape>& shape) {
    return shape && shape->IsKnown() && shape->Elements() <= max_elements;
  });
}

}  // namespace

Entry ConstantInPlaceOf(const Node& node, int output, HostTensor value) {
  const AttrScope annotations(node.annotations(), false);
  return Constant(std::move(value), node.num_outputs() == 1 ? node.name() : node.OutputName(output)).entry();
}

Symbol FoldConstants(const Symbol& symbol, const Evaluator& evaluate, int64_t max_elements) {
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) {
    std::vector<Entry> outputs;
    if (!MayFold(*node, inputs)) return outputs;
    const NodePtr folded = WithInputs(*node, inputs);
    if (!IsSmall(folded, max_elements)) return outputs;
    std::vector<HostTensor> values;
    for (const Entry& input : inputs) values.push_back(*ConstantValue(*input.node));
    std::vector<HostTensor> results = evaluate(*folded, values);
    if (results.size() != static_cast<size_t>(node->num_outputs())) {
      Throw("{}: its evaluation gave {} values for {} outputs", Describe(*node), results.size(), node->num_outputs());
    }
    for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back(ConstantInPlaceOf(*node, i, std::move(results[i])));
    return outputs;
  });
}

Symbol GiveScalarsTypes(const Symbol& symbol, const std::map<std::string, DType>& known) {
  const Graph graph = Graph::Of(symbol);
  const auto is_scalar = [](const NodePtr& node) { return ScalarValue(*node).has_value(); };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_scalar)) return symbol;
  const std::vector<std::vector<DType>> dtypes = InferDTypes(graph, known);
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>&) -> std::vector<Entry> {
    if (!is_scalar(node)) return {};
    const double number = *ScalarValue(*node);
    HostTensor value(dtypes[graph.IndexOf(node)][0], {});
    value.Set(0, number);
    if (!IsFloat(value.dtype()) && value.At(0) != number) {
      Throw<ModelError>("{}: {} is no {}; cast what it is combined with to a floating point type", Describe(*node),
                        number, value.dtype());
    }
    return {ConstantInPlaceOf(*node, 0, std::move(value))};
  });
}

}  // namespace bindery
