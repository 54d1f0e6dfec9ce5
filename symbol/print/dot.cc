#include <fmt/format.h>

#include <unordered_set>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/infer/value_index.h"
#include "symbol/op_def.h"
#include "symbol/print/summary.h"

namespace bindery {
namespace {

// The inside of a quoted DOT string: a quote or a backslash in a name is itself, a line break starts a new line.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      escaped += ' ';
    } else {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

// Weights: auxiliary states, and variables made for a layer (`<layer>_<input>`) past its first input; what is given is
// drawn.
std::unordered_set<const Node*> Weights(const Graph& graph, const std::set<std::string>& given) {
  std::unordered_set<const Node*> weights;
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    const std::vector<std::string> names = InputNames(*node);
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      const Node& input = *node->inputs()[i].node;
      if (!input.is_variable() || given.contains(input.name())) continue;
      if (IsAuxiliary(node->op(), names[i]) || input.name() == node->name() + "_" + names[i]) weights.insert(&input);
    }
  }
  return weights;
}

std::string NodeLabel(const Node& node) {
  std::string label = Escaped(node.name());
  if (node.is_variable()) return label;
  label += "\\n" + Escaped(node.op().name);
  for (const auto& [key, value] : node.attrs().ToMap()) label += "\\n" + Escaped(key + "=" + ToString(value));
  return label;
}

}  // namespace

std::string ToDot(const Symbol& symbol, const ShapeMap& shapes, const DotOptions& options) {
  const Graph graph = Graph::Of(symbol);
  std::unordered_set<const Node*> hidden;
  if (options.hide_weights) hidden = Weights(graph, ListGiven(symbol, shapes));
  const ValueIndex values(graph);
  std::vector<Entry> all;
  for (int v = 0; v < values.size(); ++v) {
    const int n = values.producer(v);
    all.push_back({graph.nodes[n], v - values.Of(n, 0)});
  }
  const InferredShapes inferred = InferShapesPartial(Symbol(std::move(all)), shapes);

  std::string text = "digraph bindery {\n  rankdir=BT;\n  node [fontname=\"Helvetica\", style=filled];\n";
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = *graph.nodes[n];
    if (hidden.contains(&node)) continue;
    text += fmt::format("  n{} [label=\"{}\", shape={}, fillcolor=\"{}\"];\n", n, NodeLabel(node),
                        node.is_variable() ? "ellipse" : "box", node.is_variable() ? "#e8eef7" : "#fde9c9");
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Entry& input : graph.nodes[n]->inputs()) {
      if (hidden.contains(input.node.get())) continue;
      const std::optional<Shape>& shape = inferred.outputs[values.Of(input)];
      text += fmt::format("  n{} -> n{}{};\n", graph.IndexOf(input.node), n,
                          shape ? fmt::format(" [label=\"{}\"]", *shape) : "");
    }
  }
  return text + "}\n";
}

}  // namespace bindery
