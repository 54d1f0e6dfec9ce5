#include "tests/symbol/op_rules.h"

#include "base/error.h"
#include "symbol/infer.h"
#include "symbol/ops/elementwise.h"
#include "tests/symbol/op_examples.h"

namespace bindery {
namespace {

// A node alone.
class Context final : public InferContext {
 public:
  Context(const OpDef& op, const AnyAttrs& attrs, size_t given_inputs)
      : InferContext(op.inputs, op.outputs, attrs), op_(op),
        inputs(op.inputs.Count(attrs, static_cast<int>(given_inputs))), outputs(NumOutputs(op, attrs)),
        constants_(ExampleNumbers(op)) {}
  int num_inputs() const override { return static_cast<int>(inputs.size()); }
  int num_outputs() const override { return static_cast<int>(outputs.size()); }
  bool may_assume() const override { return assume_; }
  std::optional<int64_t> batch() const override { return kExampleBatch; }

  void Run(bool assume) {
    do {
      changed_ = false;
      for (const auto& [i, value] : constants_) {
        if (inputs.at(i).shape == value.shape()) inputs[i].numbers = NumbersOf(value);
      }
      op_.infer(*this);
      if (!changed_ && !assume_) assume_ = changed_ = assume;
    } while (changed_);
  }

 protected:
  const PartialType& Known(bool output, int i) const override { return (output ? outputs : inputs).at(i); }
  void Learn(bool output, int i, const Shape& fact) override {
    Learn((output ? outputs : inputs).at(i).shape, output, i, fact);
  }
  void Learn(bool output, int i, DType fact) override {
    Learn((output ? outputs : inputs).at(i).dtype, output, i, fact);
  }

 private:
  static Numbers NumbersOf(const HostTensor& value) {
    Numbers numbers;
    for (int64_t i = 0; i < value.elements(); ++i) numbers.emplace_back(value.At(i));
    return numbers;
  }
  bool Merge(std::optional<DType>& known, DType fact) {
    changed_ = changed_ || !known;
    if (!known) known = fact;
    return *known == fact;
  }
  bool Merge(std::optional<Shape>& known, const Shape& fact) {
    if (!known) {
      known = fact;
      changed_ = true;
      return true;
    }
    if (known->rank() != fact.rank()) return false;
    for (int axis = 0; axis < fact.rank(); ++axis) {
      const int64_t old = (*known)[axis];
      if (fact[axis] == kUnknownDim || fact[axis] == old) continue;
      if (old != kUnknownDim) return false;
      known->Set(axis, fact[axis]);
      changed_ = true;
    }
    return true;
  }
  template <class Fact>
  void Learn(std::optional<Fact>& known, bool output, int i, const Fact& fact) {
    if (Merge(known, fact)) return;
    const auto names = output ? op_.outputs.Names(any_attrs()) : op_.inputs.Names(any_attrs(), num_inputs());
    Throw<ShapeError>("{} \"{}\": expected {}, got {}", output ? "output" : "argument", names.at(i), fact, *known);
  }

  const OpDef& op_;
  bool assume_ = false, changed_ = false;

 public:
  std::vector<PartialType> inputs, outputs;

 private:
  const std::map<int, HostTensor> constants_;
};

// The node's rule run from what is known of some part of its types, and that part of the result.
template <class Facts, class Fact>
std::pair<Facts, Facts> Infer(const OpDef& op, const AnyAttrs& attrs, const Facts& inputs, const Facts& outputs,
                              bool assume, Fact PartialType::*part) {
  Context context(op, attrs, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) context.inputs.at(i).*part = inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i) context.outputs.at(i).*part = outputs[i];
  context.Run(assume);
  Facts in, out;
  for (const PartialType& type : context.inputs) in.push_back(type.*part);
  for (const PartialType& type : context.outputs) out.push_back(type.*part);
  return {in, out};
}

}  // namespace

NodeShapes InferNode(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs, bool assume) {
  const auto [in, out] = Infer(op, attrs, inputs, outputs, assume, &PartialType::shape);
  return {in, out};
}

NodeDTypes InferNodeDTypes(const OpDef& op, const AnyAttrs& attrs, std::vector<std::optional<DType>> inputs,
                           std::vector<std::optional<DType>> outputs) {
  const auto [in, out] = Infer(op, attrs, inputs, outputs, false, &PartialType::dtype);
  return {in, out};
}

std::vector<Symbol> NodeOf(const OpDef& op, const AnyAttrs& attrs, int num_inputs, const std::string& name) {
  std::vector<Symbol> inputs;
  for (const std::string& input : op.inputs.Names(attrs, num_inputs)) inputs.push_back(Variable(input));
  for (const auto& [i, value] : ExampleNumbers(op)) inputs.at(i) = Constant(value, inputs.at(i).name());
  return ApplyAll(op, attrs, std::move(inputs), name);
}

std::vector<int> OutputBatchAxes(const OpDef& op, const AnyAttrs& attrs, const std::vector<Shape>& inputs,
                                 const std::vector<int>& axes) {
  const int count = static_cast<int>(inputs.size());
  const Symbol symbol = Group(NodeOf(op, attrs, count));
  ShapeMap shapes;
  std::map<std::string, int> batch_axes;
  const std::vector<std::string> names = op.inputs.Names(attrs, count);
  const std::map<int, HostTensor> constants = ExampleNumbers(op);
  for (int i = 0; i < count; ++i) {
    if (constants.contains(i)) continue;
    shapes[names[i]] = inputs[i];
    batch_axes[names[i]] = axes.at(i);
  }
  const Graph graph = Graph::Of(symbol);
  const int64_t batch = BatchOf(graph, shapes, batch_axes).value_or(kExampleBatch);
  const auto types = InferTypes(graph, shapes, {}, batch_axes, batch);
  std::vector<int> result;
  for (const ValueType& type : types.back()) result.push_back(type.batch_axis);
  return result;
}

}  // namespace bindery
