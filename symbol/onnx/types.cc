#include "symbol/onnx/types.h"

#include <algorithm>
#include <limits>

#include "symbol/graph.h"
#include "symbol/infer/fixed_point.h"
#include "symbol/infer/value_index.h"
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

void ValueTypes::DeclareNumbers(const Symbol& value, const PartialExtents& numbers) {
  if (std::ssize(numbers) > bindery::kMaxNumbers) return;
  Of(value.entry());
  std::vector<Sizes>& outputs = known_.at(value.entry().node.get());
  for (size_t i = 0; i < sizes_; ++i) {
    bindery::Numbers& known = outputs[static_cast<size_t>(value.entry().output)][i].numbers.emplace();
    const auto batch = static_cast<double>(batch_ + static_cast<int64_t>(i));
    for (const std::optional<Extent>& number : numbers) {
      known.emplace_back(number ? static_cast<double>(number->fixed) + static_cast<double>(number->batches) * batch
                                : std::numeric_limits<double>::quiet_NaN());
    }
  }
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
  // Of the node alone: what is below it is known. Nothing is assumed: what is not known may be anything.
  std::vector<Entry> inputs;
  for (size_t i = 0; i < node->inputs().size(); ++i) inputs.push_back(Variable(std::to_string(i)).entry());
  const NodePtr alone = WithInputs(*node, inputs);
  const Graph graph = Graph::Of(Symbol(OutputsOf(alone)));
  const ValueIndex values(graph);
  const bool is_open = ScalarValue(*node).has_value();  // a number has the type of what it is combined with
  for (size_t size = 0; size < sizes_; ++size) {
    FixedPoint facts(graph, values, batch_ + static_cast<int64_t>(size));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Entry& input = node->inputs()[i];
      const PartialType& known = known_.at(input.node.get())[static_cast<size_t>(input.output)][size];
      const int value = values.Of(inputs[i]);
      if (known.shape) facts.Add(value, *known.shape);
      if (known.dtype) facts.Add(value, *known.dtype);
      if (known.numbers) facts.Add(value, *known.numbers);
    }
    if (is_open) {
      facts.Run();
    } else {
      facts.RunWithDefault();
    }
    for (size_t o = 0; o < count; ++o) {
      outputs[o][size] = facts[values.Of(graph.IndexOf(alone), static_cast<int>(o))];
      // What is computed Fold knows, as it is with every batch: three sizes of one do not show all.
      if (!node->inputs().empty()) outputs[o][size].numbers.reset();
    }
  }
  return outputs;
}

}  // namespace bindery::onnx
