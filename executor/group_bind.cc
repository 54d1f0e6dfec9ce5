// DataParallelExecutorGroup: options, shapes and programs.
#include <algorithm>
#include <set>

#include "base/names.h"
#include "engine/team.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

constexpr size_t kBindings = 64;

// Variables that feed an operator's input named "label".
std::set<std::string> LabelArguments(const Symbol& symbol) {
  std::set<std::string> labels;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable()) continue;
    const auto names = node->op().inputs(node->attrs(), static_cast<int>(node->inputs().size()));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "label" && node->inputs()[i].node->is_variable()) labels.insert(node->inputs()[i].node->name());
    }
  }
  return labels;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

DataParallelExecutorGroup::DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options)
    : symbol_(symbol), options_(options), engine_(options.engine ? options.engine : DefaultEngine()) {
  CheckOptions();
  ResolveGradRequests();
  threads_ = options_.threads_per_device > 0
                 ? options_.threads_per_device
                 : std::max(1, NumCores() / static_cast<int>(std::set<Device>(options_.devices.begin(), options_.devices.end()).size()));
  if (options_.shared_group) {
    if (options_.shared_group->devices() != options_.devices) Throw("a group can share only with a group on the same devices");
    store_ = options_.shared_group->store_;
    arenas_ = options_.shared_group->arenas_;
  } else {
    store_ = std::make_shared<ParameterStore>(engine_, options_.devices);
    for (const Device& device : options_.devices) arenas_.push_back(Arena::Make(device, engine_));
  }
  for (size_t d = 0; d < options_.devices.size(); ++d) {
    replicas_.push_back(std::make_unique<Replica>(engine_, store_, static_cast<int>(d), arenas_[d]));
  }
  std::vector<Shape> shapes;
  for (const auto* list : {&options_.data, &options_.labels}) for (const DataDesc& desc : *list) shapes.push_back(desc.shape);
  Bind(shapes, options_.for_training ? Mode::kTrain : Mode::kPredict);
}

DataParallelExecutorGroup::~DataParallelExecutorGroup() = default;   // replicas wait for what they pushed

void DataParallelExecutorGroup::CheckOptions() {
  if (options_.devices.empty()) Throw("a group needs at least one device");
  if (options_.workload.empty()) options_.workload.assign(options_.devices.size(), 1.0);
  if (options_.workload.size() != options_.devices.size()) {
    Throw("workload: expected {} numbers, one per device, got {}", options_.devices.size(), options_.workload.size());
  }
  for (const Device& device : options_.devices) {
    if (device.kind != DeviceKind::kCpu) throw DeviceError(fmt::format("device {} is not available in this build", device));
  }
  if (options_.data.empty()) Throw("a group needs at least one data description");
  if (options_.inputs_need_grad && !options_.for_training) Throw("inputs_need_grad needs for_training");

  arg_names_ = symbol_.ListArguments();
  aux_names_ = symbol_.ListAuxiliaryStates();
  output_names_ = symbol_.ListOutputs();
  std::set<std::string> inputs;
  const auto check = [&](const std::string& name, const char* what) {
    if (!Contains(arg_names_, name)) Throw("{} \"{}\" is not an argument of the symbol{}", what, name, NameHint(name, arg_names_));
  };
  for (const auto& [list, what] : {std::pair(&options_.data, "data"), std::pair(&options_.labels, "label"), std::pair(&options_.states, "state")}) {
    for (const DataDesc& desc : *list) {
      check(desc.name, what);
      if (!inputs.insert(desc.name).second) Throw("\"{}\" is described twice", desc.name);
      if (!desc.layout.empty() && static_cast<int>(desc.layout.size()) != desc.shape.rank()) {
        Throw<ShapeError>("{} \"{}\": layout \"{}\" does not fit shape {}", what, desc.name, desc.layout, desc.shape);
      }
      if (desc.BatchAxis() >= desc.shape.rank()) Throw<ShapeError>("{} \"{}\": a batched input needs an axis, got shape {}", what, desc.name, desc.shape);
    }
  }
  if (options_.labels.empty()) inputs.merge(LabelArguments(symbol_));
  for (const std::string& name : arg_names_) if (!inputs.contains(name)) param_names_.push_back(name);
  for (const std::string& name : options_.fixed_params) {
    if (!Contains(param_names_, name)) Throw("fixed parameter \"{}\" is not a parameter{}", name, NameHint(name, param_names_));
  }
  for (const Entry& head : symbol_.entries()) {
    const auto& annotations = head.node->annotations();
    const auto rule = annotations.find("merge");
    merge_rules_.push_back(rule == annotations.end() ? "" : rule->second);
    if (const std::string& r = merge_rules_.back(); !r.empty() && r != "sum" && r != "mean" && r != "first") {
      Throw("head \"{}\": merge is \"{}\"; known: sum, mean, first", head.node->name(), r);
    }
  }
}

