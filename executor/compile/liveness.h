// Which values of a graph somebody reads. What nobody reads is not computed.
#pragma once

#include <functional>
#include <vector>

#include "symbol/graph.h"

namespace bindery {

// Per node and output: is the value needed, by an output of the graph, by `wanted` (called for nodes with an operator),
// or by a needed node? Of an operator with hidden outputs, output 0 is needed wherever
// another one is: these are by-products of computing it.
std::vector<std::vector<bool>> NeededOutputs(const Graph& graph,
                                             const std::function<bool(const Node&, int output)>& wanted);

}  // namespace bindery
