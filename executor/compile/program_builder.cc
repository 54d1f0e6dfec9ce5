#include "executor/compile/program_builder.h"

#include <algorithm>

#include "executor/compile/internal_kernels.h"

namespace bindery {

int ProgramBuilder::NewValue(PlanValue value) {
  plan().values.push_back(std::move(value));
  const int id = static_cast<int>(root_.size());
  root_.push_back(id);
  next_view_.push_back(id);
  return id;
}

int ProgramBuilder::NewArenaValue(std::string name, const ValueType& type, const Format& format) {
  return NewValue({.name = std::move(name), .type = type, .format = format, .place = Place::kArena});
}

int ProgramBuilder::NewAlias(int of, std::string name, const ValueType& type) {
  PlanValue value = plan().values[of];
  value.name = std::move(name);
  value.type = type;
  const int id = NewValue(std::move(value));
  root_[id] = root_[of];
  std::swap(next_view_[id], next_view_[root_[of]]);
  return id;
}

void ProgramBuilder::MoveToGradient(int value, int slot) {
  int v = value;
  do {
    plan().values[v].place = Place::kGradient;
    plan().values[v].slot = slot;
    v = next_view_[v];
  } while (v != value);
}

int ProgramBuilder::InFormat(int value, const Format& format) {
  if (plan().values[value].format == format) return value;
  std::vector<std::pair<Format, int>>& copies = reordered_[value];
  for (const auto& [known, copy] : copies) {
    if (known == format) return copy;
  }
  const PlanValue from = plan().values[value];
  const int to = NewArenaValue(fmt::format("{}@{}", from.name, format), from.type, format);
  EmitReorder(value, to);
  copies.emplace_back(format, to);
  return to;
}

void ProgramBuilder::EmitReorder(int from, int to) {
  const PlanValue& a = plan().values[from];
  const PlanValue& b = plan().values[to];
  Emit("Reorder", a.name, {from}, {to},
       MakeReorder(a.type.dtype, a.type.shape, a.format, b.format, options_.threads, options_.switches.policy,
                   options_.device));
  if (options_.mode == Mode::kPredict) MayBeKept();
}

void ProgramBuilder::EmitCopy(int from, int to) {
  const PlanValue& value = plan().values[from];
  Emit("Copy", value.name, {from}, {to}, MakeCopy(value.bytes(), value.format));
}

int ProgramBuilder::CopyToArena(int value, std::string name) {
  const PlanValue from = plan().values[value];
  const int copy = NewArenaValue(std::move(name), from.type, from.format);
  EmitCopy(value, copy);
  return copy;
}

void ProgramBuilder::CutSegment(Phase phase, bool keep_empty) {
  std::vector<PlanSegment>& segments = plan().segments;
  if (!segments.empty() && segments.back().phase == phase && segments.back().exchanges.empty()) {
    segments.back().end = NumCalls();  // on one kind of device more may follow than on another
    return;
  }
  const int begin = segments.empty() ? 0 : segments.back().end;
  if (begin == NumCalls() && !(keep_empty && std::ranges::find(segments, phase, &PlanSegment::phase) == segments.end()))
    return;
  segments.push_back({.phase = phase, .begin = begin, .end = NumCalls()});
}

void ProgramBuilder::Emit(std::string op, std::string node, std::vector<int> inputs, std::vector<int> outputs,
                          Kernel kernel) {
  PlanCall call{.op = std::move(op),
                .node = std::move(node),
                .implementation = kernel.implementation,
                .inputs = std::move(inputs),
                .outputs = std::move(outputs),
                .threads = kernel.threads};
  if (kernel.scratch_bytes > 0) {
    call.scratch = static_cast<int>(plan().storages.size());
    plan().storages.push_back({.bytes = kernel.scratch_bytes, .first = NumCalls(), .last = NumCalls()});
  }
  plan().calls.push_back(std::move(call));
  program_->kernels.push_back(std::move(kernel));
}

}  // namespace bindery