void DataParallelExecutorGroup::ResolveGradRequests() {
  for (const std::string& name : arg_names_) grad_req_[name] = GradReq::kNull;
  if (!options_.for_training) return;
  const auto by_default = [&](GradReq req) {
    for (const std::string& name : param_names_) grad_req_[name] = Contains(options_.fixed_params, name) ? GradReq::kNull : req;
    if (options_.inputs_need_grad) for (const DataDesc& desc : options_.data) grad_req_[desc.name] = req;
  };
  if (const auto* one = std::get_if<GradReq>(&options_.grad_req)) {
    by_default(*one);
  } else if (const auto* list = std::get_if<std::vector<GradReq>>(&options_.grad_req)) {
    if (list->size() != arg_names_.size()) Throw("grad_req: expected {} requests, one per argument, got {}", arg_names_.size(), list->size());
    for (size_t i = 0; i < list->size(); ++i) grad_req_[arg_names_[i]] = (*list)[i];
  } else {
    by_default(GradReq::kWrite);
    for (const auto& [name, req] : std::get<std::map<std::string, GradReq>>(options_.grad_req)) {
      if (!grad_req_.contains(name)) Throw("grad_req names \"{}\", which is not an argument{}", name, NameHint(name, arg_names_));
      grad_req_[name] = req;
    }
  }
}

GradReq DataParallelExecutorGroup::grad_req(const std::string& argument) const {
  const auto found = grad_req_.find(argument);
  if (found == grad_req_.end()) Throw("\"{}\" is not an argument{}", argument, NameHint(argument, arg_names_));
  return found->second;
}

CompileOptions DataParallelExecutorGroup::OptionsFor(const std::vector<Shape>& shapes, Mode mode, int64_t share) const {
  CompileOptions o;
  const auto add = [&](const DataDesc& desc, const Shape& shape) {
    const int axis = desc.BatchAxis();
    o.shapes[desc.name] = axis < 0 ? shape : shape.With(axis, share);
    o.dtypes[desc.name] = desc.dtype;
    o.batch_axes[desc.name] = axis;
  };
  size_t i = 0;
  for (const auto* list : {&options_.data, &options_.labels}) for (const DataDesc& desc : *list) add(desc, shapes[i++]);
  for (const DataDesc& desc : options_.states) add(desc, desc.shape);
  if (options_.labels.empty()) for (const std::string& name : LabelArguments(symbol_)) o.batch_axes[name] = 0;
  o.parameters.insert(param_names_.begin(), param_names_.end());
  o.storage_formats = store_->StorageFormats();
  o.grad_req = grad_req_;
  o.frozen.insert(options_.fixed_params.begin(), options_.fixed_params.end());
  o.mode = mode;
  o.with_backward = options_.for_training && mode == Mode::kTrain;
  o.threads = threads_;
  o.devices = static_cast<int>(options_.devices.size());
  o.policy = options_.policy;
  o.observe = watch_;
  o.passes = options_.passes;
  o.fusion = options_.fusion;
  o.inplace = options_.inplace;
  o.reuse_memory = options_.reuse_memory;
  return o;
}

DataParallelExecutorGroup::Binding* DataParallelExecutorGroup::Bind(const std::vector<Shape>& shapes, Mode mode,
                                                                  const std::vector<SampleRange>* ranges) {
  const auto matches = [&](const Binding& b) {
    return b.addresses == AddressesVersion() && b.mode == mode && b.watch == watch_ && b.shapes == shapes && (!ranges || b.ranges == *ranges);
  };
  for (auto it = bindings_.begin(); it != bindings_.end(); ++it) {
    if (!matches(**it)) continue;
    bindings_.splice(bindings_.begin(), bindings_, it);
    return current_ = bindings_.front().get();
  }
  int64_t samples = -1;
  size_t i = 0;
  const std::string* first = nullptr;
  for (const auto* list : {&options_.data, &options_.labels}) {
    for (const DataDesc& desc : *list) {
      const Shape& shape = shapes[i++];
      if (desc.BatchAxis() < 0) continue;
      if (samples < 0) {
        samples = shape[desc.BatchAxis()];
        first = &desc.name;
      } else if (shape[desc.BatchAxis()] != samples) {
        Throw<ShapeError>("all inputs must have the same batch size: \"{}\" has {}, \"{}\" has {}", *first, samples, desc.name, shape[desc.BatchAxis()]);
      }
    }
  }
  if (samples == 0) Throw<ShapeError>("a batch must have at least one sample");
  std::vector<SampleRange> split;
  if (ranges) {
    split = *ranges;
  } else if (samples < 0) {   // nothing is batched: the first device does all, as with a batch of one
    samples = 1;
    split.assign(options_.devices.size(), SampleRange{1, 1});
    split[0] = {0, 1};
  } else {
    split = SplitBatch(samples, options_.workload);
  }
  std::unique_ptr<Binding> binding = MakeBinding(shapes, mode, split);
  binding->samples = samples;
  bindings_.push_front(std::move(binding));
  if (bindings_.size() > kBindings) bindings_.pop_back();
  return current_ = bindings_.front().get();
}

