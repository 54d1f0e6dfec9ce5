#include <unordered_set>

#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_ops.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

bool KeepsOrder(const TransposeAttrs& attrs) {
  for (size_t i = 0; i < attrs.axes.size(); ++i) {
    if (attrs.axes[i] != static_cast<int64_t>(i)) return false;
  }
  return !attrs.axes.empty();  // empty: reversed
}

bool IsCastTo(const Entry& entry, DType dtype) {
  const Node& node = *entry.node;
  return !node.is_variable() && &node.op() == &CastOp() && node.attrs().get<CastAttrs>().dtype == dtype;
}

bool ChangesNothing(const Node& node, const std::vector<Entry>& inputs) {
  const OpDef* op = &node.op();
  if (op == &IdentityOp()) return true;
  if (op == &AddNOp()) return inputs.size() == 1;
  if (op == &TransposeOp()) return KeepsOrder(node.attrs().get<TransposeAttrs>());
  if (op == &CastOp()) return IsCastTo(inputs[0], node.attrs().get<CastAttrs>().dtype);
  return false;
}

}  // namespace

Symbol RemoveIdentities(const Symbol& symbol) {
  std::unordered_set<const Node*> heads;
  for (const Entry& head : symbol.entries()) heads.insert(head.node.get());
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) {
    if (heads.contains(node.get()) || !ChangesNothing(*node, inputs)) return std::vector<Entry>{};
    return std::vector<Entry>{inputs[0]};
  });
}

}  // namespace bindery
