#include "symbol/forward_types.h"

#include "base/error.h"

namespace bindery {
namespace {

// A batched variable: where its batch axis is, and its shape as far as it is known.
struct Batched {
  std::string name;
  Shape shape;
  int axis;
};

std::vector<Batched> BatchedVariables(const Graph& graph, const GivenTypes& given) {
  std::vector<Batched> batched;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    const auto shape = given.shapes.find(node->name());
    if (shape == given.shapes.end() && !node->declared_shape) continue;
    Batched variable{node->name(), shape != given.shapes.end() ? shape->second : *node->declared_shape, -1};
    const auto said = given.batch_axes.find(node->name());
    variable.axis = said != given.batch_axes.end() ? said->second : AxisOfLayout(*node, variable.shape);
    if (variable.axis >= 0 && variable.axis < variable.shape.rank()) batched.push_back(std::move(variable));
  }
  return batched;
}

// Is every extent a fixed number and some for each sample?
bool FollowEvenly(const PartialTypes& at_batch, const PartialTypes& one_more, const PartialTypes& many_more) {
  for (size_t node = 0; node < at_batch.size(); ++node) {
    for (size_t output = 0; output < at_batch[node].size(); ++output) {
      const std::optional<Shape>&shape = at_batch[node][output].shape, &next = one_more[node][output].shape,
            &many = many_more[node][output].shape;
      if (!shape || !shape->IsKnown()) continue;
      if (!next || !many || next->rank() != shape->rank() || many->rank() != shape->rank()) return false;
      for (int axis = 0; axis < shape->rank(); ++axis) {
        const int64_t each = (*next)[axis] - (*shape)[axis], all = (*many)[axis] - (*shape)[axis];
        if (all % kManySamples != 0 || all / kManySamples != each) return false;
      }
    }
  }
  return true;
}

}  // namespace

std::optional<Extents> InferredForwardTypes::ShapeOf(const Entry& value) const {
  Extents extents;
  for (const int64_t extent : types_[graph_.IndexOf(value.node)][value.output].shape) extents.push_back({extent, 0});
  return extents;
}

std::optional<DType> InferredForwardTypes::DTypeOf(const Entry& value) const {
  return types_[graph_.IndexOf(value.node)][value.output].dtype;
}

std::optional<Extents> BoundForwardTypes::ShapeOf(const Entry& value) const {
  return ExtentsOf(types_[graph_.IndexOf(value.node)][value.output], batch_);
}

std::optional<DType> BoundForwardTypes::DTypeOf(const Entry& value) const {
  return types_[graph_.IndexOf(value.node)][value.output].dtype;
}

std::optional<Numbers> BoundForwardTypes::NumbersOf(const Entry& value) const {
  return numbers_[graph_.IndexOf(value.node)][value.output];
}

const GivenForwardTypes::Inferred& GivenForwardTypes::Infer() const {
  if (inferred_) return *inferred_;
  const std::vector<Batched> batched = BatchedVariables(graph_, given_);
  Inferred result;
  // Where no batch is given any will do; not 1, which broadcasts.
  constexpr int64_t kAnyBatch = 4;
  result.batch = BatchOf(graph_, given_.shapes, given_.batch_axes).value_or(kAnyBatch);
  const auto infer = [&](int64_t batch, const DTypeMap* dtypes) {
    ShapeMap shapes = given_.shapes;
    for (const auto& [name, shape, axis] : batched) {
      const int64_t extent = shape[axis] == kUnknownDim ? result.batch : shape[axis];
      if (extent == result.batch) shapes[name] = shape.With(axis, batch);
    }
    return InferPartial(graph_, shapes, dtypes, batch);
  };
  result.at_batch = infer(result.batch, &given_.dtypes);
  if (!batched.empty()) {
    try {
      result.one_more = infer(result.batch + 1, nullptr);
      result.many_more = infer(result.batch + kManySamples, nullptr);
      if (!FollowEvenly(result.at_batch, result.one_more, result.many_more)) result.one_more.clear();
    } catch (const ShapeError&) {  // the graph fits this batch alone
      result.one_more.clear();
    }
  }
  return inferred_.emplace(std::move(result));
}

std::optional<Extents> GivenForwardTypes::ShapeOf(const Entry& value) const {
  const Inferred& inferred = Infer();
  const int node = graph_.IndexOf(value.node);
  const std::optional<Shape>& shape = inferred.at_batch[node][value.output].shape;
  if (!shape || !shape->IsKnown()) return std::nullopt;
  Extents extents;
  for (const int64_t extent : *shape) extents.push_back({extent, 0});
  if (inferred.one_more.empty()) return extents;
  const Shape& one_more = *inferred.one_more[node][value.output].shape;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    extents[axis] = extents[axis] + Extent{-inferred.batch, 1} * (one_more[axis] - extents[axis].fixed);
  }
  return extents;
}

std::optional<Numbers> GivenForwardTypes::NumbersOf(const Entry& value) const {
  const Inferred& inferred = Infer();
  const auto numbers = [&](const PartialTypes& types) {
    return types.empty() ? std::nullopt : types[graph_.IndexOf(value.node)][value.output].numbers;
  };
  std::optional<Numbers> result = numbers(inferred.at_batch);
  const std::optional<Numbers> next = numbers(inferred.one_more), many = numbers(inferred.many_more);
  if (!result || !next || !many || next->size() != result->size() || many->size() != result->size()) return result;
  for (size_t i = 0; i < result->size(); ++i) {
    const double now = (*result)[i].at[0], each = ((*many)[i].at[0] - now) / kManySamples;
    (*result)[i] = Number(now, (*next)[i].at[0], now + 2 * each);
  }
  return result;
}

std::optional<DType> GivenForwardTypes::DTypeOf(const Entry& value) const {
  return Infer().at_batch[graph_.IndexOf(value.node)][value.output].dtype;
}

}  // namespace bindery
