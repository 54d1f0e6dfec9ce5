#include "symbol/stages.h"

#include <algorithm>
#include <climits>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "symbol/op_def.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

std::string OwnPlacement(const Node& node) {
  const auto found = node.annotations().find(kPlacement);
  return found == node.annotations().end() ? "" : found->second;
}

NodePtr WithoutPlacement(const NodePtr& node) {
  if (!node->annotations().contains(kPlacement)) return node;
  Annotations others = node->annotations();
  others.erase(kPlacement);
  return WithAnnotations(*node, std::move(others));
}

}  // namespace

std::vector<std::string> ListPlacements(const Symbol& symbol) {
  std::vector<std::string> names;
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    std::string own = OwnPlacement(*node);
    if (!own.empty() && std::ranges::find(names, own) == names.end()) names.push_back(std::move(own));
  }
  return names;
}

Symbol WithoutPlacements(const Symbol& symbol) {
  std::unordered_map<const Node*, Entry> variables;
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    if (node->is_variable()) variables.emplace(node.get(), Entry{WithoutPlacement(node), 0});
  }
  return Rewrite(
      symbol,
      [](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
        if (!node->annotations().contains(kPlacement)) return {};
        return OutputsOf(WithoutPlacement(WithInputs(*node, inputs)));
      },
      variables);
}

Stages::Stages(const Symbol& symbol, std::set<std::string> data, std::set<std::string> labels)
    : graph_(Graph::Of(symbol)), data_(std::move(data)), labels_(std::move(labels)), readers_(graph_.nodes.size()) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (const Entry& input : graph_.nodes[n]->inputs()) {
      readers_[static_cast<size_t>(graph_.IndexOf(input.node))].push_back(static_cast<int>(n));
    }
  }
  Place();
  Level();
  Number();
  Cross();
}

void Stages::Place() {
  constexpr int kNone = -1;
  const auto number_of = [this](const std::string& name) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) names_.push_back(name);
    return static_cast<int>(std::ranges::find(names_, name) - names_.begin());
  };
  for (const NodePtr& node : graph_.nodes) {
    const std::string own = OwnPlacement(*node);
    int& placement = placements_.emplace_back(own.empty() ? kNone : number_of(own));
    for (const Entry& input : node->inputs()) {
      if (placement == kNone) placement = placements_[static_cast<size_t>(graph_.IndexOf(input.node))];
    }
  }
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    for (const Entry& input : graph_.nodes[n]->inputs()) {
      int& placement = placements_[static_cast<size_t>(graph_.IndexOf(input.node))];
      if (placement == kNone) placement = placements_[n];
    }
  }
  for (int& placement : placements_) {
    if (placement == kNone) placement = number_of("");
  }
}

// A node's level is how many borders lie between it and the inputs, on the way with the most of them. What follows from
// parameters, labels and constants alone goes as high as its readers let it, to where its placement has data: it would
// make a stage without any.
void Stages::Level() {
  const size_t size = graph_.nodes.size();
  std::vector<bool> of_data(size);
  levels_.assign(size, 0);
  std::map<int, std::set<int>> of_placement;  // its levels that have data
  for (size_t n = 0; n < size; ++n) {
    const Node& node = *graph_.nodes[n];
    of_data[n] = node.is_variable() && data_.contains(node.name());
    for (const Entry& entry : node.inputs()) {
      const auto input = static_cast<size_t>(graph_.IndexOf(entry.node));
      of_data[n] = of_data[n] || of_data[input];
      if (IsFed(*entry.node)) continue;
      levels_[n] = std::max(levels_[n], levels_[input] + (placements_[input] != placements_[n]));
    }
    if (of_data[n] && !node.is_variable()) of_placement[placements_[n]].insert(levels_[n]);
  }
  for (size_t n = size; n-- > 0;) {
    if (of_data[n] || IsFed(*graph_.nodes[n])) continue;
    int highest = INT_MAX;
    const Node* first = nullptr;  // that needs it
    for (const int reader : readers_[n]) {
      const auto r = static_cast<size_t>(reader);
      const int limit = levels_[r] - (placements_[r] != placements_[n]);
      if (limit < highest) first = graph_.nodes[r].get();
      highest = std::min(highest, limit);
    }
    const std::set<int>& levels = of_placement[placements_[n]];
    const auto above = levels.upper_bound(highest);
    if (above == levels.begin()) {
      Throw<ModelError>(
          "{}: {} needs it before its placement \"{}\" has anything to compute from data; give it the placement of "
          "what "
          "reads it",
          Describe(*graph_.nodes[n]), first ? Describe(*first) : "nothing",
          names_[static_cast<size_t>(placements_[n])]);
    }
    levels_[n] = *std::prev(above);
  }
}

