#include "symbol/infer.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/names.h"
#include "symbol/fixed_point.h"
#include "symbol/op_def.h"

namespace bindery {
namespace infer {

Merged Merge(std::optional<Shape>& known, const Shape& fact) {
  if (!known) {
    known = fact;
    return Merged::kChanged;
  }
  if (known->rank() != fact.rank()) return Merged::kConflict;
  Shape merged = *known;
  for (int axis = 0; axis < fact.rank(); ++axis) {
    if (fact[axis] == kUnknownDim || fact[axis] == merged[axis]) continue;
    if (merged[axis] != kUnknownDim) return Merged::kConflict;
    merged.Set(axis, fact[axis]);
  }
  if (merged == *known) return Merged::kSame;
  known = merged;
  return Merged::kChanged;
}

Merged Merge(std::optional<DType>& known, DType fact) {
  if (known) return *known == fact ? Merged::kSame : Merged::kConflict;
  known = fact;
  return Merged::kChanged;
}

// Without a rule of its own an operator has one element type for all its inputs and outputs.
void Traits<DType>::Rule(const OpDef& op, InferDTypeContext& context) {
  if (op.infer_dtype) return op.infer_dtype(context);
  std::optional<DType> common;
  for (int i = 0; i < context.num_inputs() && !common; ++i) common = context.input(i);
  for (int i = 0; i < context.num_outputs() && !common; ++i) common = context.output(i);
  if (!common) return;
  for (int i = 0; i < context.num_inputs(); ++i) context.SetInput(i, *common);
  for (int i = 0; i < context.num_outputs(); ++i) context.SetOutput(i, *common);
}

}  // namespace infer

namespace {

constexpr size_t kMaxListed = 20;

// A graph with its variables by name.
struct Variables {
  explicit Variables(const Graph& graph) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n]->is_variable()) nodes.emplace(graph.nodes[n]->name(), static_cast<int>(n));
    }
  }
  template <class T>
  void CheckNames(const std::map<std::string, T>& given) const {
    for (const auto& [name, value] : given) {
      if (nodes.contains(name)) continue;
      std::vector<std::string> known;
      for (const auto& [known_name, node] : nodes) known.emplace_back(known_name);
      Throw("unknown argument \"{}\"{}", name, NameHint(name, known));
    }
  }
  std::map<std::string_view, int> nodes;
};

using ShapeFacts = infer::FixedPoint<Shape>;
using DTypeFacts = infer::FixedPoint<DType>;

// Adds to a variable what it was declared with and what the caller gives.
template <class Fact>
void AddVariable(infer::FixedPoint<Fact>& facts, const Node& node, int value, const std::optional<Fact>& declared,
                 const std::map<std::string, Fact>& given) {
  if (declared) facts.Add(value, *declared);
  const auto it = given.find(node.name());
  if (it != given.end() && !facts.Add(value, it->second)) {
    Throw<ShapeError>("{}: declared as {}, got {}", Describe(node), *declared, it->second);
  }
}

ShapeFacts SolveShapes(const Graph& graph, const ValueIndex& values, const ShapeMap& known,
                       std::optional<int64_t> batch) {
  const Variables variables(graph);
  variables.CheckNames(known);
  ShapeFacts facts(graph, values, batch);
  for (const auto& [name, n] : variables.nodes) {
    AddVariable(facts, *graph.nodes[n], values.Of(n, 0), graph.nodes[n]->declared_shape, known);
  }
  facts.Run();
  return facts;
}

std::vector<DType> SolveDTypes(const Graph& graph, const ValueIndex& values, const DTypeMap& known) {
  const Variables variables(graph);
  variables.CheckNames(known);
  DTypeFacts facts(graph, values);
  for (const auto& [name, n] : variables.nodes) {
    AddVariable(facts, *graph.nodes[n], values.Of(n, 0), graph.nodes[n]->declared_dtype, known);
  }
  facts.Run();
  std::vector<DType> dtypes;
  dtypes.reserve(values.size());
  for (int v = 0; v < values.size(); ++v) {  // inputs first, so that what follows from them is not guessed
    if (!facts.facts()[v]) {
      facts.Add(v, DType::kFloat32);
      facts.Run();
    }
    dtypes.push_back(*facts.facts()[v]);
  }
  return dtypes;
}

bool IsComplete(const std::optional<Shape>& shape) { return shape && shape->IsKnown(); }

// Has it attributes that are multiples of the batch?
bool FollowsBatch(const Node& node) {
  const AttrMap attrs = node.attrs().ToMap();
  return attrs.contains("batches") || attrs.contains("begin_batches") || attrs.contains("end_batches");
}

