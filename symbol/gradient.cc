#include "symbol/gradient.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/names.h"
#include "symbol/compose.h"
#include "symbol/graph.h"
#include "symbol/infer/forward_types.h"
#include "symbol/infer/value_index.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"

namespace bindery {
namespace {

struct GradientOf : OnBehalfOf {
  explicit GradientOf(const Node& node) : OnBehalfOf(node, "_backward_"), origin("gradient of " + Describe(node)) {}
  OriginScope origin;
};

class Backward {
 public:
  // `types` are of the values of `graph`; both must outlive it.
  Backward(const Graph& graph, std::span<const std::string> wrt, const ForwardTypes& types)
      : graph_(graph), types_(types), values_(graph_), flowing_(values_.size()), is_head_(graph_.nodes.size(), false) {
    FindVariables(wrt);
    MarkPaths(wrt);
  }

  // `heads`: what they are called.
  GradientResult Run(std::span<const std::string> wrt, const std::vector<std::string>& heads) {
    GradientResult result;
    for (size_t i = 0; i < heads.size(); ++i) result.head_gradients.push_back(StartAt(graph_.outputs[i], heads[i]));
    for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
      if (on_path_[n] && !graph_.nodes[n]->is_variable()) Visit(n);
    }
    std::map<std::string_view, Symbol> done;  // a name may be asked for twice
    for (const std::string& name : wrt) {
      const int n = variables_.at(name);
      const auto [it, inserted] = done.try_emplace(name);
      if (inserted) it->second = SumAt(n, 0);
      result.gradients.push_back(it->second);
    }
    DropUnused(result);
    return result;
  }

 private:
  struct Contribution {
    int consumer;  // node that sends it back; nodes.size() for a head
    Symbol gradient;
  };

  void FindVariables(std::span<const std::string> wrt) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!graph_.nodes[n]->is_variable()) continue;
      variables_.emplace(graph_.nodes[n]->name(), static_cast<int>(n));
      names_taken_.insert(graph_.nodes[n]->name());
    }
    for (const std::string& name : wrt) {
      if (variables_.contains(name)) continue;
      const std::vector<std::string> known(names_taken_.begin(), names_taken_.end());
      Throw("unknown argument \"{}\"{}", name, NameHint(name, known));
    }
  }

  // on_path_: does the node depend on the values of `wrt`?
  void MarkPaths(std::span<const std::string> wrt) {
    on_path_.assign(graph_.nodes.size(), false);
    for (const std::string& name : wrt) on_path_[variables_.at(name)] = true;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = *graph_.nodes[n];
      if (node.is_variable()) continue;
      const std::vector<bool> wanted = Wanted(static_cast<int>(n));
      on_path_[n] = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
    }
  }

  // Of which inputs is the gradient asked for?
  std::vector<bool> Wanted(int n) const {
    std::vector<bool> wanted;
    for (int value : values_.inputs(n)) wanted.push_back(on_path_[values_.producer(value)]);
    return wanted;
  }

  std::string StartAt(const Entry& head, const std::string& head_name) {
    const int n = graph_.IndexOf(head.node);
    if (!on_path_[n]) return "";
    is_head_[n] = true;
    if (IsLoss(*head.node)) return "";
    const GradientOf scope(*head.node);
    const std::string base = head_name + "_grad";
    std::string name = base;
    int& copy = copies_[base];
    while (!names_taken_.insert(name).second) name = base + std::to_string(++copy);
    flowing_[values_.Of(head)].push_back({static_cast<int>(graph_.nodes.size()), Variable(name)});
    return name;
  }

  // A head gradient may have ended at a BlockGrad or in a rule without use for it.
  static void DropUnused(GradientResult& result) {
    const std::vector<std::string> used_names = Group(result.gradients).ListInputs();
    const std::set<std::string_view> used(used_names.begin(), used_names.end());
    for (std::string& name : result.head_gradients) {
      if (!used.contains(name)) name.clear();
    }
  }

  // What flows back into an output, summed; empty if nothing does.
  Symbol SumAt(int n, int output) {
    std::vector<Contribution> parts = std::move(flowing_[values_.Of(n, output)]);
    if (parts.empty()) return {};
    if (parts.size() == 1) return parts[0].gradient;
    // They came from the last consumer to the first.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Contribution& a, const Contribution& b) { return a.consumer < b.consumer; });
    std::vector<Symbol> gradients;
    for (Contribution& part : parts) gradients.push_back(std::move(part.gradient));
    const Node& node = *graph_.nodes[n];
    const GradientOf scope(node);
    std::string name = node.name() + "_backward_sum";
    if (node.num_outputs() > 1) name += std::to_string(output);
    return Apply(AddNOp(), {}, std::move(gradients), name);
  }

  void Visit(int n) {
    const NodePtr& node = graph_.nodes[n];
    const bool is_loss = IsLoss(*node);
    bool flows = is_loss && is_head_[n];
    std::vector<Symbol> output_grads;
    for (int i = 0; i < node->num_outputs(); ++i) {
      flows = flows || !flowing_[values_.Of(n, i)].empty();
      output_grads.push_back(is_loss ? Symbol() : SumAt(n, i));
    }
    if (!flows) return;
    const OpDef& op = node->op();
    if (op.compose) {
      Throw<ModelError>(
          "{}: its gradient depends on the shapes of its inputs, and on numbers in them: give the shapes of arguments",
          Describe(*node));
    }
    if (!op.gradient) {
      Throw<ModelError>(
          "{} lies between the heads and what the gradient is asked of, but has no gradient: {}; put "
          "BlockGrad behind it to stop the gradient there",
          Describe(*node), op.not_differentiable.empty() ? "its definition gives none" : op.not_differentiable);
    }
    const std::vector<bool> wanted = Wanted(n);
    const GradientOf scope(*node);
    const std::vector<Symbol> input_grads =
        op.gradient(GradientContext(node, std::move(output_grads), wanted, &types_));
    if (input_grads.empty()) return;
    if (input_grads.size() != wanted.size()) {
      Throw<ModelError>("{}: its gradient rule gives {} symbols for {} inputs", Describe(*node), input_grads.size(),
                        wanted.size());
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i] || input_grads[i].empty()) continue;
      if (input_grads[i].size() != 1) {
        Throw<ModelError>("{}: its gradient rule gives {} outputs for input {}", Describe(*node), input_grads[i].size(),
                          i);
      }
      flowing_[values_.inputs(n)[i]].push_back({n, input_grads[i]});
    }
  }

  const Graph& graph_;
  const ForwardTypes& types_;
  const ValueIndex values_;
  std::map<std::string_view, int> variables_;
  std::set<std::string> names_taken_;               // of variables
  std::map<std::string, int> copies_;               // of a head's gradient, to try none twice
  std::vector<std::vector<Contribution>> flowing_;  // per value
  std::vector<bool> on_path_, is_head_;             // per node
};

