// Passes: pure functions from graph to graph. Each can be left out without changing what is computed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops/fusions.h"
#include "symbol/symbol.h"

namespace bindery {

// Common subexpressions: nodes with equal operator, attributes, annotations and inputs become one, the first in order.
// Never variables, random operators, operators with auxiliary states, or losses (two equal ones have twice the
// gradient). Outputs keep their order and count; those of a merged node take the other's name.
Symbol EliminateCommonSubexpressions(const Symbol& symbol);

// Computes what depends on no variable and puts it in as a Constant of the same name, unless it has more than
// `max_elements`. `evaluate` runs one node and returns all of its outputs. Random operators are left alone.
using Evaluator = std::function<std::vector<HostTensor>(const Node& node, const std::vector<HostTensor>& inputs)>;
Symbol FoldConstants(const Symbol& symbol, const Evaluator& evaluate, int64_t max_elements = 1 << 20);

// A Constant in the place of a node's output: of its name and annotations.
Entry ConstantInPlaceOf(const Node& node, int output, HostTensor value);

// Puts a Constant in the place of every Scalar, of the type that the symbol's types (`known`: those of variables) give
// it, so that equal numbers of one type are one, and can be computed with. ModelError for 0.5 among integers.
Symbol GiveScalarsTypes(const Symbol& symbol, const std::map<std::string, DType>& known);

// Removes nodes that change nothing: Identity, a Transpose that keeps the order, a Cast to the same type where it is
// known from Cast(Cast(x)), additions of nothing (AddN of one). One that is a head stays: it gives the output its name.
// Dead nodes go by themselves: a graph holds only what its outputs need.
Symbol RemoveIdentities(const Symbol& symbol);

// Neighbouring operators become one where a kernel does both in one pass over memory (symbol/ops/fusions.h), if nobody
// else reads the value between them. `types` are those of the graph. A forward graph is fused before its gradient is
// taken, which then is that of the fused operators; what gradients add is fused after it.
Symbol Fuse(const Graph& graph, const NodeTypes& types, std::span<const Fusion> rows = Fusions());

}  // namespace bindery
