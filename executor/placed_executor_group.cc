// PlacedExecutorGroup: binding and running. What else it has is in placed_members.cc.
#include "executor/placed_executor_group.h"

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/team.h"

namespace bindery {
namespace {

GroupOptions OfTheWhole(GroupOptions options) {
  options.placements.clear();
  return options;
}

// Does anything flow back into this input of the group?
bool HasGradient(const DataParallelExecutorGroup& group, const std::string& input) {
  return std::ranges::any_of(group.plan().gradients, [&](const PlanGradient& gradient) {
    return group.plan().ArgumentOf(gradient).name == input && !gradient.is_zero;
  });
}

}  // namespace

PlacedExecutorGroup::PlacedExecutorGroup(const Symbol& symbol, const GroupOptions& options)
    : spec_(symbol, OfTheWhole(options)), engine_(options.engine ? options.engine : DefaultEngine()),
      feeder_(spec_, engine_), merger_(spec_, engine_) {
  if (options.shared_group || options.weights) Throw("a group with placements shares nothing with another one");
  spec_.options.engine = engine_;
  spec_.options.placements = options.placements;
  CheckPlacements();
  std::set<std::string> data, labels;
  for (const Argument& a : spec_.signature.arguments) {
    if (a.role == Role::kData || a.role == Role::kState) data.insert(a.name);
    if (a.role == Role::kLabel) labels.insert(a.name);
  }
  cut_ = std::make_unique<Stages>(spec_.symbol, std::move(data), std::move(labels));
  const GivenTypes given = spec_.signature.Given();
  const NodeTypes types = InferTypes(cut_->graph(), given.shapes, given.dtypes, given.batch_axes);
  FindWanted();
  // Whoever reads a value tells whether a gradient comes back.
  const auto count = static_cast<int>(cut_->stages().size());
  stages_.resize(cut_->stages().size());
  for (int s = count - 1; s >= 0; --s) Bind(s, types);
  heads_.resize(spec_.signature.heads.size());
  for (int s = 0; s < count; ++s) {
    const std::vector<int>& heads = cut_->stages()[static_cast<size_t>(s)].heads;
    for (size_t i = 0; i < heads.size(); ++i) heads_[static_cast<size_t>(heads[i])] = {s, static_cast<int>(i)};
  }
  for (const std::string& name : spec_.param_names) {
    if (!owners_.contains(name)) Throw<ModelError>("\"{}\" is no parameter of a stage: describe it as a label", name);
  }
  ranges_ = spec_.Split(spec_.SamplesOf(spec_.InputShapes()));
  SetStepOfAll();
}

PlacedExecutorGroup::~PlacedExecutorGroup() = default;

void PlacedExecutorGroup::CheckPlacements() {
  const std::vector<std::string> names = ListPlacements(spec_.symbol);
  std::vector<std::string> given;
  std::set<Device> devices(spec_.options.devices.begin(), spec_.options.devices.end());
  const size_t replicas = spec_.options.devices.size();
  for (auto& [name, list] : spec_.options.placements) {
    given.push_back(name);
    if (std::ranges::find(names, name) == names.end()) {
      Throw("placements: no node has ctx_group = \"{}\"{}", name, names.empty() ? "" : NameHint(name, names));
    }
    if (list.size() == 1) list.resize(replicas, list[0]);
    if (list.size() != replicas) {
      Throw("placement \"{}\": expected 1 device, or {} for the replicas, got {}", name, replicas, list.size());
    }
    for (const Device& device : list) Backend::Of(device);  // throws unless it is there
    devices.insert(list.begin(), list.end());
  }
  for (const std::string& name : names) {
    if (spec_.options.placements.contains(name)) continue;
    Throw("placement \"{}\", which nodes have as their ctx_group, is given no device: add it to the placements{}", name,
          NameHint(name, given));
  }
  // One updater serves all stages: either the host addresses all their memory, or gradients are whole.
  spec_.options.sparse_gradients = spec_.options.sparse_gradients && std::ranges::all_of(devices, HostAddressable);
  if (spec_.options.threads_per_device > 0) return;
  const auto cpus = std::ranges::count_if(devices, HostAddressable);
  spec_.threads = std::max(1, NumCores() / std::max(1, static_cast<int>(cpus)));
}

const std::vector<Device>& PlacedExecutorGroup::DevicesOfStage(int stage) const {
  const std::string& placement = cut_->stages()[static_cast<size_t>(stage)].placement;
  return placement.empty() ? spec_.options.devices : spec_.options.placements.at(placement);
}

// Gradients come back to values that follow from something that has one.
void PlacedExecutorGroup::FindWanted() {
  const Graph& graph = cut_->graph();
  const std::vector<bool> wanted = TrainedNodes(graph, spec_.signature);
  for (const Stages::Crossing& crossing : cut_->crossings()) {
    returns_.push_back(spec_.options.for_training && wanted[static_cast<size_t>(graph.IndexOf(crossing.value.node))]);
  }
}

DataDesc PlacedExecutorGroup::DescribeCrossing(int crossing, const NodeTypes& types) const {
  const Stages::Crossing& c = cut_->crossings()[static_cast<size_t>(crossing)];
  const ValueType& type =
      types[static_cast<size_t>(cut_->graph().IndexOf(c.value.node))][static_cast<size_t>(c.value.output)];
  if (type.batch_axis >= 0 && type.batch_fold != BatchFold{}) {
    Throw<ModelError>(
        "{}: the samples of its output {} share axis {} with something else, and so it cannot go to another placement, "
        "\"{}\": place the Reshape that folds them, and what reads it, together",
        Describe(*c.value.node), type.shape, type.batch_axis, cut_->stages()[static_cast<size_t>(c.to)].placement);
  }
  std::string layout(static_cast<size_t>(type.shape.rank()), '-');
  if (type.batch_axis >= 0) layout[static_cast<size_t>(type.batch_axis)] = 'N';
  return {.name = c.name, .shape = type.shape, .dtype = type.dtype, .layout = layout};
}

void PlacedExecutorGroup::Bind(int s, const NodeTypes& types) {
  const Stages::Stage& cut = cut_->stages()[static_cast<size_t>(s)];
  Stage& stage = stages_[static_cast<size_t>(s)];
  std::vector<bool> blocked;
  for (const bool returns : returns_) blocked.push_back(spec_.options.for_training && !returns);
  const Symbol symbol = cut_->SymbolOf(s, blocked);
  const GroupOptions& whole = spec_.options;
  GroupOptions options = whole;
  options.placements.clear();
  options.devices = DevicesOfStage(s);
  options.threads_per_device = spec_.threads;
  options.inputs_need_grad = whole.for_training;  // those that are asked for
  for (auto* list : {&options.data, &options.labels, &options.states}) list->clear();
  options.fixed_params.clear();
  options.param_dtypes.clear();
  std::map<std::string, GradReq> requests;
  const std::vector<std::string> arguments = symbol.ListArguments();
  for (const std::string& name : arguments) {
    const int position = spec_.Find(name);
    if (position < 0) continue;  // it crosses to here
    const Argument& argument = spec_.signature.arguments[static_cast<size_t>(position)];
    requests[name] = argument.request;
    owners_[name] = s;
    if (argument.is_fixed) options.fixed_params.push_back(name);
    if (argument.role == Role::kParameter && argument.dtype) options.param_dtypes.emplace_back(name, *argument.dtype);
  }
  for (const std::string& name : symbol.ListAuxiliaryStates()) owners_[name] = s;
  const auto take = [&](const std::vector<DataDesc>& all, std::vector<DataDesc>* taken, const auto& visit) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::ranges::find(arguments, all[i].name) == arguments.end()) continue;
      taken->push_back(all[i]);
      visit(static_cast<int>(i));
    }
  };
  take(whole.data, &options.data, [&](int i) { stage.data.push_back({.data = i}); });
  take(whole.labels, &options.labels, [&](int i) { stage.labels.push_back(i); });
  take(whole.states, &options.states, [&](int i) { stage.states.push_back(i); });
  for (const int c : cut.reads) {
    options.data.push_back(DescribeCrossing(c, types));
    stage.data.push_back({.crossing = c});
    requests[options.data.back().name] = returns_[static_cast<size_t>(c)] ? GradReq::kWrite : GradReq::kNull;
  }
  const auto is_batched = [](const DataDesc& desc) { return desc.BatchAxis() >= 0; };
  if (whole.devices.size() > 1 && spec_.SamplesOf(spec_.InputShapes()) &&
      std::ranges::none_of(options.data, is_batched)) {
    Throw<ModelError>("placement \"{}\": nothing that it reads has a batch axis for several replicas to share",
                      cut.placement);
  }
  if (whole.for_training) options.grad_req = std::move(requests);
  stage.group = std::make_unique<DataParallelExecutorGroup>(symbol, options);
  for (const int c : cut.reads) {
    const auto crossing = static_cast<size_t>(c);
    returns_[crossing] = returns_[crossing] && HasGradient(*stage.group, cut_->crossings()[crossing].name);
  }
}

