// ReplicatedModule: binding and running. What else it has is in module_parameters.cc and module_file.cc.
#include "train/module/replicated_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/names.h"
#include "train/initializer.h"
#include "train/module/bound.h"

namespace bindery {
namespace {

// The descriptions of what the network looks at, cut along `dimension` where they say nothing else.
std::vector<DataDesc> DataOf(const ModuleOptions& options) {
  std::vector<DataDesc> data;
  options.inputs.ForEach([&](DataDesc desc) {
    if (desc.name.empty()) return;
    if (desc.layout.empty() && options.dimension != 0 && desc.shape.rank() > 0) {
      if (options.dimension < 0 || options.dimension >= desc.shape.rank()) {
        Throw<ShapeError>("input \"{}\" of shape {} has no dimension {} to be cut along; give it a layout", desc.name,
                          desc.shape, options.dimension);
      }
      desc.layout = std::string(static_cast<size_t>(desc.shape.rank()), '-');
      desc.layout[static_cast<size_t>(options.dimension)] = 'N';
    }
    data.push_back(std::move(desc));
  });
  if (data.empty()) Throw("a module needs at least one input with a name (ModuleOptions::inputs)");
  return data;
}

// Which output each leaf is; -1: none.
Nest<int> PlacesOf(const std::optional<Nest<std::string>>& wanted, const std::vector<std::string>& names) {
  if (!wanted) {
    if (names.size() == 1) return 0;
    std::vector<Nest<int>> all;
    for (size_t i = 0; i < names.size(); ++i) all.emplace_back(static_cast<int>(i));
    return Nest<int>::FromItems(std::move(all));
  }
  std::vector<bool> placed(names.size());
  const Nest<int> places = wanted->Map([&](const std::string& name) {
    if (name.empty()) return -1;
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) Throw("outputs: \"{}\" is not an output{}", name, NameHint(name, names));
    if (std::find(found + 1, names.end(), name) != names.end()) {
      Throw("outputs: several outputs are named \"{}\": leave `outputs` out, and they are a list", name);
    }
    const auto place = static_cast<size_t>(found - names.begin());
    if (placed[place]) Throw("outputs: \"{}\" is named twice", name);
    placed[place] = true;
    return static_cast<int>(place);
  });
  for (size_t i = 0; i < names.size(); ++i) {
    if (!placed[i]) Throw("outputs: \"{}\" has no place", names[i]);
  }
  return places;
}

void CheckForm(const char* what, const char* of_what, const std::string& expected, const std::string& got) {
  if (expected != got) {
    throw DataError(fmt::format("{}: expected {} nested as {}, got {}", what, of_what, expected, got));
  }
}

// Pieces as a group takes them: along this axis, or one.
std::vector<Tensor> PiecesAlong(const Array& array, int axis, const std::shared_ptr<Engine>& engine) {
  std::vector<Tensor> pieces = array.PiecesFor(engine);
  if (pieces.size() > 1 && array.axis() != axis) return {array.Whole()};
  return pieces;
}

// Do the pieces of such a value follow each other along its batch axis?
bool InPieces(const ValueType& type) { return type.batch_axis >= 0 && type.batch_fold.outer == 1; }

}  // namespace

// --- binding ---

ReplicatedModule::ReplicatedModule(const Model& model, ModuleOptions options)
    : ReplicatedModule(model, std::move(options), {.params = model.params, .aux = model.aux}) {}

ReplicatedModule::ReplicatedModule(const Model& model, ModuleOptions options, Contents contents)
    : model_{.symbol = model.symbol, .metadata = model.metadata}, options_(std::move(options)),
      engine_(options_.engine ? options_.engine : DefaultEngine()), contents_(std::move(contents)) {
  DataOf(options_);  // throws
  if (options_.devices.empty()) return;
  RunOn(options_.devices, 0, options_.init);
  Ready();
}

ReplicatedModule::~ReplicatedModule() = default;
ReplicatedModule::ReplicatedModule(ReplicatedModule&&) noexcept = default;
ReplicatedModule& ReplicatedModule::operator=(ReplicatedModule&&) noexcept = default;

std::unique_ptr<ReplicatedModule::Bound> ReplicatedModule::Bind(const ModuleOptions& options,
                                                                const Contents& contents) const {
  auto bound = std::make_unique<Bound>();
  bound->data = DataOf(options);
  std::map<std::string, GradReq> requests;
  for (const DataDesc& desc : bound->data) {
    const bool wanted = options.input_gradients && IsFloat(desc.dtype);
    bound->has_gradient.push_back(wanted);
    if (!wanted) requests[desc.name] = GradReq::kNull;
  }
  bound->group = MakeGroup(model_.symbol, {.devices = options.devices,
                                           .workload = options.workload,
                                           .data = bound->data,
                                           .inputs_need_grad = options.input_gradients,
                                           .fixed_params = options.fixed_params,
                                           .grad_req = requests,
                                           .engine = engine_,
                                           .threads_per_device = options.threads_per_device,
                                           .seed = options.seed,
                                           .bucket_bytes = 0,
                                           .placements = options.placements});
  bound->outputs = PlacesOf(options.outputs, bound->group->output_names());
  SetInitialParams(bound->group.get(), {.symbol = {}, .params = contents.params, .aux = contents.aux},
                   Initializer(options.initializer), options.seed);
  bound->group->SetStep({.step = contents.steps});
  bound->exchange = std::make_unique<ParameterExchange>(
      bound->group.get(), ExchangeOptions{options.exchange, options.kvstore, options.store, options.collectives});
  for (const auto& [name, gradient] : contents.gradients) bound->exchange->SetGradient(name, gradient);
  return bound;
}

