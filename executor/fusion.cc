#include "executor/fusion.h"

#include <unordered_map>
#include <unordered_set>

#include "symbol/ops.h"

namespace bindery {
namespace {

// Which nodes take part in which fusion; found first, then rewritten in one walk.
struct Decisions {
  std::unordered_map<const Node*, const Node*> norm_relu;           // BatchNorm that gets relu -> its Activation
  std::unordered_map<const Node*, ActivationType> with_activation;  // Convolution, FullyConnected
  std::unordered_set<const Node*> absorbed;                         // nodes that become their first input
  std::unordered_map<const Node*, const Node*> norm_grad;           // BatchNormGrad -> its BatchNorm
  std::unordered_set<const Node*> add_relu;                         // Activation over Add -> AddRelu
  std::unordered_set<const Node*> add_relu_grad;                    // ActivationGrad over AddN -> AddReluGrad
};

class Matcher {
 public:
  Matcher(const Graph& graph, const NodeTypes& types) : graph_(graph), types_(types) {
    readers_.resize(graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) readers_[i].resize(types[i].size(), 0);
    for (const NodePtr& node : graph.nodes) {
      for (const Entry& input : node->inputs()) ++readers_[graph.IndexOf(input.node)][input.output];
    }
    for (const Entry& output : graph.outputs) ++readers_[graph.IndexOf(output.node)][output.output];
  }

  Decisions Match() {
    for (const NodePtr& node : graph_.nodes) {
      if (!node->is_variable() && &node->op() == &ActivationOp()) MatchActivation(*node);
    }
    for (const NodePtr& node : graph_.nodes) {
      if (!node->is_variable() && &node->op() == &BatchNormGradOp()) MatchNormGrad(*node);
    }
    for (const NodePtr& node : graph_.nodes) {
      if (!node->is_variable() && &node->op() == &ActivationGradOp()) MatchAddReluGrad(*node);
    }
    return std::move(found_);
  }

 private:
  bool OnlyReader(const Entry& entry) const { return readers_[graph_.IndexOf(entry.node)][entry.output] == 1; }
  const ValueType& TypeOf(const Entry& entry) const { return types_[graph_.IndexOf(entry.node)][entry.output]; }

  void MatchActivation(const Node& activation) {
    const Entry& input = activation.inputs()[0];
    const ActivationType type = activation.attrs().get<ActivationAttrs>().type;
    if (input.node->is_variable() || input.output != 0 || !OnlyReader(input)) return;
    const OpDef* op = &input.node->op();
    if (op == &BatchNormOp() && type == ActivationType::kRelu) {
      const auto& attrs = input.node->attrs().get<BatchNormAttrs>();
      if (attrs.relu || attrs.sync) return;
      found_.norm_relu.emplace(input.node.get(), &activation);
      found_.absorbed.insert(&activation);
    } else if (op == &ConvolutionOp() || op == &FullyConnectedOp()) {
      const ActivationType present = op == &ConvolutionOp() ? input.node->attrs().get<ConvolutionAttrs>().activation
                                                            : input.node->attrs().get<FullyConnectedAttrs>().activation;
      if (present != ActivationType::kNone) return;
      found_.with_activation.emplace(input.node.get(), type);
      found_.absorbed.insert(&activation);
    } else if (op == &AddOp() && type == ActivationType::kRelu) {
      const Entry& a = input.node->inputs()[0];
      const Entry& b = input.node->inputs()[1];
      if (TypeOf(a).shape == TypeOf(b).shape) found_.add_relu.insert(&activation);
    }
  }

