// What shape and dtype inference share: facts about the values of a graph, improved by the operators' rules until none
// changes. Every change of a fact puts the nodes around it on a work list; a fact changes a few times at most (once per
// unknown extent), so the whole is linear in the size of the graph.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/value_index.h"

namespace bindery::infer {

enum class Merged { kSame, kChanged, kConflict };
Merged Merge(std::optional<Shape>& known, const Shape& fact);
Merged Merge(std::optional<DType>& known, DType fact);

// Thrown for a contradiction; its message names node and argument already.
class Contradiction : public ShapeError {
 public:
  using ShapeError::ShapeError;
};

template <class Fact>
struct Traits;
template <>
struct Traits<Shape> {
  using Context = InferContext;
  using Result = const std::optional<Shape>&;
  using Param = const Shape&;
  static void Rule(const OpDef& op, InferContext& context) { op.infer_shape(context); }
};
template <>
struct Traits<DType> {
  using Context = InferDTypeContext;
  using Result = std::optional<DType>;
  using Param = DType;
  static void Rule(const OpDef& op, InferDTypeContext& context);  // with the default
};

template <class Fact>
class FixedPoint {
 public:
  using Facts = std::vector<std::optional<Fact>>;

  // `batch`: its extent, if it is known.
  FixedPoint(const Graph& graph, const ValueIndex& values, std::optional<int64_t> batch = {})
      : graph_(graph), values_(values), batch_(batch), facts_(values.size()), waiting_(graph.nodes.size(), false) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) Enqueue(n);
  }

  const Facts& facts() const { return facts_; }

  // Adds what is known from outside; false if it contradicts.
  bool Add(int value, const Fact& fact) {
    const Merged merged = Merge(facts_[value], fact);
    if (merged == Merged::kChanged) Wake(value);
    return merged != Merged::kConflict;
  }

  // Everything that follows; then, operator by operator, what a rule may assume (of shapes alone), and what follows
  // from that.
  void Run() {
    RunQueue();
    if constexpr (std::is_same_v<Fact, Shape>) {
      const int count = static_cast<int>(graph_.nodes.size());
      bool changed = true;
      for (bool forward = true; changed; forward = !forward) {  // knowledge may come from either end
        changed = false;
        for (int i = 0; i < count; ++i) {
          const int n = forward ? i : count - 1 - i;
          if (graph_.nodes[n]->is_variable() || IsSettled(n)) continue;
          assume_ = true;
          RunRule(n);
          assume_ = false;
          changed = changed || !queue_.empty();
          RunQueue();
        }
      }
    }
  }

 private:
  void RunQueue() {
    while (!queue_.empty()) {
      const int n = queue_.front();
      queue_.pop_front();
      waiting_[n] = false;
      RunRule(n);
    }
  }

  // Is every shape around the node known?
  bool IsSettled(int n) const {
    const auto known = [&](int value) { return facts_[value] && facts_[value]->IsKnown(); };
    for (int value : values_.inputs(n)) {
      if (!known(value)) return false;
    }
    for (int i = 0; i < graph_.nodes[n]->num_outputs(); ++i) {
      if (!known(values_.Of(n, i))) return false;
    }
    return true;
  }

  class Context final : public Traits<Fact>::Context {
   public:
    Context(FixedPoint* parent, int node) : parent_(*parent), index_(node), node_(*parent->graph_.nodes[node]) {}
    const AnyAttrs& any_attrs() const override { return node_.attrs(); }
    int num_inputs() const override { return static_cast<int>(node_.inputs().size()); }
    int num_outputs() const override { return node_.num_outputs(); }
    bool may_assume() const { return parent_.assume_; }              // overrides the one of InferContext
    std::optional<int64_t> batch() const { return parent_.batch_; }  // and this
    typename Traits<Fact>::Result input(int i) const override { return parent_.facts_[InputValue(i)]; }
    typename Traits<Fact>::Result output(int i) const override { return parent_.facts_[OutputValue(i)]; }
    void SetInput(int i, typename Traits<Fact>::Param fact) override {
      const int value = InputValue(i);
      if (!parent_.Add(value, fact))
        Contradict("argument", node_.op().inputs(node_.attrs(), num_inputs()), i, fact, value);
    }
    void SetOutput(int i, typename Traits<Fact>::Param fact) override {
      const int value = OutputValue(i);
      if (!parent_.Add(value, fact)) Contradict("output", node_.op().outputs(node_.attrs()), i, fact, value);
    }

   private:
    int InputValue(int i) const {
      Check(i >= 0 && i < num_inputs(), "a rule asks for inputs that the node has");
      return parent_.values_.inputs(index_)[i];
    }
    int OutputValue(int i) const {
      Check(i >= 0 && i < num_outputs(), "a rule asks for outputs that the node has");
      return parent_.values_.Of(index_, i);
    }
    [[noreturn]] void Contradict(const char* kind, const std::vector<std::string>& names, int i, const Fact& expected,
                                 int value) const {
      Throw<Contradiction>("{}, {} \"{}\": expected {}, got {}", Describe(node_), kind, names.at(i), expected,
                           *parent_.facts_[value]);
    }
    FixedPoint& parent_;
    const int index_;
    const Node& node_;
  };

  void Enqueue(int n) {
    if (waiting_[n] || graph_.nodes[n]->is_variable()) return;
    waiting_[n] = true;
    queue_.push_back(n);
  }

  void Wake(int value) {
    Enqueue(values_.producer(value));
    for (int consumer : values_.consumers(value)) Enqueue(consumer);
  }

  void RunRule(int n) {
    const Node& node = *graph_.nodes[n];
    Context context(this, n);
    try {
      Traits<Fact>::Rule(node.op(), context);
    } catch (const Contradiction&) {
      throw;
    } catch (const ShapeError& error) {
      Throw<ShapeError>("{}: {}", Describe(node), error.message());
    } catch (const ModelError& error) {
      Throw<ModelError>("{}: {}", Describe(node), error.message());
    }
  }

  const Graph& graph_;
  const ValueIndex& values_;
  const std::optional<int64_t> batch_;
  Facts facts_;
  std::deque<int> queue_;      // of nodes with an operator
  std::vector<bool> waiting_;  // is the node in the queue?
  bool assume_ = false;        // may the rule that runs now assume what is likely?
};

}  // namespace bindery::infer
