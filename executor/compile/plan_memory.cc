#include "executor/compile/plan_memory.h"

#include <algorithm>

#include "executor/compile/memory_plan.h"

namespace bindery {
namespace {

class MemoryPlanner {
 public:
  MemoryPlanner(Program* program, const MemoryOptions& options)
      : plan_(program->plan), kernels_(program->kernels), options_(options), storage_of_(plan_.values.size(), -1) {}

  void Run() {
    FindLifetimes();
    if (options_.inplace) ShareInPlace();
    DropEmptied();
    plan_.arena_bytes = AssignOffsets(&plan_.storages, options_.reuse);  // throws where the sum would overflow
    plan_.peak_live_bytes = PeakLiveBytes(plan_.storages);
  }

 private:
  int LastCall() const { return std::max(0, static_cast<int>(plan_.calls.size()) - 1); }

  // `value`'s memory is needed while `call` runs.
  void Touch(int value, int call) {
    const int root = options_.root[value];
    if (plan_.values[root].place != Place::kArena) return;
    if (storage_of_[root] < 0) {
      storage_of_[root] = static_cast<int>(plan_.storages.size());
      plan_.storages.push_back({.first = call, .last = call});
    }
    PlanStorage& s = plan_.storages[storage_of_[root]];
    s.first = std::min(s.first, call);
    s.last = std::max(s.last, call);
    s.bytes = std::max(s.bytes, plan_.values[value].bytes());
  }

  // `value` is read between the calls before `call` and `call` itself: alive on both sides, so that neither overwrites
  // it in place.
  void TouchBetween(int value, int call) {
    Touch(value, std::max(0, call - 1));
    Touch(value, std::min(call, LastCall()));
    if (call > LastCall()) read_at_end_.push_back(value);
  }

  // One storage per root in the arena; [first, last] over all values that share it.
  void FindLifetimes() {
    const auto touch_calls = [this](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        for (const int v : plan_.calls[i].inputs)
          if (v >= 0) Touch(v, i);
        for (const int v : plan_.calls[i].outputs)
          if (v >= 0) Touch(v, i);
      }
    };
    touch_calls(0, plan_.derive_calls);
    for (const PlanSegment& segment : plan_.segments) {
      touch_calls(segment.begin, segment.end);
      for (const PlanExchange& e : segment.exchanges) {
        for (const int v : {e.input, e.output}) TouchBetween(v, segment.end);
      }
    }
    for (const int v : options_.kept) TouchBetween(v, static_cast<int>(plan_.calls.size()));
    for (size_t v = 0; v < plan_.values.size(); ++v) {
      PlanValue& value = plan_.values[v];
      if (value.place != Place::kArena) continue;
      value.storage = storage_of_[options_.root[v]];
      if (value.storage < 0) value.place = Place::kNone;
    }
  }

  // output = f(input) in the input's memory, where the kernel allows it and nobody needs the input later.
  void ShareInPlace() {
    merged_into_.resize(plan_.storages.size());
    for (size_t s = 0; s < merged_into_.size(); ++s) merged_into_[s] = static_cast<int>(s);
    for (size_t i = 0; i < plan_.calls.size(); ++i) {
      std::vector<bool> taken(plan_.calls[i].outputs.size(), false);
      for (const InplacePair& pair : kernels_[i].inplace) {
        if (!taken[pair.output] && TryShare(static_cast<int>(i), pair)) taken[pair.output] = true;
      }
    }
    for (PlanValue& value : plan_.values) {
      if (value.storage >= 0) value.storage = Find(value.storage);
    }
  }

  bool TryShare(int i, const InplacePair& pair) {
    const PlanCall& call = plan_.calls[i];
    const int in = call.inputs[pair.input], out = call.outputs[pair.output];
    if (in < 0 || out < 0) return false;
    const PlanValue& a = plan_.values[in];
    const PlanValue& b = plan_.values[out];
    if (a.place != Place::kArena || b.place != Place::kArena) return false;
    if (a.format != b.format || a.type.dtype != b.type.dtype || a.type.shape != b.type.shape) return false;
    const int from = Find(a.storage), to = Find(b.storage);
    // The input must end here, the output begin here.
    if (from == to || plan_.storages[from].last != i || plan_.storages[to].first != i) return false;
    if (i == LastCall() && IsReadAtEnd(from)) return false;
    // Another input or output in the same memory would see it change.
    const auto in_from = [&](int v) {
      return v >= 0 && plan_.values[v].storage >= 0 && Find(plan_.values[v].storage) == from;
    };
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      if (static_cast<int>(k) != pair.input && in_from(call.inputs[k])) return false;
    }
    for (const int v : call.outputs)
      if (in_from(v)) return false;
    merged_into_[to] = from;
    plan_.storages[from].last = plan_.storages[to].last;
    plan_.storages[from].bytes = std::max(plan_.storages[from].bytes, plan_.storages[to].bytes);
    return true;
  }
  int Find(int s) const {
    while (merged_into_[s] != s) s = merged_into_[s];
    return s;
  }
  bool IsReadAtEnd(int storage) const {
    return std::any_of(read_at_end_.begin(), read_at_end_.end(),
                       [&](int v) { return plan_.values[v].storage >= 0 && Find(plan_.values[v].storage) == storage; });
  }

  // The plan lists only storages that exist.
  void DropEmptied() {
    std::vector<bool> in_use(plan_.storages.size(), false);
    for (const PlanValue& v : plan_.values)
      if (v.storage >= 0) in_use[v.storage] = true;
    for (const PlanCall& s : plan_.calls)
      if (s.scratch >= 0) in_use[s.scratch] = true;
    std::vector<int> renumber(in_use.size(), -1);
    std::vector<PlanStorage> storages;
    for (size_t s = 0; s < in_use.size(); ++s) {
      if (!in_use[s]) continue;
      renumber[s] = static_cast<int>(storages.size());
      storages.push_back(plan_.storages[s]);
    }
    for (PlanValue& v : plan_.values)
      if (v.storage >= 0) v.storage = renumber[v.storage];
    for (PlanCall& s : plan_.calls)
      if (s.scratch >= 0) s.scratch = renumber[s.scratch];
    plan_.storages = std::move(storages);
  }

  Plan& plan_;
  const std::vector<Kernel>& kernels_;
  const MemoryOptions& options_;
  std::vector<int> storage_of_;  // per root value; -1: none
  std::vector<int> merged_into_;
  std::vector<int> read_at_end_;  // values that are read after the last call
};

}  // namespace

void PlanMemory(Program* program, const MemoryOptions& options) { MemoryPlanner(program, options).Run(); }

}  // namespace bindery