void Stages::Number() {
  std::map<std::pair<int, int>, int> numbers;  // by level and placement
  const auto place_of = [this](size_t n) { return std::pair(levels_[n], placements_[n]); };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (!IsFed(*graph_.nodes[n])) numbers[place_of(n)] = 0;
  }
  for (const Entry& head : graph_.outputs) {
    const auto n = static_cast<size_t>(graph_.IndexOf(head.node));
    if (IsFed(*head.node) && readers_[n].empty()) numbers[place_of(n)] = 0;
  }
  for (auto& [place, number] : numbers) {
    number = static_cast<int>(stages_.size());
    stages_.push_back({.placement = names_[static_cast<size_t>(place.second)]});
  }
  nodes_of_.resize(stages_.size());
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    stage_of_.push_back(IsFed(*graph_.nodes[n]) ? -1 : numbers.at(place_of(n)));
    if (stage_of_[n] >= 0) nodes_of_[static_cast<size_t>(stage_of_[n])].push_back(static_cast<int>(n));
  }
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const auto n = static_cast<size_t>(graph_.IndexOf(graph_.outputs[i].node));
    int stage = stage_of_[n];
    if (stage < 0 && readers_[n].empty()) stage = numbers.at(place_of(n));
    if (stage < 0) {  // where it is first read
      stage = INT_MAX;
      for (const int reader : readers_[n]) stage = std::min(stage, stage_of_[static_cast<size_t>(reader)]);
    }
    stages_[static_cast<size_t>(stage)].heads.push_back(static_cast<int>(i));
  }
}

void Stages::Cross() {
  std::set<std::string> auxiliary, taken;
  std::map<std::string, int> numbers;  // behind a name that is taken: the last one
  for (std::string& name : Symbol(graph_.outputs).ListAuxiliaryStates()) auxiliary.insert(std::move(name));
  for (const NodePtr& node : graph_.nodes) taken.insert(node->name());
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const int to = stage_of_[n];
    for (const Entry& input : graph_.nodes[n]->inputs()) {
      const int from = stage_of_[static_cast<size_t>(graph_.IndexOf(input.node))];
      if (from < 0 || from == to) continue;
      const auto [known, is_new] =
          crossing_of_.try_emplace({input.node.get(), input.output, to}, std::ssize(crossings_));
      if (!is_new) continue;
      Check(from < to, "a stage reads from earlier ones");
      const std::string& placement = stages_[static_cast<size_t>(to)].placement;
      if (input.node->is_variable() && auxiliary.contains(input.node->name())) {
        Throw<ModelError>(
            "the auxiliary state \"{}\" is used on placement \"{}\" and on \"{}\", by {}: it can be in one",
            input.node->name(), stages_[static_cast<size_t>(from)].placement, placement, Describe(*graph_.nodes[n]));
      }
      const std::string name =
          fmt::format("{} to {}", input.node->OutputName(input.output), placement.empty() ? "the rest" : placement);
      std::string unique = name;
      for (int& last = numbers[name]; !taken.insert(unique).second;) unique = fmt::format("{}{}", name, ++last);
      crossings_.push_back({.name = std::move(unique), .value = input, .from = from, .to = to});
      stages_[static_cast<size_t>(from)].sends.push_back(known->second);
      stages_[static_cast<size_t>(to)].reads.push_back(known->second);
    }
  }
}

Symbol Stages::SymbolOf(int stage, const std::vector<bool>& blocked) const {
  // What the caller's scopes say is not for the nodes made here.
  const AttrScope no_annotations(Annotations{}, false);
  const NameScope no_names({}, false);
  const Stage& own = stages_[static_cast<size_t>(stage)];
  std::unordered_map<const Node*, NodePtr> made;
  const auto variable = [&made](const NodePtr& node) {
    NodePtr& copy = made[node.get()];
    if (!copy) copy = WithoutPlacement(node);
    return Entry{copy, 0};
  };
  std::map<int, Entry> read;  // by crossing
  for (const int c : own.reads) read[c] = Variable(crossings_[static_cast<size_t>(c)].name).entry();
  for (const int n : nodes_of_[static_cast<size_t>(stage)]) {
    const NodePtr& node = graph_.nodes[static_cast<size_t>(n)];
    if (node->is_variable()) continue;
    std::vector<Entry> inputs;
    for (const Entry& input : node->inputs()) {
      const int from = stage_of_[static_cast<size_t>(graph_.IndexOf(input.node))];
      if (from >= 0 && from != stage) {
        inputs.push_back(read.at(crossing_of_.at({input.node.get(), input.output, stage})));
      } else if (input.node->is_variable()) {
        inputs.push_back(variable(input.node));
      } else {
        inputs.push_back({made.at(input.node.get()), input.output});
      }
    }
    const bool same = inputs == node->inputs();
    made[node.get()] = WithoutPlacement(same ? node : WithInputs(*node, std::move(inputs)));
  }
  const auto output = [&](const Entry& entry) {
    return entry.node->is_variable() ? variable(entry.node) : Entry{made.at(entry.node.get()), entry.output};
  };
  std::vector<Entry> outputs;
  for (const int head : own.heads) outputs.push_back(output(graph_.outputs[static_cast<size_t>(head)]));
  for (const int c : own.sends) {
    const Crossing& crossing = crossings_[static_cast<size_t>(c)];
    const Symbol value(output(crossing.value));
    const Symbol sent =
        blocked[static_cast<size_t>(c)] ? BlockGrad(value, crossing.name) : Identity(value, crossing.name);
    // Where it has no batch axis, each replica sends its own, and gets its own gradient back.
    outputs.push_back(sent.WithAnnotation("merge", "sum").entry());
  }
  return Symbol(std::move(outputs));
}

}  // namespace bindery
