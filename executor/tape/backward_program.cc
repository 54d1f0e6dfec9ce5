#include "executor/tape/backward_program.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery::tape {

// --- the graph ---

RecordedGraph::RecordedGraph(const std::vector<NDArray>& arrays) {
  std::unordered_map<const TapeNode*, int> places;
  const auto visit = [&](const std::shared_ptr<TapeNode>& root) {  // depth first, iterative
    std::vector<std::pair<std::shared_ptr<TapeNode>, size_t>> path = {{root, 0}};
    while (!path.empty()) {
      const auto [node, next] = path.back();
      if (next == 0 && places.contains(node.get())) {
        path.pop_back();
        continue;
      }
      if (next == 0 && node->is_used_up) {
        Throw("Backward: the values of {} were given back by an earlier Backward; tell that one to retain them",
              node->unit->name);
      }
      if (next < node->inputs.size()) {
        ++path.back().second;
        const std::shared_ptr<TapeNode>& before = node->inputs[next].node;
        if (before && !places.contains(before.get())) path.emplace_back(before, 0);
        continue;
      }
      path.pop_back();
      if (places.emplace(node.get(), static_cast<int>(nodes.size())).second) nodes.push_back(node);
    }
  };
  for (const NDArray& array : arrays) visit(array.state()->node);
  for (const NDArray& array : arrays) heads.emplace_back(places.at(array.state()->node.get()), array.state()->output);
  mode = nodes.front()->unit->mode;
  for (const std::shared_ptr<TapeNode>& node : nodes) {
    if (node->unit->mode != mode) {
      Throw("Backward: {} was recorded in {} mode, {} in another", node->unit->name,
            node->unit->mode == Mode::kTrain ? "training" : "prediction", nodes.front()->unit->name);
    }
    for (const TapeNode::Input& input : node->inputs) {
      if (!input.slot || input.node || SourceOf(input) >= 0) continue;
      const bool is_first = std::ranges::find(sources, input.slot, &Source::slot) == sources.end();
      sources.push_back({input.slot, input.value.version, is_first});
    }
  }
}

int RecordedGraph::SourceOf(const TapeNode::Input& input) const {
  const auto found = std::ranges::find_if(sources, [&](const Source& source) {
    return source.slot == input.slot && source.version == input.value.version;
  });
  return input.slot && found != sources.end() ? static_cast<int>(found - sources.begin()) : -1;
}

std::string RecordedGraph::Key(DeviceKind device, int threads) const {
  std::string key = fmt::format("{} {}", static_cast<int>(device), threads);
  std::unordered_map<const TapeNode*, size_t> places;
  for (const std::shared_ptr<TapeNode>& node : nodes) {
    places.emplace(node.get(), places.size());
    key += fmt::format(" {}(", node->unit->id);
    for (const TapeNode::Input& input : node->inputs) {
      if (input.node) {
        key += fmt::format("n{}.{} ", places.at(input.node.get()), input.output);
      } else {
        key += fmt::format("s{} ", SourceOf(input));
      }
    }
    key += ')';
  }
  for (const auto& [node, output] : heads) key += fmt::format(" h{}.{}", node, output);
  return key;
}

// --- its program ---

namespace {

class Maker {
 public:
  explicit Maker(const RecordedGraph& graph) : graph_(graph) {}

