#include "symbol/ops/fold_norms.h"

#include <algorithm>
#include <vector>

#include "symbol/compose.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/shape_ops.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

// The layer with another weight and a bias, and with what is applied to the norm's result.
NodePtr WithBias(const Node& layer, const Entry& data, const Symbol& weight, const Symbol& bias, bool relu) {
  const auto remade = [&](auto attrs) {
    attrs.no_bias = false;
    attrs.activation = relu ? ActivationType::kRelu : ActivationType::kNone;
    return Remake(layer, layer.op(), attrs, {data, weight.entry(), bias.entry()});
  };
  if (&layer.op() == &ConvolutionOp()) return remade(layer.attrs().get<ConvolutionAttrs>());
  return remade(layer.attrs().get<FullyConnectedAttrs>());
}

// Convolution or FullyConnected, which nothing is applied to; then the axis of its output that has an element of the
// bias each.
std::optional<int> ChannelAxis(const Node& node, const Shape& output) {
  if (node.is_variable()) return std::nullopt;
  const auto of = [](const auto& attrs, int axis) {
    return attrs.activation == ActivationType::kNone ? std::optional(axis) : std::nullopt;
  };
  if (&node.op() == &ConvolutionOp()) return of(node.attrs().get<ConvolutionAttrs>(), 1);
  if (&node.op() == &FullyConnectedOp()) return of(node.attrs().get<FullyConnectedAttrs>(), output.rank() - 1);
  return std::nullopt;
}

}  // namespace

Symbol FoldNorms(const Graph& graph, const NodeTypes& types, const std::function<bool(const Node&)>& is_kept) {
  std::vector<std::vector<int>> readers(graph.nodes.size());  // of each output
  for (size_t n = 0; n < graph.nodes.size(); ++n) readers[n].resize(types[n].size(), 0);
  const auto count = [&](const Entry& entry) { ++readers[graph.IndexOf(entry.node)][entry.output]; };
  for (const NodePtr& node : graph.nodes) std::ranges::for_each(node->inputs(), count);
  std::ranges::for_each(graph.outputs, count);

  const auto type_of = [&](const Entry& entry) -> const ValueType& {
    return types[graph.IndexOf(entry.node)][entry.output];
  };
  const auto may_fold = [&](const NodePtr& norm) {
    const auto& attrs = norm->attrs().get<BatchNormAttrs>();
    const auto& [layer, output] = norm->inputs()[0];
    const ValueType& value = type_of(norm->inputs()[0]);
    const std::optional<int> axis = ChannelAxis(*layer, value.shape);
    if (!axis || value.shape.Axis(attrs.axis) != *axis || readers[graph.IndexOf(layer)][output] != 1) return false;
    const std::vector<int>& own = readers[graph.IndexOf(norm)];
    if (std::any_of(own.begin() + 1, own.end(), [](int n) { return n > 0; })) return false;
    // Products of 16 bits would round the weight once more.
    if (value.dtype != DType::kFloat32 && value.dtype != DType::kFloat64) return false;
    const auto kept = [&](const Entry& entry) { return entry.node->is_variable() && is_kept(*entry.node); };
    return std::all_of(layer->inputs().begin() + 1, layer->inputs().end(), kept) && kept(norm->inputs()[1]) &&
           kept(norm->inputs()[2]);
  };
  return Rewrite(
      Symbol(graph.outputs), [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
        if (node->is_variable() || &node->op() != &BatchNormOp() || !may_fold(node)) return {};
        const auto& attrs = node->attrs().get<BatchNormAttrs>();
        const Node& layer = *inputs[0].node;
        const std::vector<Entry>& of = layer.inputs();
        const Symbol gamma(inputs[1]), beta(inputs[2]), mean(inputs[3]), var(inputs[4]), weight(of[1]);
        const OnBehalfOf surroundings(*node, "_folded_");
        const Symbol deviation = Sqrt(var + attrs.eps);
        const Symbol scale = attrs.fix_gamma ? Reciprocal(deviation) : gamma / deviation;
        std::vector<int64_t> per_output(static_cast<size_t>(type_of(node->inputs()[0].node->inputs()[1]).shape.rank()),
                                        1);
        per_output[0] = -1;
        const Symbol shift = of.size() > 2 ? Symbol(of[2]) - mean : -mean;
        std::vector<Entry> outputs = OutputsOf(
            WithBias(layer, of[0], weight * Reshape(scale, {.shape = per_output}), beta + shift * scale, attrs.relu));
        outputs.resize(static_cast<size_t>(node->num_outputs()));
        return outputs;
      });
}

}  // namespace bindery
