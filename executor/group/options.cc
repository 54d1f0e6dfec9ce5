#include "executor/group/options.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/team.h"
#include "symbol/graph.h"
#include "symbol/ops/heads.h"

namespace bindery {

Placements PlacementsOf(const std::vector<std::map<std::string, Device>>& per_replica) {
  Placements placements;
  for (size_t r = 0; r < per_replica.size(); ++r) {
    for (const auto& [name, device] : per_replica[r]) {
      std::vector<Device>& devices = placements[name];
      if (devices.size() != r) Throw("placement \"{}\": replica {} has no device for it", name, devices.size());
      devices.push_back(device);
    }
  }
  for (const auto& [name, devices] : placements) {
    if (devices.size() < per_replica.size()) {
      Throw("placement \"{}\": replica {} has no device for it", name, devices.size());
    }
  }
  return placements;
}

namespace {

// Inputs and states are cast to what their variables declare, however they are described: a description says float32
// where nobody thought of it, and a file from elsewhere says int64.
void DescribeAsDeclared(const Symbol& symbol, GroupOptions* options) {
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable() || !node->declared_dtype) continue;
    for (auto* const list : {&options->data, &options->labels, &options->states}) {
      const auto desc = std::ranges::find(*list, node->name(), &DataDesc::name);
      if (desc != list->end()) desc->dtype = *node->declared_dtype;
    }
  }
}

}  // namespace

GroupSpec::GroupSpec(const Symbol& bound, const GroupOptions& given)
    : symbol(bound), options(given), threads(given.threads_per_device), signature(Signature::Of(bound)),
      arg_names(signature.ArgumentNames()) {
  for (size_t i = 0; i < arg_names.size(); ++i) positions_[arg_names[i]] = static_cast<int>(i);
  options.shared_group = nullptr;
  if (!options.placements.empty()) Throw("a group of one device each has no placements: MakeGroup makes one that has");
  if (options.devices.empty()) Throw("a group needs at least one device");
  if (options.workload.empty()) options.workload.assign(options.devices.size(), 1.0);
  if (options.workload.size() != options.devices.size()) {
    Throw("workload: expected {} numbers, one per device, got {}", options.devices.size(), options.workload.size());
  }
  for (const Device& device : options.devices) Backend::Of(device);  // throws unless it is there
  if (options.bucket_bytes.value_or(0) < 0) Throw("bucket_bytes must be >= 0, got {}", *options.bucket_bytes);
  if (options.data.empty()) Throw("a group needs at least one data description");
  if (options.inputs_need_grad && !options.for_training) Throw("inputs_need_grad needs for_training");
  DescribeAsDeclared(symbol, &options);
  CheckInputs();
  for (const std::string& pattern : options.fixed_params) {
    bool fits = false;
    for (Argument& a : signature.arguments) {
      if (a.role == Role::kParameter && FitsPattern(a.name, pattern)) a.is_fixed = fits = true;
    }
    if (!fits) Throw("fixed parameter \"{}\" is not a parameter{}", pattern, NameHint(pattern, param_names));
  }
  ReadParamDTypes(options.param_dtypes, &signature);
  CheckMirror(options.mirror);
  for (const Entry& head : symbol.entries()) {
    merge_rules.push_back(MergeRuleOf(head));
    if (const std::string& r = merge_rules.back(); !r.empty() && r != "sum" && r != "mean" && r != "first") {
      Throw<ModelError>("head \"{}\": merge is \"{}\"; known: sum, mean, first", head.node->name(), r);
    }
  }
  if (options.for_training) ReadGradRequests(options.grad_req, options.inputs_need_grad, &signature);
  const bool by_rows =
      options.for_training && options.sparse_gradients && std::ranges::all_of(options.devices, HostAddressable);
  for (Argument& a : signature.arguments) {
    a.is_kept = a.role == Role::kParameter;
    a.by_rows = by_rows && a.role == Role::kParameter && a.request == GradReq::kWrite;
  }
  inputs_add_up = std::ranges::any_of(
      signature.arguments, [](const Argument& a) { return a.role != Role::kParameter && a.request == GradReq::kAdd; });
  if (threads == 0) {
    const std::set<Device> devices(options.devices.begin(), options.devices.end());
    const auto cpus = std::count_if(devices.begin(), devices.end(), HostAddressable);
    threads = std::max(1, NumCores() / std::max(1, static_cast<int>(cpus)));
  }
}

