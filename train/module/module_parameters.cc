// ReplicatedModule: its parameters, plain, flat and on the replicas; and what becomes of all of it at once.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/reformat.h"
#include "train/initializer.h"
#include "train/module/bound.h"

namespace bindery {

bool ReplicatedModule::NeedsSync() const { return bound_ && bound_->exchange->NeedsSync(); }

const std::vector<ParameterBuffer>& ReplicatedModule::buffers() { return Ready().exchange->buffers(); }
const std::vector<std::string>& ReplicatedModule::param_names() { return group().param_names(); }
bool ReplicatedModule::by_given_collectives() { return Ready().exchange->by_given_collectives(); }
ExecutorGroup& ReplicatedModule::group() { return *Ready().group; }

void ReplicatedModule::SetParams(const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options) {
  SyncParameters();  // what is not set is equal, too, then
  bound_->group->SetParams(args, aux.empty() ? GetStates() : aux, options);
  bound_->exchange->SetEqual();
}

HostTensorMap ReplicatedModule::GetParams() {
  HostTensorMap values;
  group().GetParams(&values, nullptr);
  return values;
}

HostTensorMap ReplicatedModule::GetStates() {
  HostTensorMap values;
  group().GetParams(nullptr, &values);
  return values;
}

HostTensor ReplicatedModule::GetGradient(const std::string& name) {
  Bound& bound = Ready();
  const std::vector<std::string>& names = bound.group->param_names();
  if (std::ranges::find(names, name) == names.end())
    Throw("there is no parameter \"{}\"{}", name, NameHint(name, names));
  return bound.exchange->Gradient(name);
}

void ReplicatedModule::Reset(const std::string& initializer, std::optional<uint64_t> seed) {
  const Initializer weights(initializer.empty() ? options_.initializer : initializer);
  Bound& bound = Ready();
  SetInitialParams(bound.group.get(), {}, weights, seed.value_or(options_.seed));
  bound.exchange->SetEqual();  // all of them were set
}

void ReplicatedModule::Mend() {
  for (DataParallelExecutorGroup* stage : group().stages()) stage->store().Mend();
}

// --- flat ---

std::vector<ReplicatedModule::FlatPart> ReplicatedModule::FlatParts() {
  Bound& bound = Ready();
  std::vector<FlatPart> parts;
  int64_t begin = 0;
  for (const std::string& name : bound.group->param_names()) {
    const std::optional<ParameterExchange::Place> place = bound.exchange->Find(name);
    if (!place || !bound.exchange->GradientOf(*place).defined()) continue;
    const int64_t end = begin + place->stored->shape.Elements();
    parts.push_back({*place, begin, end});
    begin = end;
  }
  return parts;
}

int64_t ReplicatedModule::num_flat() {
  const std::vector<FlatPart> parts = FlatParts();
  return parts.empty() ? 0 : parts.back().end;
}

Tensor ReplicatedModule::Flatten(PartOf part_of) {
  const std::vector<FlatPart> parts = FlatParts();
  const auto type_of = [](const FlatPart& part) { return part.place.stored->dtype; };
  const bool one_type = !parts.empty() && std::ranges::all_of(parts, [&](const FlatPart& part) {
    return type_of(part) == type_of(parts[0]);
  });
  const Tensor flat(engine_, options_.devices[0], one_type ? type_of(parts[0]) : DType::kFloat32,
                    {parts.empty() ? 0 : parts.back().end});
  for (const FlatPart& part : parts) {
    const StoredParameter& p = *part.place.stored;
    const Tensor stored = ((*bound_->exchange).*part_of)(part.place), to = flat.Slice(part.begin, part.end);
    if (p.format.is_plain()) {
      to.CopyFrom(stored);
    } else {  // a layout of the CPU's kernels
      to.CopyFrom(FromStorage(p.dtype, p.shape, p.format, stored.ToHost().raw()).Reshape({p.shape.Elements()}));
    }
  }
  return flat;
}

void ReplicatedModule::SetFlat(const char* what, PartOf part_of, const Tensor& values) {
  const std::vector<FlatPart> parts = FlatParts();
  const int64_t elements = parts.empty() ? 0 : parts.back().end;
  if (!values.defined()) Throw("{}: an empty tensor", what);
  if (values.engine() != engine_) Throw("{}: the tensor belongs to another engine", what);
  if (values.elements() != elements) {
    Throw<ShapeError>("{}: expected {} elements, got {}", what, elements, values.shape());
  }
  const Tensor flat = values.Reshape({elements});
  for (const FlatPart& part : parts) {
    const StoredParameter& p = *part.place.stored;
    const Tensor stored = ((*bound_->exchange).*part_of)(part.place), from = flat.Slice(part.begin, part.end);
    if (p.format.is_plain()) {
      stored.CopyFrom(from);
    } else {
      HostTensor padded(p.dtype, {p.elements});
      ToStorage(from.ToHost().Cast(p.dtype).Reshape(p.shape), p.format, padded.raw());
      stored.CopyFrom(padded);
    }
  }
}

Tensor ReplicatedModule::FlatValues() { return Flatten(&ParameterExchange::FirstValueOf); }
Tensor ReplicatedModule::FlatGradients() { return Flatten(&ParameterExchange::GradientOf); }
void ReplicatedModule::SetFlatValues(const Tensor& values) {
  SetFlat("SetFlatValues", &ParameterExchange::FirstValueOf, values);
}
void ReplicatedModule::SetFlatGradients(const Tensor& gradients) {
  SetFlat("SetFlatGradients", &ParameterExchange::GradientOf, gradients);
}

// --- replicas, and the whole ---

void ReplicatedModule::ForEachReplica(const std::function<void(const ModuleReplica&)>& visit) {
  SyncParameters();
  Bound& bound = *bound_;
  for (size_t r = 0; r < options_.devices.size(); ++r) {
    ModuleReplica replica{.index = static_cast<int>(r), .device = options_.devices[r]};
    for (const auto& [names, tensors] : {std::pair(&bound.group->param_names(), &replica.params),
                                         std::pair(&bound.group->aux_names(), &replica.aux)}) {
      for (const std::string& name : *names) (*tensors)[name] = bound.exchange->ValueOf(*bound.exchange->Find(name), r);
    }
    visit(replica);
  }
}

void ReplicatedModule::ConvertTo(DType dtype) {
  if (!IsFloat(dtype)) Throw("ConvertTo: expected float32, float64, bfloat16 or float16, got {}", dtype);
  ModuleOptions options = options_;
  options.inputs = options_.inputs.Map([&](DataDesc desc) {
    if (IsFloat(desc.dtype)) desc.dtype = dtype;
    return desc;
  });
  if (options.devices.empty()) {
    options_ = std::move(options);
  } else {
    Rebind(std::move(options));
  }
}

void ReplicatedModule::ClearState() {
  contents_ = TakeContents();
  bound_ = nullptr;
}

ReplicatedModule ReplicatedModule::Clone(std::vector<Device> devices) {
  ModuleOptions options = options_;
  if (!devices.empty()) {
    if (!options.placements.empty()) Throw("Clone: the module's parts have devices of their own");
    options.devices = std::move(devices);
    options.workload.clear();
  }
  ReplicatedModule clone(model_, std::move(options), TakeContents());
  clone.training_ = training_;
  return clone;
}

}  // namespace bindery
