// PlacedExecutorGroup: what its stages have, as if it were one group's.
#include <algorithm>
#include <utility>

#include "base/names.h"
#include "executor/placed_executor_group.h"

namespace bindery {
namespace {

// Is it computed by backward? Copies that are kept for who watches are made at the end: what they copy counts.
bool IsOfBackward(const Plan& plan, int value) {
  const auto call_of = [&plan](int v) {
    return std::ranges::find_if(
        plan.calls, [v](const PlanCall& call) { return std::ranges::find(call.outputs, v) != call.outputs.end(); });
  };
  auto call = call_of(value);
  while (call != plan.calls.end() && (call->op == "Copy" || call->op == "Reorder")) call = call_of(call->inputs[0]);
  const auto index = call - plan.calls.begin();
  return std::ranges::any_of(plan.segments, [&](const PlanSegment& segment) {
    return segment.phase == Phase::kBackward && segment.begin <= index && index < segment.end;
  });
}

}  // namespace

std::vector<DataParallelExecutorGroup*> PlacedExecutorGroup::stages() {
  std::vector<DataParallelExecutorGroup*> groups;
  for (const Stage& stage : stages_) groups.push_back(stage.group.get());
  return groups;
}

void PlacedExecutorGroup::SetRates(const StepRates& rates) {
  for (const Stage& stage : stages_) stage.group->SetRates(rates);
}

void PlacedExecutorGroup::SetSeed(uint64_t seed) {
  spec_.options.seed = seed;
  for (const Stage& stage : stages_) stage.group->SetSeed(seed);
}

// --- results ---

std::pair<size_t, size_t> PlacedExecutorGroup::HeadsOf(int begin, int end) const {
  const int heads = static_cast<int>(heads_.size());
  if (end < 0) end = heads;
  if (begin < 0 || begin > end || end > heads) Throw("outputs {} to {} of {}", begin, end, heads);
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

std::vector<Tensor> PlacedExecutorGroup::Outputs(int begin, int end) const {
  if (!ran_forward_) Throw("Outputs: nothing has run yet; call Forward first");
  std::vector<Tensor> outputs;
  for (auto [head, last] = HeadsOf(begin, end); head < last; ++head) {
    const auto [stage, index] = heads_[head];
    outputs.push_back(stages_[static_cast<size_t>(stage)].group->Outputs(index, index + 1)[0]);
  }
  return outputs;
}

std::vector<std::vector<Tensor>> PlacedExecutorGroup::OutputsPerDevice(int begin, int end) const {
  if (!ran_forward_) Throw("Outputs: nothing has run yet; call Forward first");
  std::vector<std::vector<Tensor>> outputs;
  for (auto [head, last] = HeadsOf(begin, end); head < last; ++head) {
    const auto [stage, index] = heads_[head];
    outputs.push_back(std::move(stages_[static_cast<size_t>(stage)].group->OutputsPerDevice(index, index + 1)[0]));
  }
  return outputs;
}

std::vector<Shape> PlacedExecutorGroup::OutputShapes() const {
  std::vector<Shape> shapes;
  for (const auto& [stage, index] : heads_) {
    shapes.push_back(stages_[static_cast<size_t>(stage)].group->OutputShapes()[static_cast<size_t>(index)]);
  }
  return shapes;
}

const ValueType& PlacedExecutorGroup::OutputType(int head) const {
  const auto& [stage, index] = heads_.at(static_cast<size_t>(head));
  return stages_[static_cast<size_t>(stage)].group->OutputType(index);
}

std::vector<std::vector<Tensor>> PlacedExecutorGroup::InputGradientsPerDevice() const {
  if (!ran_backward_) Throw("InputGradients: call Backward first");
  std::vector<std::vector<std::vector<Tensor>>> of_stages(stages_.size());  // those that are looked at
  std::vector<std::vector<Tensor>> gradients;
  for (size_t i = 0; i < spec_.options.data.size(); ++i) {
    if (spec_.RequestOf(i) == GradReq::kNull) {
      if (spec_.options.inputs_need_grad) continue;
      Throw("InputGradients: bind the group with inputs_need_grad = true (no gradient is asked for \"{}\")",
            spec_.options.data[i].name);
    }
    std::vector<std::vector<Tensor>> parts;  // by replica: of the stages that read it
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      for (size_t k = 0; k < stage.data.size(); ++k) {
        if (stage.data[k].data != static_cast<int>(i)) continue;
        if (of_stages[s].empty()) of_stages[s] = stage.group->InputGradientsPerDevice();
        const std::vector<Tensor>& own = of_stages[s][static_cast<size_t>(GradientOf(stage, k))];
        parts.resize(own.size());
        for (size_t r = 0; r < own.size(); ++r) parts[r].push_back(own[r]);
      }
    }
    std::vector<Tensor>& sums = gradients.emplace_back();
    for (const std::vector<Tensor>& part : parts) sums.push_back(merger_.Merge(part, {}, "sum", ranges_));
  }
  return gradients;
}

std::vector<Tensor> PlacedExecutorGroup::InputGradients() const {
  std::vector<Tensor> merged;
  const std::vector<std::vector<Tensor>> parts = InputGradientsPerDevice();
  for (size_t i = 0; i < spec_.options.data.size(); ++i) {
    if (spec_.RequestOf(i) == GradReq::kNull) continue;
    const DataDesc& desc = spec_.options.data[i];
    const ValueType type{.dtype = desc.dtype, .shape = {}, .batch_axis = desc.BatchAxis()};
    merged.push_back(merger_.Merge(parts[merged.size()], type, "sum", ranges_));
  }
  return merged;
}

// --- parameters ---

const std::vector<Device>& PlacedExecutorGroup::DevicesOf(const std::string& name) const {
  const auto owner = owners_.find(name);
  if (owner == owners_.end()) {
    std::vector<std::string> names = spec_.arg_names;
    names.insert(names.end(), aux_names().begin(), aux_names().end());
    Throw("\"{}\" is neither an argument nor an auxiliary state{}", name, NameHint(name, names));
  }
  return DevicesOfStage(owner->second);
}

DataParallelExecutorGroup& PlacedExecutorGroup::OwnerOf(const std::string& argument) const {
  const int position = spec_.Find(argument);
  if (position < 0) Throw("\"{}\" is not an argument{}", argument, NameHint(argument, arg_names()));
  return *stages_[static_cast<size_t>(owners_.at(argument))].group;
}

GradReq PlacedExecutorGroup::grad_req(const std::string& argument) const {
  return OwnerOf(argument).grad_req(argument);
}

void PlacedExecutorGroup::SetParams(const HostTensorMap& args, const HostTensorMap& aux,
                                    const SetParamsOptions& options) {
  ParameterStore::CheckNames(param_names(), aux_names(), args, aux, options);
  for (const Stage& stage : stages_) {
    stage.group->store().CheckShapes(stage.group->param_names(), args);
    stage.group->store().CheckShapes(stage.group->aux_names(), aux);
  }
  for (const Stage& stage : stages_) stage.group->SetParams(args, aux, {.allow_missing = true, .allow_extra = true});
}

void PlacedExecutorGroup::GetParams(HostTensorMap* args, HostTensorMap* aux, ReplicaMerge merge) const {
  for (const Stage& stage : stages_) stage.group->GetParams(args, aux, merge);
}

HostTensor PlacedExecutorGroup::GetGradient(const std::string& name, int device) const {
  DataParallelExecutorGroup& owner = OwnerOf(name);
  const auto described = std::ranges::find(spec_.options.data, name, &DataDesc::name);
  const auto data = static_cast<int>(described - spec_.options.data.begin());
  const auto readers = std::ranges::count_if(stages_, [data](const Stage& stage) {
    return std::ranges::find(stage.data, data, &Source::data) != stage.data.end();
  });
  if (described == spec_.options.data.end() || readers < 2) return owner.GetGradient(name, device);
  if (device < 0 || device >= static_cast<int>(devices().size()))
    Throw("device index {} is not in 0..{}", device, devices().size() - 1);
  if (owner.grad_req(name) == GradReq::kNull) Throw("\"{}\" has no gradient: its gradient request is null", name);
  if (ranges_[static_cast<size_t>(device)].size() == 0)
    Throw("GetGradient: {} had no samples", devices()[static_cast<size_t>(device)]);
  size_t place = 0, position = 0;  // among replicas with samples; among data with gradients
  for (int d = 0; d < device; ++d) place += ranges_[static_cast<size_t>(d)].size() > 0;
  for (int i = 0; i < data; ++i) position += spec_.RequestOf(static_cast<size_t>(i)) != GradReq::kNull;
  return InputGradientsPerDevice()[position][place].ToHost();
}

void PlacedExecutorGroup::ZeroGradients() {
  for (const Stage& stage : stages_) stage.group->ZeroGradients();
}

std::vector<ReplicatedParam> PlacedExecutorGroup::params() const {
  std::map<std::string, ReplicatedParam> by_name;
  for (const Stage& stage : stages_) {
    for (ReplicatedParam& p : stage.group->params()) by_name.emplace(p.name, std::move(p));
  }
  std::vector<ReplicatedParam> params;
  for (const std::string& name : param_names()) {
    params.push_back(std::move(by_name.at(name)));
    params.back().index = static_cast<int>(params.size()) - 1;
  }
  return params;
}

// --- states ---

void PlacedExecutorGroup::SetStates(double value) {
  for (const Stage& stage : stages_) stage.group->SetStates(value);
}

void PlacedExecutorGroup::SetStates(const DeviceArrays& states) {
  const std::vector<DataDesc>& descs = spec_.options.states;
  if (states.size() != descs.size()) Throw("SetStates: expected {} states, got {}", descs.size(), states.size());
  const auto own_of = [&states](const Stage& stage) {
    DeviceArrays own;
    for (const int state : stage.states) {
      const auto* given = states.Find(static_cast<size_t>(state));
      own.Set(own.size(), given ? *given : std::vector<Tensor>());
    }
    return own;
  };
  for (const Stage& stage : stages_) stage.group->CheckStates(own_of(stage));  // before anything is set
  for (const Stage& stage : stages_) stage.group->SetStates(own_of(stage));
}

std::vector<std::vector<Tensor>> PlacedExecutorGroup::States() const {
  std::vector<std::vector<Tensor>> states(spec_.options.states.size());
  for (const Stage& stage : stages_) {
    std::vector<std::vector<Tensor>> own = stage.group->States();
    for (size_t i = 0; i < own.size(); ++i) {
      std::vector<Tensor>& whole = states[static_cast<size_t>(stage.states[i])];
      if (whole.empty()) whole = std::move(own[i]);  // what several stages read is equal
    }
  }
  return states;
}

// --- metrics and watching ---

const DataParallelExecutorGroup& PlacedExecutorGroup::MetricStage() const {
  const size_t last = static_cast<size_t>(heads_.back().stage);
  const Stages::Stage& cut = cut_->stages()[last];
  const bool has_all = cut.heads.size() == heads_.size() && stages_[last].labels.size() == spec_.options.labels.size();
  if (!has_all || !cut.sends.empty()) {
    Throw(
        "a metric is measured where all outputs and labels are: give the heads one placement, \"{}\", and nothing "
        "behind "
        "them another",
        cut.placement);
  }
  return *stages_[last].group;
}

void PlacedExecutorGroup::UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const {
  MetricStage().UpdateMetric(metric, labels);
}

void PlacedExecutorGroup::UpdateMetric(Metric* metric, const LabelLists& pre_sliced) const {
  MetricStage().UpdateMetric(metric, pre_sliced);
}

void PlacedExecutorGroup::PushMetric(const Metric& metric, const std::shared_ptr<Measurement>& measurement,
                                     const VarPtr& done, const Tensor& status) const {
  MetricStage().PushMetric(metric, measurement, done, status);
}

void PlacedExecutorGroup::Watch(const std::string& pattern) {
  for (const Stage& stage : stages_) stage.group->Watch(pattern);
}

// In the order in which they are computed: forward from the first stage to the last, backward from the last to the
// first. Without the copies that are sent.
std::vector<ExecutorGroup::Watched> PlacedExecutorGroup::WatchedValues() const {
  std::vector<Watched> forward, backward;
  for (const Stage& stage : stages_) {
    std::vector<Watched> of_backward;
    std::vector<bool> phases;
    const auto busy = std::ranges::count_if(stage.group->slices(), [](const SampleRange& r) { return r.size() > 0; });
    for (int d = 0; d < static_cast<int>(busy); ++d) {
      const Plan& plan = stage.group->plan(d);
      for (const PlanOutput& value : plan.observed) phases.push_back(IsOfBackward(plan, value.value));
    }
    std::vector<Watched> values = stage.group->WatchedValues();
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_copy = std::ranges::any_of(cut_->crossings(), [&](const Stages::Crossing& crossing) {
        return values[i].name.starts_with(crossing.name);
      });
      if (!is_copy) (phases[i] ? of_backward : forward).push_back(std::move(values[i]));
    }
    of_backward.insert(of_backward.end(), std::move_iterator(backward.begin()), std::move_iterator(backward.end()));
    backward = std::move(of_backward);
  }
  forward.insert(forward.end(), std::move_iterator(backward.begin()), std::move_iterator(backward.end()));
  return forward;
}

}  // namespace bindery
