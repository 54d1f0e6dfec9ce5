#include "executor/compile/hoist_derived.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/files.h"
#include "symbol/op_def.h"
#include "symbol/ops/cast.h"

namespace bindery {
namespace {

bool IsFunctionOfInputs(const OpDef& op) {
  return !op.is_random && !op.reads_step && op.across_devices == AcrossDevices::kNothing;
}

// Text that only equal attributes have; none where it would be long.
std::optional<std::string> IdentityOf(const AnyAttrs& attrs) {
  constexpr size_t kLongest = 8;  // elements; ToString prints so many in full
  std::string text;
  for (const auto& [name, value] : attrs.ToMap()) {
    std::string printed = ToString(value);
    bool is_long = false;
    std::visit(
        [&]<class T>(const T& held) {
          if constexpr (std::is_same_v<T, std::shared_ptr<const HostTensor>>) {
            is_long = !held || held->bytes() > static_cast<int64_t>(kLongest * sizeof(int64_t));
            if (!is_long) {
              const auto* bytes = static_cast<const unsigned char*>(held->raw());
              fmt::format_to(std::back_inserter(printed), " {:02x}", fmt::join(bytes, bytes + held->bytes(), ""));
            }
          } else if constexpr (requires { held.size(); }) {
            is_long = held.size() > kLongest && !std::is_same_v<T, std::string>;
          } else if constexpr (std::is_same_v<T, double>) {
            printed = fmt::format("{:a}", held);
          }
        },
        value);
    if (is_long) return std::nullopt;
    fmt::format_to(std::back_inserter(text), " {}={}", name, printed);
  }
  return text;
}

// A name that is long is told by its hash: a value may be made of others that are all made of the same, and names that
// tell all of it would double with each.
std::string Brief(std::string name) {
  constexpr size_t kLongest = 400;
  if (name.size() <= kLongest) return name;
  const auto hash = [&](uint64_t seed) { return Checksum(name.data(), std::ssize(name), seed); };
  const std::string hashes = fmt::format("... {:016x}{:016x}", hash(0), hash(1));
  size_t kept = kLongest / 2;  // not within a character of UTF-8
  while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xC0) == 0x80) --kept;
  return name.replace(kept, std::string::npos, hashes);
}

constexpr int64_t kMaxConstant = 4096;  // bytes of what is made of nothing

bool IsKeptArgument(const Signature& signature, int slot) {
  const std::vector<Argument>& given = signature.arguments;  // head gradients stand behind them
  return static_cast<size_t>(slot) < given.size() && given[static_cast<size_t>(slot)].is_kept;
}

int64_t BytesOf(const ValueType& type) { return type.shape.Elements() * SizeOf(type.dtype); }

// What is kept is no larger than what it is made of.
bool IsNoLarger(const ValueType& made, const std::vector<ValueType>& of) {
  int64_t bytes = of.empty() ? kMaxConstant : 0;
  for (const ValueType& type : of) bytes += BytesOf(type);
  return BytesOf(made) <= bytes;
}

class Hoister {
 public:
  Hoister(Program* program, const DerivedOptions& options)
      : program_(*program), plan_(program->plan), options_(options), pinned_(plan_.values.size(), false),
        made_of_(plan_.values.size()), names_(plan_.values.size()), hoisted_(plan_.calls.size(), false) {}

  void Run() {
    for (const int v : options_.kept) pinned_[RootOf(v)] = true;
    for (const PlanSegment& segment : plan_.segments) {
      for (const PlanExchange& e : segment.exchanges) pinned_[RootOf(e.input)] = true;
    }
    for (size_t i = 0; i < plan_.calls.size(); ++i) hoisted_[i] = TryHoist(static_cast<int>(i));
    LeaveUnread();
    plan_.derive_calls = static_cast<int>(std::ranges::count(hoisted_, true));
    if (plan_.derive_calls == 0) return;
    PlaceDerived();
    MoveToFront();
  }

