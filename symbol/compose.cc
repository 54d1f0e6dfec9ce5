#include "symbol/compose.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/infer/fixed_point.h"
#include "symbol/infer/forward_types.h"
#include "symbol/infer/value_index.h"
#include "symbol/ops/rules.h"
#include "symbol/passes/passes.h"

namespace bindery {
namespace {

// Parts of parts; no operator is made of itself.
constexpr int kMaxDepth = 16;

// The small integers of a node as Constants; nothing if one of its outputs is anything else.
std::vector<Entry> AsConstants(const Node& node, const std::vector<ValueType>& types,
                               const std::vector<std::optional<Numbers>>& numbers) {
  constexpr double kExact = 0x1p53;  // from here on it may stand for several integers
  std::vector<Entry> constants;
  if (node.inputs().empty() || node.op().is_random) return constants;
  for (size_t o = 0; o < types.size(); ++o) {
    if (!numbers[o] || IsFloat(types[o].dtype)) return {};
    HostTensor value(types[o].dtype, types[o].shape);
    for (size_t i = 0; i < numbers[o]->size(); ++i) {
      const double number = (*numbers[o])[i].at[0];
      if (std::abs(number) >= kExact) return {};
      value.Set(static_cast<int64_t>(i), number);
    }
    constants.push_back(ConstantInPlaceOf(node, static_cast<int>(o), std::move(value)));
  }
  return constants;
}

// Numbers may follow a device's share of the batch as long as shapes alone follow from them.
void CheckShares(const Graph& graph, const NodeNumbers& numbers) {
  const auto check = [&](const Entry& value) {
    const std::optional<Numbers>& known = numbers[graph.IndexOf(value.node)][value.output];
    if (!known || std::ranges::none_of(*known, &Number::FollowsBatch)) return;
    Throw<ShapeError>(
        "{}: it holds the extent of the batch, of which each of several devices would see its share: as data it can be "
        "had on one device alone",
        Describe(*value.node));
  };
  for (const Entry& head : graph.outputs) check(head);
  for (const NodePtr& node : graph.nodes) {
    const auto& own = numbers[graph.IndexOf(node)];
    if (std::ranges::all_of(own, &std::optional<Numbers>::has_value)) continue;  // not data yet
    for (const Entry& input : node->inputs()) check(input);
  }
}

}  // namespace

std::optional<ComposeContext> ComposeContextOf(const Node& node, const std::vector<Entry>& inputs,
                                               const ForwardTypes& types) {
  ComposeContext context{.any_attrs = node.attrs(),
                         .inputs = {},
                         .shapes = {},
                         .dtypes = {},
                         .numbers = {},
                         .batch = types.Batch(),
                         .of_every_batch = types.OfEveryBatch(),
                         .name = node.name()};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Entry& input = node.inputs()[i];
    std::optional<Extents> shape = types.ShapeOf(input);
    if (!shape) return std::nullopt;
    context.inputs.emplace_back(inputs[i]);
    context.shapes.push_back(std::move(*shape));
    context.dtypes.push_back(types.DTypeOf(input));
    context.numbers.push_back(types.NumbersOf(input));
  }
  return context;
}

