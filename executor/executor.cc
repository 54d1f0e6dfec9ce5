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
                     .policy = options.policy,
                     .passes = options.passes,
                     .fusion = options.fusion,
                     .inplace = options.inplace,
                     .reuse_memory = options.reuse_memory};
  Batch zeros;
  for (DataDesc& desc : group.data) {
    const Shape& first = group.data[0].shape;
    const bool batched = desc.shape.rank() > 0 && first.rank() > 0 && desc.shape[0] == first[0];
    if (desc.layout.empty() && !batched) desc.layout = std::string(static_cast<size_t>(desc.shape.rank()), '-');
    input_names_.push_back(desc.name);
    zeros.data.emplace_back(desc.dtype, desc.shape);
  }
  group_ = std::make_unique<DataParallelExecutorGroup>(symbol, group);
  batch_ = std::make_shared<const Batch>(std::move(zeros));
}

void Executor::SetInput(const std::string& name, HostTensor value) {
  const auto found = std::find(input_names_.begin(), input_names_.end(), name);
  if (found == input_names_.end()) Throw("\"{}\" is not an input{}", name, NameHint(name, input_names_));
  Batch changed = *batch_;
  changed.data[static_cast<size_t>(found - input_names_.begin())] = std::move(value);
  batch_ = std::make_shared<const Batch>(std::move(changed));
}

void Executor::Forward(std::optional<Mode> mode) { group_->Forward(batch_, mode); }

void Executor::Forward(const HostTensorMap& inputs, std::optional<Mode> mode) {
  for (const auto& [name, value] : inputs) SetInput(name, value);
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
