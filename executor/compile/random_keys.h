// What the random numbers of nodes are keyed by.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <unordered_map>

#include "executor/compile/lowering.h"

namespace bindery {

class RandomKeys {
 public:
  // The node's name. A second random node of that name gets another key, unless it computes the first again. Asked once
  // for each node, in the order of the graph.
  std::string Of(const LoweredGraph& lowered, int n) {
    const Node& node = *lowered.graph.nodes[static_cast<size_t>(n)];
    if (!node.op().is_random) return node.name();
    if (lowered.FirstOf(n) != n) return keys_.at(lowered.FirstOf(n));
    const int count = ++names_[node.name()];
    return keys_[n] = count == 1 ? node.name() : fmt::format("{}#{}", node.name(), count);
  }

 private:
  std::map<std::string, int> names_;
  std::unordered_map<int, std::string> keys_;  // per node
};

}  // namespace bindery
