#include "symbol/passes/recompute.h"

#include <algorithm>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "symbol/op_def.h"
#include "symbol/ops/cast.h"

namespace bindery {
namespace {

// Multiplications and additions in the time of a byte, in float32: about so many of two cores with AVX-512 that have 17
// GB/s, more of GPUs. Of cores with AVX2 it is a quarter of that, but with a smaller number activations are chosen first
// whose chains then stand in the way of more: ResNet-50 does not come below 0.53 of its memory with 8, 0.47 with 24.
constexpr double kOperationsPerByte = 24;
// A chain of nodes of which nothing is kept is computed again as a whole; longer ones are left alone.
constexpr size_t kLongest = 64;
// What takes so much less room than the value that is made of it is kept rather than computed again.
constexpr int64_t kSmall = 8;

int64_t BytesOf(const ValueType& type) { return type.shape.Elements() * SizeOf(type.dtype); }

double OperationsOf(const Graph& graph, const NodeTypes& types, int n) {
  const Node& node = *graph.nodes[n];
  if (node.is_variable() || !node.op().operations) return 0;
  std::vector<Shape> inputs, outputs;
  for (const Entry& input : node.inputs()) inputs.push_back(types[graph.IndexOf(input.node)][input.output].shape);
  for (const ValueType& output : types[n]) outputs.push_back(output.shape);
  return node.op().operations(inputs, outputs);
}

bool Says(const Node& node, std::initializer_list<std::string_view> texts) {
  for (const char* key : kForceMirroring) {
    const auto found = node.annotations().find(key);
    if (found != node.annotations().end()) return std::ranges::find(texts, found->second) != texts.end();
  }
  return false;
}

bool Demands(const Node& node) { return Says(node, {"True", "true", "1"}); }

// The values of forward and who reads them, seen through views.
class Forward {
 public:
  Forward(const Graph& graph, const NodeTypes& types, int nodes)
      : graph_(graph), types_(types), is_view_(nodes, false) {
    std::vector<bool> by_products(graph.nodes.size(), false);
    for (const NodePtr& node : graph.nodes) {
      for (const Entry& input : node->inputs()) {
        if (input.output > 0) by_products[graph.IndexOf(input.node)] = true;
      }
    }
    for (int n = 0; n < nodes; ++n) {
      const Node& node = *graph.nodes[n];
      if (node.is_variable() || !node.op().is_view) continue;
      is_view_[n] = node.op().is_view({.attrs = node.attrs(),
                                       .input = TypeOf(node.inputs()[0]),
                                       .output = types[n][0],
                                       .training = true,
                                       .by_products = by_products[n]});
    }
  }

  bool Has(int node) const { return node < static_cast<int>(is_view_.size()); }
  bool IsView(int node) const { return is_view_[node]; }
  const ValueType& TypeOf(const Entry& entry) const { return types_[graph_.IndexOf(entry.node)][entry.output]; }
  // Whose memory it is.
  std::pair<int, int> RootOf(Entry entry) const {
    int n = graph_.IndexOf(entry.node);
    while (Has(n) && is_view_[n]) {
      entry = entry.node->inputs()[0];
      n = graph_.IndexOf(entry.node);
    }
    return {n, entry.output};
  }

 private:
  const Graph& graph_;
  const NodeTypes& types_;
  std::vector<bool> is_view_;
};

class Chooser {
 public:
  Chooser(const Graph& graph, const NodeTypes& types, int forward_nodes)
      : graph_(graph), types_(types), forward_(graph, types, forward_nodes), again_(forward_nodes, false),
        allowed_(forward_nodes, false), kept_(forward_nodes) {
    for (int n = 0; n < forward_nodes; ++n) {
      allowed_[n] = MayBeAgain(n);
      kept_[n].assign(types[n].size(), false);
    }
    for (const Entry& output : graph.outputs) {
      const auto [n, o] = forward_.RootOf(output);
      if (!forward_.Has(n)) continue;
      allowed_[n] = false;  // it stays
      kept_[n][o] = true;
    }
    for (size_t n = forward_nodes; n < graph.nodes.size(); ++n) KeepInputsOf(*graph.nodes[n]);
  }

