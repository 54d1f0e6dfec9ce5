#include "symbol/op_def.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/graph.h"

namespace bindery {
namespace {

[[noreturn]] void ThrowUnknown(const char* what, const Node& node, const char* kind, const std::string& name) {
  Throw<ModelError>(
      "the gradient of {} needs the {} of its {} \"{}\", which is not known: bind the symbol (the executor knows all "
      "types), declare the shapes of its variables, or give them to Gradient",
      Describe(node), what, kind, name);
}

std::string InputName(const Node& node, int i) {
  return node.op().inputs(node.attrs(), static_cast<int>(node.inputs().size())).at(i);
}

}  // namespace

Extents NodeContext::shape(int input) const {
  if (auto shape = types_->ShapeOf(node_->inputs()[input])) return *std::move(shape);
  ThrowUnknown("shape", *node_, "argument", InputName(*node_, input));
}

Extents NodeContext::output_shape(int output) const {
  if (auto shape = types_->ShapeOf({node_, output})) return *std::move(shape);
  ThrowUnknown("shape", *node_, "output", node_->op().outputs(node_->attrs()).at(output));
}

DType NodeContext::dtype(int input) const {
  if (const auto dtype = types_->DTypeOf(node_->inputs()[input])) return *dtype;
  ThrowUnknown("element type", *node_, "argument", InputName(*node_, input));
}

DType NodeContext::output_dtype(int output) const {
  if (const auto dtype = types_->DTypeOf({node_, output})) return *dtype;
  ThrowUnknown("element type", *node_, "output", node_->op().outputs(node_->attrs()).at(output));
}

bool NodeContext::is_number(int input) const {
  const auto shape = types_->ShapeOf(node_->inputs()[input]);
  return shape && shape->empty();
}

int NumOutputs(const OpDef& op, const AnyAttrs& attrs) {
  return op.num_outputs ? op.num_outputs(attrs) : static_cast<int>(op.outputs(attrs).size());
}

int NumVisibleOutputs(const OpDef& op, const AnyAttrs& attrs) {
  const int all = NumOutputs(op, attrs);
  const int visible = op.num_visible_outputs ? op.num_visible_outputs(attrs) : 0;
  return visible == 0 ? all : std::min(visible, all);
}

bool IsAuxiliary(const OpDef& op, const std::string& input_name) {
  return std::find(op.auxiliary.begin(), op.auxiliary.end(), input_name) != op.auxiliary.end();
}

}  // namespace bindery
