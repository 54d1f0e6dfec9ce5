#include "symbol/graph.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

NodePtr Copy(const Node& node, std::vector<Entry> inputs, Annotations annotations) {
  auto copy = std::make_shared<Node>(node.is_variable() ? nullptr : &node.op(), node.attrs(), node.name(),
                                     std::move(inputs), std::move(annotations));
  copy->declared_shape = node.declared_shape;
  copy->declared_dtype = node.declared_dtype;
  copy->auto_base = node.auto_base;
  copy->auto_depth = node.auto_depth;
  copy->origin = node.origin;
  return copy;
}

}  // namespace

std::vector<NodePtr> PostOrder(std::span<const Entry> entries) {
  struct Visit {
    const NodePtr* node;  // held by an entry or by a node above
    size_t next_input = 0;
  };
  std::vector<NodePtr> order;
  std::unordered_set<const Node*> seen;
  std::vector<Visit> stack;
  for (const Entry& entry : entries) {
    if (!seen.insert(entry.node.get()).second) continue;
    stack.push_back({&entry.node});
    while (!stack.empty()) {
      Visit& top = stack.back();
      const std::vector<Entry>& inputs = (*top.node)->inputs();
      if (top.next_input == inputs.size()) {
        order.push_back(*top.node);
        stack.pop_back();
        continue;
      }
      const NodePtr& input = inputs[top.next_input++].node;
      if (seen.insert(input.get()).second) stack.push_back({&input});
    }
  }
  return order;
}

bool IsLoss(const Node& node) { return !node.is_variable() && node.op().is_loss && node.op().is_loss(node.attrs()); }

bool IsMean(const NodePtr& head) {
  if (!head->is_variable() && head->op().is_mean && head->op().is_mean(head->attrs())) return true;
  const Entry entries[] = {{head, 0}};
  return std::ranges::any_of(PostOrder(entries), [](const NodePtr& node) {
    const auto found = node->annotations().find("is_mean");
    return found != node->annotations().end() && found->second == "true";
  });
}

std::set<std::string> ListLabels(const Symbol& symbol) {
  std::set<std::string> labels;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable()) continue;
    const std::vector<std::string> names = InputNames(*node);
    for (size_t i = 0; i < names.size(); ++i) {
      const Node& input = *node->inputs()[i].node;
      if (names[i] == "label" && input.is_variable()) labels.insert(input.name());
    }
  }
  return labels;
}

std::string Describe(const Node& node) {
  if (!node.origin.empty()) return node.origin;
  return fmt::format("{} \"{}\"", node.is_variable() ? "variable" : node.op().name, node.name());
}

NodePtr Remake(const Node& node, const OpDef& op, AnyAttrs attrs, std::vector<Entry> inputs) {
  auto made = std::make_shared<Node>(&op, std::move(attrs), node.name(), std::move(inputs), node.annotations());
  made->origin = node.origin;
  return made;
}

std::vector<Entry> OutputsOf(const NodePtr& node) {
  std::vector<Entry> outputs;
  for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back({node, i});
  return outputs;
}

NodePtr WithInputs(const Node& node, std::vector<Entry> inputs) {
  return Copy(node, std::move(inputs), node.annotations());
}

NodePtr WithAnnotations(const Node& node, Annotations annotations) {
  return Copy(node, node.inputs(), std::move(annotations));
}

Graph Graph::Of(const Symbol& symbol) {
  Graph graph;
  graph.outputs = symbol.entries();
  graph.nodes = PostOrder(graph.outputs);
  graph.index.reserve(graph.nodes.size());
  std::unordered_set<std::string_view> variables;
  for (const NodePtr& node : graph.nodes) {
    graph.index.emplace(node.get(), static_cast<int>(graph.index.size()));
    if (node->is_variable() && !variables.insert(node->name()).second) {
      Throw<ModelError>(
          "two different variables are called \"{}\": share one Variable, or name their layers "
          "differently (a NameScope does)",
          node->name());
    }
  }
  return graph;
}

Symbol Rewrite(const Symbol& symbol, const RewriteFn& rewrite, const std::unordered_map<const Node*, Entry>& replaced) {
  // The outputs of node n are at first[n], first[n] + 1, ...
  std::vector<Entry> rewritten;
  std::unordered_map<const Node*, size_t> first;
  const auto lookup = [&](const Entry& old) -> const Entry& {
    const Entry& entry = rewritten[first.at(old.node.get()) + old.output];
    if (!entry.node) Throw("{}: its output {} is in use but was not rewritten", Describe(*old.node), old.output);
    return entry;
  };
  const std::vector<NodePtr> order = PostOrder(symbol.entries());
  for (const NodePtr& node : order) {
    first.emplace(node.get(), rewritten.size());
    if (const auto it = replaced.find(node.get()); it != replaced.end()) {
      rewritten.push_back(it->second);
      rewritten.resize(rewritten.size() + node->num_outputs() - 1);
      continue;
    }
    if (node->is_variable()) {
      rewritten.push_back({node, 0});
      continue;
    }
    std::vector<Entry> inputs;
    inputs.reserve(node->inputs().size());
    for (const Entry& input : node->inputs()) inputs.push_back(lookup(input));
    std::vector<Entry> outputs = rewrite ? rewrite(node, inputs) : std::vector<Entry>{};
    if (outputs.empty()) {
      const NodePtr kept = inputs == node->inputs() ? node : WithInputs(*node, std::move(inputs));
      for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back({kept, i});
    }
    outputs.resize(node->num_outputs());
    for (Entry& output : outputs) rewritten.push_back(std::move(output));
  }
  std::vector<Entry> heads;
  for (const Entry& entry : symbol.entries()) heads.push_back(lookup(entry));
  return Symbol(std::move(heads));
}

}  // namespace bindery
