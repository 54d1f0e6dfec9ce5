#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbol/compose.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/quantized.h"
#include "symbol/ops/shape_ops.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

bool Is(const Node& node, const OpDef& op) { return !node.is_variable() && &node.op() == &op; }
bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

// The node that gives a layer's data, seen through a Flatten, which moves nothing.
const Node& SourceOf(const Node& layer) {
  const Node& data = *layer.inputs()[0].node;
  return Is(data, FlattenOp()) ? *data.inputs()[0].node : data;
}

// What of a layer's attributes matters here.
struct LayerForm {
  ActivationType activation = ActivationType::kNone;
  int64_t products = 0;  // that are summed for an output
};

class Matcher {
 public:
  Matcher(const Graph& graph, const NodeTypes& types, const std::function<bool(const Node&)>& is_kept)
      : graph_(graph), types_(types), is_kept_(is_kept), readers_(graph.nodes.size()), read_(graph.nodes.size(), 0) {
    for (const NodePtr& node : graph.nodes) {
      for (const Entry& input : node->inputs()) Count(input, node.get());
    }
    for (const Entry& output : graph.outputs) Count(output, nullptr);
  }

  // The last node that becomes part of the layer; null if it stays as it is.
  const Node* LastOf(const Node& layer) const {
    const std::optional<LayerForm> form = FormOf(layer);
    if (!form || !IsData(SourceOf(layer)) || !IsWeight(*layer.inputs()[1].node)) return nullptr;
    const Node* last = &layer;
    if (const Node* reader = OnlyReader(*last); reader != nullptr && form->activation == ActivationType::kNone &&
                                                Is(*reader, ActivationOp()) &&
                                                reader->attrs().get<ActivationAttrs>().type == ActivationType::kRelu) {
      last = reader;
    }
    if (const Node* reader = OnlyReader(*last); reader != nullptr && Quantizes(*reader, *last)) last = reader;
    return last;
  }

 private:
  void Count(const Entry& entry, const Node* reader) {
    const auto n = static_cast<size_t>(graph_.IndexOf(entry.node));
    readers_[n] = reader;
    ++read_[n];
  }
  const Node* OnlyReader(const Node& node) const {
    const auto n = static_cast<size_t>(graph_.index.at(&node));
    return read_[n] == 1 ? readers_[n] : nullptr;
  }
  const ValueType& TypeOf(const Entry& entry) const {
    return types_[static_cast<size_t>(graph_.IndexOf(entry.node))][static_cast<size_t>(entry.output)];
  }
  bool IsOne(const Entry& scale) const { return TypeOf(scale).shape.Elements() == 1; }

  std::optional<LayerForm> FormOf(const Node& node) const {
    if (!IsIntegerLayer(node)) return std::nullopt;
    LayerForm form;
    form.activation = Is(node, ConvolutionOp()) ? node.attrs().get<ConvolutionAttrs>().activation
                                                : node.attrs().get<FullyConnectedAttrs>().activation;
    form.products = TypeOf(node.inputs()[1]).shape.CountFrom(1);
    const bool is_simple = form.activation == ActivationType::kNone || form.activation == ActivationType::kRelu;
    return is_simple && form.products <= kMostProducts ? std::optional(form) : std::nullopt;
  }

  bool IsData(const Node& node) const {
    return Is(node, DequantizeLinearOp()) && IsByte(TypeOf(node.inputs()[0]).dtype) && IsFloatScale(node) &&
           IsOne(node.inputs()[1]);
  }

  bool IsWeight(const Node& node) const {
    if (!Is(node, DequantizeLinearOp()) || !IsFloatScale(node)) return false;
    const Entry& weight = node.inputs()[0];
    if (!weight.node->is_variable() || !is_kept_(*weight.node) || TypeOf(weight).dtype != DType::kInt8) return false;
    const int64_t axis = node.attrs().get<DequantizeAttrs>().axis;
    if (!IsOne(node.inputs()[1]) && axis != 0 && axis != -TypeOf(weight).shape.rank()) return false;
    if (node.inputs().size() < 3) return true;
    const Node& zero = *node.inputs()[2].node;
    if (!Is(zero, ConstantOp())) return false;
    const HostTensor& value = *zero.attrs().get<ConstantAttrs>().value;
    for (int64_t i = 0; i < value.elements(); ++i) {
      if (value.At(i) != 0) return false;
    }
    return true;
  }

  bool IsFloatScale(const Node& node) const { return TypeOf(node.inputs()[1]).dtype == DType::kFloat32; }

