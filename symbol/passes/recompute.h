// Recomputation: what backward reads of forward need not be kept between the two. It may be computed again when it is
// read, of what is kept (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; MXNet's mirror option).
//
// It is done on the joint graph, when every other pass is through: a node that is computed again is there twice, and
// since nodes are run in depth-first order, the second one comes just before backward first reads it. Nothing else
// changes: the same operators compute the same bits, random ones by the numbers of the first (Recomputed::of), and the
// next values of states are made of what forward has.
#pragma once

#include <span>
#include <vector>

#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

// An annotation of a node, and the same of one that comes from a file of MXNet: "True" or "1": what backward reads of
// it is computed again in any case, "False" or "0": never.
inline constexpr const char* kForceMirroring[] = {"force_mirroring", "__force_mirroring__"};

// Does a node demand that it is computed again?
bool DemandsRecomputation(const Graph& graph);

// What a node takes of time, in bytes moved: those of its values, and for what it multiplies as many as would take as
// long.
double CostOf(const Graph& graph, const NodeTypes& types, int node);

// Nodes of forward (the first `forward_nodes`) that backward may compute again, in steps, each of them one node whose
// value is then not kept, behind those without which it cannot be computed. The step that costs the least time for the
// bytes it spares comes first, given those before it.
// Never heads, what devices combine, casts of variables, which cost no working memory, nor what reads an auxiliary
// state, which may have moved by then (unless OpDef::again does without).
struct RecomputeSteps {
  std::vector<int> nodes;
  std::vector<int> ends;  // of each step, in `nodes`
  int forced = 0;         // the first steps, which annotations demand
};
RecomputeSteps StepsToRecompute(const Graph& graph, const NodeTypes& types, int forward_nodes);

// The graph in which backward reads these nodes, and what is a view of them, computed again.
struct Recomputed {
  Graph graph;
  std::vector<int> of;  // per node of `graph`: the node of the graph before that it computes again, or -1
};
Recomputed Recompute(const Graph& graph, const NodeTypes& types, int forward_nodes, std::span<const int> nodes);

}  // namespace bindery
