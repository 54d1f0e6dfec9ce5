// An operator's rules applied to one node alone, without a graph.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "symbol/op_def.h"

namespace bindery {

using Shapes = std::vector<std::optional<Shape>>;
inline constexpr int64_t kAny = kUnknownDim;
inline constexpr int64_t kExampleBatch = 5;  // what attributes that follow the batch are multiples of

struct NodeShapes {
  Shapes inputs, outputs;
  bool operator==(const NodeShapes&) const = default;
};
// To a fixed point, from what is known of inputs and outputs (missing trailing ones: nothing). With `assume` false no
// rule may assume anything. Throws ShapeError: 'argument "weight": expected (4, 3), got (4, 2)'.
NodeShapes InferNode(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}, bool assume = true);

struct NodeDTypes {
  std::vector<std::optional<DType>> inputs, outputs;
  bool operator==(const NodeDTypes&) const = default;
};
NodeDTypes InferNodeDTypes(const OpDef& op, const AnyAttrs& attrs, std::vector<std::optional<DType>> inputs,
                           std::vector<std::optional<DType>> outputs = {});

// Batch axes of all outputs of an operator whose inputs have these shapes and axes.
std::vector<int> OutputBatchAxes(const OpDef& op, const AnyAttrs& attrs, const std::vector<Shape>& inputs,
                                 const std::vector<int>& axes);

// The node of the operator, its inputs being variables of their names, or constants (see ExampleNumbers).
std::vector<Symbol> NodeOf(const OpDef& op, const AnyAttrs& attrs, int num_inputs, const std::string& name = "node");

}  // namespace bindery
