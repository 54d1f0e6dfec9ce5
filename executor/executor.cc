#include "executor/executor.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/names.h"
#include "engine/backend.h"
#include "engine/team.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

int PlaceOf(const std::string& name, const std::vector<std::string>& names, const char* what) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) Throw("\"{}\" is not {}{}", name, what, NameHint(name, names));
  return static_cast<int>(found - names.begin());
}

// What is written must lie apart from everything else.
void CheckApart(const ExecutorOptions& options) {
  struct Given {
    const char *begin, *end;
    std::string what;
    bool is_written;
  };
  std::vector<Given> all;
  const auto add = [&](const char* role, const TensorMap& arrays, bool is_written) {
    for (const auto& [name, array] : arrays) {
      const char* const begin = static_cast<const char*>(array.address());
      if (array.bytes() == 0) continue;
      all.push_back({begin, begin + array.bytes(), fmt::format("{} \"{}\"", role, name), is_written});
    }
  };
  add("argument", options.arguments, false);
  add("gradient", options.gradients, true);
  add("state", options.auxiliary, true);
  std::ranges::stable_sort(all, {}, &Given::begin);
  const auto fail = [](const Given& written, const Given& other) {
    Throw("the arrays given for {} and {} overlap, and the first is written", written.what, other.what);
  };
  const Given *last = nullptr, *last_written = nullptr;  // to end, of those that begin before
  for (const Given& g : all) {
    if (last_written && g.begin < last_written->end) fail(*last_written, g);
    if (last && g.is_written && g.begin < last->end) fail(g, *last);
    if (!last || g.end > last->end) last = &g;
    if (g.is_written && (!last_written || g.end > last_written->end)) last_written = &g;
  }
}

void CheckType(const std::string& what, const Tensor& array, DType dtype, const Shape& shape) {
  if (array.dtype() == dtype && array.shape() == shape) return;
  Throw<ShapeError>("the array given for {}: expected {} {}, got {} {}", what, dtype, shape, array.dtype(),
                    array.shape());
}

}  // namespace

Executor::Executor(const Symbol& symbol, const ExecutorOptions& options, std::shared_ptr<Arena> arena)
    : symbol_(symbol), options_(options), engine_(options.engine ? options.engine : DefaultEngine()),
      signature_(Signature::Of(symbol)), arg_names_(signature_.ArgumentNames()),
      store_(std::make_shared<ParameterStore>(engine_, std::vector{options.device})) {
  Backend::Of(options_.device);  // throws unless it is there
  for (size_t i = 0; i < arg_names_.size(); ++i) positions_.emplace(arg_names_[i], static_cast<int>(i));
  options_.engine = engine_;
  if (options_.threads == 0) options_.threads = HostAddressable(options_.device) ? NumCores() : 1;
  DescribeInputs();
  ReadParamDTypes(options_.param_dtypes, &signature_);
  DescribeArrays(/*share_blocks=*/arena != nullptr);
  for (Argument& a : signature_.arguments) {
    is_input_.push_back(a.role != Role::kParameter);
    if (!is_input_.back()) param_names_.push_back(a.name);
    a.is_kept = !is_input_.back();
    a.role = Role::kParameter;  // all are alike from here on: arrays that the store holds
    a.format = Format::Plain();
  }
  executor_ =
      std::make_unique<DeviceExecutor>(engine_, store_, 0, arena ? arena : Arena::Make(options_.device, engine_));
  current_ = &For(mode());
  std::vector<DataDesc> inputs = options_.inputs;
  for (size_t i = 0; i < arg_names_.size(); ++i) {
    if (!is_input_[i] || std::ranges::count(inputs, arg_names_[i], &DataDesc::name) > 0) continue;
    const ValueType& type = plan().arguments[i].type;
    inputs.push_back({.name = arg_names_[i], .shape = type.shape, .dtype = type.dtype});
  }
  ranges_.emplace(symbol_, signature_, std::move(inputs), options_.for_training);
}

Executor::~Executor() = default;

int Executor::PositionOf(const std::string& argument) const {
  const auto found = positions_.find(argument);
  if (found == positions_.end()) Throw("\"{}\" is not an argument{}", argument, NameHint(argument, arg_names_));
  return found->second;
}

Argument& Executor::ArgumentOf(const std::string& name, const char* what) {
  const auto found = positions_.find(name);
  if (found == positions_.end()) {
    Throw("{} \"{}\" is not an argument of the symbol{}", what, name, NameHint(name, arg_names_));
  }
  return signature_.arguments[found->second];
}

