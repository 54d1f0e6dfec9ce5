#include "executor/tape/placed_program.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "symbol/op_def.h"

namespace bindery::tape {
namespace {

// One call that reads argument 0 and writes the result element by element, so that these may be one memory.
bool MayWriteFirstArgument(const Program& program, const std::vector<PlacedProgram::Result>& results) {
  const Plan& plan = program.plan;
  if (results.size() != 1 || plan.calls.size() != 1 || plan.calls[0].inputs.empty()) return false;
  const PlanCall& call = plan.calls[0];
  const auto is_argument = [&](int value) {
    return value >= 0 && plan.values[value].place == Place::kArgument && plan.values[value].slot == 0;
  };
  return is_argument(call.inputs[0]) && std::ranges::count_if(call.inputs, is_argument) == 1 &&
         plan.values[call.inputs[0]].type.shape == results[0].type.shape &&
         plan.values[call.inputs[0]].type.dtype == results[0].type.dtype &&
         std::ranges::find(program.kernels[0].inplace, InplacePair{0, 0}) != program.kernels[0].inplace.end();
}

}  // namespace

PlacedProgram PlaceResults(const std::shared_ptr<const Program>& compiled) {
  auto program = std::make_shared<Program>(*compiled);
  Plan& plan = program->plan;
  Check(plan.gradients.empty() && plan.derived.empty(), "a placed program has neither gradients nor derived values");
  PlacedProgram placed;
  std::map<int, int> slots;  // by storage
  const auto add = [&](const PlanOutput& output) {
    const PlanValue& value = plan.values[output.value];
    if (value.bytes() == 0) {  // it lies nowhere
      placed.results.push_back({static_cast<int>(placed.slot_bytes.size()), value.type});
      placed.slot_bytes.push_back(0);
      return;
    }
    int storage = value.storage;
    if (value.place == Place::kGradient) {  // moved already
      storage = -1;
      for (const auto& [of, slot] : slots) storage = slot == value.slot ? of : storage;
    }
    Check(value.format.is_plain() && storage >= 0, "a result is a plain value of the arena");
    const auto [found, is_first] = slots.emplace(storage, static_cast<int>(placed.slot_bytes.size()));
    placed.results.push_back({found->second, value.type, is_first});
    if (!is_first) return;
    placed.slot_bytes.push_back(plan.storages[storage].bytes);
    for (PlanValue& other : plan.values) {
      if (other.place != Place::kArena || other.storage != storage) continue;
      other.place = Place::kGradient;
      other.slot = found->second;
    }
  };
  for (const PlanOutput& output : plan.outputs) add(output);
  for (const PlanOutput& output : plan.observed) add(output);
  for (const PlanCall& call : plan.calls) {
    const OpDef* const op = FindOpOrNull(call.op);
    placed.reads_step |= op != nullptr && (op->is_random || op->reads_step);
  }
  placed.in_place = MayWriteFirstArgument(*program, placed.results);
  placed.program = std::move(program);
  return placed;
}

}  // namespace bindery::tape
