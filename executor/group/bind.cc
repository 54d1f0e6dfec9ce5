// DataParallelExecutorGroup: shapes and programs.
#include <algorithm>
#include <regex>
#include <set>

#include "engine/backend.h"
#include "engine/team.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

constexpr size_t kBindings = 64;

int64_t NumBusy(const std::vector<SampleRange>& ranges) {
  return std::ranges::count_if(ranges, [](const SampleRange& range) { return range.size() > 0; });
}

}  // namespace

DataParallelExecutorGroup::DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options, Unbound)
    : symbol_(symbol), options_(options), programs_(options.program_bytes) {
  options_.shared_group = nullptr;
  CheckOptions();
  ResolveGradRequests();
  threads_ = options_.threads_per_device;
  if (threads_ == 0) {
    const std::set<Device> devices(options_.devices.begin(), options_.devices.end());
    const auto cpus = std::count_if(devices.begin(), devices.end(), HostAddressable);
    threads_ = std::max(1, NumCores() / std::max(1, static_cast<int>(cpus)));
  }
}

DataParallelExecutorGroup::DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options)
    : DataParallelExecutorGroup(symbol, options, Unbound()) {
  const DataParallelExecutorGroup* shared = options.shared_group;
  engine_ = options.engine;
  if (!engine_) engine_ = shared ? shared->engine_ : DefaultEngine();
  if (shared) {
    if (shared->devices() != options_.devices) Throw("a group can share only with a group on the same devices");
    if (shared->engine_ != engine_) Throw("a group can share only with a group of the same engine");
    store_ = shared->store_;
    arenas_ = shared->arenas_;
  } else {
    store_ = std::make_shared<ParameterStore>(engine_, options_.devices);
    for (const Device& device : options_.devices) arenas_.push_back(Arena::Make(device, engine_));
  }
  for (size_t d = 0; d < options_.devices.size(); ++d) {
    replicas_.push_back(std::make_unique<Replica>(engine_, store_, static_cast<int>(d), arenas_[d]));
  }
  Bind(DescribedShapes(), options_.for_training ? Mode::kTrain : Mode::kPredict);
}

std::vector<DataParallelExecutorGroup::DevicePlan> DataParallelExecutorGroup::MakePlans(const Symbol& symbol,
                                                                                        const GroupOptions& options) {
  const DataParallelExecutorGroup group(symbol, options, Unbound());
  const std::vector<Shape> shapes = group.DescribedShapes();
  const Mode mode = options.for_training ? Mode::kTrain : Mode::kPredict;
  const std::vector<SampleRange> ranges = group.Split(group.SamplesOf(shapes));
  std::vector<DevicePlan> plans;
  std::map<std::string, Format> formats;  // of parameters, as the first device chose them
  for (size_t d = 0; d < ranges.size(); ++d) {
    if (ranges[d].size() == 0) continue;
    CompileOptions compile = group.OptionsFor(group.devices()[d].kind, shapes, mode, ranges[d].size(), NumBusy(ranges));
    compile.storage_formats = formats;
    const auto program = group.CompileShare(shapes, mode, ranges.back().end, compile);
    for (const PlanArgument& a : program->plan.arguments) {
      if (a.is_parameter) formats.emplace(a.name, a.format);
    }
    plans.push_back({.device = group.devices()[d], .samples = ranges[d], .plan = program->plan});
  }
  return plans;
}

std::vector<Shape> DataParallelExecutorGroup::DescribedShapes() const {
  std::vector<Shape> shapes;
  for (const auto* list : {&options_.data, &options_.labels})
    for (const DataDesc& desc : *list) shapes.push_back(desc.shape);
  return shapes;
}

DataParallelExecutorGroup::~DataParallelExecutorGroup() = default;  // replicas wait for what they pushed

CompileOptions DataParallelExecutorGroup::OptionsFor(DeviceKind device, const std::vector<Shape>& shapes, Mode mode,
                                                     int64_t share, int64_t devices) const {
  CompileOptions o;
  o.device = device;
  o.plain_parameters = std::any_of(options_.devices.begin(), options_.devices.end(),
                                   [&](const Device& d) { return d.kind != options_.devices[0].kind; });
  const auto add = [&](const DataDesc& desc, const Shape& shape) {
    const int axis = desc.BatchAxis();
    o.shapes[desc.name] = axis < 0 ? shape : shape.With(axis, share);
    o.dtypes[desc.name] = desc.dtype;
    o.batch_axes[desc.name] = axis;
  };
  size_t i = 0;
  for (const auto* list : {&options_.data, &options_.labels})
    for (const DataDesc& desc : *list) add(desc, shapes[i++]);
  for (const DataDesc& desc : options_.states) add(desc, desc.shape);
  for (const std::string& name : unbound_labels_) o.batch_axes[name] = 0;
  o.parameters.insert(param_names_.begin(), param_names_.end());
  if (store_) o.storage_formats = store_->StorageFormats();
  o.grad_req = grad_req_;
  o.frozen.insert(options_.fixed_params.begin(), options_.fixed_params.end());
  o.mode = mode;
  o.with_backward = options_.for_training && mode == Mode::kTrain;
  o.threads = device == DeviceKind::kCpu ? threads_ : 1;
  o.devices = static_cast<int>(devices);
  o.switches = options_.switches;
  o.observe = watch_;
  return o;
}

