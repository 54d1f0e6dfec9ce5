#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "symbol/compose.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/matmul.h"
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

// The node that gives its weight, seen through a Transpose.
const Node& RealOf(const Node& layer) {
  const Node& weight = *layer.inputs()[1].node;
  return Is(weight, TransposeOp()) ? *weight.inputs()[0].node : weight;
}

// What of a layer matters here.
struct LayerForm {
  ActivationType activation = ActivationType::kNone;
  bool takes_vector = false;  // for its bias, which it lacks
  int64_t outputs = 0;
  int axis = 0;  // of the integers of its weight, along which outputs lie
};

// A layer that is fused.
struct Match {
  NodePtr layer;
  const Node* last;  // that becomes part of it
  LayerForm form;
  std::optional<size_t> bias = {};  // the input of an Add behind it that becomes its bias
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

  // No value if it stays as it is.
  std::optional<Match> Find(const NodePtr& layer) const {
    const std::optional<LayerForm> form = FormOf(*layer);
    if (!form || !IsData(SourceOf(*layer)) || !IsWeight(RealOf(*layer), form->axis)) return std::nullopt;
    Match match{.layer = layer, .last = layer.get(), .form = *form};
    if (const Node* reader = OnlyReader(*match.last); reader != nullptr && form->takes_vector) {
      match.bias = BiasIn(*reader, *layer, form->outputs);
      if (match.bias) match.last = reader;
    }
    if (const Node* reader = OnlyReader(*match.last);
        reader != nullptr && form->activation == ActivationType::kNone && Is(*reader, ActivationOp()) &&
        reader->attrs().get<ActivationAttrs>().type == ActivationType::kRelu) {
      match.last = reader;
    }
    const Node* reader = OnlyReader(*match.last);
    if (reader != nullptr && Quantizes(*reader, *match.last)) match.last = reader;
    return match;
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
    const Shape& weight = TypeOf(node.inputs()[1]).shape;
    const std::optional<int> axis = AxisOfOutputs(node, weight);
    if (!axis) return std::nullopt;
    LayerForm form{.takes_vector = Is(node, MatMulOp()), .outputs = weight[*axis], .axis = *axis};
    if (Is(node, ConvolutionOp())) form.activation = node.attrs().get<ConvolutionAttrs>().activation;
    if (Is(node, FullyConnectedOp())) {
      const auto& attrs = node.attrs().get<FullyConnectedAttrs>();
      form.activation = attrs.activation;
      form.takes_vector = attrs.no_bias && attrs.activation == ActivationType::kNone;
    }
    if (const Node& by = *node.inputs()[1].node; Is(by, TransposeOp())) {
      if (weight.rank() != 2) return std::nullopt;
      const std::vector<int64_t>& axes = by.attrs().get<TransposeAttrs>().axes;
      if (axes.empty() || weight.Axis(static_cast<int>(axes[0])) == 1) form.axis = 1 - form.axis;
    }
    const bool is_simple = form.activation == ActivationType::kNone || form.activation == ActivationType::kRelu;
    return is_simple ? std::optional(form) : std::nullopt;
  }

  // Which input of an Add, whose other one is the layer, is a vector of one element for each output.
  std::optional<size_t> BiasIn(const Node& node, const Node& layer, int64_t outputs) const {
    if (!Is(node, Add.op())) return std::nullopt;
    const size_t other = node.inputs()[0].node.get() == &layer ? 1 : 0;
    return TypeOf(node.inputs()[other]).shape == Shape{outputs} ? std::optional(other) : std::nullopt;
  }

  bool IsData(const Node& node) const {
    return Is(node, DequantizeLinearOp()) && IsByte(TypeOf(node.inputs()[0]).dtype) && IsFloatScale(node) &&
           IsOne(node.inputs()[1]);
  }

