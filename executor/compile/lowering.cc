#include "executor/compile/lowering.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "executor/evaluate.h"
#include "executor/kernel.h"
#include "symbol/compose.h"
#include "symbol/gradient.h"
#include "symbol/op_def.h"
#include "symbol/ops/fold_norms.h"
#include "symbol/ops/fusions.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/quantized.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

// Operators adapt their attributes to the binding (OpDef::adapt).
Symbol Adapt(const Symbol& symbol, const CompileOptions& options) {
  std::unordered_set<std::string_view> fixed;
  for (const Argument& a : options.signature.arguments) {
    if (a.is_fixed) fixed.insert(a.name);
  }
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    if (!node->op().adapt) return {};
    BindContext binding{.training = options.mode == Mode::kTrain, .devices = options.devices};
    for (const Entry& input : inputs) {
      binding.fixed.push_back(input.node->is_variable() && fixed.contains(input.node->name()));
    }
    AnyAttrs attrs = node->op().adapt(node->attrs(), binding);
    if (attrs == node->attrs()) return {};
    return OutputsOf(Remake(*node, node->op(), std::move(attrs), inputs));
  });
}

// By-products of an operator are for its gradient; some have a form that only kernels understand.
void CheckHeads(const Symbol& symbol) {
  for (const Entry& head : symbol.entries()) {
    if (head.node->is_variable() || head.output < NumVisibleOutputs(head.node->op(), head.node->attrs())) continue;
    Throw<ModelError>("{}: its output \"{}\" is hidden and cannot be a head", Describe(*head.node),
                      head.node->OutputName(head.output));
  }
}

// Not silently on one device.
void CheckPlacement(const Graph& graph) {
  for (const NodePtr& node : graph.nodes) {
    const auto group = node->annotations().find("ctx_group");
    if (group == node->annotations().end()) continue;
    Throw<ModelError>(
        "{}: its annotation ctx_group = \"{}\" asks for a device of its own, which a whole graph on one device has "
        "not: "
        "name one in GroupOptions::placements (MakeGroup), or bind WithoutPlacements(symbol)",
        Describe(*node), group->second);
  }
}

class Lowering {
 public:
  Lowering(const Symbol& symbol, const CompileOptions& options)
      : symbol_(symbol), options_(options), has_backward_(options.with_backward && options.mode == Mode::kTrain) {}

  LoweredGraph Run() {
    if (symbol_.empty()) Throw("cannot bind a symbol without outputs");
    CheckHeads(symbol_);
    CheckPlacement(Graph::Of(symbol_));
    DescribeInterface();

    Symbol heads = ExpandComposites(Adapt(symbol_, options_));
    if (options_.switches.passes) heads = RemoveIdentities(heads);
    Graph forward = Graph::Of(heads);
    NodeNumbers numbers;
    NodeTypes types = InferForward(forward, &numbers);
    ComposeAll(&forward, &types, &numbers, lowered_.batch, options_.devices,
               [this](const Graph& graph, NodeNumbers* found) { return Infer(graph, found); });
    // The joint graph: heads, then updates, then gradients. What the updates are made of comes before the first of
    // them, so that what devices combine for them is combined at once.
    if (options_.mode == Mode::kTrain) {
      Fuse(&forward, &types);
    } else {
      FoldNorms(&forward, &types);
    }
    outputs_ = forward.outputs;
    if (options_.mode == Mode::kTrain) AppendUpdates(forward, types);
    const auto num_forward = static_cast<std::ptrdiff_t>(outputs_.size());
    plan_.head_gradients.assign(plan_.outputs.size(), -1);
    if (has_backward_) AppendGradients(forward, types);

    Symbol joint = WithoutComposed(Symbol(std::move(outputs_)));
    if (options_.switches.passes) joint = RunPasses(joint);
    lowered_.graph = Graph::Of(joint);
    lowered_.types = Infer(lowered_.graph);
    if (options_.mode == Mode::kPredict && HasKernel(QuantizedConvolutionOp().name, options_.device)) {
      FuseQuantized(&lowered_.graph, &lowered_.types);
    }
    if (options_.mode == Mode::kPredict && HasKernel(ConvolutionAddOp().name, options_.device)) {
      Fuse(&lowered_.graph, &lowered_.types, PredictionFusions());
    }
    Fuse(&lowered_.graph, &lowered_.types);
    for (const NodePtr& node : lowered_.graph.nodes) {
      lowered_.variables.push_back(node->is_variable() ? VariableOf(*node) : Variable());
    }
    const std::vector<Entry>& all = lowered_.graph.outputs;
    lowered_.forward_nodes = static_cast<int>(PostOrder(std::span(all).first(static_cast<size_t>(num_forward))).size());
    return std::move(lowered_);
  }

 private:
  using Variable = LoweredGraph::Variable;

