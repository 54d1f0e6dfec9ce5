#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "base/names.h"
#include "symbol/model/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

constexpr size_t kMaxHints = 10'000;  // names compared for "did you mean"
constexpr size_t kMaxCycle = 10;      // nodes of a cycle that a message names
// Outputs, and inputs left out, that a graph may declare beyond one per byte of its message: a few bytes of attributes
// must not take much more memory than a file that writes them out.
constexpr int64_t kFreeDeclarations = 1 << 17;

std::string Lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// A name that an automatic one would equal (see the head of symbol.h) counts as automatic, so that a net built on top
// of a loaded one has the names that it would have on the original.
void RestoreAutomaticName(Node* node) {
  const auto named_after = std::ranges::find_if(node->inputs(), [](const Entry& input) {  // no constant
    return input.node->is_variable() || !input.node->inputs().empty();
  });
  if (named_after == node->inputs().end()) return;
  const Node& first = *named_after->node;
  const std::string& base = first.auto_base.empty() ? first.name() : first.auto_base;
  const int depth = first.auto_depth + 1;
  const OpDef& op = node->op();
  const std::string what = op.auto_name ? op.auto_name(node->attrs()) : Lowercase(op.name);
  if (!node->name().starts_with(base) || node->name().substr(base.size()) != fmt::format("_{}{}", what, depth)) return;
  node->auto_base = base;
  node->auto_depth = depth;
}

class GraphReader {
 public:
  GraphReader(const proto::Graph& message, const ModelLimits& limits, const ModelSource& source,
              const ReadTensorFn& read_tensor)
      : message_(message), limits_(limits), source_(source), read_tensor_(read_tensor),
        declarations_left_(kFreeDeclarations + static_cast<int64_t>(message.ByteSizeLong())) {}

  Symbol Read() {
    const int variables = message_.variable_size(), nodes = message_.node_size();
    if (int64_t{variables} + nodes > limits_.nodes) FailTooMany();
    items_.reserve(static_cast<size_t>(variables) + static_cast<size_t>(nodes));
    for (int i = 0; i < variables; ++i) ReadVariable(i);
    for (int i = 0; i < nodes; ++i) DeclareNode(i);
    for (int i = 0; i < nodes; ++i) AddLeftOut(i);
    for (int i = 0; i < nodes; ++i) ResolveInputs(i);
    for (size_t i = static_cast<size_t>(variables); i < static_cast<size_t>(variables + nodes); ++i) Build(i);
    if (message_.output_size() == 0) source_.Fail({{"graph"}}, "the graph has no output");
    std::vector<Entry> outputs;
    for (int i = 0; i < message_.output_size(); ++i) {
      const Reference output = Resolve(message_.output(i), {{"graph"}, {"output", i}}, "output");
      outputs.push_back({items_[output.item].node, output.number});
    }
    return Symbol(std::move(outputs));
  }

 private:
  // An output of an item.
  struct Reference {
    size_t item;
    int number;
  };
  // A variable or a node. Variables of the message come first, then its nodes, then variables that were left out.
  struct Item {
    NodePtr node = nullptr;     // null until it is built
    const OpDef* op = nullptr;  // of nodes
    AnyAttrs attrs = {};
    int message = -1;  // its number among the message's nodes
    int num_outputs = 1;
    bool visiting = false;
    std::vector<Reference> inputs = {};
  };

  [[noreturn]] void FailTooMany() const {
    source_.Fail({{"graph"}}, fmt::format("more than {} nodes, the limit", limits_.nodes));
  }

  void CountDeclarations(int i, const char* what, int64_t count) {
    declarations_left_ -= count;
    if (declarations_left_ >= 0) return;
    source_.Fail({{"graph"}, {"node", i}},
                 fmt::format("{}: {} {} are too many for a file of this size", Who(message_.node(i)), count, what));
  }

