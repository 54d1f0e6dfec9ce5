// Models cut to what is wanted of them.
#include <algorithm>
#include <set>
#include <vector>

#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

std::set<std::string> VariablesOf(const Entry& head) {
  std::set<std::string> names;
  for (const NodePtr& node : PostOrder({&head, 1})) {
    if (node->is_variable()) names.insert(node->name());
  }
  return names;
}

}  // namespace

Model Cut(const Model& model, const Symbol& symbol) {
  Model cut{.symbol = symbol, .metadata = model.metadata};
  for (const std::string& name : symbol.ListInputs()) {
    if (const auto value = model.params.find(name); value != model.params.end()) cut.params.insert(*value);
    if (const auto value = model.aux.find(name); value != model.aux.end()) cut.aux.insert(*value);
  }
  return cut;
}

Symbol WithoutTargets(const Symbol& symbol, const std::function<bool(const std::string& variable)>& is_given) {
  const auto is_loss = [](const Entry& head) {
    return IsLoss(*head.node) && !head.node->op().blocks_gradient && head.node->inputs().size() == 1;
  };
  std::set<std::string> read;  // by the others
  for (const Entry& head : symbol.entries()) {
    if (!is_loss(head)) read.merge(VariablesOf(head));
  }
  std::vector<Entry> heads = symbol.entries();
  std::erase_if(heads, [&](const Entry& head) {
    return is_loss(head) && std::ranges::any_of(VariablesOf(head), [&](const std::string& name) {
             return !read.contains(name) && !is_given(name);
           });
  });
  return heads.empty() || heads.size() == symbol.entries().size() ? symbol : Symbol(std::move(heads));
}

}  // namespace bindery
