// Parameters by name; those of a DataParallelExecutorGroup, its gradients and states.
#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_set>

#include "base/names.h"
#include "engine/backend.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/group/device_feed.h"

namespace bindery {

void ParameterStore::CheckNames(const std::vector<std::string>& params, const std::vector<std::string>& auxiliary,
                                const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options) {
  struct Given {
    const char* what;
    const std::vector<std::string>& known;
    const HostTensorMap& values;
  };
  const Given given[] = {{"parameter", params, args}, {"auxiliary state", auxiliary, aux}};
  for (const auto& [what, known, values] : given) {
    if (options.allow_missing) break;
    for (const std::string& name : known) {
      if (!values.contains(name))
        Throw("SetParams: {} \"{}\" is missing; allow_missing leaves it as it is", what, name);
    }
  }
  for (const auto& [what, known, values] : given) {
    if (options.allow_extra) break;
    const std::unordered_set<std::string_view> names(known.begin(), known.end());
    for (const auto& [name, value] : values) {
      if (names.contains(name)) continue;
      Throw("SetParams: there is no {} \"{}\"{}; allow_extra ignores it", what, name, NameHint(name, known));
    }
  }
}

void ParameterStore::CheckShapes(const std::vector<std::string>& names, const HostTensorMap& values) const {
  for (const std::string& name : names) {
    const auto value = values.find(name);
    const StoredParameter* p = value == values.end() ? nullptr : Find(name);
    if (p && value->second.shape() != p->shape) {
      Throw<ShapeError>("parameter \"{}\": expected {}, got {}", name, p->shape, value->second.shape());
    }
  }
}

void ParameterStore::SetParams(const std::vector<std::string>& params, const std::vector<std::string>& auxiliary,
                               const HostTensorMap& args, const HostTensorMap& aux,
                               const SetParamsOptions& options) const {
  CheckNames(params, auxiliary, args, aux, options);
  CheckShapes(params, args);
  CheckShapes(auxiliary, aux);
  std::map<const StoredParameter*, const HostTensor*> set;
  for (const auto& [names, values] : {std::pair(&params, &args), std::pair(&auxiliary, &aux)}) {
    for (const std::string& name : *names) {
      const auto value = values->find(name);
      const StoredParameter* p = value == values->end() ? nullptr : Find(name);
      if (p) set.emplace(p, &value->second);
    }
  }
  // What has failed, or fails before its turn comes, is whole again when all of it is set: parts of it could not know.
  const auto is_set = [&](int p) { return set.contains(&parameters_[p]); };
  for (const Block& block : blocks_) {
    if (is_view_ || !std::ranges::all_of(block.parameters, is_set)) continue;  // a view's Set refuses them
    for (const Tensor& values : EachOnce(block.values)) values.Fill(0);
  }
  for (const auto& [p, value] : set) Set(*p, *value);
}

HostTensor ParameterStore::GetEqual(const StoredParameter& p) const {
  HostTensor first = Get(p, 0);
  const auto width = static_cast<size_t>(SizeOf(p.dtype));
  for (int d = 1; d < static_cast<int>(devices_.size()); ++d) {
    if (!p.auxiliary && holders_[static_cast<size_t>(d)] < static_cast<size_t>(d)) continue;  // compared already
    const HostTensor other = Get(p, d);
    for (int64_t i = 0; i < first.elements(); ++i) {
      const size_t at = static_cast<size_t>(i) * width;
      if (std::memcmp(static_cast<const char*>(first.raw()) + at, static_cast<const char*>(other.raw()) + at, width) ==
          0) {
        continue;
      }
      Throw("{} \"{}\" is not equal on all devices: element {} of {} is {:.17g} on {} and {:.17g} on {}",
            p.auxiliary ? "auxiliary state" : "parameter", p.name, i, p.shape, first.At(i), devices_[0], other.At(i),
            devices_[static_cast<size_t>(d)]);
    }
  }
  return first;
}

void ParameterStore::GetParams(const std::vector<std::string>& names, HostTensorMap* values, ReplicaMerge merge) const {
  for (const std::string& name : names) {
    HostTensor value = merge == ReplicaMerge::kCheck ? GetEqual(*Find(name)) : Get(*Find(name));
    const auto present = values->find(name);
    if (present != values->end() && present->second.dtype() != value.dtype() && present->second.elements() > 0) {
      value = value.Cast(present->second.dtype());
    }
    (*values)[name] = std::move(value);
  }
}

void DataParallelExecutorGroup::SetParams(const HostTensorMap& args, const HostTensorMap& aux,
                                          const SetParamsOptions& options) {
  store().SetParams(spec_.param_names, spec_.signature.auxiliary, args, aux, options);
}

void DataParallelExecutorGroup::GetParams(HostTensorMap* args, HostTensorMap* aux, ReplicaMerge merge) const {
  if (args) store().GetParams(spec_.param_names, args, merge);
  if (aux) store().GetParams(spec_.signature.auxiliary, aux, merge);
}

HostTensor DataParallelExecutorGroup::GetGradient(const std::string& name, int device) const {
  if (device < 0 || device >= static_cast<int>(devices().size()))
    Throw("device index {} is not in 0..{}", device, devices().size() - 1);
  if (grad_req(name) == GradReq::kNull) Throw("\"{}\" has no gradient: its gradient request is null", name);
  const int position = spec_.Find(name);
  if (spec_.signature.arguments[position].role == Role::kParameter)
    return store().GetGradient(*store().Find(name), device);
  for (const GroupStep::Participant& p : RanBackward("GetGradient").participants()) {
    if (p.executor->index() == device) return p.executor->InputGradient(*p.bound, position).ToHost();
  }
  Throw("GetGradient: {} had no samples", devices()[device]);
}

std::vector<RowTensors> DataParallelExecutorGroup::RowGradients(const std::string& name) const {
  std::vector<RowTensors> gradients;
  for (const GroupStep::Participant& p : RanBackward("RowGradients").participants()) {
    gradients.push_back(p.executor->RowGradientOf(*p.bound, name));
  }
  return gradients;
}

void DataParallelExecutorGroup::ZeroGradients() {
  feeder_.EndStep();
  store().ZeroGradients();
  for (const auto& executor : executors()) executor->ZeroInputGradients();
}

std::shared_ptr<const GroupWeights> DataParallelExecutorGroup::Weights() const {
  for (const ParameterStore::Block& block : store().blocks()) {
    for (const Tensor& values : block.values) values.Wait();
  }
  return std::make_shared<GroupWeights>(
      GroupWeights{ParameterStore::View(store(), engine()), spec_.symbol, bindings_.programs()});
}

std::vector<ReplicatedParam> DataParallelExecutorGroup::params() const {
  std::vector<ReplicatedParam> params;
  for (const Argument& a : spec_.signature.arguments) {
    if (a.role != Role::kParameter) continue;
    const StoredParameter& p = *store().Find(a.name);
    ReplicatedParam& replicated = params.emplace_back(ReplicatedParam{a.name, static_cast<int>(params.size()), {}, {}});
    for (size_t d = 0; d < devices().size(); ++d) {
      replicated.values.push_back(store().Value(p, static_cast<int>(d)));
      const Tensor gradient = a.request == GradReq::kNull ? Tensor() : store().Gradient(p, static_cast<int>(d));
      if (gradient.defined()) replicated.grads.push_back(gradient);
    }
  }
  return params;
}

std::vector<std::vector<Tensor>> DataParallelExecutorGroup::States() const { return merger_.States(*current_); }

// Rows follow their samples to where these are computed now. Those of samples that the batch does not have wait in
// `rest_` for one that has them; those that were never there are as SetStates(value) left all.
void DataParallelExecutorGroup::CarryStates(const Binding& next) {
  if (spec_.states.empty() || next.ranges == current_->ranges) return;
  std::vector<std::vector<Tensor>> states = States();
  std::vector<Tensor> rest(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const DataDesc& desc = spec_.options.states[i];
    const int axis = desc.BatchAxis();
    std::vector<Tensor>& pieces = states[i];
    if (axis < 0) {
      pieces.resize(1);
      continue;
    }
    if (!rest_.empty() && rest_[i].defined()) pieces.push_back(rest_[i]);
    int64_t rows = 0;
    for (const Tensor& piece : pieces) rows += piece.shape()[axis];
    const auto more = [&](int64_t n) {
      return Tensor(engine(), pieces[0].device(), desc.dtype, pieces[0].shape().With(axis, n));
    };
    if (rows < next.samples()) {
      const Tensor unseen = more(next.samples() - rows);
      unseen.Fill(unseen_states_);
      pieces.push_back(unseen);
    } else if (rows > next.samples()) {
      rest[i] = more(rows - next.samples());
      DeviceFeed feed(engine(), rest[i].device(), 0, 1);
      feed.Add(pieces, {.dtype = desc.dtype, .shape = {}, .batch_axis = axis}, {next.samples(), rows}, rest[i]);
      feed.Push("states", rest[i].var(), /*all=*/true);
    }
  }
  merger_.SetStates(next, std::move(states));
  rest_ = std::move(rest);
}

void DataParallelExecutorGroup::SetStates(double value) {
  const std::vector<std::vector<Tensor>> states = States();
  for (size_t k = 0; !states.empty() && k < states[0].size(); ++k) {
    const Tensor& first = states[0][k];  // one variable stands for all of a device
    Operation set{.name = "states", .device = first.device(), .writes = {first.var()}};
    set.run = [states, k, value, &flat = Backend::Of(first.device().kind).flat()](const OpContext& context) {
      for (const std::vector<Tensor>& parts : states) {
        flat.Fill(context.stream, parts[k].dtype(), parts[k].address(), parts[k].elements(), value);
      }
    };
    engine()->Push(std::move(set));
  }
  unseen_states_ = value;
  rest_.clear();
}

void DataParallelExecutorGroup::CheckStates(const DeviceArrays& states) const {
  const std::vector<DataDesc>& descs = spec_.options.states;
  if (states.size() != descs.size()) Throw("SetStates: expected {} states, got {}", descs.size(), states.size());
  for (size_t i = 0; i < descs.size(); ++i) {
    const std::vector<Tensor>* given = states.Find(i);
    if (!given) Throw("SetStates: state \"{}\" has no tensor", descs[i].name);
    const int axis = descs[i].BatchAxis();
    const ValueType type{.dtype = descs[i].dtype, .shape = {}, .batch_axis = axis};
    const Shape expected = axis < 0 ? descs[i].shape : descs[i].shape.With(axis, batch_size());
    const Shape got = WholeShape(*given, type, *engine(), descs[i].name);
    CheckPieces(*given, type, current_->participants().size(), descs[i].name);
    if (got != expected)
      Throw<ShapeError>("SetStates: state \"{}\": expected {}, got {}", descs[i].name, expected, got);
  }
}

void DataParallelExecutorGroup::SetStates(const DeviceArrays& states) {
  CheckStates(states);
  std::vector<std::vector<Tensor>> arrays;
  for (size_t i = 0; i < states.size(); ++i) arrays.push_back(*states.Find(i));
  merger_.SetStates(*current_, std::move(arrays));
}

}  // namespace bindery
