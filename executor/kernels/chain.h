// Chains of elementwise operators as one kernel, for the kinds of devices that have such: what is between the operators
// is never in memory. What a chain gives is, to the bit, what its operators give one by one, where their functions are
// compiled by one compiler.
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

// Are there such kernels on this kind of device, now?
bool HasChains(DeviceKind kind);
// May the operator be a link, behind and before others of its output's shape? Its values are plain.
bool IsLink(const KernelSpec& spec);
// One kernel for all of it, which takes the chain's inputs and gives the last link's output. Of links alone, whose
// values are of the last one's shape. nullopt if it cannot be compiled, which was logged.
MaybeKernel MakeChain(const ChainSpec& chain);

}  // namespace bindery
