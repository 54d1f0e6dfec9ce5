#include "symbol/graph.h"
#include "symbol/ops.h"
#include "train/zoo/models.h"

namespace bindery::zoo {

Symbol MaybeDropout(const Symbol& x, const ZooOptions& options, const std::string& name) {
  return options.dropout > 0 ? Dropout(x, {.p = options.dropout}, name) : x;
}

Symbol Conv(const Symbol& x, const ConvOptions& conv, const std::string& name) {
  return Convolution(x,
                     {.num_filter = conv.filters,
                      .kernel = {conv.kernel, conv.kernel},
                      .stride = {conv.stride, conv.stride},
                      .pad = {conv.kernel / 2, conv.kernel / 2},
                      .groups = conv.groups,
                      .no_bias = true},
                     name);
}

Symbol Norm(const Symbol& x, const ZooOptions& options, const std::string& name) {
  return BatchNorm(x, {.eps = 1e-5, .fix_gamma = false, .sync = options.sync_batch_norm}, name);
}

Symbol Classifier(Symbol x, const ZooOptions& options) {
  x = Flatten(Pooling(x, {.type = PoolType::kAvg, .global = true}, "pool1"), "flatten");
  x = MaybeDropout(x, options, "dropout1");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = options.num_classes}, "fc1"), {}, "softmax");
}

Symbol WithInitial(const Symbol& model, std::initializer_list<Initial> initials) {
  std::map<std::string, Symbol> variables;
  for (const NodePtr& node : Graph::Of(model).nodes) {
    if (!node->is_variable()) continue;
    for (const Initial& initial : initials) {
      if (!node->name().ends_with(initial.ending)) continue;
      variables.emplace(node->name(),
                        Variable(node->name(), {.shape = node->declared_shape, .init = initial.initializer}));
      break;
    }
  }
  return model.Compose(variables);
}

}  // namespace bindery::zoo
