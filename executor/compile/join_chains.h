// Chains of elementwise operators become one call, on the kinds of devices that have kernels of such
// (executor/kernels/chain.h): a call whose result only links of one chain read, of the same shape, is done by the last
// of them. What it gave is then no value in memory any more.
//
// What a chain reads is alive until its last link, where all of it is done, so it may take more memory than it saves.
// No arena is larger by chains: where it would be, a link is joined only if at no time more is alive than without the
// chain, and if even that is placed in more, there are none.
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
// Comes when all calls are there and derived ones are at the front: joins what can be, and plans the memory
// (plan_memory.h).
void PlanMemoryWithChains(Program* program, const ChainOptions& options);

}  // namespace bindery
