// The values (outputs of nodes, hidden ones included) of a graph by number, with who makes and who uses each.
#pragma once

#include <span>
#include <vector>

#include "symbol/graph.h"

namespace bindery {

// Refers to the graph, which must outlive it and stay unchanged.
class ValueIndex {
 public:
  explicit ValueIndex(const Graph& graph);

  int size() const { return static_cast<int>(producers_.size()); }
  int Of(const Entry& entry) const { return first_[graph_.IndexOf(entry.node)] + entry.output; }
  int Of(int node, int output) const { return first_[node] + output; }
  int producer(int value) const { return producers_[value]; }                                // a node, maybe a variable
  std::span<const int> inputs(int node) const { return Part(inputs_, input_begin_, node); }  // values
  std::span<const int> consumers(int value) const {
    return Part(consumers_, consumer_begin_, value);
  }  // nodes, in order

 private:
  static std::span<const int> Part(const std::vector<int>& all, const std::vector<int>& begin, int i) {
    return std::span(all).subspan(begin[i], begin[i + 1] - begin[i]);
  }
  const Graph& graph_;
  std::vector<int> first_, producers_;
  std::vector<int> inputs_, input_begin_;
  std::vector<int> consumers_, consumer_begin_;
};

}  // namespace bindery
