#include "engine/step.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
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

  // May `next` begin and end together with these before it? `between`: what comes after their first, and is of others.
  // `shared`: what others use.
  static bool Join(std::span<const Merged* const> these, const Merged& next, std::span<const Merged* const> between,
                   const Vars& shared) {
    return next.parts[0].priority == these[0]->parts[0].priority &&
           std::ranges::none_of(these, [&](const Merged* one) { return Meet(one->exclusive, shared); }) &&
           std::ranges::none_of(between, [&](const Merged* other) {
             return Meet(next.all, other->exclusive) || Meet(next.exclusive, other->all);
           });
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

// The only device among them that is not a CPU, if its streams join operations.
std::optional<Device> OnlyOneThatJoins(Engine* engine, const std::vector<Merged>& merged) {
  std::optional<Device> found;
  for (const Merged& m : merged) {
    if (HostAddressable(m.device)) continue;
    if (found && *found != m.device) return std::nullopt;
    found = m.device;
  }
  return found && engine->StreamOf(*found).joins() ? found : std::nullopt;
}

// What those that are free to be joined use, and others, too.
template <class IsFree>
Vars SharedWithOthers(const std::vector<Merged>& merged, const IsFree& is_free, const std::vector<VarPtr>& awaited) {
  Vars others;
  Add(awaited, &others);
  for (const Merged& m : merged) {
    if (!is_free(m)) others.insert(m.all.begin(), m.all.end());
  }
  return others;
}

}  // namespace

StepRange::StepRange(std::shared_ptr<Engine> engine, StepParts parts, const std::vector<VarPtr>& awaited)
    : engine_(std::move(engine)) {
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
  const std::optional<Device> gpu = OnlyOneThatJoins(engine_.get(), merged);
  const auto is_free = [&](const Merged& m) { return m.device == gpu && m.lane != Lane::kCopy; };
  const Vars outside = SharedWithOthers(merged, is_free, awaited);
  std::vector<bool> taken(merged.size());
  for (size_t i = 0; i < merged.size(); ++i) {
    if (taken[i]) continue;
    std::vector<const Merged*> joined = {&merged[i]}, between;
    std::vector<size_t> numbers = {i};
    for (size_t next = i + 1; next < merged.size() && is_free(merged[i]); ++next) {
      if (taken[next]) continue;
      if (!is_free(merged[next])) {
        between.push_back(&merged[next]);
      } else if (Merged::Join(joined, merged[next], between, outside)) {
        joined.push_back(&merged[next]);
        numbers.push_back(next);
        taken[next] = true;
      } else {
        break;
      }
    }
    std::vector<Operation> operations;
    for (const size_t number : numbers) operations.push_back(merged[number].Finish());
    operations_.push_back(operations.size() == 1 ? engine_->Prepare(std::move(operations[0]))
                                                 : engine_->PrepareJoined(std::move(operations)));
  }
}

}  // namespace bindery