std::unique_ptr<DataParallelExecutorGroup::Binding> DataParallelExecutorGroup::MakeBinding(
    const std::vector<Shape>& shapes, Mode mode, const std::vector<SampleRange>& ranges) {
  auto binding = std::make_unique<Binding>();
  binding->mode = mode;
  binding->watch = watch_;
  binding->shapes = shapes;
  binding->ranges = ranges;
  std::vector<GroupStep::Participant> participants;
  for (size_t d = 0; d < replicas_.size(); ++d) {
    if (ranges[d].size() == 0) continue;
    const CompileOptions options = OptionsFor(shapes, mode, ranges[d].size());
    const auto program = programs_.Get(ProgramKey(options), [&] { return Compile(symbol_, options); });
    if (participants.empty()) {
      CheckMergeable(program->plan);
      store_->Adopt(program->plan);
    }
    participants.push_back({replicas_[d].get(), replicas_[d]->Bind(program)});
  }
  binding->addresses = AddressesVersion();
  std::erase_if(bindings_, [&](const auto& other) { return other->addresses != binding->addresses; });
  binding->step = std::make_unique<GroupStep>(engine_, *store_, std::move(participants));
  return binding;
}

int DataParallelExecutorGroup::AddressesVersion() const {
  int version = 0;
  for (const auto& replica : replicas_) version += replica->addresses_version();
  return version;
}

void DataParallelExecutorGroup::CheckMergeable(const Plan& plan) const {
  if (options_.devices.size() == 1) return;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (plan.values[plan.outputs[i].value].type.batch_axis < 0 && merge_rules_[i].empty()) {
      Throw("head \"{}\" of shape {} has no batch axis: annotate it with how it is merged over devices, merge = sum, mean or first",
            plan.outputs[i].name, plan.values[plan.outputs[i].value].type.shape);
    }
  }
}

void DataParallelExecutorGroup::Reshape(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels) {
  const auto check = [](const std::vector<DataDesc>& now, const std::vector<DataDesc>& wanted, const char* what) {
    if (now.size() != wanted.size()) Throw("Reshape: expected {} {} descriptions, got {}", now.size(), what, wanted.size());
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].name != wanted[i].name) Throw("Reshape: expected {} \"{}\", got \"{}\"", what, now[i].name, wanted[i].name);
    }
  };
  check(options_.data, data, "data");
  check(options_.labels, labels, "label");
  std::vector<Shape> shapes;
  for (const auto* list : {&data, &labels}) for (const DataDesc& desc : *list) shapes.push_back(desc.shape);
  Bind(shapes, options_.for_training ? Mode::kTrain : Mode::kPredict);
  ran_forward_ = ran_backward_ = false;
  for (size_t i = 0; i < data.size(); ++i) options_.data[i].shape = data[i].shape;
  for (size_t i = 0; i < labels.size(); ++i) options_.labels[i].shape = labels[i].shape;
}

void DataParallelExecutorGroup::Watch(const std::string& pattern) {
  try {
    const std::regex check(pattern);
  } catch (const std::regex_error& e) {
    Throw("\"{}\" is not a regular expression: {}", pattern, e.what());
  }
  watch_ = pattern;
}

MemoryReport DataParallelExecutorGroup::memory(int device) const { return ReportMemory(plan(device)); }

const Plan& DataParallelExecutorGroup::plan(int device) const {
  const auto& participants = current_->step->participants();
  if (device < 0 || device >= static_cast<int>(participants.size())) Throw("device index {} is not in 0..{}", device, participants.size() - 1);
  return participants[device].bound->plan();
}

}  // namespace bindery