// --- running ---

void PlacedExecutorGroup::SetStepOfAll() {
  for (const Stage& stage : stages_) stage.group->SetStep(step_);
}

void PlacedExecutorGroup::SetStep(const StepNumber& step) {
  step_ = step;
  feeder_.SetStep(step);
  step_.checked = true;
  counts_ = false;
  SetStepOfAll();
}

int64_t PlacedExecutorGroup::CheckBatch(const Batch& batch, Mode mode, bool values) const {
  return feeder_.CheckBatch(batch, mode, &shapes_, values).value_or(1);
}

void PlacedExecutorGroup::Forward(const BatchPtr& batch, std::optional<Mode> wanted) {
  const Mode mode = wanted.value_or(spec_.mode());
  if (!batch) {
    throw DataError("there is no batch: where Next gave none, the iterator's epoch is over, and Reset begins another");
  }
  std::vector<SampleRange> ranges = spec_.Split(feeder_.ShapesOf(*batch, mode, &shapes_));
  Run({&batch, 1}, std::move(ranges), mode);
}

void PlacedExecutorGroup::Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> wanted) {
  if (per_device.size() != devices().size())
    Throw("expected {} batches, one per replica, got {}", devices().size(), per_device.size());
  if (per_device.size() == 1 && per_device[0]) return Forward(per_device[0], wanted);
  const Mode mode = wanted.value_or(spec_.mode());
  Feeder::Joined joined = feeder_.Join(per_device, mode);
  Run(per_device, std::move(joined.ranges), mode);
}

