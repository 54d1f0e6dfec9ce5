#include "train/folded_model.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "executor/evaluate.h"
#include "symbol/op_def.h"
#include "symbol/ops/fold_norms.h"
#include "symbol/ops/quantized.h"

namespace bindery {
namespace {

// What an entry is, of parameters and states alone.
HostTensor ValueOf(const Entry& entry, const Model& model) {
  std::map<const Node*, std::vector<HostTensor>> values;
  for (const NodePtr& node : PostOrder(std::span(&entry, 1))) {
    if (node->is_variable()) {
      const auto param = model.params.find(node->name());
      values[node.get()] = {param != model.params.end() ? param->second : model.aux.at(node->name())};
      continue;
    }
    std::vector<HostTensor> inputs;
    for (const Entry& input : node->inputs()) {
      inputs.push_back(values.at(input.node.get())[static_cast<size_t>(input.output)]);
    }
    values[node.get()] = EvaluateNode(*node, inputs, Mode::kPredict, KernelPolicy::kReference);
  }
  return values.at(entry.node.get())[static_cast<size_t>(entry.output)];
}

}  // namespace

NodeTypes TypesOf(const Graph& graph, const Model& model, const ShapeMap& inputs) {
  ShapeMap shapes = inputs;
  DTypeMap dtypes;
  for (const auto* values : {&model.params, &model.aux}) {
    for (const auto& [name, value] : *values) {
      shapes[name] = value.shape();
      dtypes[name] = value.dtype();
    }
  }
  ShapeMap there;  // what else is in the model is not in this graph
  DTypeMap typed;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    if (const auto found = shapes.find(node->name()); found != shapes.end()) there.insert(*found);
    if (const auto found = dtypes.find(node->name()); found != dtypes.end()) typed.insert(*found);
  }
  return InferTypes(graph, there, typed);
}

Model WithNormsFolded(const Model& model, const ShapeMap& inputs) {
  const Graph graph = Graph::Of(model.symbol);
  const Symbol folded = FoldNorms(graph, TypesOf(graph, model, inputs),
                                  [&](const Node& variable) { return model.params.contains(variable.name()); });
  Model result{.symbol = folded, .params = model.params, .aux = model.aux, .metadata = model.metadata};
  std::set<std::string> read;  // by what stays
  for (const std::string& name : folded.ListInputs()) read.insert(name);
  result.symbol = Rewrite(folded, [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    if (!IsWeightedLayer(*node)) return {};
    std::vector<Entry> changed = inputs;
    for (size_t i = 1; i < inputs.size(); ++i) {
      const Entry& of = node->inputs()[i];
      const std::vector<NodePtr> below = PostOrder(std::span(&of, 1));
      const bool is_made = !of.node->is_variable() && std::ranges::all_of(below, [&](const NodePtr& part) {
        return !part->is_variable() || model.params.contains(part->name()) || model.aux.contains(part->name());
      });
      if (!is_made || IsDequantizeLinear(*of.node)) continue;
      HostTensor value = ValueOf(of, model);
      std::string name = node->name() + (i == 1 ? "_weight" : "_bias");
      const auto is_its_own = [&] {  // the variable of the name is part of this value and of no other
        return std::ranges::any_of(below,
                                   [&](const NodePtr& part) { return part->is_variable() && part->name() == name; });
      };
      while (read.contains(name) && !is_its_own()) name += "_folded";
      changed[i] = Variable(name, {.shape = value.shape(), .dtype = value.dtype()}).entry();
      result.params[name] = std::move(value);
    }
    if (changed == inputs) return {};
    return OutputsOf(WithInputs(*node, std::move(changed)));
  });
  return result;
}

}  // namespace bindery
