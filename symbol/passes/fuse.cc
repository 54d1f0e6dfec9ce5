#include <unordered_map>
#include <vector>

#include "symbol/graph.h"
#include "symbol/ops/fusions.h"
#include "symbol/passes/passes.h"

namespace bindery {

Symbol Fuse(const Graph& graph, const NodeTypes& types, std::span<const Fusion> rows) {
  std::vector<int> readers(graph.nodes.size(), 0);  // of each node's output 0; heads are read, too
  const auto count = [&](const Entry& entry) { readers[graph.IndexOf(entry.node)] += entry.output == 0; };
  for (const NodePtr& node : graph.nodes) {
    for (const Entry& input : node->inputs()) count(input);
  }
  for (const Entry& output : graph.outputs) count(output);

  const Fusion::TypeOf type_of = [&](const Entry& entry) -> const ValueType& {
    return types[graph.IndexOf(entry.node)][entry.output];
  };
  struct Pair {
    const Node *producer, *reader;
    size_t input;  // of the reader
    FusedOp result;
  };
  std::unordered_map<const Node*, Pair> pairs;  // by both of its nodes
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    const auto pair_with = [&](size_t input, const Fusion& row) {
      const auto& [producer, output] = node->inputs()[input];
      if (producer->is_variable() || output != 0 || readers[graph.IndexOf(producer)] != 1) return false;
      if (row.producer != &producer->op() || pairs.contains(producer.get())) return false;
      std::optional<FusedOp> fused = row.fuse(*producer, *node, type_of);
      if (!fused) return false;
      const Pair pair{producer.get(), node.get(), input, std::move(*fused)};
      pairs.emplace(producer.get(), pair);
      pairs.emplace(node.get(), pair);
      return true;
    };
    for (const Fusion& row : rows) {
      if (row.reader != &node->op()) continue;
      if (pair_with(0, row) || (row.commutes && pair_with(1, row))) break;
    }
  }
  if (pairs.empty()) return Symbol(graph.outputs);
  return Rewrite(Symbol(graph.outputs),
                 [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
                   const auto found = pairs.find(node.get());
                   if (found == pairs.end()) return {};
                   const auto& [producer, reader, input, result] = found->second;
                   // Made where all of its inputs are there: in the producer's place, so that its other outputs are
                   // read from there on, or in the reader's.
                   const bool in_producers_place = reader->inputs().size() == 1;
                   if (node.get() == producer) {
                     if (!in_producers_place) return {};
                     std::vector<Entry> outputs = OutputsOf(Remake(*producer, *result.op, result.attrs, inputs));
                     outputs.resize(producer->num_outputs());
                     return outputs;
                   }
                   if (in_producers_place) return {inputs[0]};
                   std::vector<Entry> operands = inputs[input].node->inputs();
                   for (size_t i = 0; i < inputs.size(); ++i) {
                     if (i != input) operands.push_back(inputs[i]);
                   }
                   return OutputsOf(Remake(*producer, *result.op, result.attrs, std::move(operands)));
                 });
}

}  // namespace bindery