void Executor::DescribeInputs() {
  const std::string* batched = nullptr;
  for (DataDesc& desc : options_.inputs) {
    Argument& a = ArgumentOf(desc.name, "input");
    if (a.role != Role::kParameter) Throw("\"{}\" is described twice", desc.name);
    const Shape& first = options_.inputs[0].shape;
    const bool like_first = desc.shape.rank() > 0 && first.rank() > 0 && desc.shape[0] == first[0];
    if (desc.layout.empty() && !like_first) desc.layout = std::string(static_cast<size_t>(desc.shape.rank()), '-');
    if (!desc.layout.empty() && static_cast<int>(desc.layout.size()) != desc.shape.rank()) {
      Throw<ShapeError>("input \"{}\": layout \"{}\" does not fit shape {}", desc.name, desc.layout, desc.shape);
    }
    const int axis = desc.BatchAxis();
    a = {.name = desc.name, .role = Role::kData, .shape = desc.shape, .dtype = desc.dtype, .batch_axis = axis};
    if (axis < 0) continue;
    if (batched && desc.shape[axis] != samples_) {
      Throw<ShapeError>("all inputs must have the same batch size: \"{}\" has {}, \"{}\" has {}", *batched, samples_,
                        desc.name, desc.shape[axis]);
    }
    batched = &desc.name;
    samples_ = desc.shape[axis];
    if (samples_ == 0) Throw<ShapeError>("a batch must have at least one sample");
  }
  for (const std::string& name : ListLabels(symbol_)) {
    Argument& a = ArgumentOf(name, "label");
    if (a.role != Role::kParameter) continue;
    a.role = Role::kLabel;
    a.batch_axis = 0;
  }
}

void Executor::DescribeArrays(bool share_blocks) {
  for (const auto* arrays : {&options_.arguments, &options_.gradients, &options_.auxiliary}) {
    for (const auto& [name, array] : *arrays) {
      std::string why;
      if (!array.defined()) {
        why = "is empty";
      } else if (array.engine() != engine_) {
        why = "belongs to another engine";
      } else if (array.device() != options_.device) {
        why = fmt::format("lies on {}, the executor is bound to {}", array.device(), options_.device);
      } else if (reinterpret_cast<uintptr_t>(array.address()) % 64 != 0) {  // as kernels are promised
        why = "must begin at a multiple of 64 bytes, as whole tensors do";
      }
      if (!why.empty()) Throw("the array given for \"{}\" {}", name, why);
    }
  }
  CheckApart(options_);
  for (const auto& [name, array] : options_.arguments) {
    Argument& a = ArgumentOf(name, "argument");
    if (a.shape) CheckType(fmt::format("\"{}\"", name), array, *a.dtype, *a.shape);
    if (a.dtype && *a.dtype != array.dtype()) {
      Throw("the array given for \"{}\" is {}, its type by param_dtypes {}", name, array.dtype(), *a.dtype);
    }
    a.shape = array.shape();
    a.dtype = array.dtype();
  }
  for (const auto& [name, array] : options_.auxiliary) PlaceOf(name, aux_names(), "an auxiliary state");
  if (options_.for_training) ReadGradRequests(options_.grad_req, /*inputs_need_grad=*/false, &signature_);
  for (const auto& [name, array] : options_.gradients) {
    Argument& a = ArgumentOf(name, "gradient");
    if (a.request == GradReq::kNull) a.request = GradReq::kWrite;
    if (!array.whole() && !share_blocks) {
      Throw("the array given for the gradient of \"{}\" is a part of another tensor, which backward would make whole",
            name);
    }
  }
}

// Before the store makes room for the rest. Inputs are tensors of their own, so that what fails to bring one of them
// harms nothing else.
void Executor::Hold(const Plan& plan) {
  const auto given = [](const TensorMap& arrays, const std::string& name) -> std::vector<Tensor> {
    const auto found = arrays.find(name);
    return found == arrays.end() ? std::vector<Tensor>() : std::vector<Tensor>{found->second};
  };
  for (const auto& [name, array] : options_.gradients) {
    const PlanArgument& a = plan.arguments[PositionOf(name)];
    CheckType(fmt::format("the gradient of \"{}\"", name), array, a.type.dtype, a.type.shape);
  }
  for (const PlanState& s : plan.auxiliary) {
    const std::vector<Tensor> array = given(options_.auxiliary, s.name);
    if (array.empty()) continue;
    CheckType(fmt::format("state \"{}\"", s.name), array[0], s.type.dtype, s.type.shape);
    store_->Hold(s.name, array, {}, /*auxiliary=*/true);
  }
  for (size_t i = 0; i < arg_names_.size(); ++i) {
    const std::string& name = arg_names_[i];
    std::vector<Tensor> array = given(options_.arguments, name), gradient = given(options_.gradients, name);
    if (array.empty() && gradient.empty() && !is_input_[i]) continue;
    const ValueType& type = plan.arguments[i].type;
    if (array.empty()) array.emplace_back(engine_, options_.device, type.dtype, type.shape);
    store_->Hold(name, array, gradient, /*auxiliary=*/false);
  }
}

