// Making nodes: the life of one, variables, and the general form of operators' functions.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/symbol.h"

namespace bindery {
namespace {

std::string Lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

struct NodeName {
  std::string name, base;
  int depth = 0;
};

// See the head of symbol.h. A node without inputs counts as named by its operator.
NodeName NameFor(const OpDef& op, const AnyAttrs& attrs, const std::vector<Symbol>& inputs, const std::string& given) {
  if (!given.empty()) return {given, {}, 0};
  const bool named_by_attrs = op.auto_name && &attrs.type() == op.attrs_type;
  const std::string op_name = named_by_attrs ? op.auto_name(attrs) : Lowercase(op.name);
  if (NameScope* scope = NameScope::Current()) return {scope->NextName(op_name), {}, 0};
  for (const Symbol& input : inputs) {
    if (input.empty()) continue;
    const Node& first = *input.entries()[0].node;
    if (!first.is_variable() && first.inputs().empty()) continue;  // a constant: 2.0 * x is named after x
    const std::string& base = first.auto_base.empty() ? first.name() : first.auto_base;
    const int depth = first.auto_depth + 1;
    return {fmt::format("{}_{}{}", base, op_name, depth), base, depth};
  }
  return {op_name + "0", {}, 0};
}

void CheckAttrs(const OpDef& op, const AnyAttrs& attrs, const std::string& name) {
  try {
    if (&attrs.type() != op.attrs_type) Throw<ModelError>("these are the attributes of another operator");
    if (op.check) op.check(attrs);
  } catch (const ModelError& error) {
    Throw<ModelError>("{} \"{}\": {}", op.name, name, error.message());
  }
}

Entry InputEntry(const OpDef& op, const std::string& name, const std::string& input_name, const Symbol& given) {
  if (given.empty()) {
    return {std::make_shared<const Node>(nullptr, AnyAttrs(), name + "_" + input_name, std::vector<Entry>{},
                                         Inherited(AttrScope::Current())),
            0};
  }
  if (given.size() > 1) {
    Throw<ModelError>("{} \"{}\", argument \"{}\": expected one output, got {} ({}); pick one by its number or name",
                      op.name, name, input_name, given.size(), fmt::join(given.ListOutputs(), ", "));
  }
  return given.entries()[0];
}

NodePtr MakeNode(const OpDef& op, AnyAttrs attrs, const std::vector<Symbol>& inputs, const std::string& given_name) {
  NodeName name = NameFor(op, attrs, inputs, given_name);
  CheckAttrs(op, attrs, name.name);
  const std::vector<std::string> input_names = op.inputs.Names(attrs, static_cast<int>(inputs.size()));
  const auto extra = inputs.begin() + static_cast<ptrdiff_t>(std::min(inputs.size(), input_names.size()));
  if (std::any_of(extra, inputs.end(), [](const Symbol& input) { return !input.empty(); })) {
    Throw<ModelError>("{} \"{}\": takes at most {} inputs ({}), got {}", op.name, name.name, input_names.size(),
                      fmt::join(input_names, ", "), inputs.size());
  }
  std::vector<Entry> entries;
  entries.reserve(input_names.size());
  for (size_t i = 0; i < input_names.size(); ++i) {
    entries.push_back(InputEntry(op, name.name, input_names[i], i < inputs.size() ? inputs[i] : Symbol()));
  }
  auto node =
      std::make_shared<Node>(&op, std::move(attrs), std::move(name.name), std::move(entries), AttrScope::Current());
  node->auto_base = std::move(name.base);
  node->auto_depth = name.depth;
  node->origin = OriginScope::Current();
  return node;
}

}  // namespace

Node::Node(const OpDef* op, AnyAttrs attrs, std::string name, std::vector<Entry> inputs, Annotations annotations)
    : op_(op), attrs_(std::move(attrs)), name_(std::move(name)), inputs_(std::move(inputs)),
      annotations_(std::move(annotations)), num_outputs_(op == nullptr ? 1 : NumOutputs(*op, attrs_)) {
  if (op == nullptr || !op->inputs.has_auxiliary()) return;
  const std::vector<std::string> names = InputNames(*this);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].node->is_variable() || !IsAuxiliary(*op, names.at(i))) continue;
    Throw<ModelError>("{}, argument \"{}\": an auxiliary state must be a variable, got {}", Describe(*this), names[i],
                      Describe(*inputs_[i].node));
  }
}

// The outermost destructor of a thread takes apart what the nested ones hand to it, so that none is nested twice.
Node::~Node() {
  thread_local std::vector<Entry>* released = nullptr;
  if (inputs_.empty()) return;
  if (released != nullptr) {
    for (Entry& input : inputs_) released->push_back(std::move(input));
    return;
  }
  std::vector<Entry> mine = std::move(inputs_);
  released = &mine;
  while (!mine.empty()) {
    const Entry last = std::move(mine.back());
    mine.pop_back();
  }
  released = nullptr;
}

std::string Node::OutputName(int output) const {
  if (is_variable()) return name_;
  return name_ + "_" + op_->outputs.Names(attrs_).at(output);
}

std::vector<std::string> Node::OutputNames() const {
  if (is_variable()) return {name_};
  std::vector<std::string> names = op_->outputs.Names(attrs_);
  for (std::string& name : names) name.insert(0, name_ + "_");
  return names;
}

Symbol Variable(const std::string& name, const VariableOptions& options) {
  if (name.empty()) Throw("a variable needs a name");
  Annotations annotations = options.annotations;
  if (!options.init.empty()) annotations["init"] = options.init;
  if (options.lr_mult) annotations["lr_mult"] = fmt::format("{}", *options.lr_mult);
  if (options.wd_mult) annotations["wd_mult"] = fmt::format("{}", *options.wd_mult);
  if (!options.layout.empty()) annotations["layout"] = options.layout;
  annotations.insert(AttrScope::Current().begin(), AttrScope::Current().end());
  auto node = std::make_shared<Node>(nullptr, AnyAttrs(), name, std::vector<Entry>{}, std::move(annotations));
  node->declared_shape = options.shape;
  node->declared_dtype = options.dtype;
  return Symbol(Entry{std::move(node), 0});
}

Symbol Apply(const OpDef& op, AnyAttrs attrs, std::vector<Symbol> inputs, const std::string& name) {
  const NodePtr node = MakeNode(op, std::move(attrs), inputs, name);
  std::vector<Entry> outputs;
  for (int i = 0; i < NumVisibleOutputs(op, node->attrs()); ++i) outputs.push_back({node, i});
  return Symbol(std::move(outputs));
}

std::vector<Symbol> ApplyAll(const OpDef& op, AnyAttrs attrs, std::vector<Symbol> inputs, const std::string& name) {
  const NodePtr node = MakeNode(op, std::move(attrs), inputs, name);
  std::vector<Symbol> outputs;
  for (int i = 0; i < node->num_outputs(); ++i) outputs.emplace_back(Entry{node, i});
  return outputs;
}

}  // namespace bindery
