#include "symbol/infer/fixed_point.h"

#include <limits>

#include "base/error.h"

namespace bindery {
namespace {

enum class Merged { kSame, kChanged, kConflict };

Merged Merge(std::optional<Shape>& known, const Shape& fact) {
  if (!known) {
    known = fact;
    return Merged::kChanged;
  }
  if (known->rank() != fact.rank()) return Merged::kConflict;
  if (*known == fact) return Merged::kSame;
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

// Has it so few elements that their numbers are worth knowing?
bool IsSmall(const std::optional<Shape>& shape) {
  if (!shape) return false;
  int64_t count = 1;
  for (const int64_t extent : *shape) {
    if (extent == kUnknownDim || extent > kMaxNumbers) return false;
    count *= extent;
  }
  return count <= kMaxNumbers;
}

// Thrown for a contradiction; its message names node and argument already.
class Contradiction : public ShapeError {
 public:
  using ShapeError::ShapeError;
};

}  // namespace

// One node within the graph.
class FixedPoint::Context final : public InferContext {
 public:
  Context(FixedPoint* parent, int node)
      : InferContext(parent->graph_.nodes[node]->op().inputs, parent->graph_.nodes[node]->op().outputs,
                     parent->graph_.nodes[node]->attrs()),
        parent_(*parent), index_(node), node_(*parent->graph_.nodes[node]) {}
  int num_inputs() const override { return static_cast<int>(node_.inputs().size()); }
  int num_outputs() const override { return node_.num_outputs(); }
  bool may_assume() const override { return parent_.assume_; }
  std::optional<int64_t> batch() const override { return parent_.batch_; }

  // Tells where the batch goes: sets those of `types[node]`, from its inputs'.
  void PlaceBatches(NodeTypes& types, Places& places) {
    places.inputs.clear();
    for (const Entry& input : node_.inputs()) {
      const ValueType& type = types[parent_.graph_.IndexOf(input.node)][input.output];
      places.inputs.push_back({type.batch_axis, type.batch_fold});
    }
    places.outputs.assign(num_outputs(), {});
    places.lost.assign(num_outputs(), false);
    places_ = &places;
    parent_.RunRule(index_, *this);
    for (int o = 0; o < num_outputs(); ++o) {
      if (places.lost[o]) continue;
      types[index_][o].batch_axis = places.outputs[o].axis;
      types[index_][o].batch_fold = places.outputs[o].fold;
    }
  }
  using InferContext::Places;

 protected:
  const PartialType& Known(bool output, int i) const override { return parent_.facts_[ValueOf(output, i)]; }
  void Learn(bool output, int i, const Shape& shape) override { LearnFact(output, i, shape); }
  void Learn(bool output, int i, DType dtype) override { LearnFact(output, i, dtype); }
  void Learn(bool output, int i, Numbers numbers) override {
    const int value = ValueOf(output, i);
    const std::optional<Shape>& shape = parent_.facts_[value].shape;
    if (!IsSmall(shape) || shape->Elements() != std::ssize(numbers)) return;
    if (places_ == nullptr) return parent_.Add(value, numbers);
    parent_.facts_[value].numbers = std::move(numbers);
  }

 private:
  int ValueOf(bool output, int i) const {
    Check(i < (output ? num_outputs() : num_inputs()), "a rule asks for values that the node has");
    return output ? parent_.values_.Of(index_, i) : parent_.values_.inputs(index_)[i];
  }
  template <class Fact>
  void LearnFact(bool output, int i, const Fact& expected) {
    const int value = ValueOf(output, i);
    if (parent_.Add(value, expected)) return;
    const std::string name = output ? node_.op().outputs.Names(node_.attrs()).at(i) : InputNames(node_).at(i);
    const std::string where = fmt::format("{}, {} \"{}\"", Describe(node_), output ? "output" : "argument", name);
    const PartialType& got = parent_.facts_[value];
    if constexpr (std::is_same_v<Fact, Shape>) {
      Throw<Contradiction>("{}: expected {}, got {}", where, expected, *got.shape);
    } else {
      Throw<Contradiction>("{}: expected {}, got {}", where, expected, *got.dtype);
    }
  }
  FixedPoint& parent_;
  const int index_;
  const Node& node_;
};

FixedPoint::FixedPoint(const Graph& graph, const ValueIndex& values, std::optional<int64_t> batch)
    : graph_(graph), values_(values), batch_(batch), facts_(values.size()), waiting_(graph.nodes.size(), false) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) Enqueue(n);
}