  // BatchNormGrad(ActivationGrad(dz, z), ..., mean, ...) where z is the relu of that BatchNorm. The relu was the only
  // reader of the normalisation's output, so nothing else can flow into its gradient.
  void MatchNormGrad(const Node& grad) {
    const Entry& mean = grad.inputs()[2];
    const Node* norm = mean.node.get();
    if (!found_.norm_relu.contains(norm)) return;
    const Entry& dy = grad.inputs()[0];
    if (dy.node->is_variable() || &dy.node->op() != &ActivationGradOp() || !OnlyReader(dy)) {
      Unfuse(norm);
      return;
    }
    found_.norm_grad.emplace(&grad, norm);
    found_.absorbed.insert(dy.node.get());
  }

  void Unfuse(const Node* norm) {
    const auto fused = found_.norm_relu.find(norm);
    found_.absorbed.erase(fused->second);
    found_.norm_relu.erase(fused);
  }

  void MatchAddReluGrad(const Node& grad) {
    if (grad.attrs().get<ActivationAttrs>().type != ActivationType::kRelu || found_.absorbed.contains(&grad)) return;
    const Entry& sum = grad.inputs()[0];
    if (sum.node->is_variable() || &sum.node->op() != &AddNOp() || sum.node->inputs().size() != 2 || !OnlyReader(sum))
      return;
    found_.add_relu_grad.insert(&grad);
  }

  const Graph& graph_;
  const NodeTypes& types_;
  std::vector<std::vector<int>> readers_;
  Decisions found_;
};

std::vector<Entry> OutputsOf(const NodePtr& node) {
  std::vector<Entry> outputs;
  for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back({node, i});
  return outputs;
}

NodePtr Make(const OpDef& op, AnyAttrs attrs, const Node& like, std::vector<Entry> inputs) {
  auto node = std::make_shared<Node>(&op, std::move(attrs), like.name(), std::move(inputs), like.annotations());
  node->origin = like.origin;
  return node;
}

}  // namespace

Symbol Fuse(const Graph& graph, const NodeTypes& types) {
  const Decisions found = Matcher(graph, types).Match();
  std::unordered_map<const Node*, Entry> norm_state;  // of fused BatchNorm nodes, by the old node
  return Rewrite(
      Symbol(graph.outputs), [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
        if (found.absorbed.contains(node.get())) return {inputs[0]};
        if (found.norm_relu.contains(node.get())) {
          BatchNormAttrs attrs = node->attrs().get<BatchNormAttrs>();
          attrs.relu = true;
          std::vector<Entry> outputs = OutputsOf(Make(node->op(), attrs, *node, inputs));
          norm_state[node.get()] = outputs.back();
          outputs.pop_back();
          return outputs;
        }
        if (const auto grad = found.norm_grad.find(node.get()); grad != found.norm_grad.end()) {
          BatchNormAttrs attrs = node->attrs().get<BatchNormAttrs>();
          attrs.relu = true;
          std::vector<Entry> with_state = inputs;
          with_state.push_back(norm_state.at(grad->second));
          return OutputsOf(Make(node->op(), attrs, *node, std::move(with_state)));
        }
        if (const auto fused = found.with_activation.find(node.get()); fused != found.with_activation.end()) {
          if (&node->op() == &ConvolutionOp()) {
            ConvolutionAttrs attrs = node->attrs().get<ConvolutionAttrs>();
            attrs.activation = fused->second;
            return OutputsOf(Make(node->op(), attrs, *node, inputs));
          }
          FullyConnectedAttrs attrs = node->attrs().get<FullyConnectedAttrs>();
          attrs.activation = fused->second;
          return OutputsOf(Make(node->op(), attrs, *node, inputs));
        }
        if (found.add_relu.contains(node.get())) {
          return OutputsOf(Make(AddReluOp(), NoAttrs{}, *node, inputs[0].node->inputs()));
        }
        if (found.add_relu_grad.contains(node.get())) {
          std::vector<Entry> operands = inputs[0].node->inputs();
          operands.push_back(inputs[1]);
          return OutputsOf(Make(AddReluGradOp(), NoAttrs{}, *node, std::move(operands)));
        }
        return {};
      });
}

}  // namespace bindery
