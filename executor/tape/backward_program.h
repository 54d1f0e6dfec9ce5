// The gradient of a recorded graph, as a program. Private to executor/tape.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  // An array with a gradient, as it was when it was recorded. One that was changed between two calls is two, each with
  // a gradient of its own, so that what is read of either is told apart.
  struct Source {
    std::shared_ptr<GradientSlot> slot = {};
    std::optional<uint64_t> version = {};                                          // Recorded::version
    bool is_first = true;                                                          // of the slot's
    bool is_added() const { return !is_first || slot->request == GradReq::kAdd; }  // to what is in the slot
  };
  std::vector<std::pair<int, int>> heads;  // (node, output)
  std::vector<Source> sources;             // each once, as they are met
  Mode mode = Mode::kTrain;

  // Throws Error: values are used up, or calls were recorded in several modes.
  explicit RecordedGraph(const std::vector<NDArray>& heads);
  int SourceOf(const TapeNode::Input& input) const;  // -1: none
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
  std::vector<int> results = {};  // per source: the program's result that is its gradient; -1: it is zero
};

// Throws ModelError where an operator on the way has no gradient.
std::shared_ptr<const BackwardProgram> MakeBackwardProgram(const RecordedGraph& graph, DeviceKind device, int threads);

}  // namespace bindery::tape
