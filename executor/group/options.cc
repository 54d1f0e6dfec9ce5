// DataParallelExecutorGroup: what its options mean for this symbol.
#include <algorithm>
#include <set>

#include "base/names.h"
#include "engine/backend.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/graph.h"

namespace bindery {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void DataParallelExecutorGroup::CheckOptions() {
  if (options_.devices.empty()) Throw("a group needs at least one device");
  if (options_.workload.empty()) options_.workload.assign(options_.devices.size(), 1.0);
  if (options_.workload.size() != options_.devices.size()) {
    Throw("workload: expected {} numbers, one per device, got {}", options_.devices.size(), options_.workload.size());
  }
  for (const Device& device : options_.devices) Backend::Of(device);  // throws unless it is there
  if (options_.data.empty()) Throw("a group needs at least one data description");
  if (options_.inputs_need_grad && !options_.for_training) Throw("inputs_need_grad needs for_training");

  arg_names_ = symbol_.ListArguments();
  aux_names_ = symbol_.ListAuxiliaryStates();
  output_names_ = symbol_.ListOutputs();
  std::set<std::string> inputs;
  const auto check = [&](const std::string& name, const char* what) {
    if (!Contains(arg_names_, name))
      Throw("{} \"{}\" is not an argument of the symbol{}", what, name, NameHint(name, arg_names_));
  };
  for (const auto& [list, what] : {std::pair(&options_.data, "data"), std::pair(&options_.labels, "label"),
                                   std::pair(&options_.states, "state")}) {
    for (const DataDesc& desc : *list) {
      check(desc.name, what);
      if (!inputs.insert(desc.name).second) Throw("\"{}\" is described twice", desc.name);
      if (!desc.layout.empty() && static_cast<int>(desc.layout.size()) != desc.shape.rank()) {
        Throw<ShapeError>("{} \"{}\": layout \"{}\" does not fit shape {}", what, desc.name, desc.layout, desc.shape);
      }
      if (desc.BatchAxis() >= desc.shape.rank())
        Throw<ShapeError>("{} \"{}\": a batched input needs an axis, got shape {}", what, desc.name, desc.shape);
    }
  }
  if (options_.labels.empty()) {
    for (const std::string& name : ListLabels(symbol_)) {
      if (inputs.insert(name).second) unbound_labels_.insert(name);
    }
  }
  for (const std::string& name : arg_names_)
    if (!inputs.contains(name)) param_names_.push_back(name);
  for (const std::string& name : options_.fixed_params) {
    if (!Contains(param_names_, name))
      Throw("fixed parameter \"{}\" is not a parameter{}", name, NameHint(name, param_names_));
  }
  for (const Entry& head : symbol_.entries()) {
    const auto& annotations = head.node->annotations();
    const auto rule = annotations.find("merge");
    merge_rules_.push_back(rule == annotations.end() ? "" : rule->second);
    if (const std::string& r = merge_rules_.back(); !r.empty() && r != "sum" && r != "mean" && r != "first") {
      Throw<ModelError>("head \"{}\": merge is \"{}\"; known: sum, mean, first", head.node->name(), r);
    }
  }
}

void DataParallelExecutorGroup::ResolveGradRequests() {
  for (const std::string& name : arg_names_) grad_req_[name] = GradReq::kNull;
  if (options_.for_training) ReadGradRequests();
  for (const auto& [name, req] : grad_req_) inputs_add_up_ |= req == GradReq::kAdd && !Contains(param_names_, name);
}

void DataParallelExecutorGroup::ReadGradRequests() {
  const auto by_default = [&](GradReq req) {
    for (const std::string& name : param_names_)
      grad_req_[name] = Contains(options_.fixed_params, name) ? GradReq::kNull : req;
    if (options_.inputs_need_grad)
      for (const DataDesc& desc : options_.data) grad_req_[desc.name] = req;
  };
  if (const auto* one = std::get_if<GradReq>(&options_.grad_req)) {
    by_default(*one);
  } else if (const auto* list = std::get_if<std::vector<GradReq>>(&options_.grad_req)) {
    if (list->size() != arg_names_.size())
      Throw("grad_req: expected {} requests, one per argument, got {}", arg_names_.size(), list->size());
    for (size_t i = 0; i < list->size(); ++i) grad_req_[arg_names_[i]] = (*list)[i];
  } else {
    by_default(GradReq::kWrite);
    for (const auto& [name, req] : std::get<std::map<std::string, GradReq>>(options_.grad_req)) {
      if (!grad_req_.contains(name))
        Throw("grad_req names \"{}\", which is not an argument{}", name, NameHint(name, arg_names_));
      grad_req_[name] = req;
    }
  }
}

GradReq DataParallelExecutorGroup::grad_req(const std::string& argument) const {
  const auto found = grad_req_.find(argument);
  if (found == grad_req_.end()) Throw("\"{}\" is not an argument{}", argument, NameHint(argument, arg_names_));
  return found->second;
}

}  // namespace bindery
