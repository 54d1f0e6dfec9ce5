// DataParallelExecutorGroup: outputs, input gradients, metrics, watched values.
#include <algorithm>

#include "engine/kernels/flat.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/slice_copy.h"

namespace bindery {

int DataParallelExecutorGroup::CheckHeads(int begin, int end) const {
  const int heads = static_cast<int>(output_names_.size());
  if (end < 0) end = heads;
  if (begin < 0 || begin > end || end > heads) Throw("outputs {} to {} of {}", begin, end, heads);
  return end;
}

int DataParallelExecutorGroup::AxisOf(int head) const {
  const Plan& plan = current_->step->plan();
  return plan.values[plan.outputs[head].value].type.batch_axis;
}

std::vector<Shape> DataParallelExecutorGroup::OutputShapes() const {
  std::vector<Shape> shapes;
  const Plan& plan = current_->step->plan();
  for (const PlanOutput& output : plan.outputs) {
    const ValueType& type = plan.values[output.value].type;
    shapes.push_back(type.batch_axis < 0 ? type.shape : type.shape.With(type.batch_axis, current_->samples));
  }
  return shapes;
}

// Parts of the devices with samples, in order, to one tensor on the first device.
Tensor DataParallelExecutorGroup::Merge(const std::vector<Tensor>& parts, int axis, const std::string& rule) const {
  if (parts.size() == 1 || (axis < 0 && (rule.empty() || rule == "first"))) return parts[0];
  const Device device = parts[0].device();
  Shape shape = parts[0].shape();
  if (axis >= 0) shape.Set(axis, current_->samples);
  const Tensor merged(engine_, device, parts[0].dtype(), shape);
  Operation operation{
      .name = "merge", .device = device, .reads = {}, .writes = {merged.var()}, .updates = {}, .run = {}};
  for (const Tensor& part : parts) operation.reads.push_back(part.var());
  std::vector<SampleRange> ranges;
  for (const GroupStep::Participant& p : current_->step->participants())
    ranges.push_back(current_->ranges[p.replica->index()]);
  operation.run = [=, samples = current_->samples](const OpContext&) {
    if (axis >= 0) {
      for (size_t i = 0; i < parts.size(); ++i) {
        PasteSlice(merged.dtype(), merged.shape(), merged.data(), axis, ranges[i].begin, ranges[i].end,
                   parts[i].data());
      }
      return;
    }
    // sum, or mean weighted by samples
    for (const Tensor& part : parts) {
      if (rule != "mean") break;
      const auto i = static_cast<size_t>(&part - parts.data());
      flat::Scale(part.dtype(), part.data(), part.elements(),
                  static_cast<double>(ranges[i].size()) / static_cast<double>(samples));
    }
    std::vector<const void*> sources;
    for (const Tensor& part : parts) sources.push_back(part.data());
    flat::Sum(merged.dtype(), sources, merged.data(), merged.elements());
  };
  engine_->Push(std::move(operation));
  return merged;
}

std::vector<std::vector<Tensor>> DataParallelExecutorGroup::OutputsPerDevice(int begin, int end) const {
  const GroupStep& step = Ran("Outputs");
  end = CheckHeads(begin, end);
  std::vector<std::vector<Tensor>> outputs;
  for (int i = begin; i < end; ++i) {
    std::vector<Tensor>& parts = outputs.emplace_back();
    for (const GroupStep::Participant& p : step.participants()) parts.push_back(p.replica->CopyOutput(*p.bound, i));
  }
  return outputs;
}

std::vector<Tensor> DataParallelExecutorGroup::Outputs(int begin, int end) const {
  std::vector<Tensor> merged;
  for (const std::vector<Tensor>& parts : OutputsPerDevice(begin, end)) {
    const int head = begin + static_cast<int>(merged.size());
    merged.push_back(Merge(parts, AxisOf(head), merge_rules_[head]));
  }
  return merged;
}

std::vector<std::vector<Tensor>> DataParallelExecutorGroup::InputGradientsPerDevice() const {
  const GroupStep& step = Ran("InputGradients");
  if (!ran_backward_) Throw("InputGradients: call Backward first");
  std::vector<std::vector<Tensor>> gradients;
  for (const DataDesc& desc : options_.data) {
    if (grad_req_.at(desc.name) == GradReq::kNull) {
      if (options_.inputs_need_grad) continue;
      Throw("InputGradients: bind the group with inputs_need_grad = true (no gradient is asked for \"{}\")", desc.name);
    }
    std::vector<Tensor>& parts = gradients.emplace_back();
    for (const GroupStep::Participant& p : step.participants()) {
      const Tensor inside = p.replica->InputGradient(*p.bound, desc.name);
      const Tensor copy(engine_, inside.device(), inside.dtype(), inside.shape());
      copy.CopyFrom(inside);
      parts.push_back(copy);
    }
  }
  return gradients;
}

std::vector<Tensor> DataParallelExecutorGroup::InputGradients() const {
  std::vector<Tensor> merged;
  size_t i = 0;
  const std::vector<std::vector<Tensor>> parts = InputGradientsPerDevice();
  for (const DataDesc& desc : options_.data) {
    if (grad_req_.at(desc.name) == GradReq::kNull) continue;
    merged.push_back(
        Merge(parts[i++], desc.BatchAxis(), "sum"));  // what every device got whole collects all devices' gradients
  }
  return merged;
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const {
  const GroupStep& step = Ran("UpdateMetric");
  if (labels.size() != options_.labels.size())
    throw DataError(fmt::format("UpdateMetric: expected {} labels, got {}", options_.labels.size(), labels.size()));
  std::vector<std::vector<HostTensor>> per_device;
  for (const GroupStep::Participant& p : step.participants()) {
    const SampleRange range = current_->ranges[p.replica->index()];
    std::vector<HostTensor>& mine = per_device.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i) {
      const int axis = options_.labels[i].BatchAxis();
      mine.push_back(axis < 0 ? labels[i] : labels[i].Slice(axis, range.begin, range.end));
    }
  }
  Measure(metric, per_device);
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric,
                                             const std::vector<std::vector<HostTensor>>& pre_sliced) const {
  if (pre_sliced.size() != Ran("UpdateMetric").participants().size()) {
    throw DataError(fmt::format("UpdateMetric: expected the labels of {} devices, got {}",
                                current_->step->participants().size(), pre_sliced.size()));
  }
  Measure(metric, pre_sliced);
}

void DataParallelExecutorGroup::Measure(Metric* metric, const std::vector<std::vector<HostTensor>>& labels) const {
  const auto& participants = current_->step->participants();
  std::vector<MetricInputs> inputs(participants.size());
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    p.replica->CheckFresh("UpdateMetric");
    if (labels[k].size() != options_.labels.size()) {
      throw DataError(fmt::format("UpdateMetric: expected {} labels on {}, got {}", options_.labels.size(),
                                  p.replica->device(), labels[k].size()));
    }
    for (const PlanOutput& output : p.bound->plan().outputs) {
      const ValueType& type = p.bound->plan().values[output.value].type;
      inputs[k].outputs.emplace_back(output.name,
                                     ConstView{type.dtype, type.shape, p.bound->instance->AddressOf(output.value)});
    }
    for (size_t i = 0; i < labels[k].size(); ++i) {
      inputs[k].labels.emplace_back(options_.labels[i].name,
                                    ConstView{labels[k][i].dtype(), labels[k][i].shape(), labels[k][i].raw()});
    }
    inputs[k].samples = current_->ranges[p.replica->index()].size();
  }
  std::vector<std::vector<double>> partials(participants.size(),
                                            std::vector<double>(static_cast<size_t>(metric->partial_size()), 0.0));
  std::vector<VarPtr> done;
  std::vector<PreparedPtr> operations;
  for (size_t k = 0; k < participants.size(); ++k) {
    const Replica& replica = *participants[k].replica;
    done.push_back(engine_->NewVar());
    operations.push_back(engine_->Prepare({.name = "metric",
                                           .device = replica.device(),
                                           .reads = {replica.arena()->var()},
                                           .writes = {done.back()},
                                           .updates = {},
                                           .run = [mine = &inputs[k], metric, partial = &partials[k]](
                                                      const OpContext&) { metric->Accumulate(*mine, *partial); }}));
  }
  std::exception_ptr error;
  try {
    for (const PreparedPtr& operation : operations) engine_->Push(operation);
  } catch (...) {
    error = std::current_exception();  // what was pushed refers to what is here: wait for it all the same
  }
  for (const VarPtr& var : done) {
    try {
      engine_->Wait(var);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  for (const std::vector<double>& partial : partials) metric->Merge(partial);  // in device order
}

std::vector<DataParallelExecutorGroup::Watched> DataParallelExecutorGroup::WatchedValues() const {
  const GroupStep& step = Ran("WatchedValues");
  if (current_->mode == Mode::kTrain && options_.for_training && !ran_backward_)
    Throw("WatchedValues: call Backward first");
  std::vector<Watched> watched;
  for (const GroupStep::Participant& p : step.participants()) {
    p.replica->CheckFresh("WatchedValues");
    for (const PlanOutput& value : p.bound->plan().observed) {
      const ValueType& type = p.bound->plan().values[value.value].type;
      const Tensor inside(engine_, p.replica->device(), type.dtype, type.shape,
                          p.bound->instance->AddressOf(value.value), p.replica->arena(), p.replica->arena()->var());
      watched.push_back({p.replica->device(), value.name, inside.ToHost()});
    }
  }
  return watched;
}

}  // namespace bindery
