// Lowering: from a symbol to the graph that will be compiled: composites expanded, gradients added, passes run,
// operators fused, every type known.
#pragma once

#include <optional>
#include <vector>

#include "executor/plan/program.h"
#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

struct LoweredGraph {
  Graph graph;      // outputs: heads, what forward computes besides, the non-empty gradients
  NodeTypes types;  // per node of `graph`
  struct Variable {
    Place place = Place::kNone;  // kArgument, kAuxiliary; kNone: an operator's node
    int slot = -1;
  };
  std::vector<Variable> variables = {};  // per node of `graph`
  std::optional<int64_t> batch = {};     // its extent
  // Per node: the one of forward that it computes again, or -1; empty: none does (executor/compile/mirrored.h).
  std::vector<int> again = {};
  int FirstOf(int node) const {  // that, or the node itself
    return again.empty() || again[static_cast<size_t>(node)] < 0 ? node : again[static_cast<size_t>(node)];
  }
  int forward_nodes = 0;  // nodes [0, forward_nodes) are what the heads and the updates need
  // Its interface: arguments, auxiliary states, gradients, head gradients, updates; outputs by name.
  Plan plan = {};
  // Indices in graph.outputs: of the plan's gradients (-1: zero), and of the next values of its updates.
  std::vector<int> gradients = {}, updates = {};
};

LoweredGraph Lower(const Symbol& symbol, const CompileOptions& options);

}  // namespace bindery
