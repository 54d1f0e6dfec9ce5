#include "train/updater/divisor.h"

#include <map>

#include "base/error.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"
#include "symbol/ops/heads.h"

namespace bindery {
namespace {

// Of all nodes, as the group has them.
NodeTypes TypesIn(const Graph& graph, ExecutorGroup* group) {
  ShapeMap shapes;
  DTypeMap dtypes;
  std::map<std::string, int> batch_axes;
  const GroupOptions& options = group->options();
  for (const auto* list : {&options.data, &options.labels, &options.states}) {
    for (const DataDesc& desc : *list) {
      shapes[desc.name] = desc.shape;
      dtypes[desc.name] = desc.dtype;
      batch_axes[desc.name] = desc.BatchAxis();
    }
  }
  for (const DataParallelExecutorGroup* stage : group->stages()) {
    for (const StoredParameter& p : stage->store().parameters()) {
      shapes[p.name] = p.shape;
      dtypes[p.name] = p.dtype;
    }
  }
  return InferTypes(graph, shapes, dtypes, batch_axes);
}

// Throws for a loss that is a mean over the samples already, of which the update would make one again.
void CheckNoMeans(ExecutorGroup* group) {
  const std::vector<Entry>& heads = group->symbol().entries();
  std::optional<Graph> graph;  // is needed for few
  NodeTypes types;
  for (size_t i = 0; i < heads.size(); ++i) {
    const Node& head = *heads[i].node;
    if (!IsLoss(head) || head.op().blocks_gradient || group->OutputType(static_cast<int>(i)).batch_axis >= 0) continue;
    if (!graph) {
      graph = Graph::Of(group->symbol());
      types = TypesIn(*graph, group);
    }
    const Node* mean = MeanOverSamples(*graph, types, heads[i]);
    if (mean == nullptr) continue;
    Throw<ModelError>(
        "loss \"{}\" has no axis of samples: {} is their mean already, and the update would divide its gradient by "
        "their number once more; leave the axis in (no Mean), take LossReduction::kMean, or say rescale=1 to the "
        "optimizer",
        head.name(), Describe(*mean));
  }
}

}  // namespace

std::optional<bool> OfHeads(const Symbol& symbol, bool (*is)(const NodePtr& head)) {
  std::optional<bool> all;
  for (const Entry& head : symbol.entries()) {
    if (head.node->is_variable() || head.node->op().blocks_gradient) continue;
    const bool one = is(head.node);
    if (all.value_or(one) != one) return std::nullopt;
    all = one;
  }
  return all.value_or(false);
}

bool DividesBySamples(ExecutorGroup* group, const Optimizer& optimizer) {
  const std::optional<bool> means = OfHeads(group->symbol(), IsMean);
  if (!optimizer.options().rescale_gradient) {
    if (!means) {
      Throw<ModelError>(
          "some heads give sums over samples and others means (normalization batch or valid): give the optimizer an "
          "explicit rescale");
    }
    if (!*means) CheckNoMeans(group);
  }
  return !means.value_or(true);
}

}  // namespace bindery
