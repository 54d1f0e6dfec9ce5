// DataParallelExecutorGroup: forward and backward.
#include <algorithm>

#include "base/names.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/slice_copy.h"

namespace bindery {
namespace {

// Rows of a batch without its padding; -1 if nothing is batched.
int64_t SamplesOf(const Batch& batch, const std::vector<DataDesc>& data) {
  for (size_t i = 0; i < data.size(); ++i) {
    const int axis = data[i].BatchAxis();
    if (axis >= 0 && axis < batch.data[i].shape().rank()) return batch.data[i].shape()[axis] - batch.pad;
  }
  return -1;
}

}  // namespace

void DataParallelExecutorGroup::ShapesOf(const Batch& batch, std::vector<Shape>* shapes) const {
  if (batch.data.size() != options_.data.size()) throw DataError(fmt::format("the batch has {} data arrays, {} are described", batch.data.size(), options_.data.size()));
  if (!batch.label.empty() && !options_.labels.empty() && batch.label.size() != options_.labels.size()) {
    throw DataError(fmt::format("the batch has {} label arrays, {} are described", batch.label.size(), options_.labels.size()));
  }
  const int64_t samples = SamplesOf(batch, options_.data);
  if (samples == 0 || samples < -1 || (batch.samples > 0 && samples >= 0 && batch.samples != samples)) {
    throw DataError(fmt::format("a batch of {} samples and {} rows of padding does not fit its data of {} rows", batch.samples, batch.pad, samples + batch.pad));
  }
  shapes->clear();
  const auto add = [&](const DataDesc& desc, Shape shape) {
    const int axis = desc.BatchAxis();
    if (shape.rank() != desc.shape.rank()) {
      throw DataError(fmt::format("\"{}\": expected {} axes as in {}, got {}", desc.name, desc.shape.rank(), desc.shape, shape));
    }
    if (axis >= 0) shape.Set(axis, shape[axis] - batch.pad);
    shapes->push_back(shape);
  };
  for (size_t i = 0; i < batch.data.size(); ++i) add(options_.data[i], batch.data[i].shape());
  for (size_t i = 0; i < options_.labels.size(); ++i) {
    const DataDesc& desc = options_.labels[i];
    if (!batch.label.empty()) {
      add(desc, batch.label[i].shape());
    } else {
      shapes->push_back(desc.BatchAxis() >= 0 && samples > 0 ? desc.shape.With(desc.BatchAxis(), samples) : desc.shape);
    }
  }
}

void DataParallelExecutorGroup::Forward(Batch batch, std::optional<Mode> mode) {
  Forward(std::make_shared<const Batch>(std::move(batch)), mode);
}

void DataParallelExecutorGroup::Forward(const BatchPtr& batch, std::optional<Mode> wanted) {
  const Mode mode = wanted.value_or(options_.for_training ? Mode::kTrain : Mode::kPredict);
  ShapesOf(*batch, &batch_shapes_);
  Bind(batch_shapes_, mode);
  Run({&batch, 1}, mode);
}

void DataParallelExecutorGroup::Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> wanted) {
  if (per_device.size() != devices().size()) Throw("expected {} batches, one per device, got {}", devices().size(), per_device.size());
  const Mode mode = wanted.value_or(options_.for_training ? Mode::kTrain : Mode::kPredict);
  std::vector<Shape> shapes;
  std::vector<SampleRange> ranges;
  int64_t samples = 0;
  for (const BatchPtr& batch : per_device) {
    const int64_t share = std::max<int64_t>(1, SamplesOf(*batch, options_.data));
    ranges.push_back({samples, samples + share});
    samples += share;
    std::vector<Shape> part;
    ShapesOf(*batch, &part);
    if (shapes.empty()) shapes = part;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const DataDesc& desc = i < options_.data.size() ? options_.data[i] : options_.labels[i - options_.data.size()];
      const int axis = desc.BatchAxis();
      Shape whole = part[i];
      if (axis >= 0) {
        whole.Set(axis, samples);
        shapes[i].Set(axis, samples);
      }
      if (shapes[i] != whole) throw DataError(fmt::format("\"{}\": the devices' batches have different shapes, {} and {}", desc.name, shapes[i], part[i]));
    }
  }
  Bind(shapes, mode, &ranges);
  Run(per_device, mode);
}

void DataParallelExecutorGroup::SetStep(const StepNumber& step) { step_ = step; }

