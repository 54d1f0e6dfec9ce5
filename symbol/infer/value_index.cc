#include "symbol/infer/value_index.h"

#include <numeric>

namespace bindery {

ValueIndex::ValueIndex(const Graph& graph) : graph_(graph) {
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int n = 0; n < nodes; ++n) {
    first_.push_back(size());
    producers_.insert(producers_.end(), graph.nodes[n]->num_outputs(), n);
  }
  input_begin_.push_back(0);
  consumer_begin_.assign(size() + 1, 0);
  for (const NodePtr& node : graph.nodes) {
    for (const Entry& input : node->inputs()) {
      inputs_.push_back(Of(input));
      ++consumer_begin_[inputs_.back() + 1];
    }
    input_begin_.push_back(static_cast<int>(inputs_.size()));
  }
  std::partial_sum(consumer_begin_.begin(), consumer_begin_.end(), consumer_begin_.begin());
  std::vector<int> next(consumer_begin_.begin(), consumer_begin_.end() - 1);
  consumers_.resize(inputs_.size());
  for (int n = 0; n < nodes; ++n) {
    for (int value : inputs(n)) consumers_[next[value]++] = n;
  }
}

}  // namespace bindery