 private:
  int RootOf(int value) const { return options_.root[static_cast<size_t>(value)]; }
  const PlanValue& ValueOf(int value) const { return plan_.values[static_cast<size_t>(value)]; }
  bool IsMade(int root) const { return made_of_[static_cast<size_t>(root)].has_value(); }

  struct Sources {
    std::set<int> arguments = {}, states = {};
  };
  // What a value is made of, if that is all that it is made of.
  std::optional<Sources> SourcesOf(int value) const {
    const int root = RootOf(value);
    const PlanValue& v = ValueOf(root);
    if (v.place == Place::kAuxiliary && options_.keeps_states) return Sources{.states = {v.slot}};
    if (v.place != Place::kArgument) return made_of_[static_cast<size_t>(root)];
    return IsKeptArgument(options_.signature, v.slot) ? std::optional(Sources{.arguments = {v.slot}}) : std::nullopt;
  }

  // A view of what a call reads has its elements, but another shape.
  std::string Description(int value) const {
    const int root = RootOf(value);
    const PlanValue& of = ValueOf(root);
    const PlanValue& v = ValueOf(value);
    const std::string& name = of.place == Place::kArgument    ? plan_.arguments[static_cast<size_t>(of.slot)].name
                              : of.place == Place::kAuxiliary ? plan_.auxiliary[static_cast<size_t>(of.slot)].name
                                                              : names_[static_cast<size_t>(root)];
    return fmt::format("{} {} {}", name, v.type.shape, v.format);
  }

  bool TryHoist(int i) {
    const PlanCall& call = plan_.calls[static_cast<size_t>(i)];
    if (call.outputs.size() != 1 || call.outputs[0] < 0) return false;
    const int out = call.outputs[0];
    const bool reorders = call.op == "Reorder";
    const auto attributes = options_.may_be_kept.find(i);
    if (attributes == options_.may_be_kept.end() && !(reorders && IsMade(RootOf(call.inputs[0])))) return false;
    const PlanValue& to = ValueOf(out);
    if (to.place != Place::kArena || RootOf(out) != out || pinned_[static_cast<size_t>(out)]) return false;
    Sources all;
    std::vector<std::string> sources;
    std::vector<ValueType> types;
    for (const int in : call.inputs) {
      if (in < 0) return false;
      std::optional<Sources> own = SourcesOf(in);
      if (!own) return false;
      all.arguments.merge(own->arguments);
      all.states.merge(own->states);
      types.push_back(ValueOf(in).type);
      sources.push_back(Description(in));
    }
    if (!reorders && !IsNoLarger(to.type, types)) return false;
    names_[static_cast<size_t>(out)] = Brief(fmt::format(
        "{}{} {} {} {} [{}] ({})", call.op, attributes == options_.may_be_kept.end() ? "" : attributes->second,
        to.type.dtype, to.type.shape, to.format, call.implementation, fmt::join(sources, ", ")));
    made_of_[static_cast<size_t>(out)] = std::move(all);
    return true;
  }

  // What nobody reads, as a cast for a product without elements, is not kept.
  void LeaveUnread() {
    std::vector<bool> is_read(plan_.values.size(), false);
    for (size_t i = plan_.calls.size(); i-- > 0;) {
      const PlanCall& call = plan_.calls[i];
      hoisted_[i] = hoisted_[i] && is_read[static_cast<size_t>(RootOf(call.outputs[0]))];
      for (const int v : call.inputs) {
        if (v >= 0) is_read[static_cast<size_t>(RootOf(v))] = true;
      }
    }
  }

