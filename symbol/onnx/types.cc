#include "symbol/onnx/types.h"

#include <algorithm>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"

namespace bindery::onnx {

void ValueTypes::Declare(const Symbol& variable, DType dtype, const std::optional<Shape>& shape,
                         const std::vector<int>& batch_axes) {
  Sizes sizes;
  for (size_t i = 0; i < sizes_; ++i) {
    sizes[i] = {dtype, shape};
    for (const int axis : batch_axes) sizes[i].shape->Set(axis, batch_ + static_cast<int64_t>(i));
  }
  alive_.push_back(variable.entry().node);
  known_.insert_or_assign(alive_.back().get(), std::vector{sizes});
}

std::optional<DType> ValueTypes::DTypeOf(const Symbol& value) { return Of(value.entry())[0].dtype; }

std::optional<PartialExtents> ValueTypes::ExtentsOf(const Symbol& value) {
  const Sizes& sizes = Of(value.entry());
  const std::optional<Shape>& shape = sizes[0].shape;
  const auto has_rank = [&](const PartialType& type) { return type.shape && type.shape->rank() == shape->rank(); };
  if (!shape || !std::all_of(sizes.begin(), sizes.begin() + sizes_, has_rank)) return std::nullopt;
  PartialExtents extents;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    const auto at = [&](size_t i) { return (*sizes[sizes_ == 1 ? 0 : i].shape)[axis]; };
    const int64_t growth = at(1) - at(0);
    extents.emplace_back();
    if (at(0) == kUnknownDim || at(1) == kUnknownDim || at(2) - at(1) != growth) continue;
    extents.back() = Extent{at(0), 0} + Extent{-batch_, 1} * growth;
  }
  return extents;
}

const ValueTypes::Sizes& ValueTypes::Of(const Entry& value) {
  std::vector<NodePtr> waiting{value.node};
  while (!waiting.empty()) {
    const NodePtr node = waiting.back();
    const size_t before = waiting.size();
    if (!known_.contains(node.get())) {
      for (const Entry& input : node->inputs()) {
        if (!known_.contains(input.node.get())) waiting.push_back(input.node);
      }
      if (waiting.size() > before) continue;
      known_.emplace(node.get(), Infer(node));
      alive_.push_back(node);
    }
    waiting.pop_back();
  }
  return known_.at(value.node.get())[static_cast<size_t>(value.output)];
}

std::vector<ValueTypes::Sizes> ValueTypes::Infer(const NodePtr& node) const {
  const auto count = static_cast<size_t>(node->num_outputs());
  std::vector<Sizes> outputs(count);
  if (node->is_variable()) return outputs;  // one that nobody has declared
  // Of the node alone: what is below it is known.
  std::vector<Entry> inputs;
  std::array<ShapeMap, 3> shapes;
  DTypeMap dtypes;
  for (const Entry& input : node->inputs()) {
    const std::string name = std::to_string(inputs.size());
    inputs.push_back(Variable(name).entry());
    const Sizes& known = known_.at(input.node.get())[static_cast<size_t>(input.output)];
    if (known[0].dtype) dtypes.emplace(name, *known[0].dtype);
    for (size_t i = 0; i < sizes_; ++i) {
      if (known[i].shape) shapes[i].emplace(name, *known[i].shape);
    }
  }
  const NodePtr alone = WithInputs(*node, std::move(inputs));
  const Graph graph = Graph::Of(Symbol(OutputsOf(alone)));
  for (size_t i = 0; i < sizes_; ++i) {
    // The type of a number is that of what it is combined with.
    const bool is_open = ScalarValue(*node).has_value();
    const PartialTypes types =
        InferPartial(graph, shapes[i], is_open ? nullptr : &dtypes, batch_ + static_cast<int64_t>(i));
    for (size_t o = 0; o < count; ++o) outputs[o][i] = types[static_cast<size_t>(graph.IndexOf(alone))][o];
  }
  return outputs;
}

}  // namespace bindery::onnx
