#include "executor/executor.h"

#include <algorithm>

#include "base/names.h"

namespace bindery {

Executor::Executor(const Symbol& symbol, const ExecutorOptions& options) {
  GroupOptions group{.devices = {options.device},
                     .data = options.inputs,
                     .for_training = options.for_training,
                     .grad_req = options.grad_req,
                     .engine = options.engine,
                     .threads_per_device = options.threads,
                     .seed = options.seed,
                     .switches = options.switches};
  auto zeros = std::make_shared<Batch>();
  for (DataDesc& desc : group.data) {
    const Shape& first = group.data[0].shape;
    const bool batched = desc.shape.rank() > 0 && first.rank() > 0 && desc.shape[0] == first[0];
    if (desc.layout.empty() && !batched) desc.layout = std::string(static_cast<size_t>(desc.shape.rank()), '-');
    input_names_.push_back(desc.name);
    zeros->data.emplace_back(desc.dtype, desc.shape);
  }
  group_ = std::make_unique<DataParallelExecutorGroup>(symbol, group);
  batch_ = std::move(zeros);
  readers_ = std::make_shared<std::atomic<int>>(0);
}

size_t Executor::PlaceOf(const std::string& input) const {
  const auto found = std::find(input_names_.begin(), input_names_.end(), input);
  if (found == input_names_.end()) Throw("\"{}\" is not an input{}", input, NameHint(input, input_names_));
  return static_cast<size_t>(found - input_names_.begin());
}

Batch* Executor::Inputs(const std::vector<size_t>& set) {
  if (readers_->load(std::memory_order_acquire) > 0) {
    auto fresh = std::make_shared<Batch>(Batch{.device_data = batch_->device_data});
    for (size_t i = 0; i < batch_->data.size(); ++i) {
      const bool stays = std::ranges::find(set, i) == set.end();
      fresh->data.push_back(stays ? batch_->data[i] : HostTensor());
    }
    batch_ = std::move(fresh);
    readers_ = std::make_shared<std::atomic<int>>(0);
  }
  for (const size_t i : set)
    if (batch_->device_data.Find(i)) batch_->device_data.Set(i, {});
  return batch_.get();
}

void Executor::SetInput(const std::string& name, HostTensor value) {
  const size_t place = PlaceOf(name);
  Inputs({place})->data[place] = std::move(value);
}

void Executor::SetInput(const std::string& name, const Tensor& value) {
  const size_t place = PlaceOf(name);
  Inputs({place})->device_data.Set(place, {value});
}

void Executor::Forward(std::optional<Mode> mode) {
  readers_->fetch_add(1, std::memory_order_relaxed);
  group_->Forward(BatchPtr(batch_.get(), [batch = batch_, readers = readers_](
                                             const Batch*) { readers->fetch_sub(1, std::memory_order_release); }),
                  mode);
}

void Executor::Forward(const HostTensorMap& inputs, std::optional<Mode> mode) {
  std::vector<size_t> places;
  for (const auto& [name, value] : inputs) places.push_back(PlaceOf(name));  // none is set if one is unknown
  Batch* const batch = Inputs(places);
  size_t i = 0;
  for (const auto& [name, value] : inputs) batch->data[places[i++]] = value;
  Forward(mode);
}

HostTensor Executor::Output(int index) const {
  if (index < 0 || index >= static_cast<int>(group_->output_names().size())) {
    Throw("output {} of {}", index, group_->output_names().size());
  }
  return group_->Outputs(index, index + 1)[0].ToHost();
}

HostTensor Executor::Output(const std::string& name) const {
  const std::vector<std::string>& names = group_->output_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) Throw("there is no output \"{}\"{}", name, NameHint(name, names));
  return Output(static_cast<int>(found - names.begin()));
}

std::vector<HostTensor> Executor::Outputs() const {
  std::vector<HostTensor> outputs;
  for (const Tensor& output : group_->Outputs()) outputs.push_back(output.ToHost());
  return outputs;
}

HostTensor Executor::Gradient(const std::string& argument) const { return group_->GetGradient(argument, 0); }

}  // namespace bindery
