// OpDef: everything that is to be told about an operator, once. Computing it is the executor's business
// (executor/kernels); saving, printing, shapes, gradients, memory reuse and tests derive from here.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "symbol/attrs.h"
#include "symbol/extents.h"
#include "symbol/infer_context.h"
#include "symbol/slots.h"
#include "symbol/symbol.h"

namespace bindery {

// What is known of forward values when gradients are taken.
class ForwardTypes {
 public:
  virtual ~ForwardTypes() = default;
  virtual std::optional<Extents> ShapeOf(const Entry& value) const = 0;
  virtual std::optional<DType> DTypeOf(const Entry& value) const = 0;
  virtual std::optional<Numbers> NumbersOf(const Entry& value) const = 0;  // where all are known
  virtual std::optional<int64_t> Batch() const = 0;                        // its extent, if there is one
  virtual bool OfEveryBatch() const = 0;  // extents that follow the batch may become those of any other
};

// What a rule that makes symbols may use of its node. Every symbol here has one output. Nodes that the rule makes
// without a name are named after the node.
class NodeContext {
 public:
  NodeContext(const NodePtr& node, const ForwardTypes* types) : node_(node), types_(types) {}
  template <OpAttrs A>
  const A& attrs() const {
    return node_->attrs().get<A>();
  }
  const std::string& name() const { return node_->name(); }
  int num_inputs() const { return static_cast<int>(node_->inputs().size()); }
  Symbol input(int i) const { return Symbol(node_->inputs()[i]); }
  Symbol output(int i) const { return Symbol(Entry{node_, i}); }

  // Types of inputs and outputs. ModelError, which tells what to do, where they are not known (see Gradient).
  Extents shape(int input) const;
  Extents output_shape(int output) const;
  DType dtype(int input) const;
  DType output_dtype(int output) const;
  bool is_number(int input) const;  // is it known to have no axes?

 private:
  NodePtr node_;
  const ForwardTypes* types_;
};

// What an operator that is made of others is told of its node, when all shapes of its inputs are known.
struct ComposeContext {
  const AnyAttrs& any_attrs;
  std::vector<Symbol> inputs;
  std::vector<Extents> shapes;
  std::vector<std::optional<DType>> dtypes;
  std::vector<std::optional<Numbers>> numbers;  // of inputs that hold such; all of a value's or none
  std::optional<int64_t> batch;                 // its extent, if there is one
  bool of_every_batch;                          // does what is made have to fit any other batch?
  std::string name;                             // for the last node that is made
  template <OpAttrs A>
  const A& attrs() const {
    return any_attrs.get<A>();
  }
};

class GradientContext : public NodeContext {
 public:
  GradientContext(const NodePtr& node, std::vector<Symbol> output_grads, std::vector<bool> wanted,
                  const ForwardTypes* types)
      : NodeContext(node, types), output_grads_(std::move(output_grads)), wanted_(std::move(wanted)) {}
  // Empty if nothing flows back into that output.
  const Symbol& output_grad(int i) const { return output_grads_[i]; }
  bool wants(int i) const { return wanted_[i]; }  // is the gradient of input i asked for?

 private:
  std::vector<Symbol> output_grads_;
  std::vector<bool> wanted_;
};

// The next value of an auxiliary state, which the step's commit makes the current one.
struct StateUpdate {
  int input = 0;
  Symbol value;
};
class UpdateContext : public NodeContext {
 public:
  UpdateContext(const NodePtr& node, std::vector<Symbol> states, const ForwardTypes* types)
      : NodeContext(node, types), states_(std::move(states)) {}
  // The auxiliary state at input i, as nodes before this one leave it: several may share a state.
  const Symbol& state(int i) const { return states_[i]; }

 private:
  std::vector<Symbol> states_;
};

struct InplacePair {
  int input = 0, output = 0;
  bool operator==(const InplacePair&) const = default;
};

// What an operator makes of the values that the devices of a group have for its input 0: it is the sum of them, or its
// kernel gets them all, in device order along a new axis 0. On one device both are that device's value.
enum class AcrossDevices : uint8_t { kNothing, kSum, kGather };

struct ValueType;

// What tells whether a node is a view.
struct ViewContext {
  const AnyAttrs& attrs;
  const ValueType &input, &output;  // types of input 0 and of output 0
  bool training = false;
  bool by_products = false;  // is an output beyond 0 read?
};

// How a node is bound, as far as operators adapt to it.
struct BindContext {
  std::vector<bool> fixed = {};  // per input: is it a parameter that is not trained?
  bool training = false;
  int devices = 1;
};

// Whole numbers from `low` to `high`, and maybe one besides: of a label that is ignored, say.
struct WholeNumbers {
  double low = 0, high = 0;
  std::optional<double> besides = {};
  static WholeNumbers UpTo(int64_t high, int64_t low = 0) {
    return {.low = static_cast<double>(low), .high = static_cast<double>(high)};
  }
  bool Has(double value) const {
    return (value >= low && value <= high && value == std::floor(value)) || value == besides;
  }
};

// What an input has to be: classes, lengths, numbers of rows. Kernels refuse others, with DataError; and where a batch
// brings the input as it is, whoever is given the batch refuses it before it is on its way, by sample (docs/step.md).
struct AskedNumbers {
  std::string input = {};
  // By the shapes of all inputs, of a whole batch; no value: whatever they are.
  std::function<std::optional<WholeNumbers>(const AnyAttrs&, std::span<const Shape> inputs)> range = {};
  bool in_training = false;   // it is the gradient that refuses them
  bool of_parameter = false;  // asked where input 0 is a parameter: of others, each device may have a part
};

struct OpDef {
  std::string name = {};  // "Convolution"
  std::string doc = {};   // the formula, in a line or two
  const AttrsType* attrs_type = &AttrsOf<NoAttrs>();