bool FixedPoint::Add(int value, const Shape& shape) {
  const Merged merged = Merge(facts_[value].shape, shape);
  if (merged == Merged::kChanged) Wake(value);
  return merged != Merged::kConflict;
}

bool FixedPoint::Add(int value, DType dtype) {
  const Merged merged = Merge(facts_[value].dtype, dtype);
  if (merged == Merged::kChanged) Wake(value);
  return merged != Merged::kConflict;
}

void FixedPoint::Add(int value, const Numbers& numbers) {
  std::optional<Numbers>& known = facts_[value].numbers;
  bool changed = !known;
  if (!known) known = Numbers(numbers.size(), std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if ((*known)[i].IsKnown() || !numbers[i].IsKnown()) continue;
    (*known)[i] = numbers[i];
    changed = true;
  }
  if (changed) Wake(value);
}

void FixedPoint::Run() {
  while (!queue_.empty()) {
    const int n = queue_.front();
    queue_.pop_front();
    waiting_[n] = false;
    Context context(this, n);
    running_ = n;
    do {  // at once, while its types are near
      again_ = false;
      RunRule(n, context);
    } while (again_);
    running_ = -1;
  }
}

void FixedPoint::RunAssuming() {
  Run();
  const int count = static_cast<int>(graph_.nodes.size());
  bool changed = true;
  for (bool forward = true; changed; forward = !forward) {  // knowledge may come from either end
    changed = false;
    for (int i = 0; i < count; ++i) {
      const int n = forward ? i : count - 1 - i;
      if (graph_.nodes[n]->is_variable() || HasShapes(n)) continue;
      Context context(this, n);
      assume_ = true;
      RunRule(n, context);
      assume_ = false;
      changed = changed || !queue_.empty();
      Run();
    }
  }
}

void FixedPoint::RunWithDefault() {
  Run();
  for (int value = 0; value < values_.size(); ++value) {  // inputs first, so that what follows from them is not guessed
    if (facts_[value].dtype) continue;
    Add(value, DType::kFloat32);
    Run();
  }
}

NodeTypes FixedPoint::PlaceBatches(const std::vector<InferContext::BatchPlace>& of_variables) {
  NodeTypes types(graph_.nodes.size());
  for (int v = 0; v < values_.size(); ++v) {
    types[values_.producer(v)].push_back({.dtype = *facts_[v].dtype, .shape = *facts_[v].shape});
  }
  Context::Places places;
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
    if (graph_.nodes[n]->is_variable()) {
      types[n][0].batch_axis = of_variables[n].axis;
      types[n][0].batch_fold = of_variables[n].fold;
    } else {
      Context(this, n).PlaceBatches(types, places);
    }
  }
  return types;
}

bool FixedPoint::HasShapes(int n) const {
  const auto known = [&](int value) { return facts_[value].shape && facts_[value].shape->IsKnown(); };
  for (int value : values_.inputs(n)) {
    if (!known(value)) return false;
  }
  for (int i = 0; i < graph_.nodes[n]->num_outputs(); ++i) {
    if (!known(values_.Of(n, i))) return false;
  }
  return true;
}

void FixedPoint::Enqueue(int n) {
  if (n == running_) again_ = true;
  if (n == running_ || waiting_[n] || graph_.nodes[n]->is_variable()) return;
  waiting_[n] = true;
  queue_.push_back(n);
}

void FixedPoint::Wake(int value) {
  Enqueue(values_.producer(value));
  for (int consumer : values_.consumers(value)) Enqueue(consumer);
}

void FixedPoint::RunRule(int n, Context& context) {
  const Node& node = *graph_.nodes[n];
  try {
    node.op().infer(context);
    if (node.op().numbers && IsSmall(facts_[values_.Of(n, 0)].shape)) node.op().numbers(context);
  } catch (const Contradiction&) {
    throw;
  } catch (const ShapeError& error) {
    Throw<ShapeError>("{}: {}", Describe(node), error.message());
  } catch (const ModelError& error) {
    Throw<ModelError>("{}: {}", Describe(node), error.message());
  }
}

}  // namespace bindery
