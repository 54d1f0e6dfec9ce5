#include "executor/group/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/collective.h"

namespace bindery {

namespace {

void AppendAll(const StepParts& from, StepParts* to) { to->insert(to->end(), from.begin(), from.end()); }

}  // namespace

GroupStep::GroupStep(std::shared_ptr<Engine> engine, const ParameterStore& store, std::vector<Participant> participants,
                     const std::vector<DeviceExecutor*>& idle, const std::vector<SampleRange>& ranges, bool independent)
    : engine_(std::move(engine)), participants_(std::move(participants)) {
  for (const Participant& p : participants_) {
    Check(p.bound->plan().segments.size() == plan().segments.size(), "all devices' programs have the same segments");
  }
  for (int turn = 0; turn < Loader::kTurns; ++turn) {
    std::vector<StepParts>& parts = load_.emplace_back();
    for (const Participant& p : participants_) {
      parts.push_back(p.executor->LoadParts(*p.bound, ranges[p.executor->index()], turn));
    }
    for (DeviceExecutor* executor : idle) parts.push_back(executor->BlockParts(turn));
    StepParts loads;
    for (const StepParts& device : parts) AppendAll(device, &loads);
    load_ranges_.emplace_back(engine_, std::move(loads));
    if (std::ranges::all_of(store.devices(), HostAddressable)) break;  // nothing lands
  }
  std::vector<std::vector<StepParts>> segments;  // per participant
  for (const Participant& p : participants_) segments.push_back(p.executor->SegmentParts(*p.bound));
  AppendSegments(Phase::kForward, segments);
  AppendStates(store, independent);
  if (!independent) AppendIdle(store, idle);
  AppendSegments(Phase::kBackward, segments);
  if (store.bucket_bytes() == 0) return;
  for (const ParameterStore::Block& block : store.blocks()) {
    for (const Tensor& gradients : block.gradients) awaited_.push_back(gradients.var());
    for (const auto& gradient : block.row_gradients) awaited_.push_back(gradient->var);
  }
}

void GroupStep::AppendSegments(Phase phase, const std::vector<std::vector<StepParts>>& segments) {
  const auto collectives = MemoryCollectives(engine_, false);
  StepParts& parts = phase == Phase::kForward ? forward_ : backward_;
  for (size_t s = 0; s < plan().segments.size(); ++s) {
    if (plan().segments[s].phase != phase) continue;
    for (const std::vector<StepParts>& device : segments) AppendAll(device[s], &parts);
    const std::vector<PlanExchange>& exchanges = plan().segments[s].exchanges;
    for (size_t e = 0; e < exchanges.size();) {
      const Collective what = exchanges[e].what;
      std::vector<Bucket> buckets;
      std::vector<std::string> names;
      for (; e < exchanges.size() && exchanges[e].what == what; ++e) {
        Bucket& bucket = buckets.emplace_back();
        names.push_back(plan().values[static_cast<size_t>(exchanges[e].input)].name);
        for (const Participant& p : participants_) {
          const PlanExchange& exchange = p.bound->plan().segments[s].exchanges[e];
          bucket.sources.push_back(p.executor->Value(*p.bound, exchange.input));
          bucket.replicas.push_back(p.executor->Value(*p.bound, exchange.output));
        }
      }
      // Each arena is read and written: one device's failure fails all, and nothing is half combined.
      collectives->Append(what, fmt::format("{} of {}", ToString(what), NamesInShort(names)), std::move(buckets),
                          &parts);
    }
  }
}

void GroupStep::AppendStates(const ParameterStore& store, bool independent) {
  const std::vector<int> blocks = store.UpdatedBlocks(plan());
  if (blocks.empty()) return;
  store.AppendBegin(blocks, &begin_);
  std::vector<VarPtr> gates;  // a run moves the states of all devices or, if one of them fails, of none
  for (const int b : blocks) {
    for (const Tensor& candidates : store.blocks()[b].candidates) gates.push_back(candidates.var());
  }
  store.AppendPublish(blocks, independent ? std::vector<VarPtr>() : gates, &publish_);
  if (independent || participants_.size() == store.devices().size()) return;
  std::vector<Bucket> buckets;
  std::vector<std::string> names;
  for (const int b : blocks) {
    std::ranges::move(store.NamesOf(store.blocks()[b]), std::back_inserter(names));
    const std::vector<Tensor>& candidates = store.blocks()[b].candidates;
    buckets.push_back({.sources = {candidates[participants_[0].executor->index()]}, .replicas = candidates});
  }
  MemoryCollectives(engine_, false)
      ->Append(Collective::kBroadcast, "states " + NamesInShort(names), std::move(buckets), &forward_);
}

void GroupStep::AppendIdle(const ParameterStore& store, const std::vector<DeviceExecutor*>& idle) {
  std::set<std::string> written;
  for (const PlanGradient& g : plan().gradients) {
    const PlanArgument& a = plan().ArgumentOf(g);
    if (g.req == GradReq::kWrite && a.is_parameter()) written.insert(a.name);
  }
  for (const DeviceExecutor* executor : idle) {
    for (const ParameterStore::Block& block : store.blocks()) {
      const StoredParameter& first = store.parameters()[block.parameters[0]];
      if (const auto gradient = written.contains(first.name) ? store.Rows(first, executor->index()) : nullptr) {
        backward_.push_back({.name = "no rows",
                             .device = executor->device(),
                             .writes = {gradient->var},
                             .run = [gradient](const OpContext&) { gradient->now = {}; }});
      }
      if (block.gradients.empty()) continue;
      std::vector<Tensor> zeros;
      for (const int i : block.parameters) {
        const StoredParameter& p = store.parameters()[i];
        if (written.contains(p.name)) zeros.push_back(store.Gradient(p, executor->index()));
      }
      if (zeros.empty()) continue;
      const VarPtr& var = block.gradients[executor->index()].var();
      Operation operation{.name = "zero gradients", .device = executor->device()};
      // Written as a whole, the block is whole again after a failed step. Others in it may add up.
      (zeros.size() == block.parameters.size() ? operation.writes : operation.updates).push_back(var);
      operation.run = [zeros = std::move(zeros),
                       &flat = Backend::Of(executor->device().kind).flat()](const OpContext& context) {
        for (const Tensor& zero : zeros) flat.Zero(context.stream, zero.address(), zero.bytes());
      };
      backward_.push_back(std::move(operation));
    }
  }
}

void GroupStep::Load(const std::shared_ptr<const StepInput>& input, const std::vector<DeviceFeed>& feeds) {
  const size_t turn = static_cast<size_t>(input->turn) % load_.size();
  if (feeds.empty()) return load_ranges_[turn].Push(input);
  const std::vector<StepParts>& load = load_[turn];
  for (size_t k = 0; k < load.size(); ++k) {
    for (size_t i = 0; i < load[k].size(); ++i) {
      Operation part = load[k][i];
      std::optional<DeviceFeed> feed;
      if (k < feeds.size() && i + 1 == load[k].size()) {
        feed = feeds[k];
        part.reads.insert(part.reads.end(), feed->reads().begin(), feed->reads().end());
      }
      part.run = [run = std::move(part.run), input, feed = std::move(feed)](const OpContext& context) {
        run({context.stream, input.get()});
        if (feed) feed->Run(context.stream);
      };
      engine_->Push(std::move(part));
    }
  }
}

void GroupStep::Push(const Extent& extent) {
  std::optional<StepRange>& range =
      ranges_[8 * extent.begins + 4 * extent.forward + 2 * extent.commits + 1 * extent.backward];
  if (!range) {
    StepParts parts;
    if (extent.begins) AppendAll(begin_, &parts);
    if (extent.forward) AppendAll(forward_, &parts);
    if (extent.commits) AppendAll(publish_, &parts);
    if (extent.backward) AppendAll(backward_, &parts);
    range.emplace(engine_, std::move(parts), awaited_);
  }
  if (extent.forward) {
    for (const Participant& p : participants_) p.executor->NextRun(*p.bound);
  }
  range->Push();
}

}  // namespace bindery