void PlacedExecutorGroup::ForwardBackward(const BatchPtr& batch) {
  Forward(batch, Mode::kTrain);
  RunBackward({});
}

// What a stage computes of a batch, `replica`, among those with samples: of one that is cut beforehand. Rows of padding
// come last, and nobody reads them.
BatchPtr PlacedExecutorGroup::BatchOf(const Stage& stage, const Batch& batch, const Pieces& crossed,
                                      std::optional<size_t> replica) const {
  auto made = std::make_shared<Batch>(
      Batch{.samples = batch.samples, .pad = batch.pad, .index = batch.index, .first = batch.first});
  made->data.resize(stage.data.size());
  for (size_t i = 0; i < stage.data.size(); ++i) {
    const auto [data, crossing] = stage.data[i];
    if (crossing >= 0) {
      std::vector<Tensor> pieces = crossed[static_cast<size_t>(crossing)];
      if (replica) pieces = {pieces[*replica]};
      const int axis = stage.group->options().data[i].BatchAxis();
      if (batch.pad > 0 && axis >= 0) {
        const Tensor& last = pieces.back();
        pieces.emplace_back(engine_, last.device(), last.dtype(), last.shape().With(axis, batch.pad));
      }
      made->device_data.Set(i, std::move(pieces));
    } else if (const auto* pieces = batch.device_data.Find(static_cast<size_t>(data))) {
      made->device_data.Set(i, *pieces);
    } else {
      made->data[i] = batch.data[static_cast<size_t>(data)];
    }
  }
  if (batch.num_labels() == 0) return made;
  made->label.resize(stage.labels.size());
  for (size_t i = 0; i < stage.labels.size(); ++i) {
    const auto label = static_cast<size_t>(stage.labels[i]);
    if (const auto* pieces = batch.device_label.Find(label)) {
      made->device_label.Set(i, *pieces);
    } else {
      made->label[i] = batch.label[label];
    }
  }
  return made;
}

