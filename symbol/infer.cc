#include "symbol/infer.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/names.h"
#include "symbol/infer/fixed_point.h"
#include "symbol/op_def.h"

namespace bindery {
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

// Starts from what variables were declared with and what the caller gives.
FixedPoint Start(const Graph& graph, const ValueIndex& values, const ShapeMap* shapes, const DTypeMap* dtypes,
                 std::optional<int64_t> batch = {}) {
  const Variables variables(graph);
  FixedPoint facts(graph, values, batch);
  const auto add = [&](const auto& given, auto declared) {
    variables.CheckNames(given);
    for (const auto& [name, n] : variables.nodes) {
      const Node& node = *graph.nodes[n];
      if (node.*declared) facts.Add(values.Of(n, 0), *(node.*declared));
      const auto it = given.find(node.name());
      if (it != given.end() && !facts.Add(values.Of(n, 0), it->second)) {
        Throw<ShapeError>("{}: declared as {}, got {}", Describe(node), *(node.*declared), it->second);
      }
    }
  };
  if (shapes != nullptr) add(*shapes, &Node::declared_shape);
  if (dtypes != nullptr) add(*dtypes, &Node::declared_dtype);
  return facts;
}

bool IsComplete(const std::optional<Shape>& shape) { return shape && shape->IsKnown(); }

// Has it attributes that are multiples of the batch?
bool FollowsBatch(const Node& node) {
  const AttrMap attrs = node.attrs().ToMap();
  return attrs.contains("batches") || attrs.contains("begin_batches") || attrs.contains("end_batches");
}

void CheckComplete(const Graph& graph, const ValueIndex& values, const FixedPoint& facts, std::optional<int64_t> batch,
                   const ShapeMap& known) {
  std::string arguments;
  size_t count = 0;
  int first_other = -1;  // value of an operator
  for (int v = 0; v < values.size(); ++v) {
    const std::optional<Shape>& shape = facts[v].shape;
    if (IsComplete(shape)) continue;
    const Node& node = *graph.nodes[values.producer(v)];
    if (!node.is_variable()) {
      if (first_other < 0) first_other = v;
    } else if (++count <= kMaxListed) {
      arguments += fmt::format("{}{}{}", count > 1 ? ", " : "", node.name(), shape ? " " + ToString(*shape) : "");
    }
  }
  if (count > kMaxListed) arguments += fmt::format(" and {} more", count - kMaxListed);
  if (count > 0) {
    std::string given;
    size_t count_given = 0;
    for (const auto& [name, shape] : known) {
      if (!shape.IsKnown() || ++count_given > kMaxListed) continue;
      given += fmt::format("{}{} {}", given.empty() ? "; given: " : ", ", name, shape);
    }
    if (count_given > kMaxListed) given += fmt::format(" and {} more", count_given - kMaxListed);
    Throw<ShapeError>("the shapes of these arguments do not follow from what is known: {}{}", arguments, given);
  }
  if (first_other >= 0) {
    const int n = values.producer(first_other);
    const Node& node = *graph.nodes[n];
    std::string hint;
    if (!batch && FollowsBatch(node)) {
      hint = "; it follows the batch: say which axis of an input is that, by a layout with N";
    }
    for (size_t i = 1; i < node.inputs().size() && node.op().compose && hint.empty(); ++i) {
      if (facts[values.inputs(n)[i]].numbers) continue;
      hint = fmt::format("; the numbers in \"{}\" have to follow from constants and from shapes", InputNames(node)[i]);
    }
    Throw<ShapeError>("{}: the shape of its output \"{}\" does not follow from its inputs{}", Describe(node),
                      node.OutputName(first_other - values.Of(n, 0)), hint);
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

// What `get` says of each value, in the order in which a symbol lists them.
template <class Fact, class Get>
void List(const Symbol& symbol, const Graph& graph, const ValueIndex& values, const Get& get,
          std::vector<Fact>& arguments, std::vector<Fact>& outputs, std::vector<Fact>& auxiliary) {
  const Variables variables(graph);
  const auto of = [&](const std::string& name) { return get(values.Of(variables.nodes.at(name), 0)); };
  for (const std::string& name : symbol.ListArguments()) arguments.push_back(of(name));
  for (const std::string& name : symbol.ListAuxiliaryStates()) auxiliary.push_back(of(name));
  for (const Entry& entry : symbol.entries()) outputs.push_back(get(values.Of(entry)));
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
  FixedPoint facts = Start(graph, values, &known, nullptr, batch);
  facts.RunAssuming();
  if (must_be_complete) CheckComplete(graph, values, facts, batch, known);
  InferredShapes result;
  result.complete = true;
  for (int v = 0; v < values.size(); ++v) result.complete = result.complete && IsComplete(facts[v].shape);
  const auto shape = [&](int value) { return facts[value].shape; };
  List(symbol, graph, values, shape, result.arguments, result.outputs, result.auxiliary);
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

}  // namespace

Shape ValueType::SampleView() const {
  const int64_t folded = batch_fold.outer * batch_fold.inner, extent = shape[batch_axis];
  return {shape.CountTo(batch_axis) * batch_fold.outer, folded == 0 ? 0 : extent / folded,
          batch_fold.inner * shape.CountFrom(batch_axis + 1)};
}

Extents ExtentsOf(const ValueType& type, std::optional<int64_t> batch) {
  Extents extents;
  for (const int64_t extent : type.shape) extents.push_back({extent, 0});
  if (!batch || type.batch_axis < 0) return extents;
  const int64_t folded = type.batch_fold.outer * type.batch_fold.inner;
  if (type.shape[type.batch_axis] == folded * *batch) extents[type.batch_axis] = {0, folded};
  return extents;
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
  FixedPoint facts = Start(graph, values, nullptr, &known);
  facts.RunWithDefault();
  InferredDTypes result;
  const auto dtype = [&](int value) { return *facts[value].dtype; };
  List(symbol, graph, values, dtype, result.arguments, result.outputs, result.auxiliary);
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

PartialTypes InferPartial(const Graph& graph, const ShapeMap& shapes, const DTypeMap* dtypes,
                          std::optional<int64_t> batch) {
  const ValueIndex values(graph);
  FixedPoint facts = Start(graph, values, &shapes, dtypes, batch);
  facts.RunAssuming();
  if (dtypes != nullptr) facts.RunWithDefault();
  PartialTypes types(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) types[values.producer(v)].push_back(facts[v]);
  return types;
}

std::vector<std::vector<DType>> InferDTypes(const Graph& graph, const DTypeMap& known) {
  const ValueIndex values(graph);
  FixedPoint facts = Start(graph, values, nullptr, &known);
  facts.RunWithDefault();
  std::vector<std::vector<DType>> dtypes(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) dtypes[values.producer(v)].push_back(*facts[v].dtype);
  return dtypes;
}

NodeTypes InferTypes(const Graph& graph, const ShapeMap& shapes, const DTypeMap& dtypes,
                     const std::map<std::string, int>& batch_axes, std::optional<int64_t> batch, NodeNumbers* numbers) {
  const ValueIndex values(graph);
  Variables(graph).CheckNames(batch_axes);
  if (!batch) batch = BatchOf(graph, shapes, batch_axes);
  FixedPoint facts = Start(graph, values, &shapes, &dtypes, batch);
  facts.RunAssuming();
  CheckComplete(graph, values, facts, batch, shapes);
  facts.RunWithDefault();
  std::vector<InferContext::BatchPlace> places(graph.nodes.size());
  for (int v = 0; v < values.size(); ++v) {
    const int n = values.producer(v);
    const Node& node = *graph.nodes[n];
    CheckCountable(node, *facts[v].shape);
    if (node.is_variable()) places[n].axis = BatchAxisOfVariable(node, *facts[v].shape, batch_axes);
  }
  NodeTypes types = facts.PlaceBatches(places);
  if (numbers == nullptr) return types;
  numbers->assign(graph.nodes.size(), {});
  for (int v = 0; v < values.size(); ++v) {
    const std::optional<Numbers>& found = facts[v].numbers;
    const bool all = found && std::ranges::all_of(*found, &Number::IsKnown);
    (*numbers)[values.producer(v)].push_back(all ? found : std::nullopt);
  }
  return types;
}

}  // namespace bindery
