#include "train/updater/tree_sum.h"

namespace bindery {

std::vector<TreeSum::Action> TreeSum::AddLeaf(int64_t leaf) {
  std::vector<Action> actions;
  Climb({.level = 0, .index = leaf, .slot = kLeaf}, true, &actions);
  return actions;
}

std::vector<TreeSum::Action> TreeSum::AddNode(const Node& node) {
  std::vector<Action> actions;
  Climb(node, false, &actions);
  return actions;
}

void TreeSum::Climb(Node node, bool is_leaf, std::vector<Action>* actions) {
  while (!IsRoot(node)) {
    const bool is_left = node.index % 2 == 0;
    if (is_left && HasSibling(node)) break;
    if (!is_left) {
      if (nodes_.empty() || nodes_.back().level != node.level || nodes_.back().index != node.index - 1) break;
      const int to = nodes_.back().slot;
      nodes_.pop_back();
      actions->push_back({.to = to, .from = node.slot, .adds = true});
      if (is_leaf && node.slot != kLeaf) free_.push_back(node.slot);
      node.slot = to;
    }
    ++node.level;
    node.index /= 2;
  }
  if (node.slot == kLeaf) {
    if (free_.empty()) {
      node.slot = num_slots_++;
    } else {
      node.slot = free_.back();
      free_.pop_back();
    }
    actions->push_back({.to = node.slot});
  }
  nodes_.push_back(node);
}

}  // namespace bindery
