#include "executor/group/derivation.h"

#include <algorithm>
#include <utility>

namespace bindery {
namespace {

constexpr size_t kWays = 4;  // that are kept: all values, those of what is trained

}  // namespace

Derivation::Derivation(std::shared_ptr<Engine> engine, Device device, int index, std::shared_ptr<DerivedValues> all,
                       std::shared_ptr<const Program> program, const std::vector<VarPtr>& arguments,
                       const std::vector<VarPtr>& states)
    : engine_(std::move(engine)), device_(device), all_(std::move(all)), program_(std::move(program)) {
  const std::lock_guard lock(all_->mutex);
  for (const PlanDerived& derived : program_->plan.derived) {
    const std::string own = derived.states.empty() ? derived.name : fmt::format("{} of {}", derived.name, index);
    DerivedValues::Value& value = all_->values[own];
    if (!value.chunk) value.chunk = DefaultStorage()->Allocate(device_, std::max<int64_t>(derived.bytes, 1));
    Slot& slot = slots_.emplace_back(Slot{&value, {}});
    const auto add = [&](const VarPtr& var) {
      const auto known = std::ranges::find(sources_, var);
      slot.sources.push_back(static_cast<size_t>(known - sources_.begin()));
      if (known == sources_.end()) sources_.push_back(var);
    };
    for (const int argument : derived.arguments) add(arguments[static_cast<size_t>(argument)]);
    for (const int state : derived.states) add(states[static_cast<size_t>(state)]);
  }
  now_.resize(sources_.size());
  old_.resize(slots_.size());
}

std::vector<void*> Derivation::Addresses() const {
  std::vector<void*> addresses;
  for (const Slot& slot : slots_) addresses.push_back(slot.value->chunk->data());
  return addresses;
}

void Derivation::SetInstance(std::shared_ptr<const Instance> instance, VarPtr arena) {
  instance_ = std::move(instance);
  arena_ = std::move(arena);
}

void Derivation::Run() {
  if (!all_->var) return RunShared();
  FindOld();
  if (std::ranges::find(old_, true) == old_.end()) return;
  bool is_all = true;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (old_[s]) slots_[s].value->is_made = false;
  }
  for (const auto& [name, value] : all_->values) is_all &= !value.is_made;
  auto way = std::ranges::find_if(ways_, [&](const Way& w) { return w.is_all == is_all && w.old == old_; });
  if (way == ways_.end()) {
    if (ways_.size() == kWays) ways_.erase(ways_.begin());
    ways_.push_back({old_, is_all, engine_->Prepare(MakeOperation(all_->var, is_all))});
    way = ways_.end() - 1;
  }
  for (size_t s = 0; s < slots_.size(); ++s) slots_[s].value->made_of.reserve(slots_[s].sources.size());
  engine_->Push(way->operation);
  all_->version = engine_->Version(all_->var);
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!old_[s]) continue;
    DerivedValues::Value& value = *slots_[s].value;
    value.is_made = true;
    value.made_of.clear();
    for (const size_t source : slots_[s].sources) value.made_of.push_back(now_[source]);
  }
}

// Versions are read before anything is pushed: what changes a parameter meanwhile is found the next time.
void Derivation::FindOld() {
  // Nobody else writes the values: another version means that all of them are lost.
  const std::optional<uint64_t> version = engine_->Version(all_->var);
  if (!version || version != all_->version) {
    for (auto& [name, value] : all_->values) value.is_made = false;
  }
  for (size_t s = 0; s < sources_.size(); ++s) now_[s] = engine_->Version(sources_[s]);
  for (size_t s = 0; s < slots_.size(); ++s) {
    const auto& [value, sources] = slots_[s];
    bool is_new = value->is_made;
    for (size_t i = 0; is_new && i < sources.size(); ++i) {
      is_new = now_[sources[i]].has_value() && now_[sources[i]] == value->made_of[i];
    }
    old_[s] = !is_new;
  }
}

void Derivation::RunShared() {
  if (are_made_) return;
  const std::lock_guard lock(all_->mutex);  // others who need the same ones wait
  for (size_t s = 0; s < slots_.size(); ++s) old_[s] = !slots_[s].value->is_made;
  if (std::ranges::find(old_, true) != old_.end()) {
    const VarPtr made = engine_->NewVar();
    engine_->Push(MakeOperation(made, /*is_all=*/true));
    engine_->Wait(made);
    for (const Slot& slot : slots_) slot.value->is_made = true;
  }
  are_made_ = true;
}

Operation Derivation::MakeOperation(VarPtr written, bool is_all) const {
  Operation operation{.name = fmt::format("derive {}", device_), .device = device_, .writes = {written}};
  bool use_arena = false;
  const std::vector<std::pair<int, int>> calls = CallsOfOld(&use_arena);
  if (use_arena) operation.writes.push_back(arena_);
  // Written as a whole they are whole again; of a part, the rest has to be.
  if (!is_all) operation.reads.push_back(std::move(written));
  std::vector<std::shared_ptr<Chunk>> chunks;
  for (size_t s = 0; s < slots_.size(); ++s) {
    chunks.push_back(slots_[s].value->chunk);
    if (!old_[s]) continue;
    for (const size_t source : slots_[s].sources) operation.reads.push_back(sources_[source]);
  }
  operation.run = [instance = instance_, calls, chunks = std::move(chunks)](const OpContext&) {
    for (const auto& [begin, end] : calls) instance->RunCalls(begin, end);
  };
  operation.at = [instance = instance_] { return instance->At(); };
  return operation;
}

// The calls that values which are old need: those that write them, and what these read in the arena. A value that is
// new is read, not made again: others may be reading it.
std::vector<std::pair<int, int>> Derivation::CallsOfOld(bool* use_arena) const {
  const Plan& plan = program_->plan;
  std::vector<bool> wanted(plan.storages.size(), false);
  std::vector<std::pair<int, int>> ranges;  // the last first
  for (int i = plan.derive_calls - 1; i >= 0; --i) {
    const PlanCall& call = plan.calls[static_cast<size_t>(i)];
    const auto is_wanted = [&](int v) {
      const PlanValue& value = plan.values[static_cast<size_t>(v)];
      return value.place == Place::kDerived ? static_cast<bool>(old_[static_cast<size_t>(value.slot)])
                                            : static_cast<bool>(wanted[static_cast<size_t>(value.storage)]);
    };
    if (std::ranges::none_of(call.outputs, is_wanted)) continue;
    *use_arena |= call.scratch >= 0;
    for (const int v : call.inputs) {
      const PlanValue& value = plan.values[static_cast<size_t>(v)];
      if (value.place != Place::kArena) continue;
      wanted[static_cast<size_t>(value.storage)] = true;
      *use_arena = true;
    }
    if (!ranges.empty() && ranges.back().first == i + 1) {
      ranges.back().first = i;
    } else {
      ranges.emplace_back(i, i + 1);
    }
  }
  std::ranges::reverse(ranges);
  return ranges;
}

}  // namespace bindery
