// Graph: the nodes of a symbol in a list, inputs before users. What passes, shape inference and the executor walk.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbol/symbol.h"

namespace bindery {

struct Graph {
  std::vector<NodePtr> nodes;                  // depth-first post-order from the outputs, left to right
  std::unordered_map<const Node*, int> index;  // position in `nodes`
  std::vector<Entry> outputs;

  // Iterative; throws ModelError if two different variables have one name.
  static Graph Of(const Symbol& symbol);
  int IndexOf(const NodePtr& node) const { return index.at(node.get()); }
};

// The nodes below some entries, each once, depth first, inputs before users. Iterative.
std::vector<NodePtr> PostOrder(std::span<const Entry> entries);

// Is it a loss (OpDef::is_loss)? Variables are not.
bool IsLoss(const Node& node);
// Is the gradient of this head divided by the number of samples already: by the operator (OpDef::is_mean), or because
// something that it is made of is annotated with is_mean?
bool IsMean(const NodePtr& head);
// The variables that feed an operator's input named "label".
std::set<std::string> ListLabels(const Symbol& symbol);

// `FullyConnected "fc1"`, `variable "data"`, `gradient of FullyConnected "fc1"`: how messages name a node.
std::string Describe(const Node& node);
// The same node with other inputs, or other annotations.
NodePtr WithInputs(const Node& node, std::vector<Entry> inputs);
NodePtr WithAnnotations(const Node& node, Annotations annotations);
// Another operator in its place: of its name, annotations and origin.
NodePtr Remake(const Node& node, const OpDef& op, AnyAttrs attrs, std::vector<Entry> inputs);
// All outputs, hidden included.
std::vector<Entry> OutputsOf(const NodePtr& node);

// Rebuilds a symbol bottom up: `rewrite` gets each non-variable node with its new inputs and returns its new outputs
// (all of them, hidden included), or an empty list to keep the node (re-made only if an input changed).
using RewriteFn = std::function<std::vector<Entry>(const NodePtr& node, const std::vector<Entry>& new_inputs)>;
// `replaced`: nodes (variables, usually) in whose place another entry is put.
Symbol Rewrite(const Symbol& symbol, const RewriteFn& rewrite,
               const std::unordered_map<const Node*, Entry>& replaced = {});

}  // namespace bindery