void GroupSpec::CheckInputs() {
  const auto describe = [&](const std::vector<DataDesc>& list, Role role, const char* what,
                            std::vector<int>* positions) {
    for (const DataDesc& desc : list) {
      const int position = Find(desc.name);
      if (position < 0) {
        const std::set<std::string> labels = role == Role::kLabel ? ListLabels(symbol) : std::set<std::string>();
        Throw("{} \"{}\" is not an argument of the symbol{}", what, desc.name,
              labels.size() == 1 ? fmt::format(", whose label is \"{}\": call the array so", *labels.begin())
                                 : NameHint(desc.name, arg_names));
      }
      Argument& argument = signature.arguments[position];
      if (argument.role != Role::kParameter) Throw("\"{}\" is described twice", desc.name);
      const int axis = desc.BatchAxis();
      if (!desc.layout.empty() && static_cast<int>(desc.layout.size()) != desc.shape.rank()) {
        Throw<ShapeError>("{} \"{}\": layout \"{}\" does not fit shape {}", what, desc.name, desc.layout, desc.shape);
      }
      if (axis >= desc.shape.rank())
        Throw<ShapeError>("{} \"{}\": a batched input needs an axis, got shape {}", what, desc.name, desc.shape);
      argument = {.name = desc.name,
                  .role = role,
                  .place = static_cast<int>(&desc - list.data()),
                  .shape = desc.shape,
                  .dtype = desc.dtype,
                  .batch_axis = axis};
      positions->push_back(position);
    }
  };
  describe(options.data, Role::kData, "data", &inputs);
  describe(options.labels, Role::kLabel, "label", &inputs);
  describe(options.states, Role::kState, "state", &states);
  for (const std::string& name : ListLabels(symbol)) {  // those that are not described
    const int position = Find(name);
    if (position < 0 || signature.arguments[position].role != Role::kParameter) continue;
    signature.arguments[position].role = Role::kLabel;
    signature.arguments[position].batch_axis = 0;
    if (unbound_label < 0) unbound_label = position;
  }
  for (const Argument& a : signature.arguments)
    if (a.role == Role::kParameter) param_names.push_back(a.name);
}

bool FitsPattern(const std::string& name, const std::string& pattern) {
  return name == pattern || fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

void ReadParamDTypes(const ParamDTypes& dtypes, Signature* signature) {
  for (const auto& [pattern, dtype] : dtypes) {
    bool fits = false;
    std::vector<std::string> names;
    for (Argument& a : signature->arguments) {
      if (a.role != Role::kParameter) continue;
      names.push_back(a.name);
      if (!FitsPattern(a.name, pattern)) continue;
      fits = true;
      if (!a.dtype) a.dtype = dtype;
    }
    if (!fits) Throw("param_dtypes: \"{}\" fits no parameter{}", pattern, NameHint(pattern, names));
  }
}

void ReadGradRequests(const GradRequest& request, bool inputs_need_grad, Signature* signature) {
  std::vector<Argument>& arguments = signature->arguments;
  const auto by_default = [&](GradReq wanted) {
    for (Argument& a : arguments) {
      if (a.role == Role::kParameter ? !a.is_fixed : a.role == Role::kData && inputs_need_grad) a.request = wanted;
    }
  };
  if (const auto* one = std::get_if<GradReq>(&request)) {
    by_default(*one);
  } else if (const auto* list = std::get_if<std::vector<GradReq>>(&request)) {
    if (list->size() != arguments.size())
      Throw("grad_req: expected {} requests, one per argument, got {}", arguments.size(), list->size());
    for (size_t i = 0; i < list->size(); ++i) arguments[i].request = (*list)[i];
  } else {
    by_default(GradReq::kWrite);
    for (const auto& [name, wanted] : std::get<std::map<std::string, GradReq>>(request)) {
      const auto found = std::ranges::find(arguments, name, &Argument::name);
      if (found == arguments.end()) {
        Throw("grad_req names \"{}\", which is not an argument{}", name, NameHint(name, signature->ArgumentNames()));
      }
      found->request = wanted;
    }
  }
}

int GroupSpec::Find(std::string_view argument) const {
  const auto found = positions_.find(argument);
  return found == positions_.end() ? -1 : found->second;
}

const DataDesc& GroupSpec::input(size_t i) const {
  return i < options.data.size() ? options.data[i] : options.labels[i - options.data.size()];
}

std::vector<DataDesc> GroupSpec::AllInputs() const {
  std::vector<DataDesc> all = options.data;
  all.insert(all.end(), options.labels.begin(), options.labels.end());
  return all;
}

std::vector<Shape> GroupSpec::InputShapes() const {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < num_inputs(); ++i) shapes.push_back(input(i).shape);
  return shapes;
}

std::optional<int64_t> GroupSpec::SamplesOf(const std::vector<Shape>& inputs) const {
  std::optional<int64_t> samples;
  const std::string* first = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DataDesc& desc = input(i);
    if (desc.BatchAxis() < 0) continue;
    const int64_t extent = inputs[i][desc.BatchAxis()];
    if (extent == kUnknownDim)
      Throw<ShapeError>("\"{}\" {}: the samples of a batch must be known", desc.name, inputs[i]);
    if (!samples) {
      samples = extent;
      first = &desc.name;
    } else if (extent != *samples) {
      Throw<ShapeError>("all inputs must have the same batch size: \"{}\" has {}, \"{}\" has {}", *first, *samples,
                        desc.name, extent);
    }
  }
  if (samples == 0) Throw<ShapeError>("a batch must have at least one sample");
  return samples;
}

std::vector<SampleRange> GroupSpec::Split(std::optional<int64_t> samples) const {
  if (samples) return SplitBatch(*samples, options.workload);
  std::vector<SampleRange> split(options.devices.size(), SampleRange{1, 1});
  split[0] = {0, 1};
  return split;
}

}  // namespace bindery
