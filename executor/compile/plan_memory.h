// The memory side of a plan, once its calls are known: lifetimes, in-place sharing, offsets.
#pragma once

#include <vector>

#include "executor/plan/program.h"

namespace bindery {

struct MemoryOptions {
  const std::vector<int>& root;  // per value: the value whose memory it is (itself, unless a view)
  const std::vector<int>& kept;  // values that live to the end of the program
  bool inplace = true, reuse = true;
};

// Fills in the storages of the plan's arena values and their offsets. Values that nobody touches become Place::kNone.
void PlanMemory(Program* program, const MemoryOptions& options);

}  // namespace bindery
