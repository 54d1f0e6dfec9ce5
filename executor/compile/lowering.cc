#include "executor/compile/lowering.h"

#include <algorithm>
#include <unordered_map>

#include "base/names.h"
#include "executor/evaluate.h"
#include "symbol/gradient.h"
#include "symbol/op_def.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

// Operators adapt their attributes to the binding (OpDef::adapt).
Symbol Adapt(const Symbol& symbol, const CompileOptions& options) {
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    if (!node->op().adapt) return {};
    BindContext binding{.training = options.mode == Mode::kTrain, .devices = options.devices};
    for (const Entry& input : inputs) {
      binding.fixed.push_back(input.node->is_variable() && options.frozen.contains(input.node->name()));
    }
    AnyAttrs attrs = node->op().adapt(node->attrs(), binding);
    if (attrs == node->attrs()) return {};
    return OutputsOf(Remake(*node, node->op(), std::move(attrs), inputs));
  });
}

// The arguments that want gradients, latest used first: gradients are asked for in this order, so that depth-first
// order computes each layer's weight gradient as soon as the gradient of its output is there, and lets that go early.
std::vector<std::string> GradientOrder(const Graph& graph, const CompileOptions& options) {
  std::unordered_map<std::string, int> first_use;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Entry& input : graph.nodes[i]->inputs()) {
      if (input.node->is_variable()) first_use.try_emplace(input.node->name(), static_cast<int>(i));
    }
  }
  std::vector<std::pair<int, std::string>> wanted;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    const auto req = options.grad_req.find(node->name());
    if (req == options.grad_req.end() || req->second == GradReq::kNull) continue;
    const auto use = first_use.find(node->name());
    wanted.emplace_back(use == first_use.end() ? -1 : use->second, node->name());
  }
  std::stable_sort(wanted.begin(), wanted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (auto& [use, name] : wanted) names.push_back(std::move(name));
  return names;
}

Symbol RunPasses(Symbol symbol, const DTypeMap& dtypes, Mode mode) {
  symbol = GiveScalarsTypes(RemoveIdentities(symbol), dtypes);
  symbol = FoldConstants(symbol, [mode](const Node& node, const std::vector<HostTensor>& inputs) {
    return EvaluateNode(node, inputs, mode, KernelPolicy::kReference);
  });
  return EliminateCommonSubexpressions(symbol);
}

void CheckNames(const Symbol& symbol, const CompileOptions& options) {
  const std::vector<std::string> arguments = symbol.ListArguments();
  const std::set<std::string> known(arguments.begin(), arguments.end());
  const auto check = [&](const std::string& name, const char* what) {
    if (!known.contains(name))
      Throw("{} names \"{}\", which is not an argument{}", what, name, NameHint(name, arguments));
  };
  for (const auto& [name, shape] : options.shapes) check(name, "a shape");
  for (const auto& [name, dtype] : options.dtypes) check(name, "a dtype");
  for (const auto& [name, req] : options.grad_req) check(name, "a gradient request");
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
        "{}: its annotation ctx_group = \"{}\" asks for a device of its own, but every device runs the whole graph in "
        "this version: leave the annotation out",
        Describe(*node), group->second);
  }
}

}  // namespace

