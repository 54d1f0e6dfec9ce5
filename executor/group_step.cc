#include "executor/group_step.h"

#include <set>

#include "engine/backend.h"
#include "executor/exchange.h"

namespace bindery {

GroupStep::GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants)
    : engine_(std::move(engine)), participants_(std::move(participants)) {
  for (const PlanSegment& segment : plan().segments) forward_segments_ += segment.phase == Phase::kForward;
  for (const Participant& p : participants_) {
    Check(p.bound->plan().segments.size() == plan().segments.size(), "all devices' programs have the same segments");
  }
  PrepareExchanges();
  statistics_ = PrepareStatistics(store, false);
  tentative_statistics_ = PrepareStatistics(store, true);
  PrepareIdle(engine_.get(), store);
}

void GroupStep::PrepareExchanges() {
  struct Job {
    std::string op;
    ValueType type;
    size_t devices;
  };
  for (size_t s = 0; s < plan().segments.size(); ++s) {
    std::unique_ptr<HostCall>& call = exchanges_.emplace_back();
    if (plan().segments[s].exchanges.empty()) continue;
    // Per exchange the inputs of all devices, then the outputs.
    std::vector<Job> jobs;
    std::vector<HostCallRange> ranges;
    for (size_t e = 0; e < plan().segments[s].exchanges.size(); ++e) {
      const PlanExchange& first = plan().segments[s].exchanges[e];
      const ValueType& type = plan().values[first.input].type;
      jobs.push_back({first.op, type, participants_.size()});
      for (const bool output : {false, true}) {
        for (const Participant& p : participants_) {
          const PlanExchange& exchange = p.bound->plan().segments[s].exchanges[e];
          ranges.push_back({.device = p.replica->device(),
                            .address = p.bound->instance->AddressOf(output ? exchange.output : exchange.input),
                            .bytes = type.shape.Elements() * SizeOf(type.dtype),
                            .var = p.replica->arena()->var(),
                            .read = !output,
                            .after = output ? HostCallRange::After::kWrite : HostCallRange::After::kNothing});
        }
      }
    }
    const auto run = [jobs = std::move(jobs)](std::span<void* const> addresses) {
      for (const Job& job : jobs) {
        RunExchange(job.op, job.type, {const_cast<const void* const*>(addresses.data()), job.devices},
                    addresses.subspan(job.devices, job.devices));
        addresses = addresses.subspan(2 * job.devices);
      }
    };
    // Each arena is read and written: one device's failure fails all, and nothing is half merged.
    call = std::make_unique<HostCall>(engine_, "exchange", ranges, run);
  }
}

std::unique_ptr<HostCall> GroupStep::PrepareStatistics(const ParameterStore& store, bool tentative) const {
  if (plan().statistics.empty()) return nullptr;
  // Per layer the addresses of the sources' means and variances, then of the running means and variances.
  std::vector<RunningStatistics> layers;
  std::vector<HostCallRange> ranges;
  for (size_t i = 0; i < plan().statistics.size(); ++i) {
    const PlanStatistics& first = plan().statistics[i];
    const ValueType& type = plan().auxiliary_types[first.running_mean];
    RunningStatistics& layer = layers.emplace_back(
        RunningStatistics{.dtype = type.dtype, .channels = type.shape.Elements(), .momentum = first.momentum});
    const int64_t bytes = layer.channels * SizeOf(type.dtype);
    for (const Participant& p : participants_) {
      const PlanStatistics& s = p.bound->plan().statistics[i];
      layer.sources.push_back({.count = s.count, .mean = nullptr, .variance = nullptr});
      for (const int value : {s.mean, s.variance}) {
        ranges.push_back({.device = p.replica->device(),
                          .address = p.bound->instance->AddressOf(value),
                          .bytes = bytes,
                          .var = p.replica->arena()->var()});
      }
      if (s.merged) break;  // the same on every device already
    }
    for (size_t d = 0; d < store.devices().size(); ++d) {
      for (const int slot : {first.running_mean, first.running_variance}) {
        const StoredParameter& state = *store.Find(plan().auxiliary[slot]);
        const Tensor value =
            tentative ? store.Candidate(state, static_cast<int>(d)) : store.Value(state, static_cast<int>(d));
        ranges.push_back({.device = value.device(),
                          .address = value.address(),
                          .bytes = bytes,
                          .var = value.var(),
                          .read = true,
                          .after = HostCallRange::After::kUpdate});
      }
      layer.means.push_back(nullptr);
      layer.variances.push_back(nullptr);
    }
  }
  auto run = [layers = std::move(layers)](std::span<void* const> addresses) mutable {
    size_t at = 0;
    for (RunningStatistics& layer : layers) {
      for (ChannelStatistics& source : layer.sources) {
        source.mean = addresses[at++];
        source.variance = addresses[at++];
      }
      for (size_t d = 0; d < layer.means.size(); ++d) {
        layer.means[d] = addresses[at++];
        layer.variances[d] = addresses[at++];
      }
    }
    MoveRunningStatistics(layers);
  };
  return std::make_unique<HostCall>(engine_, "running statistics", ranges, std::move(run));
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
      operation.run = [zeros = std::move(zeros),
                       &flat = Backend::Of(store.devices()[d].kind).flat()](const OpContext& context) {
        for (const Tensor& zero : zeros) flat.Zero(context.stream, zero.address(), zero.bytes());
      };
      idle_.push_back(engine->Prepare(std::move(operation)));
    }
  }
}

void GroupStep::Push(Phase phase, bool tentative) {
  if (phase == Phase::kBackward)
    for (const PreparedPtr& zero : idle_) engine_->Push(zero);
  const int begin = phase == Phase::kForward ? 0 : forward_segments_;
  const int end = phase == Phase::kForward ? forward_segments_ : static_cast<int>(plan().segments.size());
  for (int s = begin; s < end; ++s) {
    for (const Participant& p : participants_) p.replica->PushSegment(*p.bound, s);
    if (exchanges_[s]) exchanges_[s]->Push();
  }
  if (phase == Phase::kForward && statistics_) (tentative ? tentative_statistics_ : statistics_)->Push();
}

}  // namespace bindery
