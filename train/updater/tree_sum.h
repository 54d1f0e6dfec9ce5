// TreeSum: the order in which the parts of a sum are added up, where the parts are computed in several places: the order
// of one binary tree over all of them, whoever has which.
//
// Leaves 0 .. n-1. A node of level l and index i is the sum of the leaves from i 2^l on, 2^l of them or those there are:
// left child + right child, or the left one alone. What a place has is nodes; two that are siblings become their
// parent, as soon as both are there. So a place that has some leaves in a row, one after the other, keeps no more than
// 2 log2(n) nodes at once; and what places in a row have left, added in the same way, is the sum of all: the same bits
// for any number of places.
//
// Nodes lie in slots, numbered from 0, each of which holds one. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace bindery {

class TreeSum {
 public:
  struct Node {
    int level = 0;
    int64_t index = 0;
    int slot = 0;
  };
  // slot `to` += slot `from`, or the leaf that was given (kLeaf); or, where it is not to be added, a copy of that leaf.
  static constexpr int kLeaf = -1;
  struct Action {
    int to = 0, from = kLeaf;
    bool adds = false;
    bool operator==(const Action&) const = default;
  };

  explicit TreeSum(int64_t leaves) : leaves_(leaves) {}

  // The next leaf, which lies in no slot: what is to be done with it, in order. Leaves come in their order, without
  // gaps.
  std::vector<Action> AddLeaf(int64_t leaf);
  // A node of another place, the next one of its, in a slot that nobody else has: what is to be added.
  std::vector<Action> AddNode(const Node& node);

  const std::vector<Node>& nodes() const { return nodes_; }  // what there is now, in the order of their leaves
  int num_slots() const { return num_slots_; }               // that AddLeaf has used

 private:
  bool IsRoot(const Node& node) const { return node.level >= 62 || (int64_t{1} << node.level) >= leaves_; }
  // Of an even index: are there leaves beyond it, to be its sibling's?
  bool HasSibling(const Node& node) const { return node.index + 1 <= (leaves_ - 1) >> node.level; }
  void Climb(Node node, bool is_leaf, std::vector<Action>* actions);

  int64_t leaves_;
  std::vector<Node> nodes_;
  std::vector<int> free_;
  int num_slots_ = 0;
};

}  // namespace bindery
