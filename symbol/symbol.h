// Symbol: *what* is computed. A cheap value: a list of outputs of shared, immutable nodes. Building one computes
// nothing.
//
//   Symbol x = Variable("data");
//   x = Convolution(x, {.num_filter = 20, .kernel = {5, 5}}, "conv1");   // makes conv1_weight and conv1_bias
//   x = Tanh(x);                                                         // named after its input: conv1_tanh1
//
// Names. A node's name is given, or comes from the innermost NameScope of the calling thread (`<prefix><op><counter>`,
// the counter belongs to the scope), or without a scope from the node's first input: the nearest given name, the
// operator and the distance (`conv1_tanh1`). No global counter exists, so a second copy of a net has the same names.
// Only variables need names that differ: two unnamed Dropouts of one value have one name, and the executor tells them
// apart by their order.
//
// Thread safety: a Symbol is an immutable value; scopes are per thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "symbol/attrs.h"

namespace bindery {

struct OpDef;
class Node;
using NodePtr = std::shared_ptr<const Node>;

// One output of a node.
struct Entry {
  NodePtr node;
  int output = 0;
  bool operator==(const Entry&) const = default;
};

// Free-form attributes of a node, by name. Known to the library:
//   lr_mult, wd_mult (numbers), init (an initializer's text), layout ("NCHW": which axis is the batch), merge ("sum",
//   "mean", "first": how a head without batch axis is merged over devices), is_mean ("true": a loss that is divided by
//   the samples, or by their weights, of all devices: the update of what it trains does not divide again), plus any the
//   user likes; and ctx_group, the placement: where parts of the graph have devices of their own, whose it is
//   (symbol/stages.h). A binding of the whole to one device refuses it.
using Annotations = std::map<std::string, std::string>;
// What the nodes made on behalf of a node inherit from it: its gradient, and in AttrScope its implicit variables. All
// but `layout`, `merge` and `is_mean`, which speak of one value and not of its parameters'.
Annotations Inherited(const Annotations& annotations);

// Immutable once made. A variable has no operator. Throws ModelError if an input that is an auxiliary state of the
// operator is no variable.
class Node {
 public:
  Node(const OpDef* op, AnyAttrs attrs, std::string name, std::vector<Entry> inputs, Annotations annotations);
  ~Node();  // iterative: chains of a million nodes are fine
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool is_variable() const { return op_ == nullptr; }
  const OpDef& op() const { return *op_; }
  const AnyAttrs& attrs() const { return attrs_; }
  const std::string& name() const { return name_; }
  const std::vector<Entry>& inputs() const { return inputs_; }
  const Annotations& annotations() const { return annotations_; }
  int num_outputs() const { return num_outputs_; }  // hidden ones included
  std::string OutputName(int output) const;         // "conv1_output", "bn1_mean"; a variable's own name
  std::vector<std::string> OutputNames() const;     // all: cheaper than one by one

  // Set for variables declared with them.
  std::optional<Shape> declared_shape = {};  // extents may be unknown
  std::optional<DType> declared_dtype = {};
  // How automatic names are derived from this node (see above). An empty base: from its own name.
  std::string auto_base = {};
  int auto_depth = 0;
  // What messages call the node, if it was made on behalf of another: 'gradient of Convolution "conv1"'.
  std::string origin = {};