  void Declare(const std::string& id, FieldPath path, const std::string& who) {
    source_.At(path, who, [&] { CheckName(id); });
    if (!by_id_.emplace(id, items_.size()).second) {
      source_.Fail(path, who + ": something else has this name; names are unique (or nodes have unique ids)");
    }
  }

  Annotations ReadAnnotations(const google::protobuf::RepeatedPtrField<proto::Text>& messages, FieldPath path,
                              const std::string& who) const {
    Annotations annotations;
    for (const proto::Text& text : messages) {
      if (!annotations.emplace(text.key(), text.value()).second) {
        source_.Fail(path, fmt::format("{}: two annotations are called {}", who, QuotedName(text.key())));
      }
    }
    return annotations;
  }

  void ReadVariable(int i) {
    const proto::Variable& variable = message_.variable(i);
    const FieldPath path = {{"graph"}, {"variable", i}};
    if (variable.name().empty()) source_.Fail(path, fmt::format("variable number {} has no name", i));
    const std::string who = "variable " + QuotedName(variable.name());
    auto node = std::make_shared<Node>(nullptr, AnyAttrs(), variable.name(), std::vector<Entry>{},
                                       ReadAnnotations(variable.annotation(), path, who));
    if (variable.has_shape()) {
      const auto& dims = variable.shape().dim();
      source_.At({{"graph"}, {"variable", i}, {"shape"}}, who, [&] {
        node->declared_shape = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(dims.size())));
      });
    }
    if (variable.has_dtype()) node->declared_dtype = static_cast<DType>(variable.dtype());
    Declare(variable.name(), path, who);
    items_.push_back({.node = std::move(node)});
  }

  // As in all messages about nodes: FullyConnected "fc1".
  static std::string Who(const proto::Node& node) { return node.op() + " " + QuotedName(node.name()); }

  // Everything of a node but its inputs, which may be defined below.
  void DeclareNode(int i) {
    const proto::Node& node = message_.node(i);
    const FieldPath path = {{"graph"}, {"node", i}};
    if (node.name().empty()) {
      source_.Fail(path, fmt::format("node number {}{} has no name", i,
                                     node.op().empty() ? "" : ", " + QuotedName(node.op()) + ","));
    }
    const std::string who = Who(node);
    source_.At(path, who, [&] { CheckName(node.name()); });
    Item item{.message = i};
    source_.At({{"graph"}, {"node", i}, {"op"}}, "node " + QuotedName(node.name()), [&] {
      if (node.op().empty()) Throw<ModelError>("it has no op");
      item.op = &FindOp(node.op());
    });
    item.attrs = ReadAttrs(*item.op, i, who);
    item.num_outputs = NumOutputs(*item.op, item.attrs);
    CountDeclarations(i, "outputs", item.num_outputs);
    Declare(node.has_id() ? node.id() : node.name(), path, who);
    items_.push_back(std::move(item));
  }

  AnyAttrs ReadAttrs(const OpDef& op, int i, const std::string& who) const {
    const proto::Node& node = message_.node(i);
    AttrMap map;
    for (int k = 0; k < node.attr_size(); ++k) {
      source_.At({{"graph"}, {"node", i}, {"attr", k}}, who, [&] {
        const proto::Attr& attr = node.attr(k);
        if (map.contains(attr.name())) Throw<ModelError>("two attributes are called {}", QuotedName(attr.name()));
        // One at a time, so that a complaint has the place of its attribute.
        AttrMap one{{attr.name(), ReadValue(attr)}};
        op.attrs_type->FromMap(one);
        map.merge(one);
      });
    }
    return source_.At({{"graph"}, {"node", i}}, who, [&] {
      AnyAttrs attrs = op.attrs_type->FromMap(map);
      if (op.check) op.check(attrs);
      return attrs;
    });
  }

  AttrValue ReadValue(const proto::Attr& attr) const {
    const bool has_one = attr.value_case() != proto::Attr::VALUE_NOT_SET;
    if (has_one + (attr.ints_size() > 0) + (attr.floats_size() > 0) + (attr.strings_size() > 0) > 1) {
      Throw<ModelError>("attribute {} has two values", QuotedName(attr.name()));
    }
    switch (attr.value_case()) {
      case proto::Attr::kI: return attr.i();
      case proto::Attr::kF: return attr.f();
      case proto::Attr::kS: return attr.s();
      case proto::Attr::kB: return attr.b();
      case proto::Attr::kT: return read_tensor_(attr.t());
      case proto::Attr::VALUE_NOT_SET: break;
    }
    if (attr.floats_size() > 0) return std::vector<double>(attr.floats().begin(), attr.floats().end());
    if (attr.strings_size() > 0) return std::vector<std::string>(attr.strings().begin(), attr.strings().end());
    return std::vector<int64_t>(attr.ints().begin(), attr.ints().end());
  }

  Item& ItemOf(int i) { return items_[static_cast<size_t>(message_.variable_size()) + static_cast<size_t>(i)]; }

  // Gives the node its list of inputs, and makes variables for those that were left out. Before any name is resolved,
  // so that another node may use them by name.
  void AddLeftOut(int i) {
    const proto::Node& node = message_.node(i);
    const OpDef& op = *ItemOf(i).op;
    const std::vector<std::string> names = op.inputs.Names(ItemOf(i).attrs, node.input_size());
    const int count = static_cast<int>(names.size());
    if (node.input_size() > count) {
      source_.Fail({{"graph"}, {"node", i}, {"input", count}},
                   fmt::format("{}: takes at most {} inputs ({}), got {}", Who(node), count, fmt::join(names, ", "),
                               node.input_size()));
    }
    CountDeclarations(i, "inputs left out", count - node.input_size());
    std::vector<Reference> inputs(names.size());
    for (int k = 0; k < count; ++k) {
      if (IsGiven(node, k)) continue;
      inputs[static_cast<size_t>(k)] = {LeftOut(i, node.name() + "_" + names[static_cast<size_t>(k)]), 0};
    }
    ItemOf(i).inputs = std::move(inputs);
  }

  static bool IsGiven(const proto::Node& node, int input) {
    return input < node.input_size() && !node.input(input).empty();
  }

  // The variable for an input that was left out: the declared one of that name, or a new one.
  size_t LeftOut(int i, const std::string& name) {
    const auto found = by_id_.find(name);
    if (found != by_id_.end() && found->second < static_cast<size_t>(message_.variable_size())) return found->second;
    if (static_cast<int64_t>(items_.size()) >= limits_.nodes) FailTooMany();
    Declare(name, {{"graph"}, {"node", i}},
            fmt::format("{} needs a variable {}", Who(message_.node(i)), QuotedName(name)));
    items_.push_back({.node = std::make_shared<Node>(nullptr, AnyAttrs(), name, std::vector<Entry>{}, Annotations{})});
    return items_.size() - 1;
  }

  void ResolveInputs(int i) {
    const proto::Node& node = message_.node(i);
    for (int k = 0; k < node.input_size(); ++k) {
      if (!IsGiven(node, k)) continue;
      ItemOf(i).inputs[static_cast<size_t>(k)] =
          Resolve(node.input(k), {{"graph"}, {"node", i}, {"input", k}}, fmt::format("{}, input {}", Who(node), k));
    }
  }

  Reference Resolve(const std::string& text, FieldPath path, const std::string& who) const {
    std::string_view id = text;
    int number = 0;
    const size_t colon = id.rfind(':');
    if (colon != std::string_view::npos && colon + 1 < id.size()) {
      const char* end = text.data() + text.size();
      const auto parsed = std::from_chars(text.data() + colon + 1, end, number);
      const bool digits = std::isdigit(static_cast<unsigned char>(id[colon + 1])) && parsed.ptr == end;
      if (digits && parsed.ec != std::errc()) number = -1;  // beyond any number of outputs
      if (digits) id = id.substr(0, colon);
      if (!digits) number = 0;
    }
    const auto found = by_id_.find(std::string(id));
    if (found == by_id_.end()) {
      source_.Fail(path, fmt::format("{}: nothing is called {}{}", who, QuotedName(id), Hint(id)));
    }
    const int outputs = items_[found->second].num_outputs;
    if (number < 0 || number >= outputs) {
      source_.Fail(path, fmt::format("{}: {} has {} output{}, got {}", who, QuotedName(id), outputs,
                                     outputs == 1 ? "" : "s", QuotedName(text)));
    }
    return {found->second, number};
  }

  std::string Hint(std::string_view id) const {
    std::vector<std::string> known;
    for (const auto& [name, item] : by_id_) {
      if (known.size() < kMaxHints) known.push_back(name);
    }
    std::sort(known.begin(), known.end());
    const std::string nearest = NearestName(id, known);
    return nearest.empty() ? "" : "; did you mean " + QuotedName(nearest) + "?";
  }

  // Builds an item after its inputs, without recursion: a chain may be of any length.
  void Build(size_t start) {
    struct Visit {
      size_t item;
      size_t next_input = 0;
    };
    std::vector<Visit> stack{{start}};
    while (!stack.empty()) {
      Item& item = items_[stack.back().item];
      if (item.node) {
        stack.pop_back();
        continue;
      }
      item.visiting = true;
      bool ready = true;
      while (ready && stack.back().next_input < item.inputs.size()) {
        const size_t input = item.inputs[stack.back().next_input++].item;
        if (items_[input].node) continue;
        ready = false;
        stack.push_back({input});
        if (!items_[input].visiting) continue;
        std::vector<size_t> cycle;
        for (const Visit& visit : stack) cycle.push_back(visit.item);
        FailCycle(cycle);
      }
      if (!ready) continue;
      Finish(&item);
      stack.pop_back();
    }
  }

  void Finish(Item* item) const {
    const proto::Node& message = message_.node(item->message);
    std::vector<Entry> inputs;
    inputs.reserve(item->inputs.size());
    for (const Reference& input : item->inputs) inputs.push_back({items_[input.item].node, input.number});
    const FieldPath path = {{"graph"}, {"node", item->message}};
    Annotations annotations = ReadAnnotations(message.annotation(), path, Who(message));
    try {
      auto node = std::make_shared<Node>(item->op, std::move(item->attrs), message.name(), std::move(inputs),
                                         std::move(annotations));
      RestoreAutomaticName(node.get());
      item->node = std::move(node);
    } catch (const ModelError& error) {  // names the node itself
      source_.Fail(path, error.message());
    }
  }

  // `walk` follows inputs and ends with an item that is in it before.
  [[noreturn]] void FailCycle(const std::vector<size_t>& walk) const {
    const auto start = std::find(walk.begin(), walk.end(), walk.back());
    std::string names;
    size_t count = 0;
    for (auto item = start; item != walk.end(); ++item, ++count) {
      if (count > kMaxCycle) {
        names += " <- ...";
        break;
      }
      names += (count == 0 ? "" : " <- ") + QuotedName(message_.node(items_[*item].message).name());
    }
    source_.Fail({{"graph"}, {"node", items_[*start].message}}, "the nodes form a cycle: " + names);
  }

  const proto::Graph& message_;
  const ModelLimits& limits_;
  const ModelSource& source_;
  const ReadTensorFn& read_tensor_;
  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> by_id_;
  int64_t declarations_left_;
};

}  // namespace

Symbol ReadGraph(const proto::Graph& message, const ModelLimits& limits, const ModelSource& source,
                 const ReadTensorFn& read_tensor) {
  return GraphReader(message, limits, source, read_tensor).Read();
}

}  // namespace bindery
