// Chains of elementwise operators become one call, on the kinds of devices that have kernels of such
// (executor/kernels/chain.h): a call whose result is read by one other, of the same shape, is done by that one. What it
// gave is then no value in memory any more.
//
// Comes when all calls are there and derived ones are at the front, before memory is planned.
#pragma once

#include <vector>

#include "executor/plan/program.h"
#include "symbol/graph.h"

namespace bindery {

struct ChainOptions {
  const CompileOptions& compile;
  const Graph& graph;            // which the calls are of, by their nodes' names
  const std::vector<int>& root;  // per value: whose memory it is
  const std::vector<int>& kept;  // values that must stay in the arena, to the end
};
void JoinChains(Program* program, const ChainOptions& options);

}  // namespace bindery
