// Operators that are made of others (OpDef::compose). Which ones may depend on the shapes of the inputs, and on the
// numbers in them, as far as these follow from constants and from shapes: a Tile is a Reshape, a BroadcastTo and a
// Reshape of extents that its input's shape tells; a ReshapeBy takes its shape from a tensor. A symbol holds them as
// they are, and inference looks through them; gradients are those of what they are made of, and what is bound is only
// that.
#pragma once

#include <optional>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"

namespace bindery {

// The surroundings in which nodes on behalf of `node` are made: names below its name, its annotations, and nothing of
// the caller's scopes.
struct OnBehalfOf {
  OnBehalfOf(const Node& node, const std::string& prefix)
      : names(node.name() + prefix, false), annotations(Inherited(node.annotations()), false) {}
  NameScope names;
  AttrScope annotations;
};

// What is known of a node whose operator is made of others; nothing if a shape of its inputs is not known. `inputs`
// take the place of the node's.
std::optional<ComposeContext> ComposeContextOf(const Node& node, const std::vector<Entry>& inputs,
                                               const ForwardTypes& types);

// The infer rule of such an operator: what follows for what it is made of.
void InferComposed(InferContext& c, const std::function<std::vector<Symbol>(const ComposeContext&)>& compose);

// Its definition, of input 0's element type for all.
OpDef Composed(std::string name, std::string doc, const AttrsType* attrs,
               std::vector<Symbol> (*compose)(const ComposeContext&), std::function<void(const AnyAttrs&)> check = {});

bool HasComposed(const Graph& graph);
// Throws ShapeError, which names it, if one is left: the numbers that it takes are data.
void CheckComposed(const Graph& graph);
// Puts in the place of such nodes, or of those that `which` says, what they are made of, where `types` tell enough;
// once: parts may be made of others. What computes a node's outputs has its name and `suffix`, without which both
// cannot stand in one graph.
Symbol Compose(const Graph& graph, const ForwardTypes& types, const std::string& suffix = {},
               const std::function<bool(const Node&)>& which = {});

// A graph as it is bound: with what its nodes are made of, down to the last; and Constants in the place of small values
// of integers whose numbers are known, so that what only shapes were computed from is left out. `types` and `numbers`
// are those of the graph, and become those of the new one by `infer`. ShapeError if on several devices the extent of
// the batch is read as data: each would see its share.
using InferGraph = std::function<NodeTypes(const Graph& graph, NodeNumbers* numbers)>;
void ComposeAll(Graph* graph, NodeTypes* types, NodeNumbers* numbers, std::optional<int64_t> batch, int devices,
                const InferGraph& infer);

}  // namespace bindery
