#include "symbol/ops/fixed_gamma.h"

#include "symbol/graph.h"
#include "symbol/ops/batch_norm.h"

namespace bindery {

std::set<std::string> ListFixedGammas(const Symbol& symbol) {
  constexpr size_t kGamma = 1;
  std::set<std::string> fixed, used;
  for (const Entry& head : symbol.entries()) {
    if (head.node->is_variable()) used.insert(head.node->name());
  }
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable()) continue;
    const bool fixes = &node->op() == &BatchNormOp() && node->attrs().get<BatchNormAttrs>().fix_gamma;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Node& input = *node->inputs()[i].node;
      if (input.is_variable()) (fixes && i == kGamma ? fixed : used).insert(input.name());
    }
  }
  std::erase_if(fixed, [&](const std::string& name) { return used.contains(name); });
  return fixed;
}

}  // namespace bindery