  RecomputeSteps Run() {
    for (size_t n = 0; n < again_.size(); ++n) {
      if (allowed_[n] && Demands(*graph_.nodes[n]) && SparedBy(static_cast<int>(n)) > 0) {
        Take(StepFor(static_cast<int>(n)));
        ++result_.forced;
      }
    }
    std::priority_queue<std::pair<double, int>> waiting;
    for (size_t n = 0; n < again_.size(); ++n) {
      const Step step = StepFor(static_cast<int>(n));
      if (step.worth > 0) waiting.emplace(step.worth, -static_cast<int>(n));
    }
    // Other steps change what one is worth: it is looked at again when it is its turn.
    while (!waiting.empty()) {
      const auto [worth, minus_n] = waiting.top();
      waiting.pop();
      const Step step = StepFor(-minus_n);
      if (step.worth <= 0) continue;
      if (step.worth < worth) {
        waiting.emplace(step.worth, minus_n);
      } else {
        Take(step);
      }
    }
    return std::move(result_);
  }

 private:
  struct Step {
    std::vector<int> nodes = {};
    double worth = 0;  // bytes spared for one that is moved; 0: it cannot be taken
  };

  bool MayBeAgain(int n) const {
    const Node& node = *graph_.nodes[n];
    if (node.is_variable() || forward_.IsView(n) || node.op().across_devices != AcrossDevices::kNothing) return false;
    if (Says(node, {"False", "false", "0"})) return false;
    const std::optional<Entry> cast = CastFrom(node);
    if (cast && cast->node->is_variable()) return false;
    if (node.op().again) return true;
    const std::vector<std::string> names = InputNames(node);
    return std::ranges::none_of(names, [&](const std::string& name) { return IsAuxiliary(node.op(), name); });
  }

  void KeepInputsOf(const Node& node) {
    for (const Entry& input : node.inputs()) {
      const auto [n, o] = forward_.RootOf(input);
      if (forward_.Has(n) && !again_[n]) kept_[n][o] = true;
    }
  }

  int64_t SparedBy(int n) const {
    int64_t bytes = 0;
    for (size_t o = 0; o < kept_[n].size(); ++o) bytes += kept_[n][o] ? BytesOf(types_[n][o]) : 0;
    return bytes;
  }

  // With all that is neither kept nor computed again by now and that it is made of.
  Step StepFor(int first) const {
    Step step;
    if (!allowed_[first] || again_[first]) return step;
    int64_t spared = SparedBy(first);
    if (spared == 0) return step;
    step.nodes = {first};
    double cost = 0;
    std::vector<std::pair<int, int>> to_keep;
    for (size_t i = 0; i < step.nodes.size(); ++i) {
      const int n = step.nodes[i];
      cost += CostOf(graph_, types_, n);
      for (const Entry& input : graph_.nodes[n]->inputs()) {
        const auto [m, o] = forward_.RootOf(input);
        if (graph_.nodes[m]->is_variable() || kept_[m][o] || again_[m] ||
            std::ranges::find(step.nodes, m) != step.nodes.end()) {
          continue;
        }
        const int64_t bytes = BytesOf(types_[m][o]);
        if (!allowed_[m] || bytes * kSmall < spared) {
          if (std::ranges::find(to_keep, std::pair(m, o)) != to_keep.end()) continue;
          to_keep.emplace_back(m, o);
          spared -= bytes;
        } else {
          step.nodes.push_back(m);
        }
      }
      if (step.nodes.size() > kLongest) return {};
    }
    std::ranges::sort(step.nodes);
    step.worth = static_cast<double>(spared) / std::max(1.0, cost);
    return step;
  }

  void Take(const Step& step) {
    for (const int n : step.nodes) {
      again_[n] = true;
      kept_[n].assign(kept_[n].size(), false);
    }
    for (const int n : step.nodes) KeepInputsOf(*graph_.nodes[n]);
    result_.nodes.insert(result_.nodes.end(), step.nodes.begin(), step.nodes.end());
    result_.ends.push_back(static_cast<int>(result_.nodes.size()));
  }