  std::shared_ptr<const BackwardProgram> Run(DeviceKind device, int threads) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) AppendCall(static_cast<int>(n));
    std::vector<Entry> heads;
    for (const auto& [node, output] : graph_.heads) heads.push_back(outputs_[node][output]);
    std::vector<std::string> wanted;
    for (size_t s = 0; s < graph_.sources.size(); ++s) wanted.push_back(SourceName(static_cast<int>(s)));
    const Symbol forward(heads);
    GivenTypes given;
    for (const std::string& name : forward.ListArguments()) {
      given.shapes[name] = types_.shapes.at(name);
      given.dtypes[name] = types_.dtypes.at(name);
      given.batch_axes[name] = -1;
    }
    const std::vector<std::string> known = forward.ListArguments();
    std::vector<std::string> reached;  // a source may be read where the heads do not come from
    std::ranges::copy_if(wanted, std::back_inserter(reached),
                         [&](const std::string& name) { return std::ranges::find(known, name) != known.end(); });
    const GradientResult result = Gradient(forward, reached, given);
    for (size_t h = 0; h < result.head_gradients.size(); ++h) {
      const std::string& name = result.head_gradients[h];
      if (name.empty()) continue;
      const TapeNode& node = *graph_.nodes[graph_.heads[h].first];
      const Tensor& head = node.results[graph_.heads[h].second].tensor;
      Describe(name, head, {BackwardSource::Kind::kHeadGradient, -1, static_cast<int>(h)});
    }
    auto made = std::make_shared<BackwardProgram>();
    std::vector<Entry> gradients;
    for (const std::string& name : wanted) {
      const auto place = std::ranges::find(reached, name);
      const bool is_zero = place == reached.end() || result.gradients[place - reached.begin()].empty();
      made->results.push_back(is_zero ? -1 : static_cast<int>(gradients.size()));
      if (!is_zero) gradients.push_back(result.gradients[place - reached.begin()].entry());
    }
    if (gradients.empty()) return made;
    const Symbol symbol = Cut(Symbol(gradients));
    made->program = CompilePlaced(symbol, types_, graph_.mode, device, threads);
    for (const std::string& name : symbol.ListArguments()) made->arguments.push_back(sources_.at(name));
    for (const std::string& name : symbol.ListAuxiliaryStates()) made->auxiliary.push_back(sources_.at(name));
    return made;
  }

 private:
  static std::string SourceName(int source) { return fmt::format("source{}", source); }
  static std::string NodeName(int n, const std::string& name) { return fmt::format("t{}_{}", n, name); }

  void Describe(const std::string& name, const Tensor& like, const BackwardSource& source) {
    types_.shapes[name] = like.shape();
    types_.dtypes[name] = like.dtype();
    types_.batch_axes[name] = -1;
    sources_.emplace(name, source);
  }
  Entry NewVariable(const std::string& name, const Tensor& like, const BackwardSource& source) {
    const auto [known, is_new] = variables_.emplace(name, Entry{});
    if (is_new) {
      known->second = Variable(name).entry();
      Describe(name, like, source);
    }
    return known->second;
  }

  // The nodes of the call's symbol, with names of their own, behind those of the calls before.
  void AppendCall(int n) {
    const TapeNode& node = *graph_.nodes[n];
    const Unit& unit = *node.unit;
    places_.emplace(&node, n);
    std::unordered_map<const Node*, Entry> replaced;
    for (const NodePtr& variable : PostOrder(unit.symbol.entries())) {
      if (!variable->is_variable()) continue;
      const int i = static_cast<int>(std::ranges::find(unit.inputs, variable->name()) - unit.inputs.begin());
      const TapeNode::Input& input = node.inputs[i];
      const BackwardSource source{BackwardSource::Kind::kInput, n, i};
      const int of = graph_.SourceOf(input);
      if (unit.is_auxiliary[i] || (!input.node && of < 0)) {
        replaced[variable.get()] = NewVariable(fmt::format("t{}_in{}", n, i), input.value.tensor, source);
      } else if (input.node) {
        replaced[variable.get()] = outputs_[places_.at(input.node.get())][input.output];
      } else {
        replaced[variable.get()] = NewVariable(SourceName(of), input.value.tensor, source);
      }
    }
    const Symbol placed = Rewrite(
        unit.symbol,
        [&](const NodePtr& old, const std::vector<Entry>& inputs) {
          return OutputsOf(std::make_shared<const Node>(&old->op(), old->attrs(), NodeName(n, old->name()), inputs,
                                                        old->annotations()));
        },
        replaced);
    outputs_.push_back(placed.entries());
    for (size_t r = 0; r < unit.results.size(); ++r) {
      const auto& [name, output] = unit.results[r];
      saved_[NodeName(n, name)].emplace_back(output,
                                             BackwardSource{BackwardSource::Kind::kResult, n, static_cast<int>(r)});
    }
  }

  // Variables in the place of all values that are saved.
  Symbol Cut(const Symbol& gradients) {
    const Symbol cut = Rewrite(gradients, [&](const NodePtr& node, const std::vector<Entry>& inputs) {
      std::vector<Entry> outputs;
      const auto saved = saved_.find(node->name());
      if (saved == saved_.end()) return outputs;
      outputs = OutputsOf(inputs == node->inputs() ? node : WithInputs(*node, inputs));
      for (const auto& [output, source] : saved->second) {
        const Tensor& value = graph_.nodes[source.node]->results[source.index].tensor;
        outputs[output] = NewVariable(fmt::format("t{}_r{}", source.node, source.index), value, source);
      }
      return outputs;
    });
    for (const NodePtr& node : PostOrder(cut.entries())) {
      Check(node->is_variable() || !node->op().is_random, "what was drawn at random is saved, never drawn again");
    }
    return cut;
  }

  const RecordedGraph& graph_;
  std::unordered_map<const TapeNode*, int> places_;
  std::vector<std::vector<Entry>> outputs_;  // per call, in the new graph
  std::map<std::string, Entry> variables_;
  GivenTypes types_;
  std::map<std::string, BackwardSource> sources_;                             // of variables
  std::map<std::string, std::vector<std::pair<int, BackwardSource>>> saved_;  // node -> outputs
};

}  // namespace

std::shared_ptr<const BackwardProgram> MakeBackwardProgram(const RecordedGraph& graph, DeviceKind device, int threads) {
  return Maker(graph).Run(device, threads);
}

}  // namespace bindery::tape
