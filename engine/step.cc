#include "engine/step.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "engine/backend.h"

namespace bindery {
namespace {

using Vars = std::set<const Var*>;

void Add(const std::vector<VarPtr>& list, Vars* vars) {
  for (const VarPtr& var : list) vars->insert(var.get());
}

bool Meet(const Vars& a, const Vars& b) {
  return std::ranges::any_of(a, [&](const Var* var) { return b.contains(var); });
}

// Parts that run as one operation.
struct Merged {
  explicit Merged(Operation part) : device(part.device), lane(part.lane) { Append(std::move(part)); }

  void Append(Operation part) {
    Add(part.reads, &all);
    for (const auto* list : {&part.writes, &part.updates}) {
      Add(*list, &all);
      Add(*list, &exclusive);
    }
    Add(part.writes, &created);
    parts.push_back(std::move(part));
  }

  // May `part` run here, before all of `between`? `shared`: what several lanes use.
  bool Takes(const Merged& part, std::span<const Merged> between, const Vars& shared) const {
    if (parts[0].priority != part.parts[0].priority) return false;
    if (!parts[0].updates.empty() || !part.parts[0].updates.empty()) return false;
    Vars needed;
    Add(part.parts[0].reads, &needed);
    return Meet(needed, created) &&
           std::ranges::none_of(created,
                                [&](const Var* var) { return shared.contains(var) && !part.created.contains(var); }) &&
           std::ranges::none_of(between, [&](const Merged& other) {
             return Meet(part.all, other.exclusive) || Meet(part.exclusive, other.all);
           });
  }

  Operation Finish() {
    if (parts.size() == 1) return std::move(parts[0]);
    Operation whole{.device = device, .lane = lane, .priority = parts[0].priority};
    Vars inside;  // created by a part before
    std::vector<std::function<std::string()>> at;
    for (const Operation& part : parts) {
      const auto append = [&](const std::vector<VarPtr>& list, std::vector<VarPtr>* to) {
        std::ranges::copy_if(list, std::back_inserter(*to),
                             [&](const VarPtr& var) { return !inside.contains(var.get()); });
      };
      whole.name += (whole.name.empty() ? "" : ", ") + part.name;
      append(part.reads, &whole.reads);
      append(part.writes, &whole.writes);
      Add(part.writes, &inside);
      if (part.at) at.push_back(part.at);
    }
    // Of parts that do not run it is "".
    whole.at = [at = std::move(at)] {
      std::string found;
      for (size_t i = 0; i < at.size() && found.empty(); ++i) found = at[i]();
      return found;
    };
    whole.run = [parts = std::move(parts)](const OpContext& context) {
      for (const Operation& part : parts) {
        context.stream.Enter(part.name);
        part.run(context);
      }
    };
    return whole;
  }

  Device device;
  Lane lane;
  StepParts parts;
  Vars all, exclusive, created;
};

}  // namespace

StepRange::StepRange(std::shared_ptr<Engine> engine, StepParts parts, const std::vector<VarPtr>& awaited)
    : engine_(std::move(engine)) {
  if (parts.empty()) return;
  const Device first = parts[0].device;
  const bool alone = std::ranges::all_of(parts, [&](const Operation& part) { return part.device == first; });
  if (alone && !HostAddressable(first)) alone_ = first;
  std::map<const Var*, std::pair<Device, Lane>> users;  // the first lane that uses it
  Vars shared;
  Add(awaited, &shared);
  for (const Operation& part : parts) {
    for (const auto* list : {&part.reads, &part.writes, &part.updates}) {
      for (const VarPtr& var : *list) {
        const std::pair lane(part.device, part.lane);
        if (users.try_emplace(var.get(), lane).first->second != lane) shared.insert(var.get());
      }
    }
  }
  std::vector<Merged> merged;
  for (Operation& part : parts) {
    Merged next(std::move(part));
    const auto same_lane = std::find_if(merged.rbegin(), merged.rend(), [&](const Merged& m) {
      return m.device == next.device && m.lane == next.lane;
    });
    if (same_lane != merged.rend() && same_lane->Takes(next, {same_lane.base(), merged.end()}, shared)) {
      same_lane->Append(std::move(next.parts[0]));
    } else {
      merged.push_back(std::move(next));
    }
  }
  for (Merged& m : merged) operations_.push_back(engine_->Prepare(m.Finish()));
}

void StepRange::Push(const std::shared_ptr<const void>& payload) const {
  std::optional<Joining> joining;
  if (alone_ && operations_.size() > 1) joining.emplace(engine_.get(), *alone_);
  for (const PreparedPtr& operation : operations_) engine_->Push(operation, payload);
}

}  // namespace bindery