void DataParallelExecutorGroup::Run(std::span<const BatchPtr> batches, Mode mode) {
  const bool with_labels = !options_.labels.empty() && !batches[0]->label.empty();
  if (mode == Mode::kTrain && !options_.labels.empty() && !with_labels) throw DataError("a training batch needs labels");
  StepBlock block{.seed = options_.seed};
  if (step_) {
    block.step = step_->step;
    block.micro_batch = step_->micro_batch;
  } else {
    block.step = steps_;
    if (mode == Mode::kTrain) ++steps_;
  }
  block.batch_size = step_ && step_->batch_size > 0 ? step_->batch_size : current_->samples;
  for (const GroupStep::Participant& p : current_->step->participants()) {
    const int d = p.replica->index();
    SampleRange range = current_->ranges[d];
    block.sample_offset = range.begin;
    if (batches.size() > 1) range = {0, range.size()};   // already cut
    p.replica->PushLoad(options_.data, options_.labels, batches[batches.size() > 1 ? d : 0], range.begin, range.end, with_labels, block);
  }
  current_->step->Forward();
  ran_forward_ = true;
  ran_backward_ = false;
}

const GroupStep& DataParallelExecutorGroup::Ran(const char* what) const {
  if (!ran_forward_) Throw("{}: nothing has run yet; call Forward first", what);
  return *current_->step;
}

void DataParallelExecutorGroup::Backward(const std::vector<HostTensor>& head_gradients) {
  if (head_gradients.size() != output_names_.size()) {
    Throw("Backward: expected {} head gradients, one per output, got {}", output_names_.size(), head_gradients.size());
  }
  std::map<std::string, HostTensor> by_name;
  for (size_t i = 0; i < head_gradients.size(); ++i) {
    if (!by_name.emplace(output_names_[i], head_gradients[i]).second) Throw("Backward: two heads are named \"{}\"", output_names_[i]);
  }
  Backward(by_name);
}

void DataParallelExecutorGroup::Backward(const std::map<std::string, HostTensor>& head_gradients) {
  if (!options_.for_training) Throw("Backward: the group is bound for prediction; bind it with for_training = true");
  const GroupStep& step = Ran("Backward");
  if (current_->mode != Mode::kTrain) Throw("Backward: the last Forward was in prediction mode");
  for (const auto& [name, gradient] : head_gradients) {
    if (std::find(output_names_.begin(), output_names_.end(), name) == output_names_.end()) {
      Throw("Backward: \"{}\" is not an output{}", name, NameHint(name, output_names_));
    }
  }
  const Plan& plan = step.plan();
  for (size_t i = 0; i < plan.head_gradients.size(); ++i) {
    if (plan.head_gradients[i].empty()) continue;
    const auto given = head_gradients.find(output_names_[i]);
    if (given == head_gradients.end()) {
      Throw("Backward: head \"{}\" is not a loss, so its gradient must be given (or make it a loss with MakeLoss)", output_names_[i]);
    }
    const auto gradient = std::make_shared<const HostTensor>(given->second);
    const int axis = AxisOf(static_cast<int>(i));
    const Shape expected = OutputShapes()[i];
    if (gradient->shape() != expected) {
      Throw<ShapeError>("Backward: gradient of head \"{}\": expected {}, got {}", output_names_[i], expected, gradient->shape());
    }
    for (const GroupStep::Participant& p : step.participants()) {
      const Tensor target = p.replica->Input(*p.bound, plan.head_gradients[i]);
      const SampleRange range = current_->ranges[p.replica->index()];
      engine_->Push({.name = "head gradient", .device = p.replica->device(), .reads = {target.var()}, .writes = {target.var()}, .updates = {},
                     .run = [=](const OpContext&) {
                       CopySlice(gradient->dtype(), gradient->shape(), gradient->raw(), axis, range.begin, range.end, target.dtype(), target.data());
                     }});
    }
  }
  for (const GroupStep::Participant& p : step.participants()) p.replica->CheckFresh("Backward");
  // Devices without samples contribute zero.
  for (size_t d = 0; d < replicas_.size(); ++d) {
    if (current_->ranges[d].size() > 0) continue;
    for (const StoredParameter& p : store_->parameters()) {
      const auto req = grad_req_.find(p.name);
      if (req != grad_req_.end() && req->second == GradReq::kWrite) store_->Gradient(p, static_cast<int>(d)).Fill(0);
    }
  }
  current_->step->Backward();
  ran_backward_ = true;
}

}  // namespace bindery
