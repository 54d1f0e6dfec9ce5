#include "executor/group_step.h"

#include <set>

#include "engine/backend.h"
#include "engine/collective.h"

namespace bindery {

GroupStep::GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants)
    : engine_(std::move(engine)), participants_(std::move(participants)) {
  for (const PlanSegment& segment : plan().segments) forward_segments_ += segment.phase == Phase::kForward;
  for (const Participant& p : participants_) {
    Check(p.bound->plan().segments.size() == plan().segments.size(), "all devices' programs have the same segments");
  }
  PrepareExchanges();
  PrepareStates(store);
  PrepareIdle(engine_.get(), store);
}

void GroupStep::PrepareExchanges() {
  const auto collectives = MemoryCollectives(engine_, false);
  for (size_t s = 0; s < plan().segments.size(); ++s) {
    StepParts parts;
    const std::vector<PlanExchange>& exchanges = plan().segments[s].exchanges;
    for (size_t e = 0; e < exchanges.size();) {
      const Collective what = exchanges[e].what;
      std::vector<Bucket> buckets;
      for (; e < exchanges.size() && exchanges[e].what == what; ++e) {
        Bucket& bucket = buckets.emplace_back();
        for (const Participant& p : participants_) {
          const PlanExchange& exchange = p.bound->plan().segments[s].exchanges[e];
          bucket.sources.push_back(p.replica->Value(*p.bound, exchange.input));
          bucket.replicas.push_back(p.replica->Value(*p.bound, exchange.output));
        }
      }
      // Each arena is read and written: one device's failure fails all, and nothing is half combined.
      collectives->Append(what, ToString(what), std::move(buckets), &parts);
    }
    exchanges_.emplace_back(engine_, std::move(parts));
  }
}

void GroupStep::PrepareStates(const ParameterStore& store) {
  const std::vector<int> blocks = store.UpdatedBlocks(plan());
  if (blocks.empty()) return;
  StepParts begin, broadcast, publish;
  store.AppendBegin(blocks, &begin);
  store.AppendPublish(blocks, {}, &publish);
  begin_ = StepRange(engine_, std::move(begin));
  publish_ = StepRange(engine_, std::move(publish));
  if (participants_.size() == store.devices().size()) return;
  std::vector<Bucket> buckets;
  for (const int b : blocks) {
    const std::vector<Tensor>& candidates = store.blocks()[b].candidates;
    buckets.push_back({.sources = {candidates[participants_[0].replica->index()]}, .replicas = candidates});
  }
  MemoryCollectives(engine_, false)->Append(Collective::kBroadcast, "states", std::move(buckets), &broadcast);
  broadcast_ = StepRange(engine_, std::move(broadcast));
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

void GroupStep::Forward(bool begins, bool commits) {
  if (begins) begin_.Push();
  Push(0, forward_segments_);
  broadcast_.Push();
  if (commits) publish_.Push();
}

void GroupStep::Backward() {
  for (const PreparedPtr& zero : idle_) engine_->Push(zero);
  Push(forward_segments_, static_cast<int>(plan().segments.size()));
}

void GroupStep::Push(int begin, int end) {
  for (int s = begin; s < end; ++s) {
    for (const Participant& p : participants_) p.replica->PushSegment(*p.bound, s);
    exchanges_[s].Push();
  }
}

}  // namespace bindery
