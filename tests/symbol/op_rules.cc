#include "tests/symbol/op_rules.h"

#include "base/error.h"
#include "symbol/infer.h"

namespace bindery {
namespace {

// Both contexts; Facts is std::vector<std::optional<Shape>> or of DType.
template <class Base, class Facts, class Result, class Param>
class Context : public Base {
 public:
  Context(const OpDef& op, const AnyAttrs& attrs, Facts& inputs, Facts& outputs)
      : op_(op), attrs_(attrs), inputs_(inputs), outputs_(outputs) {}
  const AnyAttrs& any_attrs() const override { return attrs_; }
  int num_inputs() const override { return static_cast<int>(inputs_.size()); }
  int num_outputs() const override { return static_cast<int>(outputs_.size()); }
  Result input(int i) const override { return inputs_.at(i); }
  Result output(int i) const override { return outputs_.at(i); }
  void SetInput(int i, Param fact) override {
    Set(inputs_.at(i), fact, [&] { return "argument \"" + op_.inputs(attrs_, num_inputs()).at(i); });
  }
  void SetOutput(int i, Param fact) override {
    Set(outputs_.at(i), fact, [&] { return "output \"" + op_.outputs(attrs_).at(i); });
  }
  bool may_assume() const { return assume; }
  std::optional<int64_t> batch() const { return kExampleBatch; }
  bool assume = false, changed = false;

 private:
  static bool Merge(std::optional<DType>& known, DType fact, bool& changed) {
    changed = changed || !known;
    if (!known) known = fact;
    return *known == fact;
  }
  static bool Merge(std::optional<Shape>& known, const Shape& fact, bool& changed) {
    if (!known) {
      known = fact;
      changed = true;
      return true;
    }
    if (known->rank() != fact.rank()) return false;
    for (int axis = 0; axis < fact.rank(); ++axis) {
      const int64_t old = (*known)[axis];
      if (fact[axis] == kUnknownDim || fact[axis] == old) continue;
      if (old != kUnknownDim) return false;
      known->Set(axis, fact[axis]);
      changed = true;
    }
    return true;
  }
  template <class Fact, class Name>
  void Set(std::optional<Fact>& known, const Fact& fact, Name name) {
    if (!Merge(known, fact, changed)) Throw<ShapeError>("{}\": expected {}, got {}", name(), fact, *known);
  }

  const OpDef& op_;
  const AnyAttrs& attrs_;
  Facts &inputs_, &outputs_;
};

using ShapeContext = Context<InferContext, Shapes, const std::optional<Shape>&, const Shape&>;
using DTypeContext = Context<InferDTypeContext, std::vector<std::optional<DType>>, std::optional<DType>, DType>;

}  // namespace

NodeShapes InferNode(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs, bool assume) {
  inputs.resize(op.inputs(attrs, static_cast<int>(inputs.size())).size());
  outputs.resize(NumOutputs(op, attrs));
  ShapeContext context(op, attrs, inputs, outputs);
  do {
    context.changed = false;
    op.infer_shape(context);
    if (!context.changed && !context.assume) context.assume = context.changed = assume;
  } while (context.changed);
  return {inputs, outputs};
}

NodeDTypes InferNodeDTypes(const OpDef& op, const AnyAttrs& attrs, std::vector<std::optional<DType>> inputs,
                           std::vector<std::optional<DType>> outputs) {
  inputs.resize(op.inputs(attrs, static_cast<int>(inputs.size())).size());
  outputs.resize(NumOutputs(op, attrs));
  DTypeContext context(op, attrs, inputs, outputs);
  do {
    context.changed = false;
    op.infer_dtype(context);
  } while (context.changed);
  return {inputs, outputs};
}

std::vector<Symbol> NodeOf(const OpDef& op, const AnyAttrs& attrs, int num_inputs, const std::string& name) {
  std::vector<Symbol> inputs;
  for (const std::string& input : op.inputs(attrs, num_inputs)) inputs.push_back(Variable(input));
  return ApplyAll(op, attrs, std::move(inputs), name);
}

std::vector<int> OutputBatchAxes(const OpDef& op, const AnyAttrs& attrs, const std::vector<Shape>& inputs,
                                 const std::vector<int>& axes) {
  const int count = static_cast<int>(inputs.size());
  const Symbol symbol = Group(NodeOf(op, attrs, count));
  ShapeMap shapes;
  std::map<std::string, int> batch_axes;
  const std::vector<std::string> names = op.inputs(attrs, count);
  for (int i = 0; i < count; ++i) {
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