  void DescribeInterface() {
    const Signature& signature = options_.signature;
    for (const Argument& a : signature.arguments) {
      variables_[a.name] = {Place::kArgument, static_cast<int>(plan_.arguments.size())};
      plan_.arguments.push_back(
          {.name = a.name, .role = a.role, .place = a.place, .format = a.format.value_or(Format())});
    }
    for (const std::string& name : signature.auxiliary) {
      variables_[name] = {Place::kAuxiliary, static_cast<int>(plan_.auxiliary.size())};
      plan_.auxiliary.push_back({.name = name});
    }
    for (const std::string& name : signature.heads) plan_.outputs.push_back({.name = name});
  }

  Variable VariableOf(const Node& node) const {
    const auto found = variables_.find(node.name());
    if (found == variables_.end()) Throw("{} is not in the signature that the symbol is compiled for", Describe(node));
    return found->second;
  }
  ValueType& TypeOf(const Variable& variable) {
    return variable.place == Place::kArgument ? plan_.arguments[variable.slot].type
                                              : plan_.auxiliary[variable.slot].type;
  }

  // From what is given to the types of all variables.
  NodeTypes InferForward(const Graph& forward, NodeNumbers* numbers) {
    const GivenTypes given = options_.signature.Given();
    lowered_.batch = BatchOf(forward, given.shapes, given.batch_axes);
    NodeTypes types = InferTypes(forward, given.shapes, given.dtypes, given.batch_axes, lowered_.batch, numbers);
    size_t found = 0;
    for (size_t n = 0; n < forward.nodes.size(); ++n) {
      if (!forward.nodes[n]->is_variable()) continue;
      TypeOf(VariableOf(*forward.nodes[n])) = types[n][0];
      ++found;
    }
    if (found != variables_.size() || forward.outputs.size() != plan_.outputs.size()) {
      Throw("the signature has {} variables and {} heads, the symbol that is compiled for it {} and {}",
            variables_.size(), plan_.outputs.size(), found, forward.outputs.size());
    }
    return types;
  }

  NodeTypes Infer(const Graph& graph, NodeNumbers* numbers = nullptr) {
    GivenTypes given;
    for (const NodePtr& node : graph.nodes) {
      if (!node->is_variable()) continue;
      const ValueType& type = TypeOf(VariableOf(*node));
      given.shapes[node->name()] = type.shape;
      given.dtypes[node->name()] = type.dtype;
      given.batch_axes[node->name()] = type.batch_axis;
    }
    return InferTypes(graph, given.shapes, given.dtypes, given.batch_axes, lowered_.batch, numbers);
  }

  // What forward is made of is known by now, but rules of gradients and updates may use such operators, too.
  Symbol WithoutComposed(Symbol joint) {
    Graph graph = Graph::Of(joint);
    if (!HasComposed(graph)) return joint;
    NodeNumbers numbers;
    NodeTypes types = Infer(graph, &numbers);
    ComposeAll(&graph, &types, &numbers, lowered_.batch, options_.devices,
               [this](const Graph& parts, NodeNumbers* found) { return Infer(parts, found); });
    return Symbol(graph.outputs);
  }

  void Fuse(Graph* graph, NodeTypes* types, std::span<const Fusion> rows = Fusions()) {
    if (options_.switches.fusion && options_.observe.empty()) Become(bindery::Fuse(*graph, *types, rows), graph, types);
  }

  void FoldNorms(Graph* graph, NodeTypes* types) {
    if (!options_.switches.fold || !options_.switches.derive || !options_.observe.empty()) return;
    Become(bindery::FoldNorms(*graph, *types, [this](const Node& variable) { return IsKept(variable); }), graph, types);
  }

  void FuseQuantized(Graph* graph, NodeTypes* types) {
    if (!options_.switches.fusion || !options_.observe.empty()) return;
    Become(bindery::FuseQuantized(*graph, *types, [this](const Node& variable) { return IsKept(variable); }), graph,
           types);
  }

  bool IsKept(const Node& variable) const {
    const auto [place, slot] = VariableOf(variable);
    return place == Place::kArgument && options_.signature.arguments[slot].is_kept;
  }

  void Become(const Symbol& changed, Graph* graph, NodeTypes* types) {
    if (changed.entries() == graph->outputs) return;
    *graph = Graph::Of(changed);
    *types = Infer(*graph);
  }

