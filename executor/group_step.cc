#include "executor/group_step.h"

#include <cstring>
#include <set>

#include "executor/exchange.h"

namespace bindery {

GroupStep::GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants)
    : engine_(std::move(engine)), participants_(std::move(participants)) {
  for (const PlanSegment& segment : plan().segments) forward_segments_ += segment.phase == Phase::kForward;
  for (const Participant& p : participants_) {
    Check(p.bound->plan().segments.size() == plan().segments.size(), "all devices' programs have the same segments");
  }
  PrepareExchanges(engine_.get());
  PrepareStatistics(engine_.get(), store);
  PrepareIdle(engine_.get(), store);
}

void GroupStep::PrepareExchanges(Engine* engine) {
  for (size_t s = 0; s < plan().segments.size(); ++s) {
    if (plan().segments[s].exchanges.empty()) {
      exchanges_.push_back(nullptr);
      continue;
    }
    struct Job {
      std::string op;
      ValueType type;
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
    };
    std::vector<Job> jobs;
    for (size_t e = 0; e < plan().segments[s].exchanges.size(); ++e) {
      const PlanExchange& first = plan().segments[s].exchanges[e];
      Job& job = jobs.emplace_back(Job{first.op, plan().values[first.input].type, {}, {}});
      for (const Participant& p : participants_) {
        const PlanExchange& exchange = p.bound->plan().segments[s].exchanges[e];
        job.inputs.push_back(p.bound->instance->AddressOf(exchange.input));
        job.outputs.push_back(p.bound->instance->AddressOf(exchange.output));
      }
    }
    Operation operation{.name = "exchange",
                        .device = participants_[0].replica->device(),
                        .reads = {},
                        .writes = {},
                        .updates = {},
                        .run = {}};
    for (const Participant& p : participants_) {
      operation.reads.push_back(p.replica->arena()->var());  // one device's failure fails all: nothing is half merged
      operation.writes.push_back(p.replica->arena()->var());
    }
    operation.run = [jobs = std::move(jobs)](const OpContext&) {
      for (const Job& job : jobs) RunExchange(job.op, job.type, job.inputs, job.outputs);
    };
    exchanges_.push_back(engine->Prepare(std::move(operation)));
  }
}

void GroupStep::PrepareStatistics(Engine* engine, const ParameterStore& store) {
  if (plan().statistics.empty()) return;
  std::vector<RunningStatistics> layers;
  for (size_t i = 0; i < plan().statistics.size(); ++i) {
    const PlanStatistics& first = plan().statistics[i];
    const ValueType& type = plan().auxiliary_types[first.running_mean];
    RunningStatistics& layer = layers.emplace_back(
        RunningStatistics{.dtype = type.dtype, .channels = type.shape.Elements(), .momentum = first.momentum});
    for (const Participant& p : participants_) {
      const PlanStatistics& s = p.bound->plan().statistics[i];
      layer.sources.push_back({.count = s.count,
                               .mean = p.bound->instance->AddressOf(s.mean),
                               .variance = p.bound->instance->AddressOf(s.variance)});
      if (s.merged) break;  // the same on every device already
    }
    for (size_t d = 0; d < store.devices().size(); ++d) {
      const auto address = [&](int slot) {
        return store.Value(*store.Find(plan().auxiliary[slot]), static_cast<int>(d)).data();
      };
      layer.means.push_back(address(first.running_mean));
      layer.variances.push_back(address(first.running_variance));
    }
  }
  Operation operation{.name = "running statistics",
                      .device = participants_[0].replica->device(),
                      .reads = {},
                      .writes = {},
                      .updates = {},
                      .run = {}};
  for (const Participant& p : participants_) operation.reads.push_back(p.replica->arena()->var());
  for (const ParameterStore::Block& block : store.blocks()) {
    if (!block.auxiliary) continue;
    for (const Tensor& values : block.values) operation.updates.push_back(values.var());
  }
  operation.run = [layers = std::move(layers)](const OpContext&) { MoveRunningStatistics(layers); };
  statistics_ = engine->Prepare(std::move(operation));
}

void GroupStep::PrepareIdle(Engine* engine, const ParameterStore& store) {
  std::set<std::string> written;
  for (const PlanGradient& g : plan().gradients) {
    if (g.req == GradReq::kWrite && plan().arguments[g.argument].is_parameter) written.insert(g.name);
  }
  std::vector<bool> busy(store.devices().size(), false);
  for (const Participant& p : participants_) busy[p.replica->index()] = true;
  for (size_t d = 0; d < busy.size(); ++d) {
    if (busy[d]) continue;
    for (const ParameterStore::Block& block : store.blocks()) {
      if (block.gradients.empty()) continue;
      std::vector<Tensor> zeros;
      for (const int i : block.parameters) {
        const StoredParameter& p = store.parameters()[i];
        if (written.contains(p.name)) zeros.push_back(store.Gradient(p, static_cast<int>(d)));
      }
      if (zeros.empty()) continue;
      const VarPtr& var = block.gradients[d].var();
      Operation operation{
          .name = "zero gradients", .device = store.devices()[d], .reads = {}, .writes = {}, .updates = {}, .run = {}};
      // Written as a whole, the block is whole again after a failed step. Others in it may add up.
      (zeros.size() == block.parameters.size() ? operation.writes : operation.updates).push_back(var);
      operation.run = [zeros = std::move(zeros)](const OpContext&) {
        for (const Tensor& zero : zeros) std::memset(zero.data(), 0, static_cast<size_t>(zero.bytes()));
      };
      idle_.push_back(engine->Prepare(std::move(operation)));
    }
  }
}

void GroupStep::Push(Phase phase) {
  if (phase == Phase::kBackward)
    for (const PreparedPtr& zero : idle_) engine_->Push(zero);
  const int begin = phase == Phase::kForward ? 0 : forward_segments_;
  const int end = phase == Phase::kForward ? forward_segments_ : static_cast<int>(plan().segments.size());
  for (int s = begin; s < end; ++s) {
    for (const Participant& p : participants_) p.replica->PushSegment(*p.bound, s);
    if (exchanges_[s]) engine_->Push(exchanges_[s]);
  }
  if (phase == Phase::kForward && statistics_) engine_->Push(statistics_);
}

}  // namespace bindery