LoweredGraph Lower(const Symbol& symbol, const CompileOptions& options) {
  if (symbol.empty()) Throw("cannot bind a symbol without outputs");
  CheckNames(symbol, options);
  CheckHeads(symbol);
  CheckPlacement(Graph::Of(symbol));
  LoweredGraph lowered;
  lowered.num_heads = symbol.size();
  lowered.arguments = symbol.ListArguments();
  lowered.auxiliary = symbol.ListAuxiliaryStates();
  lowered.head_names = symbol.ListOutputs();

  Symbol heads = ExpandComposites(Adapt(symbol, options));
  if (options.switches.passes) heads = RemoveIdentities(heads);
  Graph forward = Graph::Of(heads);
  lowered.batch = BatchOf(forward, options.shapes, options.batch_axes);
  NodeTypes forward_types = InferTypes(forward, options.shapes, options.dtypes, options.batch_axes, lowered.batch);
  std::unordered_map<std::string, ValueType> variables;
  for (size_t i = 0; i < forward.nodes.size(); ++i) {
    if (forward.nodes[i]->is_variable()) variables.emplace(forward.nodes[i]->name(), forward_types[i][0]);
  }
  for (const std::string& name : lowered.arguments) lowered.argument_types.push_back(variables.at(name));
  for (const std::string& name : lowered.auxiliary) lowered.auxiliary_types.push_back(variables.at(name));
  for (const Entry& head : forward.outputs) {
    lowered.head_types.push_back(forward_types[forward.IndexOf(head.node)][head.output]);
  }

  ShapeMap shapes = options.shapes;
  DTypeMap dtypes = options.dtypes;
  std::map<std::string, int> batch_axes = options.batch_axes;
  for (const auto& [name, type] : variables) {
    shapes[name] = type.shape;
    dtypes[name] = type.dtype;
  }
  const auto fuse = [&](Graph* graph, NodeTypes* types) {
    if (!options.switches.fusion || !options.observe.empty()) return;
    const Symbol fused = Fuse(*graph, *types);
    if (fused.entries() == graph->outputs) return;
    *graph = Graph::Of(fused);
    *types = InferTypes(*graph, shapes, dtypes, batch_axes, lowered.batch);
  };
  // The joint graph: heads, then updates, then gradients. What the updates are made of comes before the first of them,
  // so that what devices combine for them is combined at once.
  if (options.mode == Mode::kTrain) fuse(&forward, &forward_types);
  std::vector<Entry> outputs = forward.outputs;
  if (options.mode == Mode::kTrain) {
    const std::vector<NextState> next = NextStates(Symbol(forward.outputs), forward_types);
    for (const NextState& state : next) {
      for (const Entry& input : state.value.entry().node->inputs()) outputs.push_back(input);
    }
    for (const NextState& state : next) {
      lowered.updates.push_back({state.name, static_cast<int>(outputs.size())});
      outputs.push_back(state.value.entry());
    }
  }
  const auto num_forward = static_cast<std::ptrdiff_t>(outputs.size());
  lowered.head_gradients.resize(lowered.head_types.size());
  if (options.with_backward && options.mode == Mode::kTrain) {
    const std::vector<std::string> wrt = GradientOrder(forward, options);
    GradientResult result = Gradient(Symbol(forward.outputs), wrt, forward_types);
    lowered.head_gradients = result.head_gradients;
    for (size_t i = 0; i < lowered.head_types.size(); ++i) {
      const std::string& name = lowered.head_gradients[i];
      if (name.empty()) continue;
      shapes[name] = lowered.head_types[i].shape;
      dtypes[name] = lowered.head_types[i].dtype;
      batch_axes[name] = lowered.head_types[i].batch_axis;
    }
    std::unordered_map<std::string, int> position;
    for (size_t i = 0; i < wrt.size(); ++i) {
      const Symbol& gradient = result.gradients[i];
      position[wrt[i]] = gradient.empty() ? -1 : static_cast<int>(outputs.size());
      if (!gradient.empty()) outputs.push_back(gradient.entry());
    }
    for (const std::string& name : lowered.arguments) {
      const auto found = position.find(name);
      if (found != position.end()) lowered.gradients.push_back({name, options.grad_req.at(name), found->second});
    }
  }

  Symbol joint{std::move(outputs)};
  if (options.switches.passes) joint = RunPasses(joint, dtypes, options.mode);
  lowered.graph = Graph::Of(joint);
  // Passes may have removed the last use of a variable.
  const auto keep_present = [&](auto* map) {
    std::set<std::string> present;
    for (const NodePtr& node : lowered.graph.nodes) {
      if (node->is_variable()) present.insert(node->name());
    }
    std::erase_if(*map, [&](const auto& item) { return !present.contains(item.first); });
  };
  keep_present(&shapes);
  keep_present(&dtypes);
  keep_present(&batch_axes);
  lowered.types = InferTypes(lowered.graph, shapes, dtypes, batch_axes, lowered.batch);
  fuse(&lowered.graph, &lowered.types);
  const std::vector<Entry>& all = lowered.graph.outputs;
  lowered.forward_nodes = static_cast<int>(Graph::Of(Symbol({all.begin(), all.begin() + num_forward})).nodes.size());
  return lowered;
}

}  // namespace bindery