ReplicatedModule::Bound& ReplicatedModule::Ready() {
  if (!bound_) {
    if (options_.devices.empty()) Throw("the module has no replicas: call AddReplica(device) first");
    bound_ = Bind(options_, contents_);
    contents_ = {.steps = contents_.steps};
  }
  return *bound_;
}

ReplicatedModule::Contents ReplicatedModule::TakeContents() {
  if (!bound_) return contents_;
  Contents taken{.steps = contents_.steps};
  bound_->group->GetParams(&taken.params, &taken.aux);
  if (!bound_->exchange->any_gradients()) return taken;
  for (const ParameterBuffer& buffer : bound_->exchange->buffers()) {
    if (!buffer.gradients.defined()) continue;
    for (const std::string& name : buffer.names) taken.gradients[name] = bound_->exchange->Gradient(name);
  }
  return taken;
}

void ReplicatedModule::Rebind(ModuleOptions options) {
  const Contents contents = TakeContents();
  bound_ = Bind(options, contents);
  options_ = std::move(options);
  contents_ = {.steps = contents.steps};
}

// --- running ---

Values ReplicatedModule::Forward(const Values& inputs) {
  Bound& bound = Ready();
  CheckForm("Forward", "inputs", options_.inputs.Form(), inputs.Form());
  Batch batch;
  std::vector<Device> came_from;
  const std::vector<DataDesc> leaves = options_.inputs.Leaves();
  size_t leaf = 0, place = 0;
  inputs.ForEach([&](const Array& array) {
    came_from.push_back(array.device());
    const std::string& name = leaves[leaf++].name;
    if (name.empty()) {
      if (array.empty()) return;
      throw DataError(fmt::format("Forward: input {} has no name: nobody looks at it, and it must be empty, got {}",
                                  leaf - 1, array.shape()));
    }
    std::vector<Tensor> pieces = PiecesAlong(array, bound.data[place].BatchAxis(), engine_);
    if (pieces.empty()) throw DataError(fmt::format("Forward: input \"{}\" is nothing", name));
    batch.device_data.Set(place++, std::move(pieces), array.host());
  });
  SyncParameters();
  bound.ran_forward = bound.ran_backward = false;
  if (training_) bound.group->SetStep({.step = contents_.steps});
  bound.group->Forward(std::move(batch), training_ ? Mode::kTrain : Mode::kPredict);
  bound.ran_forward = true;
  came_from_ = std::move(came_from);
  if (training_) {
    ++contents_.steps;
    bound.exchange->SetEqual();  // the states, which the group has merged
  }
  return Outputs(bound);
}

Values ReplicatedModule::Outputs(const Bound& bound) const {
  return bound.outputs.Map([&](int head) -> Array {
    if (head < 0) return {};
    const ValueType& type = bound.group->OutputType(head);
    const Array output = InPieces(type)
                             ? Array(std::move(bound.group->OutputsPerDevice(head, head + 1)[0]), type.batch_axis)
                             : Array(std::move(bound.group->Outputs(head, head + 1)[0]));
    return options_.output_device ? Array(output.Whole(options_.output_device)) : output;
  });
}

DeviceArrays ReplicatedModule::HeadGradients(const Bound& bound, const Values& gradients) const {
  CheckForm("Backward", "gradients of the outputs", bound.outputs.Form(), gradients.Form());
  std::vector<std::vector<Tensor>> by_head(bound.group->output_names().size());
  const std::vector<Array> arrays = gradients.Leaves();
  size_t leaf = 0;
  bound.outputs.ForEach([&](int head) {
    const Array& array = arrays[leaf++];
    if (head < 0) {
      if (array.empty()) return;
      throw DataError(
          fmt::format("Backward: output {} is empty, and so its gradient must be, got {}", leaf - 1, array.shape()));
    }
    const ValueType& type = bound.group->OutputType(head);
    by_head[static_cast<size_t>(head)] = PiecesAlong(array, InPieces(type) ? type.batch_axis : -1, engine_);
  });
  return by_head;
}

