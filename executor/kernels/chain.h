// Chains of elementwise operators as one kernel, for the tables that have such (KernelTable::chains): what is between
// the operators is never in memory, but for tiles in a processor's nearest cache. What a chain gives is, to the bit,
// what its operators give one by one, where their functions are compiled by one compiler.
#pragma once

#include <vector>

#include "executor/kernel.h"

namespace bindery {

// An operator of a chain. `operands`, one for each of its inputs: k is input k of the chain, and behind these come the
// results of the links, in order.
struct ChainLink {
  KernelSpec spec;
  std::vector<int> operands = {};
};

struct ChainSpec {
  std::vector<ValueType> inputs = {};
  std::vector<ChainLink> links = {};  // each after those it reads; the last gives what the chain gives
};

inline constexpr size_t kMaxChainInputs = 8, kMaxChainLinks = 16;

struct ChainKernels {
  bool (*are_there)();  // now
  // May the operator be a link, behind and before others of its output's shape, and is that worth it? Its values are
  // plain.
  bool (*is_link)(const KernelSpec& spec);
  // One kernel for all of it, which takes the chain's inputs and gives the last link's output. Of links alone, whose
  // values are of the last one's shape. nullopt if it cannot be compiled, which was logged.
  MaybeKernel (*make)(const ChainSpec& chain);
};

}  // namespace bindery