  // By one scale for each position along the axis, or by one.
  bool IsWeight(const Node& node, int of_outputs) const {
    if (!Is(node, DequantizeLinearOp()) || !IsFloatScale(node)) return false;
    const Entry& weight = node.inputs()[0];
    if (!weight.node->is_variable() || !is_kept_(*weight.node) || TypeOf(weight).dtype != DType::kInt8) return false;
    const auto axis = static_cast<int>(node.attrs().get<DequantizeAttrs>().axis);
    if (!IsOne(node.inputs()[1]) && TypeOf(weight).shape.Axis(axis) != of_outputs) return false;
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

// A layer and what is behind it, in the new graph.
struct Parts {
  const Node& layer;
  Entry weight;  // of integers, (outputs, ...)
  DType data_dtype;
  std::optional<Entry> bias;
  bool relu;
  const Node* quantize;  // or null
};

// All that as one node in the place of `last`; the attributes are the layer's.
template <class Attrs>
NodePtr Fused(const Node& last, const OpDef& op, Attrs attrs, const Parts& parts) {
  const Node& source = SourceOf(parts.layer);
  const std::vector<Entry>& data = source.inputs();
  const OnBehalfOf surroundings(parts.layer, "_quantized_");
  const Symbol scale = Symbol(data[1]) * Symbol(RealOf(parts.layer).inputs()[1]);
  const Symbol whole = &source == parts.layer.inputs()[0].node.get() ? Symbol(data[0]) : Flatten(Symbol(data[0]));
  std::vector<Entry> inputs = {whole.entry(), parts.weight, scale.entry(), ZeroOf(source, parts.data_dtype).entry()};
  attrs.no_bias = !parts.bias;
  if (parts.bias) inputs.push_back(*parts.bias);
  if (parts.relu) attrs.activation = ActivationType::kRelu;
  if (parts.quantize != nullptr) {
    attrs.dtype = parts.quantize->attrs().get<QuantizeAttrs>().dtype;
    inputs.push_back(parts.quantize->inputs()[1]);
    inputs.push_back(ZeroOf(*parts.quantize, attrs.dtype).entry());
  }
  return Remake(last, op, attrs, std::move(inputs));
}

// Of a product of matrices as of a full connection.
QuantizedFullyConnectedAttrs ConnectionOf(const Node& layer, int64_t outputs) {
  if (Is(layer, FullyConnectedOp())) return {layer.attrs().get<FullyConnectedAttrs>()};
  return {{.num_hidden = outputs, .flatten = false}};
}

}  // namespace

bool IsWeightedLayer(const Node& node) { return Is(node, ConvolutionOp()) || Is(node, FullyConnectedOp()); }

bool IsIntegerLayer(const Node& node) {
  if (Is(node, MatMulOp())) return !node.attrs().get<MatMulAttrs>().transpose_a;
  if (!Is(node, ConvolutionOp())) return Is(node, FullyConnectedOp());
  const auto& attrs = node.attrs().get<ConvolutionAttrs>();
  return attrs.groups == 1 && attrs.kernel.size() <= 2;
}

std::optional<int> AxisOfOutputs(const Node& layer, const Shape& weight) {
  const bool multiplies = Is(layer, MatMulOp());
  if (weight.Elements() == 0 || (multiplies && weight.rank() != 2)) return std::nullopt;
  const int axis = multiplies && !layer.attrs().get<MatMulAttrs>().transpose_b ? 1 : 0;
  return weight.Elements() / weight[axis] <= kMostProducts ? std::optional(axis) : std::nullopt;
}

bool IsDequantizeLinear(const Node& node) { return Is(node, DequantizeLinearOp()); }

Symbol FuseQuantized(const Graph& graph, const NodeTypes& types, const std::function<bool(const Node&)>& is_kept) {
  const Matcher matcher(graph, types, is_kept);
  std::unordered_map<const Node*, Match> matches;  // by the last node that becomes part of it
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    if (const std::optional<Match> match = matcher.Find(node)) matches.emplace(match->last, *match);
  }
  if (matches.empty()) return Symbol(graph.outputs);
  std::unordered_map<const Node*, Symbol> transposed;  // parameters, each once
  const auto type_of = [&](const Entry& entry) {
    return types[static_cast<size_t>(graph.IndexOf(entry.node))][static_cast<size_t>(entry.output)];
  };
  return Rewrite(
      Symbol(graph.outputs), [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
        const auto found = matches.find(node.get());
        if (found == matches.end()) return {};
        const Match& match = found->second;
        // Down again, through nodes that have the new inputs by now.
        const NodePtr last = WithInputs(*node, inputs);
        const Node* at = last.get();
        const Node* const quantize = Is(*at, QuantizeLinearOp()) ? at : nullptr;
        if (quantize != nullptr) at = at->inputs()[0].node.get();
        const bool relu = Is(*at, ActivationOp());
        if (relu) at = at->inputs()[0].node.get();
        std::optional<Entry> bias;
        if (match.bias) {
          bias = at->inputs()[*match.bias];
          at = at->inputs()[1 - *match.bias].node.get();
        } else if (at->inputs().size() > 2) {
          bias = at->inputs()[2];
        }
        Entry weight = RealOf(*at).inputs()[0];
        if (match.form.axis == 1) {
          Symbol& rows = transposed[weight.node.get()];
          const OnBehalfOf surroundings(*at, "_quantized_");
          if (rows.empty()) rows = Transpose(Symbol(weight));
          weight = rows.entry();
        }
        const Parts parts{*at, weight, type_of(SourceOf(*match.layer).inputs()[0]).dtype, bias, relu, quantize};
        if (!Is(*at, ConvolutionOp())) {
          return OutputsOf(Fused(*node, QuantizedFullyConnectedOp(), ConnectionOf(*at, match.form.outputs), parts));
        }
        const QuantizedConvolutionAttrs attrs{at->attrs().get<ConvolutionAttrs>()};
        return OutputsOf(Fused(*node, QuantizedConvolutionOp(), attrs, parts));
      });
}

}  // namespace bindery