 private:
  const OpDef* op_;
  AnyAttrs attrs_;
  std::string name_;
  std::vector<Entry> inputs_;
  Annotations annotations_;
  int num_outputs_;
};

class Symbol {
 public:
  Symbol() = default;  // empty: no outputs
  explicit Symbol(Entry entry) : entries_{std::move(entry)} {}
  explicit Symbol(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  bool empty() const { return entries_.empty(); }
  int size() const { return static_cast<int>(entries_.size()); }  // number of outputs
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry& entry() const;       // the only output; throws Error otherwise
  const std::string& name() const;  // of the only node; throws Error otherwise

  Symbol operator[](int output) const;                    // throws Error out of range
  Symbol operator[](std::string_view output_name) const;  // throws Error: unknown (nearest match) or ambiguous

  // Every output of every node below, variables included, in order. To cut a net: net.Internals()["fc1_output"].
  Symbol Internals() const;
  Symbol Children() const;  // the inputs of the only node, grouped; empty for a variable

  // In depth-first post-order, deterministic; nodes are listed once. Hidden outputs are not listed.
  std::vector<std::string> ListArguments() const;  // variables that are not auxiliary
  std::vector<std::string> ListAuxiliaryStates() const;
  std::vector<std::string> ListInputs() const;  // both
  std::vector<std::string> ListOutputs() const;

  // Composition: a copy in which free variables are replaced by other symbols of one output each. Unknown names and
  // too many symbols throw Error.
  Symbol Compose(const std::map<std::string, Symbol>& by_name) const;
  Symbol Compose(std::span<const Symbol> by_position) const;  // in the order of ListArguments; empty: leave as it is

  std::optional<std::string> Annotation(std::string_view key) const;  // of the only node
  std::map<std::string, Annotations> AllAnnotations() const;          // node name -> annotations, if any
  Symbol WithAnnotation(const std::string& key,
                        const std::string& value) const;  // a copy of the only node (its inputs are shared)

  std::string DebugString() const;  // one line per node

 private:
  std::vector<Entry> entries_;
};

struct VariableOptions {
  std::optional<Shape> shape = {};
  std::optional<DType> dtype = {};
  std::string init = {};  // an initializer for this variable alone, e.g. "zero", "normal(0.01)"
  std::optional<double> lr_mult = {}, wd_mult = {};
  std::string layout = {};  // e.g. "TNC"
  Annotations annotations = {};
};
Symbol Variable(const std::string& name, const VariableOptions& options = {});
Symbol Group(std::span<const Symbol> symbols);  // nested groups are flattened
Symbol Group(std::initializer_list<Symbol> symbols);

// The general form of every operator's function. `inputs` in the order of the operator's input names; empty symbols and
// missing trailing ones become variables `<name>_<input name>`, or nothing where the operator has no such input. The
// result has the operator's visible outputs.
// Throws ModelError for wrong counts, multi-output inputs and attributes that OpDef::check refuses. `op` must outlive
// the symbol: one from FindOp, or an object of static storage.
Symbol Apply(const OpDef& op, AnyAttrs attrs, std::vector<Symbol> inputs, const std::string& name = {});
// All outputs of the operator including hidden ones; for gradients and passes.
std::vector<Symbol> ApplyAll(const OpDef& op, AnyAttrs attrs, std::vector<Symbol> inputs, const std::string& name = {});

// Names nodes `<prefix><op><counter>` while it lives, in this thread. Nested scopes concatenate prefixes, unless the
// inner one is not `nested`. Given names stay as they are.
class NameScope {
 public:
  explicit NameScope(std::string prefix = {}, bool nested = true);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;
  std::string NextName(const std::string& op_lowercase);
  static NameScope* Current();  // nullptr if none

 private:
  NameScope* outer_;
  std::string prefix_;
  std::map<std::string, int> counters_;
};

// Annotates the nodes made while it lives, in this thread. An inner scope overrides an outer (and hides it if it is not
// `nested`), the node's own annotations override both.
class AttrScope {
 public:
  explicit AttrScope(Annotations annotations, bool nested = true);
  // For AttrScope({{"ctx_group", "stage1"}}), which would be ambiguous.
  explicit AttrScope(std::initializer_list<Annotations::value_type> annotations)
      : AttrScope(Annotations(annotations)) {}
  ~AttrScope();
  AttrScope(const AttrScope&) = delete;
  AttrScope& operator=(const AttrScope&) = delete;
  static const Annotations& Current();

 private:
  AttrScope* outer_;
  Annotations merged_;
};

// Nodes made while it lives, in this thread, are called `origin` in messages: the user has not made them.
class OriginScope {
 public:
  explicit OriginScope(std::string origin);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;
  static const std::string& Current();  // "" if none

 private:
  OriginScope* outer_;
  std::string origin_;
};

}  // namespace bindery