const DataDesc& DataParallelExecutorGroup::InputDesc(size_t i) const {
  return i < options_.data.size() ? options_.data[i] : options_.labels[i - options_.data.size()];
}

std::optional<int64_t> DataParallelExecutorGroup::SamplesOf(const std::vector<Shape>& shapes) const {
  std::optional<int64_t> samples;
  const std::string* first = nullptr;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const DataDesc& desc = InputDesc(i);
    if (desc.BatchAxis() < 0) continue;
    const int64_t extent = shapes[i][desc.BatchAxis()];
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

std::vector<SampleRange> DataParallelExecutorGroup::Split(std::optional<int64_t> samples) const {
  if (samples) return SplitBatch(*samples, options_.workload);
  // Nothing is batched: the first device does all, as with a batch of one.
  std::vector<SampleRange> split(options_.devices.size(), SampleRange{1, 1});
  split[0] = {0, 1};
  return split;
}

DataParallelExecutorGroup::Binding* DataParallelExecutorGroup::Bind(const std::vector<Shape>& shapes, Mode mode,
                                                                    const std::vector<SampleRange>* ranges) {
  ran_forward_ = ran_backward_ = false;
  const auto matches = [&](const Binding& b) {
    return b.addresses == AddressesVersion() && b.mode == mode && b.watch == watch_ && b.shapes == shapes &&
           (ranges ? b.ranges == *ranges : !b.cut_beforehand);
  };
  const auto found = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return matches(*b); });
  if (found != bindings_.end()) {
    if (found != bindings_.begin()) {
      bindings_.splice(bindings_.begin(), bindings_, found);
      for (const GroupStep::Participant& p : bindings_.front()->step->participants()) {
        programs_.Touch(p.bound->program.get());
      }
    }
    return current_ = bindings_.front().get();
  }
  const std::optional<int64_t> samples = SamplesOf(shapes);
  std::unique_ptr<Binding> binding = MakeBinding(shapes, mode, ranges ? *ranges : Split(samples));
  binding->cut_beforehand = ranges != nullptr;
  binding->samples = samples.value_or(1);
  bindings_.push_front(std::move(binding));
  current_ = bindings_.front().get();
  // Bindings go with the addresses they hold, and with their programs: what is bound is not kept beyond the cache's
  // budget.
  std::erase_if(bindings_, [&](const auto& b) {
    if (b.get() == current_) return false;
    const auto& participants = b->step->participants();
    return b->addresses != current_->addresses ||
           !std::all_of(participants.begin(), participants.end(),
                        [&](const auto& p) { return programs_.Holds(p.bound->program.get()); });
  });
  if (bindings_.size() > kBindings) bindings_.pop_back();
  return current_;
}

std::unique_ptr<DataParallelExecutorGroup::Binding> DataParallelExecutorGroup::MakeBinding(
    const std::vector<Shape>& shapes, Mode mode, const std::vector<SampleRange>& ranges) {
  auto binding = std::make_unique<Binding>();
  binding->mode = mode;
  binding->watch = watch_;
  binding->shapes = shapes;
  binding->ranges = ranges;
  const int64_t busy = NumBusy(ranges);
  std::vector<GroupStep::Participant> participants;
  for (size_t d = 0; d < replicas_.size(); ++d) {
    if (ranges[d].size() == 0) continue;
    const CompileOptions options = OptionsFor(options_.devices[d].kind, shapes, mode, ranges[d].size(), busy);
    const auto program = programs_.Get(ProgramKey(options), [&] {
      std::shared_ptr<const Program> made = CompileShare(shapes, mode, ranges.back().end, options);
      store_->Adopt(made->plan);
      return made;
    });
    if (mode == Mode::kTrain) updated_blocks_ = store_->UpdatedBlocks(program->plan);
    participants.push_back({replicas_[d].get(), replicas_[d]->Bind(program)});
  }
  binding->addresses = AddressesVersion();
  binding->step =
      std::make_unique<GroupStep>(engine_, *store_, std::move(participants), options_.data, options_.labels, ranges);
  return binding;
}

