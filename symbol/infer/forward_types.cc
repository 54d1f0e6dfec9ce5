#include "symbol/infer/forward_types.h"

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

std::optional<Extents> BoundForwardTypes::ShapeOf(const Entry& value) const {
  return ExtentsOf(types_[graph_.IndexOf(value.node)][value.output], batch_);
}

std::optional<DType> BoundForwardTypes::DTypeOf(const Entry& value) const {
  return types_[graph_.IndexOf(value.node)][value.output].dtype;
}

std::optional<Numbers> BoundForwardTypes::NumbersOf(const Entry& value) const {
  return numbers_ == nullptr ? std::nullopt : (*numbers_)[graph_.IndexOf(value.node)][value.output];
}

PartialTypes GivenForwardTypes::InferWith(int64_t batch, const DTypeMap* dtypes) const {
  ShapeMap shapes = given_.shapes;
  for (const auto& [name, shape, axis] : BatchedVariables(graph_, given_)) {
    if (shape[axis] == kUnknownDim || shape[axis] == batch_) shapes[name] = shape.With(axis, batch);
  }
  return InferPartial(graph_, shapes, dtypes, batch);
}

const PartialTypes& GivenForwardTypes::AtBatch() const {
  if (!at_batch_) at_batch_ = InferWith(batch_, &given_.dtypes);
  return *at_batch_;
}

const GivenForwardTypes::GrownTypes& GivenForwardTypes::Grown() const {
  if (grown_) return *grown_;
  GrownTypes& grown = grown_.emplace();
  if (BatchedVariables(graph_, given_).empty()) return grown;
  try {
    GrownTypes found{InferWith(batch_ + 1, nullptr), InferWith(batch_ + kManySamples, nullptr)};
    if (FollowEvenly(AtBatch(), found.one_more, found.many_more)) grown = std::move(found);
  } catch (const ShapeError&) {  // the graph fits this batch alone
  }
  return grown;
}

std::optional<Extents> GivenForwardTypes::ShapeOf(const Entry& value) const {
  const int node = graph_.IndexOf(value.node);
  const std::optional<Shape>& shape = AtBatch()[node][value.output].shape;
  if (!shape || !shape->IsKnown()) return std::nullopt;
  Extents extents;
  for (const int64_t extent : *shape) extents.push_back({extent, 0});
  if (extents.empty() || Grown().one_more.empty()) return extents;
  const Shape& one_more = *Grown().one_more[node][value.output].shape;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    extents[axis] = extents[axis] + Extent{-batch_, 1} * (one_more[axis] - extents[axis].fixed);
  }
  return extents;
}

std::optional<Numbers> GivenForwardTypes::NumbersOf(const Entry& value) const {
  const auto numbers = [&](const PartialTypes& types) {
    return types.empty() ? std::nullopt : types[graph_.IndexOf(value.node)][value.output].numbers;
  };
  std::optional<Numbers> result = numbers(AtBatch());
  if (!result) return result;
  const std::optional<Numbers> next = numbers(Grown().one_more), many = numbers(Grown().many_more);
  if (!next || !many || next->size() != result->size() || many->size() != result->size()) return result;
  for (size_t i = 0; i < result->size(); ++i) {
    const double now = (*result)[i].at[0], each = ((*many)[i].at[0] - now) / kManySamples;
    (*result)[i] = Number(now, (*next)[i].at[0], now + 2 * each);
  }
  return result;
}

std::optional<DType> GivenForwardTypes::DTypeOf(const Entry& value) const {
  return AtBatch()[graph_.IndexOf(value.node)][value.output].dtype;
}

}  // namespace bindery
