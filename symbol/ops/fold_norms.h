// Batch-norms that become part of the layer before them, in predictions.
#pragma once

#include <functional>

#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

// BatchNorm by running statistics behind Convolution or FullyConnected, whose output nobody else reads, becomes part of
// it. With s = gamma / sqrt(running_var + eps) per channel, weight s takes the place of the weight and
// beta + (bias - running_mean) s that of the bias, computed by ordinary operators: the executor keeps them until
// parameters change. The norm's relu becomes the layer's activation. Only of variables that `is_kept` names, and in
// float32 and float64. `types` are those of the graph. (Where a channel of the layer overflows and s is 0, the result
// is 0 and no longer NaN.)
Symbol FoldNorms(const Graph& graph, const NodeTypes& types, const std::function<bool(const Node& variable)>& is_kept);

}  // namespace bindery
