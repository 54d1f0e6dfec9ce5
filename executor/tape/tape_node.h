// What the tape holds: each recorded call, with what it read and gave. A result holds the call that made it, and that
// holds the calls before it, so a graph lives as long as somebody has a result of it. Private to executor/tape.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/tensor.h"
#include "executor/plan/signature.h"
#include "executor/tape/unit.h"

namespace bindery::tape {

class Runtime;

// An array's gradient, shared by the array and what was recorded with it.
struct GradientSlot {
  Tensor gradient;
  GradReq request = GradReq::kWrite;
};

// A value as it was when it was recorded.
struct Recorded {
  Tensor tensor = {};
  std::optional<uint64_t> version = {};  // of its variable (Engine::Version), then

  Recorded() = default;
  explicit Recorded(const Tensor& of) : tensor(of), version(of.engine()->Version(of.var())) {}
  // Has somebody written it since? Unknown, and so no, where it failed: whoever reads it is told that.
  bool has_changed() const {
    const std::optional<uint64_t> now = tensor.engine()->Version(tensor.var());
    return version && now && *version != *now;
  }
};

struct TapeNode {
  struct Input {
    Recorded value = {};
    std::shared_ptr<TapeNode> node = {};  // that made it, as its output `output`; null: nothing recorded
    int output = 0;
    std::shared_ptr<GradientSlot> slot = {};  // of an array that a gradient is attached to
  };
  std::shared_ptr<const Unit> unit;
  std::vector<Input> inputs;      // per input of the unit
  std::vector<Recorded> results;  // per result of its program
  bool is_used_up = false;        // by a Backward; the values are gone

  TapeNode() = default;
  TapeNode(const TapeNode&) = delete;
  TapeNode& operator=(const TapeNode&) = delete;
  ~TapeNode();     // iterative: tapes of a million calls are fine
  void Release();  // the values, and the calls before
};

struct ArrayState {
  Tensor tensor;
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<TapeNode> node = {};  // that made it, as its output `output`
  int output = 0;
  std::shared_ptr<GradientSlot> slot = {};

  bool is_recorded() const { return node || slot; }  // may gradients flow back into it?
};

// Of the calling thread (tape.h).
struct TapeMode {
  bool records = false;
  Mode mode = Mode::kPredict;
};
TapeMode& CurrentMode();

}  // namespace bindery::tape
