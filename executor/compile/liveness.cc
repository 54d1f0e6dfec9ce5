#include "executor/compile/liveness.h"

#include <algorithm>

#include "symbol/op_def.h"

namespace bindery {

std::vector<std::vector<bool>> NeededOutputs(const Graph& graph,
                                             const std::function<bool(const Node&, int output)>& wanted) {
  std::vector<std::vector<bool>> needed;
  needed.reserve(graph.nodes.size());
  for (const NodePtr& node : graph.nodes) needed.emplace_back(node->num_outputs(), false);
  for (const Entry& output : graph.outputs) needed[graph.IndexOf(output.node)][output.output] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {  // readers before what they read
    const Node& node = *graph.nodes[n];
    if (node.is_variable()) continue;
    for (int o = 0; o < node.num_outputs(); ++o) needed[n][o] = needed[n][o] || wanted(node, o);
    if (std::find(needed[n].begin(), needed[n].end(), true) == needed[n].end()) continue;
    if (node.op().outputs.may_hide()) needed[n][0] = true;
    for (const Entry& input : node.inputs()) needed[graph.IndexOf(input.node)][input.output] = true;
  }
  return needed;
}

}  // namespace bindery