Values ReplicatedModule::InputGradients(const Values& gradients) {
  if (!bound_ || !bound_->ran_forward) Throw("Backward: nothing has run yet; call Forward first");
  SyncParameters();  // values that were changed since Forward are so on every replica
  const bool given = gradients.is_list() || !gradients.leaf().empty();
  if (given) {
    bound_->group->Backward(HeadGradients(*bound_, gradients));
  } else {
    bound_->group->Backward();
  }
  bound_->ran_backward = true;
  return TakeInputGradients(*bound_);
}

Values ReplicatedModule::TakeInputGradients(const Bound& bound) const {
  std::vector<Array> taken(bound.data.size());
  if (std::ranges::find(bound.has_gradient, true) != bound.has_gradient.end()) {
    std::vector<std::vector<Tensor>> pieces = bound.group->InputGradientsPerDevice();
    std::vector<Tensor> whole;  // when it is wanted
    size_t asked = 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!bound.has_gradient[i]) continue;
      const int axis = bound.data[i].BatchAxis();
      if (axis < 0 && whole.empty()) whole = bound.group->InputGradients();
      taken[i] = axis < 0 ? Array(whole[asked]) : Array(std::move(pieces[asked]), axis);
      ++asked;
    }
  }
  size_t leaf = 0, place = 0;
  return options_.inputs.Map([&](const DataDesc& desc) -> Array {
    const Device home = came_from_[leaf++];
    if (desc.name.empty()) return {};
    const Array& gradient = taken[place++];
    const bool moves = options_.output_device && !gradient.pieces().empty();
    return moves ? Array(gradient.Whole(home)) : gradient;
  });
}

void ReplicatedModule::AccumulateGradients(double scale) {
  if (!std::isfinite(scale)) Throw("AccumulateGradients: expected a scale that is finite, got {}", scale);
  if (!bound_ || !bound_->ran_backward) Throw("AccumulateGradients: call Backward or InputGradients first");
  bound_->exchange->Accumulate(scale);
}

Values ReplicatedModule::Backward(const Values& gradients, double scale) {
  if (!std::isfinite(scale)) Throw("Backward: expected a scale that is finite, got {}", scale);
  Values of_inputs = InputGradients(gradients);
  AccumulateGradients(scale);
  return of_inputs;
}

void ReplicatedModule::ZeroGradients() { Ready().exchange->ZeroGradients(); }

void ReplicatedModule::Update(double rate) {
  if (!std::isfinite(rate)) Throw("Update: expected a rate that is finite, got {}", rate);
  Ready().exchange->Update(rate);
}

void ReplicatedModule::Wait() { engine_->WaitAll(); }

int ReplicatedModule::SyncParameters() {
  const int copied = Ready().exchange->Sync();
  num_syncs_ += copied;
  return copied;
}

// --- replicas ---

void ReplicatedModule::RunOn(const std::vector<Device>& devices, size_t first,
                             const std::function<void(int, Device)>& run) const {
  if (!run) return;
  std::vector<VarPtr> done;
  for (size_t i = first; i < devices.size(); ++i) {
    done.push_back(engine_->NewVar());
    engine_->Push(
        {.name = fmt::format("function of replica {}", i),
         .device = devices[i],
         .writes = {done.back()},
         .run = [run, index = static_cast<int>(i), device = devices[i]](const OpContext&) { run(index, device); }});
  }
  std::exception_ptr error;
  for (const VarPtr& var : done) {
    try {
      engine_->Wait(var);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void ReplicatedModule::OnReplicas(const std::function<void(int replica, Device device)>& run) {
  if (options_.devices.empty()) Throw("the module has no replicas: call AddReplica(device) first");
  RunOn(options_.devices, 0, run);
}

ReplicatedModule& ReplicatedModule::AddReplica(Device device, const ReplicaOptions& replica) {
  ModuleOptions options = options_;
  const size_t before = options.devices.size();
  options.devices.push_back(device);
  if (options.workload.empty() && replica.workload != 1) options.workload.assign(before, 1.0);
  if (!options.workload.empty() || replica.workload != 1) options.workload.push_back(replica.workload);
  for (const auto& [name, place] : replica.placements) {
    std::vector<Device>& list = options.placements[name];
    if (list.size() == 1 && before > 1) list.resize(before, list[0]);  // one was for all
    list.resize(std::min(list.size(), before));
    list.push_back(place);
  }
  RunOn(options.devices, before, options.init);
  Rebind(std::move(options));
  return *this;
}

void ReplicatedModule::SetDevices(std::vector<Device> devices, std::optional<Device> output_device) {
  if (devices.empty()) Throw("SetDevices: a module needs at least one device");
  if (!options_.placements.empty()) Throw("SetDevices: the module's parts have devices of their own");
  ModuleOptions options = options_;
  if (devices.size() != options.devices.size()) options.workload.clear();
  options.devices = std::move(devices);
  options.output_device = output_device;
  RunOn(options.devices, 0, options.init);
  Rebind(std::move(options));
}

}  // namespace bindery
