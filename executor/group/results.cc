// DataParallelExecutorGroup: outputs, input gradients, metrics, watched values.
#include <algorithm>

#include "engine/backend.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/group/slice_copy.h"

namespace bindery {

int DataParallelExecutorGroup::CheckHeads(int begin, int end) const {
  const int heads = static_cast<int>(output_names_.size());
  if (end < 0) end = heads;
  if (begin < 0 || begin > end || end > heads) Throw("outputs {} to {} of {}", begin, end, heads);
  return end;
}

const ValueType& DataParallelExecutorGroup::TypeOf(int head) const {
  const Plan& plan = current_->step->plan();
  return plan.values[plan.outputs[head].value].type;
}

std::vector<Shape> DataParallelExecutorGroup::OutputShapes() const {
  std::vector<Shape> shapes;
  const Plan& plan = current_->step->plan();
  for (const PlanOutput& output : plan.outputs) {
    const ValueType& type = plan.values[output.value].type;
    const int64_t folded = type.batch_fold.outer * type.batch_fold.inner;
    shapes.push_back(type.batch_axis < 0 ? type.shape : type.shape.With(type.batch_axis, folded * current_->samples));
  }
  return shapes;
}

// Parts of the devices with samples, in order and private to the caller, to one tensor on the first device. `type`
// tells where their samples are.
Tensor DataParallelExecutorGroup::Merge(std::vector<Tensor> parts, ValueType type, const std::string& rule) const {
  const int axis = type.batch_axis;
  if (parts.size() == 1 || (axis < 0 && (rule.empty() || rule == "first"))) return parts[0];
  const Device device = parts[0].device();
  for (Tensor& part : parts) {
    if (ShareMemory(part.device(), device)) continue;
    const Tensor here(engine_, device, part.dtype(), part.shape());
    here.CopyFrom(part);
    part = here;
  }
  Shape shape = parts[0].shape();
  type.shape = shape;
  if (axis >= 0) shape.Set(axis, current_->samples * type.batch_fold.outer * type.batch_fold.inner);
  const Shape view = axis < 0 ? shape : type.SampleView().With(1, current_->samples);
  const Tensor merged(engine_, device, parts[0].dtype(), shape);
  Operation operation{
      .name = "merge", .device = device, .reads = {}, .writes = {merged.var()}, .updates = {}, .run = {}};
  for (const Tensor& part : parts) (rule == "mean" ? operation.updates : operation.reads).push_back(part.var());
  std::vector<SampleRange> ranges;
  for (const GroupStep::Participant& p : current_->step->participants())
    ranges.push_back(current_->ranges[p.replica->index()]);
  operation.run = [=, samples = current_->samples, &flat = Backend::Of(device.kind).flat()](const OpContext& context) {
    Stream& stream = context.stream;
    if (axis >= 0) {
      for (size_t i = 0; i < parts.size(); ++i) {
        PasteSlice(flat, stream, merged.dtype(), view, merged.address(), 1, ranges[i].begin, ranges[i].end,
                   parts[i].address());
      }
      return;
    }
    // sum, or mean weighted by samples
    std::vector<const void*> sources;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor& part = parts[i];
      if (rule == "mean") {
        flat.Scale(stream, part.dtype(), part.address(), part.elements(),
                   static_cast<double>(ranges[i].size()) / static_cast<double>(samples));
      }
      sources.push_back(part.address());
    }
    flat.Sum(stream, merged.dtype(), sources, merged.address(), merged.elements());
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
    merged.push_back(Merge(parts, TypeOf(head), merge_rules_[head]));
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
    merged.push_back(Merge(parts[i++], {.dtype = DType::kFloat32, .shape = {}, .batch_axis = desc.BatchAxis()}, "sum"));
  }
  return merged;
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const {
  Measure(metric, std::make_shared<Measurement>(Measurement{.metric = metric, .labels = &labels}));
}

void DataParallelExecutorGroup::UpdateMetric(Metric* metric,
                                             const std::vector<std::vector<HostTensor>>& pre_sliced) const {
  Measure(metric, std::make_shared<Measurement>(Measurement{.metric = metric, .cut_labels = &pre_sliced}));
}

void DataParallelExecutorGroup::Measure(Metric* metric, const std::shared_ptr<Measurement>& measurement) const {
  GroupMetric& operations = MetricOf(*measurement);
  const VarPtr done = engine_->NewVar();
  operations.Push(measurement, done);
  for (bool over = false; !over;) {
    try {
      engine_->Wait(done);
      over = true;
    } catch (const HangError&) {  // until the device is back: the metric and the labels are the caller's
    }
  }
  for (const std::vector<double>& partial : measurement->partials) metric->Merge(partial);  // in device order
}

void DataParallelExecutorGroup::PushMetric(const std::shared_ptr<Measurement>& measurement, const VarPtr& done) const {
  MetricOf(*measurement).Push(measurement, done);
}

GroupMetric& DataParallelExecutorGroup::MetricOf(const Measurement& m) const {
  const auto& participants = Ran("UpdateMetric").participants();
  const size_t expected = options_.labels.size();
  if (m.cut_labels && m.cut_labels->size() != participants.size()) {
    throw DataError(fmt::format("UpdateMetric: expected the labels of {} devices, got {}", participants.size(),
                                m.cut_labels->size()));
  }
  for (size_t k = 0; k < participants.size(); ++k) {
    participants[k].replica->CheckFresh("UpdateMetric");
    const size_t given = m.cut_labels ? (*m.cut_labels)[k].size() : m.labels->size();
    if (given != expected) {
      throw DataError(fmt::format("UpdateMetric: expected {} labels on {}, got {}", expected,
                                  participants[k].replica->device(), given));
    }
  }
  for (size_t i = 0; m.labels && i < expected; ++i) {
    const int axis = options_.labels[i].BatchAxis();
    const Shape& shape = (*m.labels)[i].shape();
    if (axis < 0) continue;
    if (axis >= shape.rank() || shape[axis] < current_->samples) {
      Throw<ShapeError>("UpdateMetric: label \"{}\" of shape {} has no {} samples along axis {}",
                        options_.labels[i].name, shape, current_->samples, axis);
    }
  }
  if (!current_->metric) {
    current_->metric = std::make_unique<GroupMetric>(engine_, participants, options_.labels, current_->ranges);
  }
  return *current_->metric;
}

std::vector<DataParallelExecutorGroup::Watched> DataParallelExecutorGroup::WatchedValues() const {
  const GroupStep& step = Ran("WatchedValues");
  if (current_->mode == Mode::kTrain && options_.for_training && !ran_backward_)
    Throw("WatchedValues: call Backward first");
  std::vector<Watched> watched;
  for (const GroupStep::Participant& p : step.participants()) {
    p.replica->CheckFresh("WatchedValues");
    for (const PlanOutput& value : p.bound->plan().observed) {
      watched.push_back({p.replica->device(), value.name, p.replica->Value(*p.bound, value.value).ToHost()});
    }
  }
  return watched;
}

}  // namespace bindery
