// The plan verifier: knows nothing of how plans are made. It replays a plan and watches who wrote each storage last.
#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "base/checked.h"
#include "executor/compile/memory_plan.h"
#include "executor/plan/plan.h"

namespace bindery {
namespace {

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan), last_writer_(plan.storages.size(), -1), writes_(plan.values.size(), 0),
        seen_writer_(plan.values.size(), -1), gradient_written_(plan.gradients.size(), false),
        state_written_(plan.auxiliary.size(), false), derived_written_(plan.derived.size(), false) {}

  void Run() {
    CheckRanges();
    CheckInterface();
    CheckScratch();
    CheckOverlap();
    CountWrites();
    Replay();
    CheckEnds();
  }

 private:
  template <class... Args>
  [[noreturn]] static void Breach(fmt::format_string<Args...> format, Args&&... args) {
    throw Error("invalid plan: " + fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& NameOf(int value) const { return plan_.values[value].name; }

  void CheckValue(int value) const {
    if (value < 0 || value >= static_cast<int>(plan_.values.size())) Breach("value {} does not exist", value);
  }

  void CheckRanges() const {
    const int calls = static_cast<int>(plan_.calls.size());
    int at = plan_.derive_calls;
    Phase phase = Phase::kForward;
    if (at < 0 || at > calls) Breach("derived values are made by {} calls of {}", at, calls);
    for (const PlanSegment& segment : plan_.segments) {
      if (segment.begin != at || segment.end < segment.begin || segment.end > calls) {
        Breach("segment of calls {} to {} does not continue at {}", segment.begin, segment.end, at);
      }
      if (segment.phase < phase) Breach("a forward segment follows a backward one");
      phase = segment.phase;
      at = segment.end;
      for (const PlanExchange& e : segment.exchanges) {
        CheckValue(e.input);
        CheckValue(e.output);
        if (plan_.values[e.input].place != Place::kArena) {
          Breach("an exchange reads \"{}\" outside the arena", NameOf(e.input));
        }
        if (plan_.values[e.output].place != Place::kArena) {
          Breach("an exchange writes \"{}\" outside the arena", NameOf(e.output));
        }
      }
    }
    if (at != calls) Breach("segments end at call {} of {}", at, calls);
    for (size_t i = 0; i < plan_.storages.size(); ++i) {
      const PlanStorage& s = plan_.storages[i];
      if (s.offset < 0 || s.bytes < 0 || s.offset % kArenaAlignment != 0 || s.offset + s.bytes > plan_.arena_bytes) {
        Breach("storage {} at {} of {} bytes is not within the arena of {}", i, s.offset, s.bytes, plan_.arena_bytes);
      }
      if (s.first > s.last) Breach("storage {} ends before it begins", i);
    }
    const auto slots = [](const auto& list) { return static_cast<int>(list.size()); };
    for (const PlanValue& v : plan_.values) {
      const int limit = v.place == Place::kArgument    ? slots(plan_.arguments)
                        : v.place == Place::kGradient  ? slots(plan_.gradients)
                        : v.place == Place::kAuxiliary ? slots(plan_.auxiliary)
                        : v.place == Place::kDerived   ? slots(plan_.derived)
                                                       : 0;
      if (limit > 0 && (v.slot < 0 || v.slot >= limit)) Breach("value \"{}\" has slot {}", v.name, v.slot);
      if (v.place == Place::kDerived && (v.slot < 0 || v.slot >= limit || v.bytes() > plan_.derived[v.slot].bytes)) {
        Breach("value \"{}\" is larger than its array", v.name);
      }
      if (v.place != Place::kArena) continue;
      if (v.storage < 0 || v.storage >= slots(plan_.storages)) Breach("value \"{}\" has no storage", v.name);
      if (v.bytes() > plan_.storages[v.storage].bytes) {
        Breach("value \"{}\" is larger than its storage", v.name);
      }
    }
  }

  // Gradients and updates: what they name exists, and gradient arrays have their arguments' bytes.
  void CheckInterface() const {
    const auto in_list = [](int i, const auto& list) { return i >= 0 && i < static_cast<int>(list.size()); };
    for (size_t g = 0; g < plan_.gradients.size(); ++g) {
      const int argument = plan_.gradients[g].argument;
      if (!in_list(argument, plan_.arguments)) Breach("gradient {} is that of argument {}", g, argument);
    }
    for (size_t i = 0; i < plan_.head_gradients.size(); ++i) {
      const int argument = plan_.head_gradients[i];
      if (argument == -1) continue;
      if (!in_list(argument, plan_.arguments) || plan_.arguments[argument].role != Role::kHeadGradient) {
        Breach("the gradient of head {} is argument {}", i, argument);
      }
    }
    for (const PlanValue& v : plan_.values) {
      if (v.place != Place::kGradient) continue;
      const PlanGradient& gradient = plan_.gradients[v.slot];
      const PlanArgument& a = plan_.ArgumentOf(gradient);
      if (gradient.part != GradientPart::kWhole) {
        const DType dtype = gradient.part == GradientPart::kRows ? a.type.dtype : DType::kInt64;
        if (!v.format.is_plain() || v.type.dtype != dtype) Breach("value \"{}\" is no rows of \"{}\"", v.name, a.name);
        continue;
      }
      if (v.format != a.format || v.type.dtype != a.type.dtype || v.type.shape.Elements() != a.type.shape.Elements()) {
        Breach("value \"{}\" does not fit the gradient of \"{}\"", v.name, a.name);
      }
    }
    for (int g = 0; g < static_cast<int>(plan_.gradients.size()); ++g) {
      if (plan_.gradients[g].part != GradientPart::kWhole) CheckRows(g++);
    }
    for (const PlanDerived& d : plan_.derived) {
      for (const int a : d.arguments) {
        if (!in_list(a, plan_.arguments) || !plan_.arguments[a].is_parameter()) {
          Breach("\"{}\" is made of argument {}", d.name, a);
        }
      }
      for (const int s : d.states) {
        if (!in_list(s, plan_.auxiliary) || std::ranges::count(plan_.updates, s) > 0) {
          Breach("\"{}\" is made of state {}", d.name, s);
        }
      }
    }
    for (const int slot : plan_.updates) {
      if (!in_list(slot, plan_.auxiliary)) Breach("auxiliary state {}, which is updated, does not exist", slot);
    }
  }

  // Gradient `g` and the next are numbers and rows of one plain table.
  void CheckRows(int g) const {
    const PlanGradient& first = plan_.gradients[g];
    const PlanArgument& a = plan_.ArgumentOf(first);
    const PlanGradient next =
        g + 1 < static_cast<int>(plan_.gradients.size()) ? plan_.gradients[g + 1] : PlanGradient{};
    if (first.part != GradientPart::kRowNumbers || next.part != GradientPart::kRows ||
        next.argument != first.argument) {
      Breach("the gradient of \"{}\" is no numbers and rows", a.name);
    }
    if (!a.format.is_plain()) Breach("\"{}\" is not plain, but its gradient is kept by rows", a.name);
    const int64_t numbers = plan_.GradientBytes(g) / SizeOf(DType::kInt64);
    if (plan_.GradientBytes(g + 1) != numbers * a.type.shape.CountFrom(1) * SizeOf(a.type.dtype)) {
      Breach("the gradient of \"{}\" has other rows than the {} that are numbered", a.name, numbers);
    }
  }

  // Scratch is one call's own.
  void CheckScratch() const {
    std::vector<bool> taken(plan_.storages.size(), false);
    for (const PlanValue& v : plan_.values)
      if (v.place == Place::kArena) taken[v.storage] = true;
    for (size_t i = 0; i < plan_.calls.size(); ++i) {
      const int scratch = plan_.calls[i].scratch, call = static_cast<int>(i);
      if (scratch < 0) continue;
      if (scratch >= static_cast<int>(plan_.storages.size())) Breach("call {} has scratch storage {}", i, scratch);
      if (taken[scratch]) Breach("the scratch of call {} is in use for something else", i);
      taken[scratch] = true;
      const PlanStorage& s = plan_.storages[scratch];
      if (call < s.first || call > s.last) Breach("call {} has its scratch only from {} to {}", i, s.first, s.last);
    }
  }

  // Goes through the calls. What is alive does not overlap, so only neighbours of a new storage can overlap with it.
  void CheckOverlap() const {
    std::vector<int> by_first;
    for (size_t i = 0; i < plan_.storages.size(); ++i)
      if (plan_.storages[i].bytes > 0) by_first.push_back(static_cast<int>(i));
    std::vector<int> by_last = by_first;
    const auto storage = [this](int i) -> const PlanStorage& { return plan_.storages[static_cast<size_t>(i)]; };
    std::ranges::stable_sort(by_first, {}, [&](int i) { return storage(i).first; });
    std::ranges::stable_sort(by_last, {}, [&](int i) { return storage(i).last; });
    const auto check = [&](int a, int b) {
      const PlanStorage &s = storage(a), &t = storage(b);
      if (s.offset >= t.offset + t.bytes || t.offset >= s.offset + s.bytes) return;
      Breach("storages {} and {} overlap while both are alive (calls {} to {} and {} to {})", a, b, s.first, s.last,
             t.first, t.last);
    };
    std::map<int64_t, int> alive;  // by offset
    auto ended = by_last.begin();
    for (const int i : by_first) {
      for (; storage(*ended).last < storage(i).first; ++ended) alive.erase(storage(*ended).offset);
      const auto next = alive.lower_bound(storage(i).offset);
      if (next != alive.end()) check(i, next->second);
      if (next != alive.begin()) check(i, std::prev(next)->second);
      alive.emplace(storage(i).offset, i);
    }
  }

  void CountWrites() {
    const auto count = [&](int value) {
      if (value < 0) return;
      CheckValue(value);
      if (++writes_[value] > 1) Breach("value \"{}\" is written twice", NameOf(value));
    };
    for (const PlanCall& call : plan_.calls)
      for (const int v : call.outputs) count(v);
    for (const PlanSegment& segment : plan_.segments)
      for (const PlanExchange& e : segment.exchanges) count(e.output);
  }

  void Read(int value, int call) {
    CheckValue(value);
    const PlanValue& v = plan_.values[value];
    if (v.place == Place::kNone) Breach("call {} reads \"{}\", which has no memory", call, v.name);
    if (v.type.shape.Elements() == 0) return;  // nothing to write either
    if (v.place == Place::kGradient && (!gradient_written_[v.slot] || plan_.gradients[v.slot].req == GradReq::kAdd)) {
      Breach("call {} reads \"{}\" from a gradient that does not hold it", call, v.name);
    }
    if (v.place == Place::kAuxiliary && state_written_[v.slot]) {
      Breach("call {} reads state \"{}\" after it was updated", call, v.name);
    }
    if (v.place == Place::kDerived && !derived_written_[v.slot]) {
      Breach("call {} reads \"{}\" before it is written", call, v.name);
    }
    if (call < plan_.derive_calls) ReadToDerive(v, call);
    if (v.place != Place::kArena) return;
    const PlanStorage& s = plan_.storages[v.storage];
    if (call < s.first || call > s.last)
      Breach("call {} reads \"{}\" outside its lifetime ({} to {})", call, v.name, s.first, s.last);
    const int writer = last_writer_[v.storage];
    if (writer < 0) Breach("call {} reads \"{}\" before it is written", call, v.name);
    if (writes_[value] > 0) {
      if (writer != value) Breach("call {} reads \"{}\" after \"{}\" took its memory", call, v.name, NameOf(writer));
    } else {
      // A view: all its readers must find the same content.
      if (seen_writer_[value] >= 0 && seen_writer_[value] != writer) {
        Breach("call {} reads view \"{}\" after \"{}\" took its memory", call, v.name, NameOf(writer));
      }
      seen_writer_[value] = writer;
    }
  }

  // Nothing that differs from run to run.
  void ReadToDerive(const PlanValue& v, int call) const {
    if (v.place == Place::kArena || v.place == Place::kDerived) return;
    const bool is_state = v.place == Place::kAuxiliary;
    const auto is_source = [&](const PlanDerived& d) {
      return std::ranges::count(is_state ? d.states : d.arguments, v.slot) > 0;
    };
    if ((v.place != Place::kArgument && !is_state) || std::ranges::none_of(plan_.derived, is_source)) {
      Breach("call {}, which makes derived values, reads \"{}\"", call, v.name);
    }
  }

  // Another step may still reduce the gradients while forward runs.
  void WriteGradient(const PlanValue& v, int call, Phase phase) {
    const PlanGradient& gradient = plan_.gradients[v.slot];
    const std::string& name = plan_.ArgumentOf(gradient).name;
    if (phase == Phase::kForward) Breach("call {} writes the gradient of \"{}\" in forward", call, name);
    if (gradient.is_zero) Breach("call {} writes the gradient of \"{}\", which is zero", call, name);
    if (gradient_written_[v.slot]) Breach("call {} writes the gradient of \"{}\" again", call, name);
    gradient_written_[v.slot] = true;
  }

  void WriteState(const PlanValue& v, int call, Phase phase) {
    if (phase == Phase::kBackward) Breach("call {} updates state \"{}\" in backward", call, v.name);
    if (std::ranges::find(plan_.updates, v.slot) == plan_.updates.end() || state_written_[v.slot]) {
      Breach("call {} updates state \"{}\" unasked or again", call, v.name);
    }
    state_written_[v.slot] = true;
  }

  void WriteDerived(const PlanValue& v, int call) {
    if (call >= plan_.derive_calls || derived_written_[v.slot]) {
      Breach("call {} writes derived value \"{}\" in a run or again", call, v.name);
    }
    derived_written_[v.slot] = true;
  }

  void Write(int value, int call, Phase phase) {
    const PlanValue& v = plan_.values[value];
    if (v.place == Place::kDerived) return WriteDerived(v, call);
    if (call < plan_.derive_calls && v.place != Place::kArena) {
      Breach("call {}, which makes derived values, writes \"{}\"", call, v.name);
    }
    if (v.place == Place::kArgument) Breach("call {} writes argument \"{}\"", call, v.name);
    if (v.place == Place::kAuxiliary) return WriteState(v, call, phase);
    if (v.place == Place::kNone) Breach("call {} writes \"{}\", which has no memory", call, v.name);
    if (v.place == Place::kGradient) return WriteGradient(v, call, phase);
    const PlanStorage& s = plan_.storages[v.storage];
    if (call < s.first || call > s.last) Breach("call {} writes \"{}\" outside its lifetime", call, v.name);
    last_writer_[v.storage] = value;
  }

  void Replay() {
    ReplayCalls(0, plan_.derive_calls, Phase::kForward);
    std::ranges::fill(last_writer_, -1);  // most runs do not run these
    for (const PlanSegment& segment : plan_.segments) {
      ReplayCalls(segment.begin, segment.end, segment.phase);
      const int before = std::max(0, segment.end - 1);
      for (const PlanExchange& e : segment.exchanges) {
        Read(e.input, before);
        Write(e.output, before, segment.phase);
      }
    }
  }

  void ReplayCalls(int begin, int end, Phase phase) {
    for (int i = begin; i < end; ++i) {
      const PlanCall& call = plan_.calls[i];
      for (const int v : call.inputs)
        if (v >= 0) Read(v, i);
      for (const int out : call.outputs) {
        if (out < 0) continue;
        for (const int in : call.inputs)
          if (in >= 0) CheckInPlace(in, out, i);
        Write(out, i, phase);
      }
    }
  }

  void CheckInPlace(int in, int out, int call) const {
    const PlanValue& a = plan_.values[in];
    const PlanValue& b = plan_.values[out];
    if (a.place != Place::kArena || b.place != Place::kArena || a.storage != b.storage) return;
    if (a.format != b.format || a.type.shape != b.type.shape || a.type.dtype != b.type.dtype) {
      Breach("call {} writes \"{}\" over \"{}\" of another format", call, b.name, a.name);
    }
  }

  void CheckEnds() {
    const int end = std::max(0, static_cast<int>(plan_.calls.size()) - 1);
    for (const auto* list : {&plan_.outputs, &plan_.observed}) {
      for (const PlanOutput& output : *list) {
        CheckValue(output.value);
        if (!plan_.values[output.value].format.is_plain()) Breach("output \"{}\" is not plain", output.name);
        Read(output.value, end);
      }
    }
    for (size_t i = 0; i < plan_.derived.size(); ++i) {
      if (!derived_written_[i]) Breach("nothing makes \"{}\"", plan_.derived[i].name);
    }
    for (const int slot : plan_.updates) {
      if (!state_written_[slot]) Breach("nothing updates state \"{}\"", plan_.auxiliary[slot].name);
    }
    for (size_t i = 0; i < plan_.gradients.size(); ++i) {
      if (gradient_written_[i] || plan_.gradients[i].is_zero) continue;
      const PlanArgument& argument = plan_.ArgumentOf(plan_.gradients[i]);
      if (plan_.GradientBytes(static_cast<int>(i)) > 0) Breach("nothing writes the gradient of \"{}\"", argument.name);
    }
  }

  const Plan& plan_;
  std::vector<int> last_writer_;  // per storage: the value written last
  std::vector<int> writes_;       // per value
  std::vector<int> seen_writer_;  // per view: whose content its readers saw
  std::vector<bool> gradient_written_, state_written_, derived_written_;
};

}  // namespace

void VerifyPlan(const Plan& plan) { Verifier(plan).Run(); }

}  // namespace bindery