void PlacedExecutorGroup::Run(std::span<const BatchPtr> batches, std::vector<SampleRange> ranges, Mode mode) {
  ran_forward_ = ran_backward_ = false;
  Pieces crossed(cut_->crossings().size());
  try {
    for (size_t s = 0; s < stages_.size(); ++s) {
      DataParallelExecutorGroup& group = *stages_[s].group;
      if (batches.size() == 1) {
        group.Forward(BatchOf(stages_[s], *batches[0], crossed, std::nullopt), mode);
      } else {
        std::vector<BatchPtr> given;
        size_t replica = 0;
        for (const BatchPtr& batch : batches) {
          given.push_back(batch ? BatchOf(stages_[s], *batch, crossed, replica++) : nullptr);
        }
        group.Forward(given, mode);
      }
      const Stages::Stage& cut = cut_->stages()[s];
      for (size_t i = 0; i < cut.sends.size(); ++i) {
        const Entry& value = cut_->crossings()[static_cast<size_t>(cut.sends[i])].value;
        size_t first = 0;  // of those that send it: the others need no copy of their own
        while (cut_->crossings()[static_cast<size_t>(cut.sends[first])].value != value) ++first;
        std::vector<Tensor>& pieces = crossed[static_cast<size_t>(cut.sends[i])];
        const int output = static_cast<int>(cut.heads.size() + i);
        pieces = first < i ? crossed[static_cast<size_t>(cut.sends[first])]
                           : std::move(group.OutputsPerDevice(output, output + 1)[0]);
      }
    }
  } catch (...) {
    SetStepOfAll();  // some have counted this run
    throw;
  }
  ranges_ = std::move(ranges);
  mode_ = mode;
  ran_forward_ = true;
  if (mode == Mode::kTrain && counts_) {
    ++step_.step;
    SetStepOfAll();
  }
}

int PlacedExecutorGroup::GradientOf(const Stage& stage, size_t data) {
  int position = 0;
  for (size_t i = 0; i <= data; ++i) {
    const bool asked = stage.group->grad_req(stage.group->options().data[i].name) != GradReq::kNull;
    if (i == data) return asked ? position : -1;
    position += asked;
  }
  return -1;
}

void PlacedExecutorGroup::RunBackward(const DeviceArrays& head_gradients) {
  if (!spec_.options.for_training) {
    Throw("Backward: the group is bound for prediction; bind it with for_training = true");
  }
  if (!ran_forward_) Throw("Backward: nothing has run yet; call Forward first");
  if (mode_ != Mode::kTrain) Throw("Backward: the last Forward was in prediction mode");
  if (ran_backward_) {
    Throw(
        "Backward: the values of the last Forward are used up; run Forward again (GradReq::kAdd adds up over several "
        "pairs of Forward and Backward)");
  }
  for (size_t i = 0; i < heads_.size(); ++i) {  // before anything runs
    const auto& [stage, index] = heads_[i];
    stages_[static_cast<size_t>(stage)].group->CheckHeadGradient(static_cast<size_t>(index), head_gradients.Find(i));
  }
  ran_backward_ = true;
  Pieces returned(cut_->crossings().size());
  for (size_t s = stages_.size(); s-- > 0;) {
    const Stages::Stage& cut = cut_->stages()[s];
    const Stage& stage = stages_[s];
    DeviceArrays gradients;
    for (const int head : cut.heads) {
      const auto* given = head_gradients.Find(static_cast<size_t>(head));
      gradients.Set(gradients.size(), given ? *given : std::vector<Tensor>());
    }
    for (const int c : cut.sends) gradients.Set(gradients.size(), std::move(returned[static_cast<size_t>(c)]));
    stage.group->Backward(gradients);
    const auto returns = [this](const Source& source) {
      return source.crossing >= 0 && returns_[static_cast<size_t>(source.crossing)];
    };
    if (std::ranges::none_of(stage.data, returns)) continue;
    std::vector<std::vector<Tensor>> of_inputs = stage.group->InputGradientsPerDevice();
    for (size_t i = 0; i < stage.data.size(); ++i) {
      if (!returns(stage.data[i])) continue;
      returned[static_cast<size_t>(stage.data[i].crossing)] =
          std::move(of_inputs[static_cast<size_t>(GradientOf(stage, i))]);
    }
  }
}

}  // namespace bindery