  Slots inputs = {"data"}, outputs = {"output"};
  // Stem of automatic names ("tanh"); default: the operator's name in lower case.
  std::function<std::string(const AnyAttrs&)> auto_name = {};

  // Element types, shapes, and where the batch goes. Required; what many operators have in common: symbol/ops/rules.h.
  std::function<void(InferContext&)> infer = {};
  std::vector<AskedNumbers> asks = {};
  // Throws ModelError if the attributes are wrong by themselves (a stride of 0); called when a node is made or loaded.
  std::function<void(const AnyAttrs&)> check = {};

  // One symbol per input (empty = no gradient flows there; return {} for none at all). Not called if nothing is wanted.
  std::function<std::vector<Symbol>(const GradientContext&)> gradient = {};
  std::string not_differentiable = {};  // the reason, if there is no gradient rule
  // A loss head: its gradient does not depend on what flows back into its output.
  std::function<bool(const AnyAttrs&)> is_loss = {};
  // Of a loss head: its gradient is divided by the number of samples already, so an update does not divide again.
  std::function<bool(const AnyAttrs&)> is_mean = {};
  bool blocks_gradient = false;  // of a loss head: nothing flows back (BlockGrad), so nothing is trained by it

  // Its attributes for one binding, before anything else is done; default: as they are.
  std::function<AnyAttrs(const AnyAttrs&, const BindContext&)> adapt = {};

  // In training: what becomes of its auxiliary states, from its inputs and outputs, merged over all devices
  // (AcrossDevices). Done after forward, once for each micro-batch.
  std::function<std::vector<StateUpdate>(const UpdateContext&)> updates = {};

  // Its outputs once more, in backward, of its inputs and of outputs that are kept: one symbol per output, empty for
  // those that are kept (symbol/passes/recompute.h). To the bit what they were. Default: by the same node again, unless
  // it reads an auxiliary state.
  std::function<std::vector<Symbol>(const NodeContext&)> again = {};

  // The operator in terms of others (BatchNorm with `sync`), done before gradients; empty result = leave as it is.
  std::function<std::vector<Symbol>(const NodePtr&)> expand = {};
  // The operator in terms of others, one symbol per output, as soon as shapes are known: it has no gradient and no
  // kernel of its own. Empty result: the numbers in some input are not known. See symbol/compose.h.
  std::function<std::vector<Symbol>(const ComposeContext&)> compose = {};
  // Sets the numbers in small outputs, from those in inputs or from shapes; run after `infer`.
  std::function<void(InferContext&)> numbers = {};

  // Multiplications and additions, where they are most of its work, by the shapes of its inputs and outputs; outputs
  // that nobody has are scalars. See symbol/ops/operations.h.
  std::function<double(std::span<const Shape> inputs, std::span<const Shape> outputs)> operations = {};

  // Input i and output o may share memory if their dtypes, shapes and formats are equal; the kernel may still decline.
  std::vector<InplacePair> inplace = {};
  // Output 0 has input 0's elements in the same order: costs nothing if plain.
  std::function<bool(const ViewContext&)> is_view = {};
  // Output 0 is input 0, whatever its type: nodes of this kind are left out.
  std::function<bool(const AnyAttrs&, const std::vector<Entry>& inputs)> is_identity = {};
  bool zero_to_zero = false;  // f(0, 0, ...) = 0: padding of blocked formats stays zero
  bool is_random = false;     // never merged by common-subexpression elimination
  bool reads_step = false;    // depends on the step (its batch size): no constant, whatever its inputs are
  AcrossDevices across_devices = AcrossDevices::kNothing;
};

// The function that makes a node of an operator of one input, or of two or three: Softmax(x, {.axis = 1}, "name"),
// Convolution(x, w, b, {.num_filter = 8, ...}). Inputs that are empty or left out are those of Apply.
template <OpAttrs A, int kInputs = 1>
struct OpFunction {
  const OpDef& (*op)();
  Symbol operator()(const Symbol& data, const A& attrs = {}, const std::string& name = {}) const {
    return Apply(op(), attrs, {data}, name);
  }
  Symbol operator()(const Symbol& data, const std::string& name) const requires std::same_as<A, NoAttrs> {
    return Apply(op(), {}, {data}, name);
  }
  Symbol operator()(const Symbol& a, const Symbol& b, const A& attrs = {}, const std::string& name = {}) const
      requires(kInputs == 2) {
    return Apply(op(), attrs, {a, b}, name);
  }
  Symbol operator()(const Symbol& a, const Symbol& b, const Symbol& c, const A& attrs = {},
                    const std::string& name = {}) const requires(kInputs == 3) {
    return Apply(op(), attrs, {a, b, c}, name);
  }
};

inline int NumOutputs(const OpDef& op, const AnyAttrs& attrs) { return op.outputs.Count(attrs); }  // of a node
inline int NumVisibleOutputs(const OpDef& op, const AnyAttrs& attrs) { return op.outputs.Visible(attrs); }
inline bool IsAuxiliary(const OpDef& op, const std::string& input_name) { return op.inputs.IsAuxiliary(input_name); }
std::vector<std::string> InputNames(const Node& node);

// Every operator: the built-in table (symbol/ops.cc) and those that the user added.
// Thread safe. Names are case sensitive.
const OpDef& FindOp(const std::string& name);  // throws ModelError with the nearest name
const OpDef* FindOpOrNull(const std::string& name);
std::vector<const OpDef*> ListOps();  // sorted by name
const OpDef& AddOp(OpDef op);         // a user's operator; throws Error if the name is taken

}  // namespace bindery