  // Not one that takes `data` for its scale.
  bool Quantizes(const Node& node, const Node& data) const {
    return Is(node, QuantizeLinearOp()) && node.inputs()[0].node.get() == &data &&
           IsByte(node.attrs().get<QuantizeAttrs>().dtype) && IsFloatScale(node) && IsOne(node.inputs()[1]);
  }

  const Graph& graph_;
  const NodeTypes& types_;
  const std::function<bool(const Node&)>& is_kept_;
  std::vector<const Node*> readers_;  // per node: the last one
  std::vector<int> read_;             // per node: how often its outputs are read
};

// The zero point that a DequantizeLinear or a QuantizeLinear has.
Symbol ZeroOf(const Node& node, DType dtype) {
  return node.inputs().size() > 2 ? Symbol(node.inputs()[2]) : Constant(HostTensor(dtype, Shape()));
}

// The layer, whose inputs are those of the new graph, and what is behind it, as one node in the place of `last`.
template <class Attrs, class LayerAttrs>
NodePtr Fused(const Node& last, const OpDef& op, const Node& layer, DType data_dtype, bool relu, const Node* quantize) {
  Attrs attrs{layer.attrs().get<LayerAttrs>()};
  if (relu) attrs.activation = ActivationType::kRelu;
  const std::vector<Entry>& of = layer.inputs();
  const Node& source = SourceOf(layer);
  const std::vector<Entry>&data = source.inputs(), &weight = of[1].node->inputs();
  const OnBehalfOf surroundings(layer, "_quantized_");
  const Symbol scale = Symbol(data[1]) * Symbol(weight[1]);
  const Symbol whole = &source == of[0].node.get() ? Symbol(data[0]) : Flatten(Symbol(data[0]));
  std::vector<Entry> inputs = {whole.entry(), weight[0], scale.entry(), ZeroOf(source, data_dtype).entry()};
  if (!attrs.no_bias) inputs.push_back(of[2]);
  if (quantize != nullptr) {
    attrs.dtype = quantize->attrs().get<QuantizeAttrs>().dtype;
    inputs.push_back(quantize->inputs()[1]);
    inputs.push_back(ZeroOf(*quantize, attrs.dtype).entry());
  }
  return Remake(last, op, attrs, std::move(inputs));
}

}  // namespace

bool IsWeightedLayer(const Node& node) { return Is(node, ConvolutionOp()) || Is(node, FullyConnectedOp()); }

bool IsIntegerLayer(const Node& node) {
  if (!Is(node, ConvolutionOp())) return Is(node, FullyConnectedOp());
  const auto& attrs = node.attrs().get<ConvolutionAttrs>();
  return attrs.groups == 1 && attrs.kernel.size() <= 2;
}

bool IsDequantizeLinear(const Node& node) { return Is(node, DequantizeLinearOp()); }

Symbol FuseQuantized(const Graph& graph, const NodeTypes& types, const std::function<bool(const Node&)>& is_kept) {
  const Matcher matcher(graph, types, is_kept);
  std::unordered_map<const Node*, NodePtr> layers;  // by the last node that becomes part of it
  for (const NodePtr& node : graph.nodes) {
    if (const Node* last = node->is_variable() ? nullptr : matcher.LastOf(*node)) layers.emplace(last, node);
  }
  if (layers.empty()) return Symbol(graph.outputs);
  return Rewrite(Symbol(graph.outputs),
                 [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
                   const auto found = layers.find(node.get());
                   if (found == layers.end()) return {};
                   const Node& layer = *found->second;
                   // Down again, through nodes that have the new inputs by now.
                   const NodePtr last = WithInputs(*node, inputs);
                   const Node* at = last.get();
                   const Node* const quantize = Is(*at, QuantizeLinearOp()) ? at : nullptr;
                   if (quantize != nullptr) at = at->inputs()[0].node.get();
                   const bool relu = Is(*at, ActivationOp());
                   if (relu) at = at->inputs()[0].node.get();
                   const Entry& data = SourceOf(layer).inputs()[0];
                   const DType dtype =
                       types[static_cast<size_t>(graph.IndexOf(data.node))][static_cast<size_t>(data.output)].dtype;
                   const bool convolves = Is(layer, ConvolutionOp());
                   return OutputsOf(convolves ? Fused<QuantizedConvolutionAttrs, ConvolutionAttrs>(
                                                    *node, QuantizedConvolutionOp(), *at, dtype, relu, quantize)
                                              : Fused<QuantizedFullyConnectedAttrs, FullyConnectedAttrs>(
                                                    *node, QuantizedFullyConnectedOp(), *at, dtype, relu, quantize));
                 });
}

}  // namespace bindery
