#include "executor/lowering.h"

#include <algorithm>
#include <unordered_map>

#include "base/names.h"
#include "executor/evaluate.h"
#include "executor/fusion.h"
#include "symbol/gradient.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

// Normalisation layers whose own parameters are all fixed keep and use their running statistics; `sync` means nothing
// on one device and in prediction.
Symbol SpecialiseBatchNorm(const Symbol& symbol, const CompileOptions& options) {
  const bool keep_sync = options.devices > 1 && options.mode == Mode::kTrain;
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    if (&node->op() != &BatchNormOp()) return {};
    BatchNormAttrs attrs = node->attrs().get<BatchNormAttrs>();
    const auto frozen = [&](int input) {
      return inputs[input].node->is_variable() && options.frozen.contains(inputs[input].node->name());
    };
    if (frozen(2) && (attrs.fix_gamma || frozen(1))) attrs.use_global_stats = true;
    if (!keep_sync || attrs.use_global_stats) attrs.sync = false;
    if (attrs == node->attrs().get<BatchNormAttrs>()) return {};
    auto copy = std::make_shared<Node>(&node->op(), attrs, node->name(), inputs, node->annotations());
    copy->origin = node->origin;
    std::vector<Entry> outputs;
    for (int i = 0; i < copy->num_outputs(); ++i) outputs.push_back({copy, i});
    return outputs;
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

Symbol RunPasses(Symbol symbol, Mode mode) {
  symbol = RemoveIdentities(symbol);
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

  const Symbol heads = ExpandComposites(SpecialiseBatchNorm(symbol, options));
  const Graph forward = Graph::Of(heads);
  lowered.batch = BatchOf(forward, options.shapes, options.batch_axes);
  const NodeTypes forward_types =
      InferTypes(forward, options.shapes, options.dtypes, options.batch_axes, lowered.batch);
  std::unordered_map<std::string, ValueType> variables;
  for (size_t i = 0; i < forward.nodes.size(); ++i) {
    if (forward.nodes[i]->is_variable()) variables.emplace(forward.nodes[i]->name(), forward_types[i][0]);
  }
  for (const std::string& name : lowered.arguments) lowered.argument_types.push_back(variables.at(name));
  for (const std::string& name : lowered.auxiliary) lowered.auxiliary_types.push_back(variables.at(name));
  for (const Entry& head : forward.outputs) {
    lowered.head_types.push_back(forward_types[forward.IndexOf(head.node)][head.output]);
  }

  // The joint graph: heads, then updates, then gradients. What the updates are made of comes before the first of them,
  // so that what devices combine for them is combined at once.
  std::vector<Entry> outputs = heads.entries();
  if (options.mode == Mode::kTrain) {
    const std::vector<NextState> next = NextStates(heads, forward_types);
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
  ShapeMap shapes = options.shapes;
  DTypeMap dtypes = options.dtypes;
  std::map<std::string, int> batch_axes = options.batch_axes;
  for (const auto& [name, type] : variables) {
    shapes[name] = type.shape;
    dtypes[name] = type.dtype;
  }
  if (options.with_backward && options.mode == Mode::kTrain) {
    const std::vector<std::string> wrt = GradientOrder(forward, options);
    GradientResult result = Gradient(heads, wrt, forward_types);
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
  if (options.passes) joint = RunPasses(joint, options.mode);
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
  if (options.fusion && options.observe.empty()) {
    joint = Fuse(lowered.graph, lowered.types);
    lowered.graph = Graph::Of(joint);
    lowered.types = InferTypes(lowered.graph, shapes, dtypes, batch_axes, lowered.batch);
  }
  const std::vector<Entry>& all = lowered.graph.outputs;
  lowered.forward_nodes = static_cast<int>(Graph::Of(Symbol({all.begin(), all.begin() + num_forward})).nodes.size());
  return lowered;
}

}  // namespace bindery
