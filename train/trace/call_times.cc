#include "train/trace/call_times.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/collective.h"
#include "executor/data_parallel_executor_group.h"

namespace bindery {
namespace {

using Participant = GroupStep::Participant;

void Append(const std::vector<VarPtr>& from, std::vector<VarPtr>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

class Again {
 public:
  Again(DataParallelExecutorGroup* group, int stage) : group_(*group), stage_(stage) {}

  void Run(Phase phase, std::vector<CallTime>* times) {
    const auto& participants = group_.step().participants();
    if (phase == Phase::kForward) Derive(times);
    for (size_t s = 0; s < group_.step().plan().segments.size(); ++s) {
      if (group_.step().plan().segments[s].phase != phase) continue;
      RunOnAll(phase, /*derives=*/false, times,
               [s](const Plan& plan) { return std::pair(plan.segments[s].begin, plan.segments[s].end); });
      Exchange(participants, s);
    }
  }

 private:
  // Calls of one device that are run as one operation.
  struct Stretch {
    int replica = 0, begin = 0, end = 0;
    int64_t start = 0;
    std::vector<int64_t> nanoseconds = {};
  };

  void Derive(std::vector<CallTime>* times) {
    RunOnAll(Phase::kForward, /*derives=*/true, times,
             [](const Plan& plan) { return std::pair(0, plan.derive_calls); });
  }

  template <class Range>
  void RunOnAll(Phase phase, bool derives, std::vector<CallTime>* times, const Range& range) {
    const auto& participants = group_.step().participants();
    std::vector<std::shared_ptr<Stretch>> stretches;
    for (size_t k = 0; k < participants.size(); ++k) {  // CPUs at the same time
      const auto [begin, end] = range(participants[k].bound->plan());
      if (participants[k].executor->device().kind != DeviceKind::kCpu || begin == end) continue;
      stretches.push_back(Push(static_cast<int>(k), begin, end));
    }
    WaitForAll();
    for (size_t k = 0; k < participants.size(); ++k) {  // the others call by call, as each is waited for
      if (participants[k].executor->device().kind == DeviceKind::kCpu) continue;
      const auto [begin, end] = range(participants[k].bound->plan());
      for (int call = begin; call < end; ++call) {
        stretches.push_back(Push(static_cast<int>(k), call, call + 1));
        group_.engine()->Wait(participants[k].executor->arena()->var());
        Stretch& one = *stretches.back();
        one.nanoseconds[static_cast<size_t>(call)] = Trace::Now() - one.start;  // from its enqueuing on
      }
    }
    for (const auto& stretch : stretches) {
      int64_t at = stretch->start;
      const Participant& p = participants[static_cast<size_t>(stretch->replica)];
      for (int call = stretch->begin; call < stretch->end; ++call) {
        const int64_t taken = stretch->nanoseconds[static_cast<size_t>(call)];
        times->push_back({.bound = p.bound,
                          .call = call,
                          .phase = phase,
                          .derives = derives,
                          .device = p.executor->device(),
                          .stage = stage_,
                          .replica = stretch->replica,
                          .begin = at,
                          .end = at + taken});
        at += taken;
      }
    }
  }

  std::shared_ptr<Stretch> Push(int replica, int begin, int end) {
    const Participant& p = group_.step().participants()[static_cast<size_t>(replica)];
    auto stretch = std::make_shared<Stretch>(Stretch{.replica = replica, .begin = begin, .end = end});
    stretch->nanoseconds.resize(p.bound->plan().calls.size());
    Operation operation{.name = fmt::format("{}, run again", p.executor->device()),
                        .device = p.executor->device(),
                        .reads = p.bound->parameters,
                        .writes = {p.executor->arena()->var()},
                        // In place: they stay good if a call throws.
                        .updates = p.bound->candidates};
    Append(p.bound->gradients, &operation.updates);
    if (p.bound->derivation && p.bound->derivation->var()) operation.updates.push_back(p.bound->derivation->var());
    operation.run = [stretch, instance = p.bound->instance](const OpContext&) {
      stretch->start = Trace::Now();
      instance->RunCalls(stretch->begin, stretch->end, &stretch->nanoseconds);
    };
    operation.at = [instance = p.bound->instance] { return instance->At(); };
    group_.engine()->Push(std::move(operation));
    return stretch;
  }

  void WaitForAll() const {
    for (const Participant& p : group_.step().participants()) group_.engine()->Wait(p.executor->arena()->var());
  }

  // As executor/group/step.cc has them between segments.
  void Exchange(const std::vector<Participant>& participants, size_t segment) const {
    const std::vector<PlanExchange>& exchanges = group_.step().plan().segments[segment].exchanges;
    StepParts parts;
    for (size_t e = 0; e < exchanges.size(); ++e) {
      Bucket bucket;
      for (const Participant& p : participants) {
        const PlanExchange& own = p.bound->plan().segments[segment].exchanges[e];
        bucket.sources.push_back(p.executor->Value(*p.bound, own.input));
        bucket.replicas.push_back(p.executor->Value(*p.bound, own.output));
      }
      MemoryCollectives(group_.engine(), false)
          ->Append(exchanges[e].what, ToString(exchanges[e].what), {std::move(bucket)}, &parts);
    }
    for (Operation& part : parts) group_.engine()->Push(std::move(part));
    if (!exchanges.empty()) WaitForAll();
  }

  DataParallelExecutorGroup& group_;
  const int stage_;
};

}  // namespace

const PlanValue* CallTime::output() const {
  for (const int value : plan_call().outputs) {
    if (value >= 0) return &bound->plan().values[static_cast<size_t>(value)];
  }
  return nullptr;
}

void WaitForSteps(const ExecutorGroup& group) {
  for (const ReplicatedParam& param : group.params()) {
    for (const Tensor& value : param.values) group.engine()->WaitIdle(value.var());
  }
}

std::vector<CallTime> RunAgain(ExecutorGroup* group) {
  WaitForSteps(*group);
  std::vector<CallTime> times;
  const std::vector<DataParallelExecutorGroup*> stages = group->stages();
  for (size_t s = 0; s < stages.size(); ++s) Again(stages[s], static_cast<int>(s)).Run(Phase::kForward, &times);
  for (size_t s = stages.size(); s-- > 0;) Again(stages[s], static_cast<int>(s)).Run(Phase::kBackward, &times);
  return times;
}

void AddSlices(const std::vector<CallTime>& times, Trace* trace) {
  // What ran as one, one call behind the other.
  for (size_t i = 0; i < times.size();) {
    size_t end = i + 1;
    const auto goes_on = [&](const CallTime& next) {
      const CallTime& last = times[end - 1];
      return next.call == last.call + 1 && next.device == last.device && next.bound == last.bound &&
             next.phase == last.phase && next.derives == last.derives && next.begin >= last.end;
    };
    while (end < times.size() && goes_on(times[end])) ++end;
    const char* const name = times[i].derives                    ? "derived values, made again"
                             : times[i].phase == Phase::kForward ? "forward, run again"
                                                                 : "backward, run again";
    trace->Add({.name = name,
                .category = "phase",
                .device = times[i].device,
                .begin = times[i].begin,
                .end = times[end - 1].end});
    i = end;
  }
  for (const CallTime& time : times) {
    const PlanCall& call = time.plan_call();
    Trace::Slice slice{.name = fmt::format("{} {}", call.op, call.node),
                       .category = "operator",
                       .device = time.device,
                       .begin = time.begin,
                       .end = time.end,
                       .arguments = {{"operator", call.op}, {"node", call.node}, {"kernel", call.implementation}}};
    if (const PlanValue* value = time.output()) slice.arguments.emplace_back("output", ToString(value->type.shape));
    trace->Add(std::move(slice));
  }
}

int64_t BytesOf(const Plan& plan, const PlanCall& call) {
  std::set<int> values;
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const int value : *list) {
      if (value >= 0 && plan.values[static_cast<size_t>(value)].place != Place::kNone) values.insert(value);
    }
  }
  int64_t bytes = 0;
  for (const int value : values) bytes += plan.values[static_cast<size_t>(value)].bytes();
  return bytes;
}

}  // namespace bindery