void InferComposed(InferContext& c, const std::function<std::vector<Symbol>(const ComposeContext&)>& compose) {
  ComposeContext context{.any_attrs = c.any_attrs(),
                         .inputs = {},
                         .shapes = {},
                         .dtypes = {},
                         .numbers = {},
                         .batch = c.batch(),
                         .of_every_batch = false,
                         .name = "made"};
  const int count = c.num_inputs();
  for (int i = 0; i < count; ++i) {
    const InferContext::Value input = c.in(i);
    if (!input.Known()) return;
    ValueType type{.shape = *input.shape()};
    if (const auto* place = c.batch_of_input(i)) {
      type.batch_axis = place->axis;
      type.batch_fold = place->fold;
    }
    const Numbers* numbers = input.numbers();
    const bool all = numbers != nullptr && std::ranges::all_of(*numbers, &Number::IsKnown);
    context.inputs.push_back(Variable(fmt::format("input{}", i)));
    context.shapes.push_back(ExtentsOf(type, c.batch()));
    context.dtypes.push_back(input.dtype());
    context.numbers.push_back(all ? std::optional(*numbers) : std::nullopt);
  }
  const NameScope names("made_", false);
  const AttrScope no_annotations({}, false);
  const std::vector<Symbol> outputs = compose(context);
  if (outputs.empty()) return;
  Check(std::ssize(outputs) == c.num_outputs(), "an operator is made of a symbol for each output");

  const Graph graph = Graph::Of(Group(outputs));
  const ValueIndex values(graph);
  FixedPoint facts(graph, values, c.batch());
  std::vector<InferContext::BatchPlace> places(graph.nodes.size());
  for (int i = 0; i < count; ++i) {
    const auto used = graph.index.find(context.inputs[i].entry().node.get());
    if (used == graph.index.end()) continue;
    const int value = values.Of(used->second, 0);
    facts.Add(value, *c.in(i).shape());
    if (c.in(i).dtype()) facts.Add(value, *c.in(i).dtype());
    if (c.in(i).numbers()) facts.Add(value, *c.in(i).numbers());
    if (c.batch_of_input(i)) places[used->second] = *c.batch_of_input(i);
  }
  facts.RunAssuming();
  NodeTypes types;
  if (c.batch_of_input() != nullptr) {
    facts.RunWithDefault();
    types = facts.PlaceBatches(places);
  }
  for (int o = 0; o < c.num_outputs(); ++o) {
    const Entry& output = graph.outputs[o];
    const PartialType& type = facts[values.Of(output)];
    if (type.shape) c.out(o).Set(*type.shape);
    if (type.dtype) c.out(o).SetDType(*type.dtype);
    if (type.numbers) c.out(o).SetNumbers(*type.numbers);
    if (types.empty()) continue;
    const ValueType& placed = types[graph.IndexOf(output.node)][output.output];
    c.PlaceBatch(o, placed.batch_axis, placed.batch_fold);
  }
}

OpDef Composed(std::string name, std::string doc, const AttrsType* attrs,
               std::vector<Symbol> (*compose)(const ComposeContext&), std::function<void(const AnyAttrs&)> check) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .attrs_type = attrs,
          .infer =
              [compose](InferContext& c) {
                rule::SameDTypes(c);
                InferComposed(c, compose);
              },
          .check = std::move(check),
          .compose = compose};
}

bool HasComposed(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const NodePtr& n) { return !n->is_variable() && n->op().compose; });
}

void CheckComposed(const Graph& graph) {
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable() || !node->op().compose) continue;
    Throw<ShapeError>("{}: the numbers that it takes have to follow from constants and from shapes", Describe(*node));
  }
}

Symbol Compose(const Graph& graph, const ForwardTypes& types, const std::string& suffix,
               const std::function<bool(const Node&)>& which) {
  return Rewrite(Symbol(graph.outputs), [&](const NodePtr& node, const std::vector<Entry>& inputs) {
    std::vector<Entry> outputs;
    if (!node->op().compose || (which && !which(*node))) return outputs;
    std::optional<ComposeContext> context = ComposeContextOf(*node, inputs, types);
    if (!context) return outputs;
    context->name += suffix;
    const OnBehalfOf scope(*node, "_");
    for (const Symbol& output : node->op().compose(*context)) outputs.push_back(output.entry());
    return outputs;
  });
}

void ComposeAll(Graph* graph, NodeTypes* types, NodeNumbers* numbers, std::optional<int64_t> batch, int devices,
                const InferGraph& infer) {
  const auto replace = [&](const Symbol& by) {
    if (by.entries() == graph->outputs) return;
    *graph = Graph::Of(by);
    *types = infer(*graph, numbers);
  };
  for (int depth = 0; HasComposed(*graph) && depth < kMaxDepth; ++depth) {
    replace(Compose(*graph, BoundForwardTypes(*graph, *types, numbers, batch)));
  }
  CheckComposed(*graph);
  if (devices > 1) CheckShares(*graph, *numbers);
  const auto is_known = [](const std::optional<Numbers>& known) { return known.has_value(); };
  const auto computed = [&](const NodePtr& node) {
    return !node->inputs().empty() && std::ranges::any_of((*numbers)[graph->IndexOf(node)], is_known);
  };
  if (std::ranges::none_of(graph->nodes, computed)) return;
  replace(Rewrite(Symbol(graph->outputs), [&](const NodePtr& node, const std::vector<Entry>&) {
    const int n = graph->IndexOf(node);
    return AsConstants(*node, (*types)[n], (*numbers)[n]);
  }));
}

}  // namespace bindery