Executor::Bound& Executor::For(Mode mode) {
  Bound& made = bound_[mode == Mode::kTrain];
  if (made.step) return made;
  const auto program = Compile(symbol_, {.signature = signature_,
                                         .mode = mode,
                                         .with_backward = options_.for_training && mode == Mode::kTrain,
                                         .device = options_.device.kind,
                                         .threads = options_.threads,
                                         .mirror = options_.mirror,
                                         .switches = options_.switches});
  if (store_->parameters().empty()) Hold(program->plan);
  store_->Adopt(program->plan);
  made.bound = executor_->Bind(program);
  made.step =
      std::make_unique<GroupStep>(engine_, *store_, std::vector<GroupStep::Participant>{{executor_.get(), made.bound}},
                                  std::vector<DeviceExecutor*>(), std::vector<SampleRange>{{0, samples_}});
  return made;
}

std::unique_ptr<Executor> Executor::Reshape(const std::vector<DataDesc>& inputs) const {
  ExecutorOptions options = options_;
  options.inputs = inputs;
  options.arguments.clear();
  options.gradients.clear();
  for (size_t i = 0; i < arg_names_.size(); ++i) {
    const std::string& name = arg_names_[i];
    const Tensor array = ArgumentArray(name);
    const auto desc = std::ranges::find(inputs, name, &DataDesc::name);
    const bool stays =
        desc == inputs.end() ? !is_input_[i] : desc->shape == array.shape() && desc->dtype == array.dtype();
    if (!stays) continue;
    options.arguments[name] = array;
    if (store_->Gradient(*store_->Find(name), 0).defined()) options.gradients[name] = GradientArray(name);
  }
  for (const std::string& name : aux_names()) options.auxiliary[name] = AuxiliaryArray(name);
  std::unique_ptr<Executor> reshaped(new Executor(symbol_, options, executor_->arena()));
  reshaped->steps_ = steps_;  // else each would draw once more what the other has drawn
  reshaped->steps_.End();
  return reshaped;
}

// --- running ---

void Executor::Forward(std::optional<Mode> wanted) {
  const Mode mode = wanted.value_or(this->mode());
  Bound& bound = For(mode);
  const std::shared_ptr<StepInput> input = step_inputs_.Take();
  input->block = steps_.Next(mode, samples_, options_.seed, false);
  input->shares.resize(1);  // with no batch: arrays are where they are
  bound.step->Load(input, {});
  bound.step->Push({.begins = true, .forward = true, .commits = true});
  current_ = &bound;
  mode_ = mode;
  ran_forward_ = true;
  ran_backward_ = false;
}

void Executor::Forward(const HostTensorMap& inputs, std::optional<Mode> mode) {
  for (const auto& [name, value] : inputs) ArrayToSet(name, value, mode.value_or(this->mode()));
  for (const auto& [name, value] : inputs) ArgumentArray(name).CopyFrom(value);
  Forward(mode);
}

void Executor::CheckRan(const char* what) const {
  if (!ran_forward_) Throw("{}: nothing has run yet; call Forward first", what);
  executor_->CheckFresh(what);
}