  const Graph& graph_;
  const NodeTypes& types_;
  const Forward forward_;
  std::vector<bool> again_, allowed_;    // per node of forward
  std::vector<std::vector<bool>> kept_;  // per node and output: does backward find it in memory?
  RecomputeSteps result_;
};

}  // namespace

bool DemandsRecomputation(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const NodePtr& node) { return Demands(*node); });
}

double CostOf(const Graph& graph, const NodeTypes& types, int n) {
  double bytes = 0;
  for (const Entry& input : graph.nodes[n]->inputs()) {
    bytes += static_cast<double>(BytesOf(types[graph.IndexOf(input.node)][input.output]));
  }
  for (const ValueType& type : types[n]) bytes += static_cast<double>(BytesOf(type));
  return bytes + OperationsOf(graph, types, n) / kOperationsPerByte;
}

RecomputeSteps StepsToRecompute(const Graph& graph, const NodeTypes& types, int forward_nodes) {
  return Chooser(graph, types, forward_nodes).Run();
}

Recomputed Recompute(const Graph& graph, const NodeTypes& types, int forward_nodes, std::span<const int> nodes) {
  const Forward forward(graph, types, forward_nodes);
  std::vector<bool> again(forward_nodes, false);
  for (const int n : nodes) again[n] = true;
  std::vector<std::vector<Entry>> read(graph.nodes.size());  // per node and output: what backward reads in its place
  std::unordered_map<const Node*, int> second;               // of which node of `graph`
  const auto read_entry = [&](const Entry& entry) { return read[graph.IndexOf(entry.node)][entry.output]; };
  const auto with_inputs = [&](const Node& node, const auto& entry_of) {
    std::vector<Entry> inputs;
    for (const Entry& input : node.inputs()) inputs.push_back(entry_of(input));
    return inputs == node.inputs() ? nullptr : WithInputs(node, std::move(inputs));
  };
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const NodePtr& node = graph.nodes[n];
    read[n] = OutputsOf(node);
    if (node->is_variable()) continue;
    const bool in_forward = forward.Has(n);
    if (in_forward && !again[n]) {
      if (!forward.IsView(n)) continue;
      if (const NodePtr view = with_inputs(*node, read_entry)) {
        second[view.get()] = n;
        read[n] = OutputsOf(view);
      }
      continue;
    }
    if (!in_forward) {
      if (const NodePtr made = with_inputs(*node, read_entry)) read[n] = OutputsOf(made);
      continue;
    }
    if (!node->op().again) {
      NodePtr made = with_inputs(*node, read_entry);
      if (!made) made = WithInputs(*node, node->inputs());
      second[made.get()] = n;
      read[n] = OutputsOf(made);
      continue;
    }
    const std::vector<Symbol> outputs = node->op().again(NodeContext(node, nullptr));
    Check(outputs.size() == read[n].size(), "an operator says of each of its outputs how it is computed again");
    // What it gives reads what forward read, and outputs that forward has.
    const auto entry_of = [&](const Entry& entry) { return entry.node == node ? entry : read_entry(entry); };
    std::unordered_map<const Node*, NodePtr> made;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].empty()) continue;
      const Entry& entry = outputs[o].entry();
      NodePtr& copy = made[entry.node.get()];
      if (!copy) copy = with_inputs(*entry.node, entry_of);
      if (!copy) copy = entry.node;
      second[copy.get()] = n;
      read[n][o] = {copy, entry.output};
    }
  }
  std::vector<Entry> outputs;
  for (const Entry& output : graph.outputs) {
    outputs.push_back(graph.IndexOf(output.node) < forward_nodes ? output : read_entry(output));
  }
  Recomputed result{.graph = Graph::Of(Symbol(std::move(outputs))), .of = {}};
  for (const NodePtr& node : result.graph.nodes) {
    const auto found = second.find(node.get());
    result.of.push_back(found == second.end() ? -1 : found->second);
  }
  return result;
}

}  // namespace bindery