std::shared_ptr<const Program> DataParallelExecutorGroup::CompileShare(const std::vector<Shape>& shapes, Mode mode,
                                                                       int64_t samples,
                                                                       const CompileOptions& options) const {
  std::shared_ptr<const Program> program = Compile(symbol_, options);
  if (options_.devices.size() > 1) {
    // A parameter that takes its shape from the batch would be another one on every device.
    const CompileOptions whole = OptionsFor(options.device, shapes, mode, samples, 1);
    const Graph graph = Graph::Of(ExpandComposites(symbol_));
    const NodeTypes types = InferTypes(graph, whole.shapes, whole.dtypes, whole.batch_axes);
    CheckMergeable(program->plan, graph, types);
    std::map<std::string, Shape> expected;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n]->is_variable()) expected[graph.nodes[n]->name()] = types[n][0].shape;
    }
    for (const PlanArgument& a : program->plan.arguments) {
      if (!a.is_parameter || a.type.shape == expected.at(a.name)) continue;
      Throw<ShapeError>(
          "parameter \"{}\" takes its shape from the batch: {} for all of it, {} for a device's share; "
          "declare the shape of its variable",
          a.name, expected.at(a.name), a.type.shape);
    }
  }
  return program;
}

int DataParallelExecutorGroup::AddressesVersion() const {
  int version = 0;
  for (const auto& replica : replicas_) version += replica->addresses_version();
  return version;
}

void DataParallelExecutorGroup::CheckMergeable(const Plan& plan, const Graph& graph, const NodeTypes& types) const {
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const ValueType& share = plan.values[plan.outputs[i].value].type;
    const Entry& entry = graph.outputs[i];
    const ValueType& whole = types[graph.IndexOf(entry.node)][entry.output];
    if (share.batch_axis != whole.batch_axis || share.batch_fold != whole.batch_fold) {
      Throw<ModelError>(
          "head \"{}\" has its samples elsewhere in a device's share, {}, than in the whole batch, {}: "
          "a Reshape before it names extents that are the batch's by chance; let it say -1 where the batch is",
          plan.outputs[i].name, share.shape, whole.shape);
    }
    if (share.batch_axis >= 0) continue;
    if (merge_rules_[i].empty()) {
      // A Reshape that puts parts of several samples side by side is rarely meant.
      const Node* node = LosesBatch(graph, types, entry);
      const auto type_of = [&](const Entry& e) -> const ValueType& { return types[graph.IndexOf(e.node)][e.output]; };
      const bool reshapes =
          node != nullptr && node->op().is_view &&
          node->op().is_view(
              {.attrs = node->attrs(), .input = type_of(node->inputs()[0]), .output = types[graph.index.at(node)][0]});
      Throw<ModelError>(
          "head \"{}\" of shape {} has no batch axis{}: annotate it with how it is merged over devices, merge = sum, "
          "mean or first",
          plan.outputs[i].name, share.shape,
          reshapes ? fmt::format(", for {} gives no axis whole samples (let an axis hold the batch alone, or with axes "
                                 "next to it); if that is meant",
                                 Describe(*node))
                   : "");
    }
    const Node& head = *symbol_.entries()[i].node;
    if (options_.for_training && merge_rules_[i] != "sum" && IsLoss(head) && !head.op().blocks_gradient) {
      Throw<ModelError>(
          "head \"{}\" is a loss without batch axis, and the devices' gradients add up: they would not be those of one "
          "device with merge = {}; make the loss one of single samples, or a sum over them with merge = sum",
          plan.outputs[i].name, merge_rules_[i]);
    }
  }
}

void DataParallelExecutorGroup::Reshape(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels) {
  const auto check = [](const std::vector<DataDesc>& now, const std::vector<DataDesc>& wanted, const char* what) {
    if (now.size() != wanted.size())
      Throw("Reshape: expected {} {} descriptions, got {}", now.size(), what, wanted.size());
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].name != wanted[i].name)
        Throw("Reshape: expected {} \"{}\", got \"{}\"", what, now[i].name, wanted[i].name);
      if (now[i].dtype != wanted[i].dtype || now[i].layout != wanted[i].layout) {
        Throw("Reshape: {} \"{}\" is bound as {} with layout \"{}\", got {} with \"{}\"; only shapes may change", what,
              now[i].name, now[i].dtype, now[i].layout, wanted[i].dtype, wanted[i].layout);
      }
      if (now[i].shape.rank() != wanted[i].shape.rank()) {
        Throw<ShapeError>("Reshape: {} \"{}\": expected {} axes as in {}, got {}", what, now[i].name,
                          now[i].shape.rank(), now[i].shape, wanted[i].shape);
      }
    }
  };
  check(options_.data, data, "data");
  check(options_.labels, labels, "label");
  std::vector<Shape> shapes;
  for (const auto* list : {&data, &labels})
    for (const DataDesc& desc : *list) shapes.push_back(desc.shape);
  Bind(shapes, options_.for_training ? Mode::kTrain : Mode::kPredict);
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
  if (device < 0 || device >= static_cast<int>(participants.size()))
    Throw("device index {} is not in 0..{}", device, participants.size() - 1);
  return participants[device].bound->plan();
}

}  // namespace bindery