  Symbol RunPasses(Symbol symbol) {
    symbol = RemoveIdentities(symbol);
    DTypeMap dtypes;  // not of variables that nothing reads any more
    for (const NodePtr& node : Graph::Of(symbol).nodes) {
      if (node->is_variable()) dtypes[node->name()] = TypeOf(VariableOf(*node)).dtype;
    }
    symbol = GiveScalarsTypes(symbol, dtypes);
    symbol = FoldConstants(symbol, [this](const Node& node, const std::vector<HostTensor>& inputs) {
      // The reference computes in double, which has not all integers.
      const bool in_double = std::ranges::all_of(inputs, [](const HostTensor& x) { return IsFloat(x.dtype()); });
      return EvaluateNode(node, inputs, options_.mode, in_double ? KernelPolicy::kReference : KernelPolicy::kFast);
    });
    return EliminateCommonSubexpressions(symbol);
  }

  int Append(const Entry& output) {
    outputs_.push_back(output);
    return static_cast<int>(outputs_.size()) - 1;
  }

  void AppendUpdates(const Graph& forward, const NodeTypes& types) {
    const std::vector<NextState> next = NextStates(Symbol(forward.outputs), types);
    for (const NextState& state : next) {
      for (const Entry& input : state.value.entry().node->inputs()) Append(input);
    }
    for (const NextState& state : next) {
      plan_.updates.push_back(variables_.at(state.name).slot);
      lowered_.updates.push_back(Append(state.value.entry()));
    }
  }

  // The arguments that want gradients, latest used first: gradients are asked for in this order, so that depth-first
  // order computes each layer's weight gradient as soon as the gradient of its output is there, and lets that go early.
  std::vector<int> GradientOrder(const Graph& graph) const {
    std::unordered_map<const Node*, int> first_use;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const Entry& input : graph.nodes[i]->inputs()) {
        if (input.node->is_variable()) first_use.try_emplace(input.node.get(), static_cast<int>(i));
      }
    }
    std::vector<std::pair<int, int>> wanted;  // (first use, argument)
    for (const NodePtr& node : graph.nodes) {
      if (!node->is_variable()) continue;
      const auto [place, slot] = VariableOf(*node);
      if (place != Place::kArgument || options_.signature.arguments[slot].request == GradReq::kNull) continue;
      const auto use = first_use.find(node.get());
      wanted.emplace_back(use == first_use.end() ? -1 : use->second, slot);
    }
    std::ranges::stable_sort(wanted, std::greater(), &std::pair<int, int>::first);
    std::vector<int> order;
    for (const auto& [use, argument] : wanted) order.push_back(argument);
    return order;
  }

  void AppendGradients(const Graph& forward, const NodeTypes& types) {
    const std::vector<int> order = GradientOrder(forward);
    std::vector<std::string> names;
    for (const int argument : order) names.push_back(plan_.arguments[argument].name);
    const GradientResult result = Gradient(Symbol(forward.outputs), names, types);
    for (size_t i = 0; i < result.head_gradients.size(); ++i) {
      if (result.head_gradients[i].empty()) continue;
      const Entry& head = forward.outputs[i];
      plan_.head_gradients[i] = static_cast<int>(plan_.arguments.size());
      variables_[result.head_gradients[i]] = {Place::kArgument, plan_.head_gradients[i]};
      plan_.arguments.push_back({.name = result.head_gradients[i],
                                 .role = Role::kHeadGradient,
                                 .type = types[forward.IndexOf(head.node)][head.output]});
    }
    struct Part {
      GradientPart part;
      int output;
    };
    std::vector<std::vector<Part>> parts(plan_.arguments.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const Symbol& gradient = result.gradients[i];
      std::vector<Part>& own = parts[order[i]];
      const Argument& given = options_.signature.arguments[order[i]];
      const bool by_rows = !gradient.empty() && given.by_rows && (!given.format || given.format->is_plain());
      const std::optional<RowsOfGradient> rows = by_rows ? AsRows(gradient) : std::nullopt;
      if (rows && rows->table == plan_.arguments[order[i]].type.shape) {
        own.push_back({GradientPart::kRowNumbers, Append(rows->numbers.entry())});
        own.push_back({GradientPart::kRows, Append(rows->rows.entry())});
      } else {
        own.push_back({GradientPart::kWhole, gradient.empty() ? -1 : Append(gradient.entry())});
      }
    }
    for (size_t a = 0; a < parts.size(); ++a) {
      for (const auto& [part, output] : parts[a]) {
        plan_.gradients.push_back({.argument = static_cast<int>(a),
                                   .req = options_.signature.arguments[a].request,
                                   .is_zero = output < 0,
                                   .part = part});
        lowered_.gradients.push_back(output);
      }
    }
  }

  const Symbol& symbol_;
  const CompileOptions& options_;
  const bool has_backward_;
  LoweredGraph lowered_;
  Plan& plan_ = lowered_.plan;
  std::unordered_map<std::string, Variable> variables_;  // by name
  std::vector<Entry> outputs_;                           // of the joint graph
};

}  // namespace

LoweredGraph Lower(const Symbol& symbol, const CompileOptions& options) { return Lowering(symbol, options).Run(); }

}  // namespace bindery