  // What is read by calls that stay; the rest is needed only while derived values are made.
  void PlaceDerived() {
    std::vector<int> slots(plan_.values.size(), -1);
    std::map<std::string, int> count;
    for (size_t i = 0; i < plan_.calls.size(); ++i) {
      if (hoisted_[i]) continue;
      for (const int v : plan_.calls[i].inputs) {
        if (v < 0 || !IsMade(RootOf(v)) || slots[static_cast<size_t>(RootOf(v))] >= 0) continue;
        const auto root = static_cast<size_t>(RootOf(v));
        slots[root] = static_cast<int>(plan_.derived.size());
        // Without the passes a program may have one value twice.
        const int number = ++count[names_[root]];
        plan_.derived.push_back({.name = number == 1 ? names_[root] : fmt::format("{} #{}", names_[root], number),
                                 .bytes = plan_.values[root].bytes(),
                                 .arguments = {made_of_[root]->arguments.begin(), made_of_[root]->arguments.end()},
                                 .states = {made_of_[root]->states.begin(), made_of_[root]->states.end()}});
      }
    }
    for (size_t v = 0; v < plan_.values.size(); ++v) {
      const int slot = slots[static_cast<size_t>(RootOf(static_cast<int>(v)))];
      if (slot < 0) continue;
      plan_.values[v].place = Place::kDerived;
      plan_.values[v].slot = slot;
    }
  }

  void MoveToFront() {
    const std::vector<bool>& first = hoisted_;
    std::vector<int> stay_before = {0};  // per call, and at the end: how many of those before it stay
    for (const bool moves : first) stay_before.push_back(stay_before.back() + !moves);
    for (PlanSegment& segment : plan_.segments) {
      segment.begin = plan_.derive_calls + stay_before[static_cast<size_t>(segment.begin)];
      segment.end = plan_.derive_calls + stay_before[static_cast<size_t>(segment.end)];
    }
    std::vector<PlanCall> calls;
    std::vector<Kernel> kernels;
    for (const bool moves : {true, false}) {
      for (size_t i = 0; i < first.size(); ++i) {
        if (first[i] != moves) continue;
        const PlanCall& call = plan_.calls[i];
        if (call.scratch >= 0) {
          PlanStorage& scratch = plan_.storages[static_cast<size_t>(call.scratch)];
          scratch.first = scratch.last = static_cast<int>(calls.size());
        }
        calls.push_back(std::move(plan_.calls[i]));
        kernels.push_back(std::move(program_.kernels[i]));
      }
    }
    plan_.calls = std::move(calls);
    program_.kernels = std::move(kernels);
  }

  Program& program_;
  Plan& plan_;
  const DerivedOptions& options_;
  std::vector<bool> pinned_;                     // per root: must lie in the arena
  std::vector<std::optional<Sources>> made_of_;  // per root, of those that are made of such alone
  std::vector<std::string> names_;               // of those that are
  std::vector<bool> hoisted_;                    // per call
};

}  // namespace

bool KeepsAnything(const CompileOptions& options) {
  return options.mode == Mode::kPredict && options.switches.derive &&
         std::ranges::any_of(options.signature.arguments, &Argument::is_kept);
}

std::optional<std::string> IdentityOfKept(const Node& node, const CompileOptions& options) {
  if (CastFrom(node)) return "";
  return KeepsAnything(options) && IsFunctionOfInputs(node.op()) ? IdentityOf(node.attrs()) : std::nullopt;
}

bool KeptSoFar::Has(int root, const Plan& plan) const {
  const PlanValue& value = plan.values[static_cast<size_t>(root)];
  if (!keeps_) return false;
  if (value.place == Place::kArgument) return IsKeptArgument(options_.signature, value.slot);
  return value.place == Place::kAuxiliary || made_.contains(root);
}

void KeptSoFar::Add(const KernelSpec& spec, int root) {
  // As Hoister::TryHoist has it; what is watched is not kept.
  const bool is_one_of_kept = spec.outputs.size() == 1 && std::ranges::count(spec.input_is_kept, false) == 0;
  if (is_one_of_kept && options_.observe.empty() && IsNoLarger(spec.outputs[0], spec.inputs)) made_.insert(root);
}

void HoistDerived(Program* program, const DerivedOptions& options) { Hoister(program, options).Run(); }

}  // namespace bindery