GradientResult TakeGradient(const Symbol& heads, const std::vector<std::string>& head_names,
                            std::span<const std::string> wrt, const GivenTypes& given);

// Of what heads are made of. Arguments that only gave numbers to shapes are gone there: their gradient is zero.
GradientResult GradientOfParts(const Symbol& parts, const std::vector<std::string>& head_names,
                               std::span<const std::string> wrt, GivenTypes given) {
  const std::vector<std::string> inputs = parts.ListInputs();
  const std::set<std::string_view> left(inputs.begin(), inputs.end());
  const auto is_gone = [&](const auto& entry) { return !left.contains(entry.first); };
  std::erase_if(given.shapes, is_gone);
  std::erase_if(given.dtypes, is_gone);
  std::erase_if(given.batch_axes, is_gone);
  std::vector<std::string> wanted(wrt.begin(), wrt.end());
  std::erase_if(wanted, [&](const std::string& name) { return !left.contains(name); });
  GradientResult result = TakeGradient(parts, head_names, wanted, given);
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (!left.contains(wrt[i])) result.gradients.insert(result.gradients.begin() + i, Symbol());
  }
  return result;
}

GradientResult TakeGradient(const Symbol& heads, const std::vector<std::string>& head_names,
                            std::span<const std::string> wrt, const GivenTypes& given) {
  const Graph graph = Graph::Of(heads);
  const GivenForwardTypes types(graph, given);
  Backward backward(graph, wrt, types);
  if (HasComposed(graph)) {
    const Symbol parts = Compose(graph, types, "_parts");
    if (parts.entries() != heads.entries()) return GradientOfParts(parts, head_names, wrt, given);
  }
  return backward.Run(wrt, head_names);
}

}  // namespace

GradientResult Gradient(const Symbol& heads, std::span<const std::string> wrt, const GivenTypes& given) {
  return TakeGradient(heads, heads.ListOutputs(), wrt, given);
}

GradientResult Gradient(const Symbol& heads, std::span<const std::string> wrt, const NodeTypes& types) {
  const Graph graph = Graph::Of(heads);
  Check(types.size() == graph.nodes.size(), "types are those of the graph of the heads");
  return Backward(graph, wrt, BoundForwardTypes(graph, types)).Run(wrt, heads.ListOutputs());
}

std::vector<NextState> NextStates(const Symbol& heads, const NodeTypes& node_types) {
  const Graph graph = Graph::Of(heads);
  const BoundForwardTypes types(graph, node_types);
  std::vector<NextState> next;
  std::unordered_map<std::string_view, size_t> moved;  // states, by the names of their variables
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable() || !node->op().updates) continue;
    const OnBehalfOf scope(*node, "_update_");
    std::vector<Symbol> states;
    for (const Entry& input : node->inputs()) {
      const auto found = input.node->is_variable() ? moved.find(input.node->name()) : moved.end();
      states.push_back(found == moved.end() ? Symbol(input) : next[found->second].value);
    }
    for (StateUpdate& update : node->op().updates(UpdateContext(node, std::move(states), &types))) {
      const Node& state = *node->inputs()[update.input].node;
      if (!state.is_variable()) continue;  // computed: it is its own rule's business
      const auto [place, is_new] = moved.emplace(state.name(), next.size());
      if (is_new) next.push_back({.name = state.name(), .value = {}});
      next[place->second].value = std::move(update.value);
    }
  }
  return next;
}

Symbol ExpandComposites(const Symbol& symbol) {
  return Rewrite(symbol, [](const NodePtr& node, const std::vector<Entry>& inputs) {
    std::vector<Entry> outputs;
    if (!node->op().expand) return outputs;
    const OnBehalfOf scope(*node, "_");
    for (const Symbol& output : node->op().expand(inputs == node->inputs() ? node : WithInputs(*node, inputs))) {
      outputs.push_back(output.empty() ? Entry{} : output.entry());
    }
    return outputs;
  });
}

}  // namespace bindery
