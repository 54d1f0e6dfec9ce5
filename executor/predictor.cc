#include "executor/predictor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "engine/backend.h"
#include "engine/team.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

bool IsIn(const std::string& name, const std::vector<std::string>& names) {
  return std::ranges::find(names, name) != names.end();
}

// Of the inputs those in `names`, in their order.
GroupOptions OptionsOf(const PredictorOptions& options, const std::vector<std::string>& names,
                       std::shared_ptr<const GroupWeights> weights) {
  std::vector<DataDesc> inputs = options.inputs;
  std::erase_if(inputs, [&](const DataDesc& desc) { return !IsIn(desc.name, names); });
  return {.devices = {options.device},
          .data = std::move(inputs),
          .for_training = false,
          .weights = std::move(weights),
          .engine = MakeInlineEngine(),
          .threads_per_device = options.threads,
          .switches = options.switches,
          .program_bytes = options.program_bytes};
}

}  // namespace

// One of the groups, made if all are busy and there may be more; it goes back at the end.
class Predictor::Turn {
 public:
  explicit Turn(const Predictor& predictor) : predictor_(predictor) {
    std::unique_lock lock(predictor_.mutex_);
    predictor_.freed_.wait(lock,
                           [&] { return !predictor_.idle_.empty() || predictor_.made_ < predictor_.options_.calls; });
    if (!predictor_.idle_.empty()) {
      group_ = std::move(predictor_.idle_.back());
      predictor_.idle_.pop_back();
      return;
    }
    ++predictor_.made_;
    lock.unlock();
    try {
      group_ = std::make_unique<Group>(predictor_.symbol_,
                                       OptionsOf(predictor_.options_, predictor_.input_names_, predictor_.weights_));
    } catch (...) {
      lock.lock();
      --predictor_.made_;
      predictor_.freed_.notify_one();
      throw;
    }
  }
  ~Turn() {
    {
      const std::lock_guard lock(predictor_.mutex_);
      predictor_.idle_.push_back(std::move(group_));
    }
    predictor_.freed_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Group* group() const { return group_.get(); }

 private:
  const Predictor& predictor_;
  std::unique_ptr<Group> group_;
};

Predictor::Predictor(const Model& model, const PredictorOptions& options) : options_(options) {
  const bool is_cpu = HostAddressable(options_.device);
  if (options_.calls < 0 || options_.threads < 0) {
    Throw("a predictor for {} calls of {} threads: expected 0 or more", options_.calls, options_.threads);
  }
  if (options_.calls == 0) options_.calls = is_cpu ? NumCores() : 1;
  if (options_.threads == 0) options_.threads = std::max(1, NumCores() / options_.calls);
  const std::vector<std::string> before = model.symbol.ListArguments();
  for (const DataDesc& desc : options_.inputs) {  // one that is misspelled, before what then has no value
    if (!IsIn(desc.name, before)) {
      Throw("data \"{}\" is not an argument of the symbol{}", desc.name, NameHint(desc.name, before));
    }
    input_names_.push_back(desc.name);
  }
  const auto is_given = [&](const std::string& name) {
    return model.params.contains(name) || model.aux.contains(name) ||
           std::ranges::find(input_names_, name) != input_names_.end();
  };
  symbol_ = WithoutTargets(model.symbol, is_given);
  const auto labels = ListLabels(symbol_);  // need not be given: heads predict without them
  for (const std::string& name : symbol_.ListArguments()) {
    if (is_given(name) || labels.contains(name)) continue;
    const auto trained = TrainedInputs(model);
    const auto hint = trained.find(name);
    Throw("\"{}\" has no value in the model: describe it in the options, as an input, with its largest shape{}", name,
          hint == trained.end() ? "" : fmt::format("; it was trained on {}", hint->second.shape));
  }
  // Inputs of what was cut off alone are taken, too, and left where they are.
  const std::vector<std::string> now = symbol_.ListArguments();
  std::erase_if(input_names_, [&](const std::string& name) { return IsIn(name, before) && !IsIn(name, now); });
  auto first = std::make_unique<Group>(symbol_, OptionsOf(options_, input_names_, nullptr));
  // All arguments have values or come with calls: others are of what was cut off.
  first->SetParams(model.params, model.aux, {.allow_extra = true});
  weights_ = first->Weights();
  output_names_ = first->output_names();
  memory_ = first->memory();
  first = nullptr;  // it would derive values of the weights for itself; the others share them
  idle_.reserve(static_cast<size_t>(options_.calls));  // so that giving back never throws
  idle_.push_back(std::make_unique<Group>(symbol_, OptionsOf(options_, input_names_, weights_)));
  made_ = 1;
}

template <class Map>
void Predictor::CheckInputs(const Map& inputs) const {
  for (const auto& [name, value] : inputs) {
    if (std::ranges::find(options_.inputs, name, &DataDesc::name) != options_.inputs.end()) continue;
    throw DataError(fmt::format("\"{}\" is not an input{}", name, NameHint(name, input_names_)));
  }
  for (const DataDesc& desc : options_.inputs) {
    if (!IsIn(desc.name, input_names_)) continue;
    const auto found = inputs.find(desc.name);
    if (found == inputs.end()) throw DataError(fmt::format("input \"{}\" is missing", desc.name));
    const Shape& shape = found->second.shape();
    const int axis_of_samples = desc.BatchAxis();  // others may have no extent, as a cache at the first step
    if (axis_of_samples >= 0 && axis_of_samples < shape.rank() && shape[axis_of_samples] == 0) {
      throw DataError(fmt::format("input \"{}\" {} is empty", desc.name, shape));
    }
    bool fits = shape.rank() == desc.shape.rank();
    for (int axis = 0; fits && axis < shape.rank(); ++axis) fits = shape[axis] <= desc.shape[axis];
    if (fits) continue;
    throw DataError(fmt::format("input \"{}\": expected at most {} (PredictorOptions::inputs), got {}", desc.name,
                                desc.shape, shape));
  }
}

template <class Map>
std::vector<Tensor> Predictor::Run(Group* group, Batch batch, const Map& inputs) const {
  try {
    group->Forward(std::move(batch), Mode::kPredict);
  } catch (const ShapeError& e) {
    std::string given;
    for (const auto& [name, value] : inputs) {
      given += fmt::format("{}\"{}\" {}", given.empty() ? "" : ", ", name, value.shape());
    }
    Throw<ShapeError>("the model does not take {}: {}", given, e.message());
  }
  std::vector<Tensor> outputs = group->Outputs();
  for (const Tensor& output : outputs) output.Wait();
  return outputs;
}

std::vector<HostTensor> Predictor::Predict(const HostTensorMap& inputs) const {
  CheckInputs(inputs);
  Batch batch;
  for (const std::string& name : input_names_) batch.data.push_back(inputs.at(name));
  const Turn turn(*this);
  const TeamScope team(options_.threads);  // the engine works in this thread: for what it copies, in and out
  std::vector<HostTensor> outputs;
  for (const Tensor& output : Run(turn.group(), std::move(batch), inputs)) outputs.push_back(output.ToHost());
  return outputs;
}

std::vector<Tensor> Predictor::Predict(const TensorMap& inputs) const {
  for (const auto& [name, value] : inputs) {
    if (!value.defined()) throw DataError(fmt::format("input \"{}\" is an empty tensor", name));
    value.Wait();
  }
  CheckInputs(inputs);
  const Turn turn(*this);
  const TeamScope team(options_.threads);
  Batch batch;
  for (const std::string& name : input_names_) {
    batch.device_data.Set(batch.device_data.size(), {inputs.at(name).For(turn.group()->engine())});
  }
  std::vector<Tensor> outputs;
  for (const Tensor& output : Run(turn.group(), std::move(batch), inputs)) {
    outputs.push_back(output.For(inputs.begin()->second.engine()));
  }
  return outputs;
}

}  // namespace bindery
