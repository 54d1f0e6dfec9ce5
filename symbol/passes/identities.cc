#include <unordered_set>

#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/passes/passes.h"

namespace bindery {

Symbol RemoveIdentities(const Symbol& symbol) {
  std::unordered_set<const Node*> heads;
  for (const Entry& head : symbol.entries()) heads.insert(head.node.get());
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) {
    const auto& is_identity = node->op().is_identity;
    if (heads.contains(node.get()) || !is_identity || !is_identity(node->attrs(), inputs)) return std::vector<Entry>{};
    return std::vector<Entry>{inputs[0]};
  });
}

}  // namespace bindery
