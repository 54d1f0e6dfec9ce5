#include "symbol/op_def.h"

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

}  // namespace

Extents NodeContext::shape(int input) const {
  if (auto shape = types_->ShapeOf(node_->inputs()[input])) return *std::move(shape);
  ThrowUnknown("shape", *node_, "argument", InputNames(*node_).at(input));
}

Extents NodeContext::output_shape(int output) const {
  if (auto shape = types_->ShapeOf({node_, output})) return *std::move(shape);
  ThrowUnknown("shape", *node_, "output", node_->op().outputs.Names(node_->attrs()).at(output));
}

DType NodeContext::dtype(int input) const {
  if (const auto dtype = types_->DTypeOf(node_->inputs()[input])) return *dtype;
  ThrowUnknown("element type", *node_, "argument", InputNames(*node_).at(input));
}

DType NodeContext::output_dtype(int output) const {
  if (const auto dtype = types_->DTypeOf({node_, output})) return *dtype;
  ThrowUnknown("element type", *node_, "output", node_->op().outputs.Names(node_->attrs()).at(output));
}

bool NodeContext::is_number(int input) const {
  const auto shape = types_->ShapeOf(node_->inputs()[input]);
  return shape && shape->empty();
}

std::vector<std::string> InputNames(const Node& node) {
  return node.op().inputs.Names(node.attrs(), static_cast<int>(node.inputs().size()));
}

}  // namespace bindery
