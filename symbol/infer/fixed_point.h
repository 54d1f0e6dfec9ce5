// Inference: facts about the types of a graph's values, improved by the operators' rules until none changes. Every
// change of a fact puts the nodes around it on a work list; a fact changes a few times at most (once for the element
// type, once per unknown extent), so the whole is linear in the size of the graph.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/infer/value_index.h"
#include "symbol/op_def.h"

namespace bindery {

class FixedPoint {
 public:
  // `batch`: its extent, if it is known. Refers to the others.
  FixedPoint(const Graph& graph, const ValueIndex& values, std::optional<int64_t> batch = {});

  const PartialType& operator[](int value) const { return facts_[value]; }

  // Adds what is known from outside; false if it contradicts.
  bool Add(int value, const Shape& shape);
  bool Add(int value, DType dtype);
  void Add(int value, const Numbers& numbers);  // never contradicts: fills in what was not known

  void Run();             // everything that follows
  void RunAssuming();     // and, operator by operator, what a rule may assume of shapes, and what follows from that
  void RunWithDefault();  // and float32 where no element type follows

  // With all types known: where the batch goes, from where it is in variables (by node; see InferTypes). Numbers are
  // found again, with what follows the batch.
  NodeTypes PlaceBatches(const std::vector<InferContext::BatchPlace>& of_variables);

 private:
  class Context;
  void Wake(int value);
  void Enqueue(int n);
  void RunRule(int n, Context& context);
  bool HasShapes(int n) const;  // is every shape around the node known?

  const Graph& graph_;
  const ValueIndex& values_;
  const std::optional<int64_t> batch_;
  std::vector<PartialType> facts_;
  std::deque<int> queue_;      // of nodes with an operator
  std::vector<bool> waiting_;  // is the node in the queue?
  int running_ = -1;           // the node whose rule runs, and runs again if it changes what it reads
  bool again_ = false;
  bool assume_ = false;  // may the rule that runs now assume what is likely?
};

}  // namespace bindery
