// ProgramBuilder: a program while it is made: values, views of them, copies in other formats, calls with their kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "executor/plan/program.h"

namespace bindery {

class ProgramBuilder {
 public:
  // From a plan of an interface alone. `options` stay the caller's.
  ProgramBuilder(Plan interface, const CompileOptions& options)
      : options_(options), program_(std::make_shared<Program>(Program{.plan = std::move(interface)})) {}

  Program& program() { return *program_; }
  Plan& plan() { return program_->plan; }
  int NumCalls() { return static_cast<int>(plan().calls.size()); }
  std::shared_ptr<const Program> Finish() { return program_; }
  // What the last call gives of parameters alone may be kept until they change (hoist_derived.h). `attributes`: what
  // tells, besides operator, types, formats and kernel, which function of its inputs it is.
  void MayBeKept(std::string attributes = {}) { may_be_kept_.emplace(NumCalls() - 1, std::move(attributes)); }
  const std::map<int, std::string>& may_be_kept() const { return may_be_kept_; }

  // Values are named by their index in the plan.
  int NewValue(PlanValue value);
  int NewArenaValue(std::string name, const ValueType& type, const Format& format);
  // Another name and shape for the same memory.
  int NewAlias(int of, std::string name, const ValueType& type);
  // The value whose memory it is: itself, unless a view.
  int RootOf(int value) const { return root_[value]; }
  const std::vector<int>& roots() const { return root_; }
  // The value and all views of it lie in a gradient's array.
  void MoveToGradient(int value, int slot);

  // The value in another format: a reordered copy, made once.
  int InFormat(int value, const Format& format);
  void EmitReorder(int from, int to);
  void EmitCopy(int from, int to);
  int CopyToArena(int value, std::string name);
  // Ends a segment with the last call; one without calls only if `keep_empty` and the phase has none yet.
  void CutSegment(Phase phase, bool keep_empty);
  void Emit(std::string op, std::string node, std::vector<int> inputs, std::vector<int> outputs, Kernel kernel);

 protected:
  const CompileOptions& options_;

 private:
  std::shared_ptr<Program> program_;
  std::vector<int> root_;
  std::vector<int> next_view_;              // per value: another one in the same memory, in a circle
  std::map<int, std::string> may_be_kept_;  // by call
  std::unordered_map<int, std::vector<std::pair<Format, int>>> reordered_;  // value -> its copies in other formats
};

}  // namespace bindery
