// A program whose results lie in memory of their own. Compile keeps results in the arena, where the next program would
// overwrite them; here the storage of each is moved out of it, so that a run writes arrays that outlive it, and nothing
// is copied. Private to executor/tape.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/plan/program.h"

namespace bindery::tape {

struct PlacedProgram {
  struct Result {
    int slot = -1;  // whose memory it has
    ValueType type = {};
    bool is_first = true;  // of those in this slot: one value may be several results, some of them views of it
  };
  std::shared_ptr<const Program> program = nullptr;  // what was in the arena is a "gradient" of number `slot`
  std::vector<Result> results = {};                  // the outputs of the plan, then its observed values
  std::vector<int64_t> slot_bytes = {};
  bool reads_step = false;  // does some operator read the step block?
  bool in_place = false;    // may the only result take the memory of argument 0?

  const Plan& plan() const { return program->plan; }
};

// Of a program without gradients.
PlacedProgram PlaceResults(const std::shared_ptr<const Program>& compiled);

}  // namespace bindery::tape
