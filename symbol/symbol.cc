#include "symbol/symbol.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/error.h"
#include "base/names.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

// The node that all outputs of a symbol belong to.
const NodePtr& OnlyNode(const std::vector<Entry>& entries) {
  if (entries.empty()) Throw("the symbol is empty");
  for (const Entry& entry : entries) {
    if (entry.node != entries[0].node) Throw("the symbol has outputs of several nodes; pick one by its number or name");
  }
  return entries[0].node;
}

enum class VariableRole { kArgument, kAuxiliary, kEither };

std::vector<NodePtr> Variables(const std::vector<Entry>& entries, VariableRole role) {
  const std::vector<NodePtr> nodes = PostOrder(entries);
  std::unordered_set<const Node*> auxiliary;
  for (const NodePtr& node : nodes) {
    if (node->is_variable() || !node->op().inputs.has_auxiliary()) continue;
    const std::vector<std::string> names = InputNames(*node);
    for (size_t i = 0; i < names.size(); ++i) {
      if (IsAuxiliary(node->op(), names[i])) auxiliary.insert(node->inputs()[i].node.get());
    }
  }
  std::vector<NodePtr> variables;
  for (const NodePtr& node : nodes) {
    if (!node->is_variable()) continue;
    if (role == VariableRole::kEither || auxiliary.contains(node.get()) == (role == VariableRole::kAuxiliary)) {
      variables.push_back(node);
    }
  }
  return variables;
}

std::vector<std::string> NamesOf(const std::vector<NodePtr>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const NodePtr& node : nodes) names.push_back(node->name());
  return names;
}

Entry Replacement(const Node& variable, const Symbol& symbol) {
  if (symbol.size() != 1) {
    Throw("argument \"{}\": expected a symbol of one output, got {}", variable.name(), symbol.size());
  }
  return symbol.entry();
}

std::string EntryText(const Entry& entry) {
  if (entry.output == 0) return entry.node->name();
  return fmt::format("{}:{}", entry.node->name(), entry.output);
}

}  // namespace

const Entry& Symbol::entry() const {
  if (entries_.size() != 1) Throw("expected a symbol of one output, got {}", entries_.size());
  return entries_[0];
}

const std::string& Symbol::name() const { return OnlyNode(entries_)->name(); }

Symbol Symbol::operator[](int output) const {
  if (output < 0 || output >= size()) Throw("output {} is out of range: the symbol has {}", output, size());
  return Symbol(entries_[output]);
}

Symbol Symbol::operator[](std::string_view output_name) const {
  const Entry* found = nullptr;
  std::vector<std::string> names = ListOutputs();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != output_name) continue;
    if (found != nullptr) Throw("output \"{}\" is ambiguous: several have this name", output_name);
    found = &entries_[i];
  }
  if (found == nullptr) Throw("unknown output \"{}\"{}", output_name, NameHint(output_name, names));
  return Symbol(*found);
}

Symbol Symbol::Internals() const {
  std::vector<Entry> all;
  for (const NodePtr& node : PostOrder(entries_)) {
    const int visible = node->is_variable() ? 1 : NumVisibleOutputs(node->op(), node->attrs());
    for (int i = 0; i < visible; ++i) all.push_back({node, i});
  }
  return Symbol(std::move(all));
}

Symbol Symbol::Children() const { return Symbol(OnlyNode(entries_)->inputs()); }

std::vector<std::string> Symbol::ListArguments() const { return NamesOf(Variables(entries_, VariableRole::kArgument)); }

std::vector<std::string> Symbol::ListAuxiliaryStates() const {
  return NamesOf(Variables(entries_, VariableRole::kAuxiliary));
}

std::vector<std::string> Symbol::ListInputs() const { return NamesOf(Variables(entries_, VariableRole::kEither)); }

std::vector<std::string> Symbol::ListOutputs() const {
  std::vector<std::string> names, of_node;
  names.reserve(entries_.size());
  const Node* node = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.node.get() != node) {
      node = entry.node.get();
      of_node = node->OutputNames();
    }
    names.push_back(of_node.at(entry.output));
  }
  return names;
}

