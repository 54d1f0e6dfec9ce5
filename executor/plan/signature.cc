#include "executor/plan/signature.h"

#include <algorithm>
#include <set>

#include "symbol/op_def.h"

namespace bindery {

Signature Signature::Of(const Symbol& symbol) {
  Signature signature{.auxiliary = symbol.ListAuxiliaryStates(), .heads = symbol.ListOutputs()};
  for (std::string& name : symbol.ListArguments()) signature.arguments.push_back({.name = std::move(name)});
  return signature;
}

std::vector<std::string> Signature::ArgumentNames() const {
  std::vector<std::string> names;
  for (const Argument& a : arguments) names.push_back(a.name);
  return names;
}

GivenTypes Signature::Given() const {
  GivenTypes given;
  for (const Argument& a : arguments) {
    if (a.shape) given.shapes[a.name] = *a.shape;
    if (a.dtype) given.dtypes[a.name] = *a.dtype;
    if (a.batch_axis) given.batch_axes[a.name] = *a.batch_axis;
  }
  return given;
}

std::vector<bool> TrainedNodes(const Graph& graph, const Signature& signature) {
  std::set<std::string> asked;
  for (const Argument& a : signature.arguments) {
    if (a.request != GradReq::kNull) asked.insert(a.name);
  }
  std::vector<bool> trained;
  for (const NodePtr& node : graph.nodes) {
    const auto is_trained = [&](const Entry& input) { return trained[static_cast<size_t>(graph.IndexOf(input.node))]; };
    trained.push_back(node->is_variable()
                          ? asked.contains(node->name())
                          : !node->op().blocks_gradient && std::ranges::any_of(node->inputs(), is_trained));
  }
  return trained;
}

}  // namespace bindery
