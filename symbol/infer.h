// Shape, dtype and batch-axis inference over a graph.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/symbol.h"

namespace bindery {

// Element type, shape and batch axis of one value.
struct ValueType {
  DType dtype = DType::kFloat32;
  Shape shape;
  int batch_axis = -1;  // -1: not batched
  BatchFold batch_fold = {};
  bool operator==(const ValueType&) const = default;

  // A batched value seen as (outer, samples, inner): what lies before and after the samples, folded or not.
  Shape SampleView() const;
};

// The shape, with the extent of its batch axis as one that follows a batch of this extent.
Extents ExtentsOf(const ValueType& type, std::optional<int64_t> batch);

using ShapeMap = std::map<std::string, Shape>;
using DTypeMap = std::map<std::string, DType>;

struct InferredShapes {
  std::vector<std::optional<Shape>> arguments, outputs, auxiliary;  // in listing order
  bool complete = false;                                            // every shape known, no unknown extent
};
// Forward and backward rules to a fixed point, from what is given by argument name and what variables declare. Where
// attributes follow the batch, that is the extent at the first N of a layout, or else the first one of the first
// argument whose shape is given.
// Throws ShapeError on contradictions ('FullyConnected "fc1", argument "weight": expected (500, 800), got (500, 784)')
// and Error for names that are not arguments (with the nearest). Incomplete knowledge is not an error here.
InferredShapes InferShapesPartial(const Symbol& symbol, const ShapeMap& known);
// The same, but throws ShapeError listing the arguments that remain unknown.
InferredShapes InferShapes(const Symbol& symbol, const ShapeMap& known);

struct InferredDTypes {
  std::vector<DType> arguments, outputs, auxiliary;
};
InferredDTypes InferDTypes(const Symbol& symbol, const DTypeMap& known);  // float32 where nothing is known

// Where a variable's `layout` annotation has the N, or -1.
int AxisOfLayout(const Node& variable, const Shape& shape);

// The extent of the batch, if something tells: that of the first variable with a batch axis (`batch_axes` by argument
// name, -1 = not batched; a variable that is absent has it where its `layout` annotation has the N, and none without).
std::optional<int64_t> BatchOf(const Graph& graph, const ShapeMap& shapes,
                               const std::map<std::string, int>& batch_axes);

// Everything at once, per graph node and output: types[node][output]. `batch_axes` as above; `batch`: its extent, if it
// is not to be found by BatchOf. Throws as above; all shapes must come out complete.
// `numbers`: gets the numbers in values that hold such, where all of them are known.
using NodeTypes = std::vector<std::vector<ValueType>>;
using NodeNumbers = std::vector<std::vector<std::optional<Numbers>>>;
NodeTypes InferTypes(const Graph& graph, const ShapeMap& shapes, const DTypeMap& dtypes,
                     const std::map<std::string, int>& batch_axes = {}, std::optional<int64_t> batch = {},
                     NodeNumbers* numbers = nullptr);

// The same without batch axes, as far as shapes are known. No `dtypes`: element types are left open, too.
using PartialTypes = std::vector<std::vector<PartialType>>;
PartialTypes InferPartial(const Graph& graph, const ShapeMap& shapes, const DTypeMap* dtypes,
                          std::optional<int64_t> batch);
// Element types per graph node and output.
std::vector<std::vector<DType>> InferDTypes(const Graph& graph, const DTypeMap& known);

// Where the samples of a value were lost on its way: the first node, in order, with a batched input and without a
// batched output that the value depends on; null if there is none.
const Node* LosesBatch(const Graph& graph, const NodeTypes& types, const Entry& value);

}  // namespace bindery
