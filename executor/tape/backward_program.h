// The gradient of a recorded graph, as a program. Private to executor/tape.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/tape/ndarray.h"
#include "executor/tape/placed_program.h"
#include "executor/tape/tape_node.h"

namespace bindery::tape {

// What lies below some recorded results, in order: each call once, inputs before users.
struct RecordedGraph {
  std::vector<std::shared_ptr<TapeNode>> nodes;
  std::vector<std::pair<int, int>> heads;            // (node, output)
  std::vector<std::shared_ptr<GradientSlot>> slots;  // of arrays with gradients, each once, as they are met
  Mode mode = Mode::kTrain;

  // Throws Error: values are used up, or calls were recorded in several modes.
  explicit RecordedGraph(const std::vector<NDArray>& heads);
  int SlotOf(const TapeNode::Input& input) const;  // -1: none
  // Equal keys: equal graphs of equal types, and so one program.
  std::string Key(DeviceKind device, int threads) const;
};

// Where a variable of the program comes from.
struct BackwardSource {
  enum class Kind { kInput, kResult, kHeadGradient } kind = Kind::kInput;
  int node = -1, index = -1;  // input or result `index` of the node; head gradient `index`
};

struct BackwardProgram {
  PlacedProgram program = {};
  std::vector<BackwardSource> arguments = {}, auxiliary = {};  // of the program
  std::vector<int> results = {};  // per slot: the program's result that is its gradient; -1: it is zero
};

// Throws ModelError where an operator on the way has no gradient.
std::shared_ptr<const BackwardProgram> MakeBackwardProgram(const RecordedGraph& graph, DeviceKind device, int threads);

}  // namespace bindery::tape