void Executor::Backward(const std::vector<Tensor>& gradients) {
  if (!options_.for_training) {
    Throw("Backward: the executor is bound for prediction; bind it with for_training = true");
  }
  CheckRan("Backward");
  if (mode_ != Mode::kTrain) Throw("Backward: the last Forward was in prediction mode");
  if (ran_backward_) {
    Throw(
        "Backward: the values of the last Forward are used up; run Forward again (GradReq::kAdd adds up over several "
        "pairs of Forward and Backward)");
  }
  const std::vector<int>& wanted = plan().head_gradients;
  if (!gradients.empty() && gradients.size() != wanted.size()) {
    Throw("Backward: expected {} head gradients, one per output, got {}", wanted.size(), gradients.size());
  }
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0) continue;
    if (gradients.empty() || !gradients[i].defined()) {
      Throw("Backward: head \"{}\" is not a loss, so its gradient must be given (or make it a loss with MakeLoss)",
            output_names()[i]);
    }
    if (gradients[i].engine() != engine_) {
      Throw("Backward: gradient of head \"{}\": the tensor belongs to another engine", output_names()[i]);
    }
    const Shape expected = OutputShape(static_cast<int>(i));
    if (gradients[i].shape() != expected) {
      Throw<ShapeError>("Backward: gradient of head \"{}\": expected {}, got {}", output_names()[i], expected,
                        gradients[i].shape());
    }
    copies.emplace_back(gradients[i], executor_->Input(*current_->bound, wanted[i]));
  }
  for (const auto& [from, to] : copies) to.CopyFrom(from);
  current_->step->Push({.backward = true});
  ran_backward_ = true;
}

void Executor::Backward(const HostTensorMap& head_gradients) {
  std::vector<Tensor> by_head(output_names().size());
  for (const auto& [name, gradient] : head_gradients) {
    by_head[PlaceOf(name, output_names(), "an output")] = OnHost(engine_, gradient)[0];
  }
  Backward(by_head);
}

void Executor::Backward(const HostTensor& head_gradient) { Backward(OnHost(engine_, head_gradient)); }

// --- arrays ---

Tensor Executor::ArgumentArray(const std::string& name) const {
  PositionOf(name);  // throws unless it is one
  const StoredParameter& p = *store_->Find(name);
  return store_->Value(p, 0).Reshape(p.shape);
}

Tensor Executor::GradientArray(const std::string& name) const {
  if (signature_.arguments[PositionOf(name)].request == GradReq::kNull) {
    Throw("\"{}\" has no gradient: its gradient request is null", name);
  }
  const StoredParameter& p = *store_->Find(name);
  const Tensor gradient = store_->Gradient(p, 0);
  if (!gradient.defined()) Throw("\"{}\" has no gradient: nothing computes with it", name);
  return gradient.Reshape(p.shape);
}

Tensor Executor::AuxiliaryArray(const std::string& name) const {
  PlaceOf(name, aux_names(), "an auxiliary state");
  const StoredParameter& p = *store_->Find(name);
  return store_->Value(p, 0).Reshape(p.shape);
}

Tensor Executor::OutputArray(int index) const {
  OutputShape(index);  // throws unless there is one
  CheckRan("outputs");
  return executor_->CopyOutput(*current_->bound, index);
}

Tensor Executor::ArrayToSet(const std::string& name, const Shape& value) const {
  const Tensor array = ArgumentArray(name);
  if (array.shape() == value) return array;
  Throw<ShapeError>("input \"{}\": expected {}, got {}; Reshape binds for other shapes", name, array.shape(), value);
}

Tensor Executor::ArrayToSet(const std::string& name, const HostTensor& value, Mode mode) {
  Tensor array = ArrayToSet(name, value.shape());
  ranges_->Check(name, value, samples_, mode);
  return array;
}

void Executor::SetInput(const std::string& name, const Tensor& value) {
  if (value.engine() != engine_) {
    Throw("input \"{}\": {}", name, value.defined() ? "the tensor belongs to another engine" : "an empty tensor");
  }
  ArrayToSet(name, value.shape()).CopyFrom(value);
}

void Executor::GetParams(HostTensorMap* args, HostTensorMap* aux) const {
  if (args) store_->GetParams(param_names_, args);
  if (aux) store_->GetParams(aux_names(), aux);
}

Shape Executor::OutputShape(int index) const {
  if (index < 0 || index >= static_cast<int>(output_names().size())) {
    Throw("output {} of {}", index, output_names().size());
  }
  return plan().values[plan().outputs[index].value].type.shape;
}

HostTensor Executor::Output(const std::string& name) const {
  return Output(PlaceOf(name, output_names(), "an output"));
}

MemoryReport Executor::memory() const {
  MemoryReport report = ReportMemory(plan());
  for (size_t i = 0; i < arg_names_.size(); ++i) {  // the plan calls all of them parameters
    if (!is_input_[i]) continue;
    const int64_t bytes = plan().arguments[i].bytes();
    report.parameters -= bytes;
    report.inputs += bytes;
  }
  return report;
}

std::vector<HostTensor> Executor::Outputs() const {
  std::vector<HostTensor> outputs;
  for (int i = 0; i < static_cast<int>(output_names().size()); ++i) outputs.push_back(Output(i));
  return outputs;
}

}  // namespace bindery