Symbol Symbol::Compose(const std::map<std::string, Symbol>& by_name) const {
  std::unordered_map<const Node*, Entry> replaced;
  std::map<std::string_view, const Symbol*> unused;
  for (const auto& [name, symbol] : by_name) unused.emplace(name, &symbol);
  const std::vector<NodePtr> variables = Variables(entries_, VariableRole::kEither);
  for (const NodePtr& variable : variables) {
    const auto it = by_name.find(variable->name());
    if (it == by_name.end()) continue;
    replaced.emplace(variable.get(), Replacement(*variable, it->second));
    unused.erase(variable->name());
  }
  if (!unused.empty()) {
    const std::string_view name = unused.begin()->first;
    Throw("unknown argument \"{}\"{}", name, NameHint(name, NamesOf(variables)));
  }
  return Rewrite(*this, {}, replaced);
}

Symbol Symbol::Compose(std::span<const Symbol> by_position) const {
  const std::vector<NodePtr> arguments = Variables(entries_, VariableRole::kArgument);
  if (by_position.size() > arguments.size()) {
    Throw("the symbol has {} arguments, got {} symbols to put in their place", arguments.size(), by_position.size());
  }
  std::unordered_map<const Node*, Entry> replaced;
  for (size_t i = 0; i < by_position.size(); ++i) {
    if (by_position[i].empty()) continue;
    replaced.emplace(arguments[i].get(), Replacement(*arguments[i], by_position[i]));
  }
  return Rewrite(*this, {}, replaced);
}

std::optional<std::string> Symbol::Annotation(std::string_view key) const {
  const Annotations& annotations = OnlyNode(entries_)->annotations();
  const auto it = annotations.find(std::string(key));
  return it == annotations.end() ? std::nullopt : std::optional(it->second);
}

std::map<std::string, Annotations> Symbol::AllAnnotations() const {
  std::map<std::string, Annotations> all;
  for (const NodePtr& node : PostOrder(entries_)) {
    if (!node->annotations().empty()) all.emplace(node->name(), node->annotations());
  }
  return all;
}

Symbol Symbol::WithAnnotation(const std::string& key, const std::string& value) const {
  const Node& old = *OnlyNode(entries_);
  Annotations annotations = old.annotations();
  annotations[key] = value;
  const NodePtr copy = WithAnnotations(old, std::move(annotations));
  std::vector<Entry> entries;
  for (const Entry& entry : entries_) entries.push_back({copy, entry.output});
  return Symbol(std::move(entries));
}

std::string Symbol::DebugString() const {
  std::string text;
  for (const NodePtr& node : PostOrder(entries_)) {
    text += node->name();
    if (node->is_variable()) {
      if (node->declared_dtype) text += fmt::format(" {}", *node->declared_dtype);
      if (node->declared_shape) text += fmt::format(" {}", *node->declared_shape);
    } else {
      std::vector<std::string> parts;
      for (const Entry& input : node->inputs()) parts.push_back(EntryText(input));
      for (const auto& [key, value] : node->attrs().ToMap()) parts.push_back(key + "=" + ToString(value));
      text += fmt::format(" = {}({})", node->op().name, fmt::join(parts, ", "));
    }
    for (const auto& [key, value] : node->annotations()) text += fmt::format(" [{}={}]", key, value);
    text += "\n";
  }
  std::vector<std::string> outputs;
  for (const Entry& entry : entries_) outputs.push_back(EntryText(entry));
  return text + fmt::format("-> {}\n", fmt::join(outputs, ", "));
}

Symbol Group(std::span<const Symbol> symbols) {
  std::vector<Entry> entries;
  for (const Symbol& symbol : symbols) {
    entries.insert(entries.end(), symbol.entries().begin(), symbol.entries().end());
  }
  return Symbol(std::move(entries));
}

Symbol Group(std::initializer_list<Symbol> symbols) { return Group(std::span(symbols.begin(), symbols.size())); }

}  // namespace bindery
