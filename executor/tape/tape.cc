#include "executor/tape/tape.h"

#include <utility>

#include "executor/tape/tape_node.h"

namespace bindery {
namespace tape {

TapeMode& CurrentMode() {
  thread_local TapeMode mode;
  return mode;
}

void TapeNode::Release() {
  // Whoever is the last to hold a call before lets it go here, one after the other.
  std::vector<std::shared_ptr<TapeNode>> before;
  const auto take = [&](TapeNode* node) {
    for (Input& input : node->inputs) {
      if (input.node) before.push_back(std::move(input.node));
    }
    node->inputs.clear();
    node->results.clear();
  };
  take(this);
  while (!before.empty()) {
    const std::shared_ptr<TapeNode> node = std::move(before.back());
    before.pop_back();
    if (node.use_count() == 1) take(node.get());
  }
}

TapeNode::~TapeNode() { Release(); }

}  // namespace tape

TapeScope::TapeScope(bool sets_recording, bool records, bool sets_mode, Mode mode)
    : outer_(std::make_unique<tape::TapeMode>(tape::CurrentMode())) {
  if (sets_recording) tape::CurrentMode().records = records;
  if (sets_mode) tape::CurrentMode().mode = mode;
}

TapeScope::~TapeScope() { tape::CurrentMode() = *outer_; }

bool IsRecording() { return tape::CurrentMode().records; }
Mode CurrentTapeMode() { return tape::CurrentMode().mode; }

}  // namespace bindery
