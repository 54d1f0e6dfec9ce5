#include "executor/group/options.h"

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/team.h"
#include "symbol/graph.h"

namespace bindery {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

GroupSpec::GroupSpec(const Symbol& bound, const GroupOptions& given)
    : symbol(bound), options(given), threads(given.threads_per_device), arg_names(bound.ListArguments()),
      aux_names(bound.ListAuxiliaryStates()), output_names(bound.ListOutputs()) {
  options.shared_group = nullptr;
  if (options.devices.empty()) Throw("a group needs at least one device");
  if (options.workload.empty()) options.workload.assign(options.devices.size(), 1.0);
  if (options.workload.size() != options.devices.size()) {
    Throw("workload: expected {} numbers, one per device, got {}", options.devices.size(), options.workload.size());
  }
  for (const Device& device : options.devices) Backend::Of(device);  // throws unless it is there
  if (options.data.empty()) Throw("a group needs at least one data description");
  if (options.inputs_need_grad && !options.for_training) Throw("inputs_need_grad needs for_training");
  CheckInputs();
  for (const std::string& name : options.fixed_params) {
    if (!is_parameter(name)) Throw("fixed parameter \"{}\" is not a parameter{}", name, NameHint(name, param_names));
  }
  for (const Entry& head : symbol.entries()) {
    const auto& annotations = head.node->annotations();
    const auto rule = annotations.find("merge");
    merge_rules.push_back(rule == annotations.end() ? "" : rule->second);
    if (const std::string& r = merge_rules.back(); !r.empty() && r != "sum" && r != "mean" && r != "first") {
      Throw<ModelError>("head \"{}\": merge is \"{}\"; known: sum, mean, first", head.node->name(), r);
    }
  }
  for (const std::string& name : arg_names) grad_req[name] = GradReq::kNull;
  if (options.for_training) ReadGradRequests();
  for (const auto& [name, req] : grad_req) inputs_add_up |= req == GradReq::kAdd && !is_parameter(name);
  if (threads == 0) {
    const std::set<Device> devices(options.devices.begin(), options.devices.end());
    const auto cpus = std::count_if(devices.begin(), devices.end(), HostAddressable);
    threads = std::max(1, NumCores() / std::max(1, static_cast<int>(cpus)));
  }
}

void GroupSpec::CheckInputs() {
  std::set<std::string> inputs;
  for (const auto& [list, what] :
       {std::pair(&options.data, "data"), std::pair(&options.labels, "label"), std::pair(&options.states, "state")}) {
    for (const DataDesc& desc : *list) {
      if (!Contains(arg_names, desc.name)) {
        Throw("{} \"{}\" is not an argument of the symbol{}", what, desc.name, NameHint(desc.name, arg_names));
      }
      if (!inputs.insert(desc.name).second) Throw("\"{}\" is described twice", desc.name);
      if (!desc.layout.empty() && static_cast<int>(desc.layout.size()) != desc.shape.rank()) {
        Throw<ShapeError>("{} \"{}\": layout \"{}\" does not fit shape {}", what, desc.name, desc.layout, desc.shape);
      }
      if (desc.BatchAxis() >= desc.shape.rank())
        Throw<ShapeError>("{} \"{}\": a batched input needs an axis, got shape {}", what, desc.name, desc.shape);
    }
  }
  if (options.labels.empty()) {
    for (const std::string& name : ListLabels(symbol)) {
      if (inputs.insert(name).second) unbound_labels.insert(name);
    }
  }
  for (const std::string& name : arg_names)
    if (!inputs.contains(name)) param_names.push_back(name);
}

void GroupSpec::ReadGradRequests() {
  const auto by_default = [&](GradReq req) {
    for (const std::string& name : param_names)
      grad_req[name] = Contains(options.fixed_params, name) ? GradReq::kNull : req;
    if (options.inputs_need_grad)
      for (const DataDesc& desc : options.data) grad_req[desc.name] = req;
  };
  if (const auto* one = std::get_if<GradReq>(&options.grad_req)) {
    by_default(*one);
  } else if (const auto* list = std::get_if<std::vector<GradReq>>(&options.grad_req)) {
    if (list->size() != arg_names.size())
      Throw("grad_req: expected {} requests, one per argument, got {}", arg_names.size(), list->size());
    for (size_t i = 0; i < list->size(); ++i) grad_req[arg_names[i]] = (*list)[i];
  } else {
    by_default(GradReq::kWrite);
    for (const auto& [name, req] : std::get<std::map<std::string, GradReq>>(options.grad_req)) {
      if (!grad_req.contains(name))
        Throw("grad_req names \"{}\", which is not an argument{}", name, NameHint(name, arg_names));
      grad_req[name] = req;
    }
  }
}

bool GroupSpec::is_parameter(const std::string& argument) const { return Contains(param_names, argument); }

const DataDesc& GroupSpec::input(size_t i) const {
  return i < options.data.size() ? options.data[i] : options.labels[i - options.data.size()];
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
