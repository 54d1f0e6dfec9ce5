// Shape, dtype and batch-axis inference over a graph.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "symbol/graph.h"
#include "symbol/symbol.h"

namespace bindery {

// Element type, shape and batch axis of one value.
struct ValueType {
  DType dtype = DType::kFloat32;
  Shape shape;
  int batch_axis = -1;  // -1: not batched
  bool operator==(const ValueType&) const = default;
};

using ShapeMap = std::map<std::string, Shape>;
using DTypeMap = std::map<std::string, DType>;

struct InferredShapes {
  std::vector<std::optional<Shape>> arguments, outputs, auxiliary;  // in listing order
  bool complete = false;                                            // every shape known, no unknown extent
};
// Forward and backward rules to a fixed point, from what is given by argument name and what variables declare.
// Throws ShapeError on contradictions ('FullyConnected "fc1", argument "weight": expected (500, 800), got (500, 784)')
// and Error for names that are not arguments (with the nearest). Incomplete knowledge is not an error here.
InferredShapes InferShapesPartial(const Symbol& symbol, const ShapeMap& known);
// The same, but throws ShapeError listing the arguments that remain unknown.
InferredShapes InferShapes(const Symbol& symbol, const ShapeMap& known);

struct InferredDTypes {
  std::vector<DType> arguments, outputs, auxiliary;
};
InferredDTypes InferDTypes(const Symbol& symbol, const DTypeMap& known);  // float32 where nothing is known

// Everything at once, per graph node and output: types[node][output]. `batch_axes` by argument name, -1 = not batched;
// a variable that is absent has its batch axis where its `layout` annotation has the N, and none without one. Throws as
// above; all shapes must come out complete.
using NodeTypes = std::vector<std::vector<ValueType>>;
NodeTypes InferTypes(const Graph& graph, const ShapeMap& shapes, const DTypeMap& dtypes,
                     const std::map<std::string, int>& batch_axes = {});

// The default rule for batch axes: an output is batched where the first batched input is, if it has that input's rank
// and extent there.

}  // namespace bindery