void CheckComplete(const Graph& graph, const ValueIndex& values, const ShapeFacts::Facts& shapes,
                   std::optional<int64_t> batch) {
  std::string arguments;
  size_t count = 0;
  int first_other = -1;  // value of an operator
  for (int v = 0; v < values.size(); ++v) {
    if (IsComplete(shapes[v])) continue;
    const Node& node = *graph.nodes[values.producer(v)];
    if (!node.is_variable()) {
      if (first_other < 0) first_other = v;
    } else if (++count <= kMaxListed) {
      arguments +=
          fmt::format("{}{}{}", count > 1 ? ", " : "", node.name(), shapes[v] ? " " + ToString(*shapes[v]) : "");
    }
  }
  if (count > kMaxListed) arguments += fmt::format(" and {} more", count - kMaxListed);
  if (count > 0) Throw<ShapeError>("the shapes of these arguments do not follow from what is known: {}", arguments);
  if (first_other >= 0) {
    const int n = values.producer(first_other);
    const Node& node = *graph.nodes[n];
    Throw<ShapeError>("{}: the shape of its output \"{}\" does not follow from its inputs{}", Describe(node),
                      node.OutputName(first_other - values.Of(n, 0)),
                      !batch && FollowsBatch(node) ? "; it follows the batch: say which axis of an input is that, by a "
                                                     "layout with N"
                                                   : "");
  }
}

// No rule multiplies extents: that the elements can be counted is seen here.
void CheckCountable(const Node& node, const Shape& shape) {
  try {
    shape.Elements();
  } catch (const ShapeError& error) {
    Throw<ShapeError>("{}: {}", Describe(node), error.message());
  }
}

template <class Fact, class Values>
void List(const Symbol& symbol, const Graph& graph, const ValueIndex& values, const Values& all,
          std::vector<Fact>& arguments, std::vector<Fact>& outputs, std::vector<Fact>& auxiliary) {
  const Variables variables(graph);
  for (const std::string& name : symbol.ListArguments())
    arguments.push_back(all[values.Of(variables.nodes.at(name), 0)]);
  for (const std::string& name : symbol.ListAuxiliaryStates()) {
    auxiliary.push_back(all[values.Of(variables.nodes.at(name), 0)]);
  }
  for (const Entry& entry : symbol.entries()) outputs.push_back(all[values.Of(entry)]);
}

// Nobody says which axes are the batch's: by layouts, or as most have it.
std::optional<int64_t> LikelyBatch(const Graph& graph, const ShapeMap& known) {
  if (const auto batch = BatchOf(graph, known, {})) return batch;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    const auto given = known.find(node->name());
    if (given == known.end() || given->second.rank() == 0) continue;
    return given->second[0] == kUnknownDim ? std::nullopt : std::optional(given->second[0]);
  }
  return std::nullopt;
}

InferredShapes InferSymbol(const Symbol& symbol, const ShapeMap& known, bool must_be_complete) {
  const Graph graph = Graph::Of(symbol);
  const ValueIndex values(graph);
  const std::optional<int64_t> batch = LikelyBatch(graph, known);
  const ShapeFacts solved = SolveShapes(graph, values, known, batch);
  if (must_be_complete) CheckComplete(graph, values, solved.facts(), batch);
  InferredShapes result;
  result.complete = std::all_of(solved.facts().begin(), solved.facts().end(), IsComplete);
  List(symbol, graph, values, solved.facts(), result.arguments, result.outputs, result.auxiliary);
  return result;
}

int BatchAxisOfVariable(const Node& node, const Shape& shape, const std::map<std::string, int>& given) {
  if (const auto it = given.find(node.name()); it != given.end()) {
    if (it->second < -1 || it->second >= shape.rank()) {
      Throw<ShapeError>("{}: its batch axis cannot be {}, its shape is {}", Describe(node), it->second, shape);
    }
    return it->second;
  }
  return AxisOfLayout(node, shape);
}

// The default rule (see the header).
void FollowFirstBatched(BatchAxisContext& context) {
  for (size_t i = 0; i < context.input_axes.size(); ++i) {
    const int axis = context.input_axes[i];
    if (axis < 0) continue;
    const Shape& input = context.input_shapes[i];
    for (size_t o = 0; o < context.output_axes.size(); ++o) {
      const Shape& output = context.output_shapes[o];
      if (output.rank() == input.rank() && output[axis] == input[axis]) context.output_axes[o] = axis;
    }
    return;
  }
}

// The fold of an output that its rule said nothing of; nullopt if the output is no batch after all.
std::optional<BatchFold> FoldOf(const BatchAxisContext& context, const Shape& output, int axis,
                                std::optional<int64_t> batch) {
  for (size_t i = 0; i < context.input_axes.size(); ++i) {
    const int input_axis = context.input_axes[i];
    if (input_axis >= 0 && context.input_shapes[i][input_axis] == output[axis]) return context.input_folds[i];
  }
  if (batch && output[axis] != *batch) return std::nullopt;
  return BatchFold{};
}

