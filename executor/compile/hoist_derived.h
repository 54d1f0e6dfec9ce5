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
#include <unordered_set>
#include <vector>

#include "executor/kernel.h"
#include "executor/plan/program.h"

namespace bindery {

// In predictions nothing changes parameters and states in each run. Is any of them declared to be kept?
bool KeepsAnything(const CompileOptions& options);
// The attributes of a node whose results may be kept, as text that only equal ones have. None for one whose may not, or
// whose text would be long.
std::optional<std::string> IdentityOfKept(const Node& node, const CompileOptions& options);

// While a program is made: of which values it is certain by now that they will be kept, in predictions. Whoever makes a
// kernel may count on it.
class KeptSoFar {
 public:
  explicit KeptSoFar(const CompileOptions& options) : options_(options), keeps_(KeepsAnything(options)) {}

  bool Has(int root, const Plan& plan) const;
  // What a node gives that may be kept (IdentityOfKept) and is no head.
  void Add(const KernelSpec& spec, int root);

 private:
  const CompileOptions& options_;
  bool keeps_;
  std::unordered_set<int> made_;
};

struct DerivedOptions {
  const Signature& signature;                     // who is_kept
  const std::vector<int>& root;                   // per value: whose memory it is
  const std::vector<int>& kept;                   // values that must stay in the arena, to the end
  const std::map<int, std::string>& may_be_kept;  // calls whose results may, with their attributes
  bool keeps_states;                              // states change as parameters do, not in each run
};
void HoistDerived(Program* program, const DerivedOptions& options);

}  // namespace bindery
