#include "symbol/chain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "symbol/graph.h"
#include "symbol/stages.h"

namespace bindery {
namespace {

// A copy whose nodes have the placement, but for those that have one.
Symbol Placed(const Symbol& symbol, const std::string& placement) {
  if (placement.empty()) return symbol;
  const auto place = [&placement](const NodePtr& node) {
    Annotations annotations = node->annotations();
    annotations.emplace(kPlacement, placement);
    return WithAnnotations(*node, std::move(annotations));
  };
  std::unordered_map<const Node*, Entry> variables;
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    if (node->is_variable()) variables.emplace(node.get(), Entry{place(node), 0});
  }
  return Rewrite(
      symbol,
      [&](const NodePtr& node, const std::vector<Entry>& inputs) {
        return OutputsOf(place(WithInputs(*node, inputs)));
      },
      variables);
}

// What becomes of the part's inputs: outputs of the part before, by name.
std::map<std::string, Symbol> Wire(const ChainPart& part, const Symbol& before) {
  const std::vector<std::string> inputs = part.symbol.ListArguments(), outputs = before.ListOutputs();
  const auto check_input = [&](const std::string& name) {
    if (std::ranges::find(inputs, name) != inputs.end()) return;
    Throw("part \"{}\": \"{}\" is not one of its inputs{}", part.name, name, NameHint(name, inputs));
  };
  std::map<std::string, Symbol> wired;
  if (!part.wiring.empty()) {
    for (const auto& [input, output] : part.wiring) {
      check_input(input);
      if (std::ranges::find(outputs, output) == outputs.end()) {
        Throw("part \"{}\": the part before has no output \"{}\"{}", part.name, output, NameHint(output, outputs));
      }
      wired.emplace(input, before[output]);
    }
    return wired;
  }
  if (part.data.size() != outputs.size()) {
    Throw("part \"{}\": expected the part before to have {} outputs, one for each of its data, got {}", part.name,
          part.data.size(), outputs.size());
  }
  for (size_t i = 0; i < part.data.size(); ++i) {
    check_input(part.data[i]);
    if (!wired.emplace(part.data[i], before[static_cast<int>(i)]).second) {
      Throw("part \"{}\": its data \"{}\" is listed twice", part.name, part.data[i]);
    }
  }
  return wired;
}

}  // namespace

Symbol Chain(std::span<const ChainPart> parts) {
  if (parts.empty()) Throw("a chain needs a part");
  Symbol chain;
  std::map<std::string, std::string> owners;  // part, by input and auxiliary state
  std::map<std::string, Symbol> labels;       // known so far
  for (const ChainPart& part : parts) {
    if (part.symbol.empty()) Throw("part \"{}\" has no symbol", part.name);
    std::map<std::string, Symbol> wired;
    if (!chain.empty()) wired = Wire(part, chain);
    const Symbol placed = Placed(part.symbol, part.placement);
    const std::set<std::string> own_labels = ListLabels(part.symbol);
    const Symbol inside = placed.Internals();
    for (const std::string& name : placed.ListInputs()) {
      if (wired.contains(name)) continue;
      if (own_labels.contains(name)) {
        if (!part.take_labels) Throw("part \"{}\" has a label, \"{}\": say that it takes labels", part.name, name);
        const auto [label, is_new] = labels.emplace(name, inside[name]);
        if (!is_new) wired.emplace(name, label->second);
        if (owners.try_emplace(name, part.name).second || !is_new) continue;
      } else if (owners.try_emplace(name, part.name).second) {
        continue;
      }
      Throw("parts \"{}\" and \"{}\" both have \"{}\": name the layers of one of them differently (a NameScope does)",
            owners.at(name), part.name, name);
    }
    chain = placed.Compose(wired);
  }
  return chain;
}

}  // namespace bindery