void InferBatchAxes(const Graph& graph, const std::map<std::string, int>& given, std::optional<int64_t> batch,
                    NodeTypes& types) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = *graph.nodes[n];
    if (node.is_variable()) {
      types[n][0].batch_axis = BatchAxisOfVariable(node, types[n][0].shape, given);
      continue;
    }
    BatchAxisContext context{.any_attrs = node.attrs(), .output_axes = std::vector<int>(node.num_outputs(), -1)};
    context.output_folds.resize(node.num_outputs());
    for (const Entry& input : node.inputs()) {
      const ValueType& type = types[graph.IndexOf(input.node)][input.output];
      context.input_shapes.push_back(type.shape);
      context.input_axes.push_back(type.batch_axis);
      context.input_folds.push_back(type.batch_fold);
    }
    for (const ValueType& type : types[n]) context.output_shapes.push_back(type.shape);
    if (node.op().batch_axis) {
      node.op().batch_axis(context);
    } else {
      FollowFirstBatched(context);
    }
    for (size_t o = 0; o < types[n].size(); ++o) {
      const int axis = context.output_axes.at(o);
      Check(axis >= -1 && axis < types[n][o].shape.rank(), "a batch-axis rule sets an axis of the output");
      if (axis < 0) continue;
      const auto fold =
          context.output_folds.at(o) ? context.output_folds[o] : FoldOf(context, types[n][o].shape, axis, batch);
      if (!fold) continue;
      types[n][o].batch_axis = axis;
      types[n][o].batch_fold = *fold;
    }
  }
}

}  // namespace

Shape ValueType::SampleView() const {
  const int64_t folded = batch_fold.outer * batch_fold.inner, extent = shape[batch_axis];
  return {shape.CountTo(batch_axis) * batch_fold.outer, folded == 0 ? 0 : extent / folded,
          batch_fold.inner * shape.CountFrom(batch_axis + 1)};
}

const Node* LosesBatch(const Graph& graph, const NodeTypes& types, const Entry& value) {
  const auto is_batched = [&](const Entry& entry) {
    return types[graph.IndexOf(entry.node)][entry.output].batch_axis >= 0;
  };
  const Entry entries[] = {value};
  for (const NodePtr& node : PostOrder(entries)) {
    const std::vector<ValueType>& outputs = types[graph.IndexOf(node)];
    const bool gives = std::ranges::any_of(outputs, [](const ValueType& type) { return type.batch_axis >= 0; });
    if (!gives && std::ranges::any_of(node->inputs(), is_batched)) return node.get();
  }
  return nullptr;
}

InferredShapes InferShapesPartial(const Symbol& symbol, const ShapeMap& known) {
  return InferSymbol(symbol, known, false);
}

InferredShapes InferShapes(const Symbol& symbol, const ShapeMap& known) { return InferSymbol(symbol, known, true); }

InferredDTypes InferDTypes(const Symbol& symbol, const DTypeMap& known) {
  const Graph graph = Graph::Of(symbol);
  const ValueIndex values(graph);
  InferredDTypes result;
  List(symbol, graph, values, SolveDTypes(graph, values, known), result.arguments, result.outputs, result.auxiliary);
  return result;
}

int AxisOfLayout(const Node& variable, const Shape& shape) {
  const auto layout = variable.annotations().find("layout");
  if (layout == variable.annotations().end()) return -1;
  const size_t axis = layout->second.find('N');
  return axis < static_cast<size_t>(shape.rank()) ? static_cast<int>(axis) : -1;
}

std::optional<int64_t> BatchOf(const Graph& graph, const ShapeMap& shapes,
                               const std::map<std::string, int>& batch_axes) {
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    const auto given = shapes.find(node->name());
    if (given == shapes.end() && !node->declared_shape) continue;
    const Shape& shape = given != shapes.end() ? given->second : *node->declared_shape;
    const auto said = batch_axes.find(node->name());
    const int axis = said != batch_axes.end() ? said->second : AxisOfLayout(*node, shape);
    if (axis >= 0 && axis < shape.rank() && shape[axis] != kUnknownDim) return shape[axis];
  }
  return std::nullopt;
}

PartialShapes InferShapesPartial(const Graph& graph, const ShapeMap& known, std::optional<int64_t> batch) {
  const ValueIndex values(graph);
  const ShapeFacts solved = SolveShapes(graph, values, known, batch);
  PartialShapes shapes(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) shapes[values.producer(v)].push_back(solved.facts()[v]);
  return shapes;
}

std::vector<std::vector<DType>> InferDTypes(const Graph& graph, const DTypeMap& known) {
  const ValueIndex values(graph);
  const std::vector<DType> solved = SolveDTypes(graph, values, known);
  std::vector<std::vector<DType>> dtypes(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) dtypes[values.producer(v)].push_back(solved[v]);
  return dtypes;
}

NodeTypes InferTypes(const Graph& graph, const ShapeMap& shapes, const DTypeMap& dtypes,
                     const std::map<std::string, int>& batch_axes, std::optional<int64_t> batch) {
  const ValueIndex values(graph);
  Variables(graph).CheckNames(batch_axes);
  if (!batch) batch = BatchOf(graph, shapes, batch_axes);
  const ShapeFacts solved = SolveShapes(graph, values, shapes, batch);
  CheckComplete(graph, values, solved.facts(), batch);
  const std::vector<DType> solved_dtypes = SolveDTypes(graph, values, dtypes);
  NodeTypes types(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) {
    CheckCountable(*graph.nodes[values.producer(v)], *solved.facts()[v]);
    types[values.producer(v)].push_back({solved_dtypes[v], *solved.facts()[v], -1});
  }
  InferBatchAxes(graph, batch_axes, batch, types);
  return types;
}

}  // namespace bindery
