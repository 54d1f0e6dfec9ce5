// What a program makes of parameters alone, and may keep until these change: Casts of them to types no wider, and
// reorders of such; in predictions whatever is no larger than what it is made of, as weights with a batch-norm folded
// in, and made of states and constants, too. Their calls move to the front (Plan::derive_calls), and what others read
// of their results becomes derived values, in memory of their own, which is filled when a parameter has changed and not
// in each run.
//
// Whoever emits a call says so by ProgramBuilder::MayBeKept, if what it gives depends on nothing but its inputs; with
// operator, types, formats and kernel that tells which function of them it is (the value's name).
//
// Comes when all calls are there, before memory is planned.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/plan/program.h"

namespace bindery {

// In predictions nothing changes parameters and states in each run. Is any of them declared to be kept?
bool KeepsAnything(const CompileOptions& options);
// The attributes of a node whose results may be kept, as text that only equal ones have. None for one whose may not, or
// whose text would be long.
std::optional<std::string> IdentityOfKept(const Node& node, const CompileOptions& options);

struct DerivedOptions {
  const Signature& signature;                     // who is_kept
  const std::vector<int>& root;                   // per value: whose memory it is
  const std::vector<int>& kept;                   // values that must stay in the arena, to the end
  const std::map<int, std::string>& may_be_kept;  // calls whose results may, with their attributes
  bool keeps_states;                              // states change as parameters do, not in each run
};
void HoistDerived(Program* program, const DerivedOptions& options);

}  // namespace bindery
