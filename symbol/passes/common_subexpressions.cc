#include <unordered_map>

#include "base/files.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

uint64_t HashText(const std::string& text, uint64_t seed) {
  return Checksum(text.data(), static_cast<int64_t>(text.size()), seed);
}

uint64_t HashAttr(const AttrValue& value, uint64_t seed) {
  if (const auto* tensor = std::get_if<std::shared_ptr<const HostTensor>>(&value); tensor && *tensor) {
    seed = Checksum((*tensor)->raw(), (*tensor)->bytes(), seed);
  }
  // A long list is printed in part.
  const auto of_bytes = [seed](const auto& list) {
    return Checksum(list.data(), static_cast<int64_t>(list.size() * sizeof(list[0])), seed);
  };
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return of_bytes(*list);
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return of_bytes(*list);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *list) seed = HashText(text, seed);
    return seed;
  }
  return HashText(ToString(value), seed);
}

// Equal nodes have equal hashes. (0.0 and -0.0 are equal but not merged: they differ as text.)
uint64_t Hash(const Node& node, const std::vector<Entry>& inputs) {
  uint64_t hash = HashText(node.op().name, inputs.size());
  for (const auto& [name, value] : node.attrs().ToMap()) hash = HashAttr(value, HashText(name, hash));
  for (const Entry& input : inputs) {
    const uintptr_t key[2] = {reinterpret_cast<uintptr_t>(input.node.get()), static_cast<uintptr_t>(input.output)};
    hash = Checksum(key, sizeof(key), hash);
  }
  return hash;
}

// Two random nodes differ by name. Two updates of a state are not one. Two equal losses give twice the gradient. Two
// numbers may be of different types, until they are constants.
bool MayMerge(const Node& node) {
  const OpDef& op = node.op();
  return !op.is_random && !op.inputs.has_auxiliary() && !IsLoss(node) && !ScalarValue(node);
}

bool Same(const Node& a, const Node& b) {
  return &a.op() == &b.op() && a.inputs() == b.inputs() && a.annotations() == b.annotations() && a.attrs() == b.attrs();
}

}  // namespace

Symbol EliminateCommonSubexpressions(const Symbol& symbol) {
  std::unordered_multimap<uint64_t, NodePtr> kept;
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) {
    std::vector<Entry> outputs;
    if (!MayMerge(*node)) return outputs;
    const uint64_t hash = Hash(*node, inputs);
    const NodePtr candidate = inputs == node->inputs() ? node : WithInputs(*node, inputs);
    const auto [begin, end] = kept.equal_range(hash);
    auto found = begin;
    while (found != end && !Same(*found->second, *candidate)) ++found;
    if (found == end) found = kept.emplace(hash, candidate);
    for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back({found->second, i});
    return outputs;
  });
}

}  // namespace bindery
