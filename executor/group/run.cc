// DataParallelExecutorGroup: forward and backward.
#include <algorithm>

#include "base/names.h"
#include "engine/kernels/flat.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/group/slice_copy.h"

namespace bindery {

void DataParallelExecutorGroup::ShapesOf(const Batch& batch, Mode mode, std::vector<Shape>* shapes) const {
  if (batch.data.size() != options_.data.size()) {
    throw DataError(
        fmt::format("the batch has {} data arrays, {} are described", batch.data.size(), options_.data.size()));
  }
  const bool with_labels = !options_.labels.empty() && !batch.label.empty();
  if (with_labels && batch.label.size() != options_.labels.size()) {
    throw DataError(
        fmt::format("the batch has {} label arrays, {} are described", batch.label.size(), options_.labels.size()));
  }
  if (mode == Mode::kTrain && !options_.labels.empty() && !with_labels)
    throw DataError("a training batch needs labels");
  if (mode == Mode::kTrain && options_.for_training && !unbound_labels_.empty()) {
    throw DataError(fmt::format("cannot train: the group is bound without labels; describe \"{}\" in its options",
                                *unbound_labels_.begin()));
  }
  std::optional<int64_t> rows;
  shapes->clear();
  for (size_t i = 0; i < batch.data.size() + (with_labels ? batch.label.size() : 0); ++i) {
    const DataDesc& desc = InputDesc(i);
    const Shape& shape = (i < batch.data.size() ? batch.data[i] : batch.label[i - batch.data.size()]).shape();
    if (shape.rank() != desc.shape.rank()) {
      throw DataError(
          fmt::format("\"{}\": expected {} axes as in {}, got {}", desc.name, desc.shape.rank(), desc.shape, shape));
    }
    const int axis = desc.BatchAxis();
    if (axis >= 0 && !rows) {
      rows = shape[axis];
      if (batch.pad < 0 || batch.pad >= *rows || (batch.samples > 0 && batch.samples != *rows - batch.pad)) {
        throw DataError(fmt::format("a batch of {} samples and {} rows of padding does not fit its data of {} rows",
                                    batch.samples, batch.pad, *rows));
      }
    }
    shapes->push_back(axis < 0 ? shape : shape.With(axis, std::max<int64_t>(0, shape[axis] - batch.pad)));
  }
  for (size_t i = shapes->size(); i < options_.data.size() + options_.labels.size(); ++i) {
    const DataDesc& desc = InputDesc(i);
    shapes->push_back(desc.BatchAxis() >= 0 && rows ? desc.shape.With(desc.BatchAxis(), *rows - batch.pad)
                                                    : desc.shape);
  }
}

int64_t DataParallelExecutorGroup::CheckBatch(const Batch& batch, Mode mode) const {
  std::vector<Shape> shapes;
  ShapesOf(batch, mode, &shapes);
  return SamplesOf(shapes).value_or(1);
}

void DataParallelExecutorGroup::Forward(Batch batch, std::optional<Mode> mode) {
  Forward(std::make_shared<const Batch>(std::move(batch)), mode);
}

void DataParallelExecutorGroup::Forward(const BatchPtr& batch, std::optional<Mode> wanted) {
  const Mode mode = wanted.value_or(options_.for_training ? Mode::kTrain : Mode::kPredict);
  ShapesOf(*batch, mode, &batch_shapes_);
  Bind(batch_shapes_, mode);
  Run({&batch, 1}, mode, false);
}

void DataParallelExecutorGroup::ForwardBackward(const BatchPtr& batch) {
  ShapesOf(*batch, Mode::kTrain, &batch_shapes_);
  Bind(batch_shapes_, Mode::kTrain);
  const std::vector<std::string>& wanted = current_->step->plan().head_gradients;
  const bool at_once = options_.for_training && !inputs_add_up_ &&
                       std::ranges::all_of(wanted, [](const std::string& name) { return name.empty(); });
  Run({&batch, 1}, Mode::kTrain, at_once);
  if (!at_once) Backward();
}

void DataParallelExecutorGroup::Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> wanted) {
  if (per_device.size() != devices().size())
    Throw("expected {} batches, one per device, got {}", devices().size(), per_device.size());
  if (per_device.size() == 1) return Forward(per_device[0], wanted);
  const Mode mode = wanted.value_or(options_.for_training ? Mode::kTrain : Mode::kPredict);
  std::vector<Shape> shapes, part;
  std::vector<SampleRange> ranges;
  int64_t samples = 0;
  for (const BatchPtr& batch : per_device) {
    ShapesOf(*batch, mode, &part);
    if (!options_.labels.empty() && batch->label.empty() != per_device[0]->label.empty()) {
      throw DataError("some devices' batches have labels and some have none");
    }
    const std::optional<int64_t> share = SamplesOf(part);
    if (!share) throw DataError("a batch per device needs an input with a batch axis");
    ranges.push_back({samples, samples + *share});
    samples += *share;
    if (shapes.empty()) shapes = part;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const int axis = InputDesc(i).BatchAxis();
      Shape whole = part[i];
      if (axis >= 0) {
        whole.Set(axis, samples);
        shapes[i].Set(axis, samples);
      }
      if (shapes[i] != whole) {
        throw DataError(fmt::format("\"{}\": the devices' batches have different shapes, {} and {}", InputDesc(i).name,
                                    shapes[i], part[i]));
      }
    }
  }
  Bind(shapes, mode, &ranges);
  Run(per_device, mode, false);
}

void DataParallelExecutorGroup::SetStep(const StepNumber& step) {
  step_ = step;
  predictions_ = 0;
}

void DataParallelExecutorGroup::Run(std::span<const BatchPtr> batches, Mode mode, bool with_backward) {
  const std::shared_ptr<StepInput> input = step_inputs_.Take();
  input->is_cut = batches.size() > 1;
  input->with_labels = !options_.labels.empty() && !batches[0]->label.empty();
  StepBlock& block = input->block;
  block = {.seed = options_.seed, .step = step_ ? step_->step : steps_};
  if (mode == Mode::kTrain) {
    if (step_) {
      block.micro_batch = step_->micro_batch;
    } else {
      ++steps_;
    }
    predictions_ = 0;
  } else {
    block.step += predictions_++;
    block.micro_batch = StepBlock::kPrediction;
  }
  block.batch_size = step_ && step_->batch_size > 0 ? step_->batch_size : current_->samples;
  input->shares.resize(devices().size());
  for (const GroupStep::Participant& p : current_->step->participants()) {
    const int d = p.replica->index();
    input->shares[d].batch = batches[input->is_cut ? d : 0];
  }
  const bool commits = !(step_ && step_->tentative);
  current_->step->Push(
      {.begins = commits || block.micro_batch == 0, .forward = true, .commits = commits, .backward = with_backward},
      input);
  ran_forward_ = true;
  ran_backward_ = with_backward;
}

const GroupStep& DataParallelExecutorGroup::Ran(const char* what) const {
  if (!ran_forward_) Throw("{}: nothing has run yet; call Forward first", what);
  return *current_->step;
}

void DataParallelExecutorGroup::Backward(const std::vector<HostTensor>& head_gradients) {
  if (head_gradients.size() != output_names_.size()) {
    Throw("Backward: expected {} head gradients, one per output, got {}", output_names_.size(), head_gradients.size());
  }
  std::vector<const HostTensor*> by_head;
  for (const HostTensor& gradient : head_gradients) by_head.push_back(&gradient);
  RunBackward(by_head);
}

void DataParallelExecutorGroup::Backward(const std::map<std::string, HostTensor>& head_gradients) {
  std::vector<const HostTensor*> by_head(output_names_.size(), nullptr);
  for (const auto& [name, gradient] : head_gradients) {
    const auto found = std::find(output_names_.begin(), output_names_.end(), name);
    if (found == output_names_.end()) Throw("Backward: \"{}\" is not an output{}", name, NameHint(name, output_names_));
    if (std::find(found + 1, output_names_.end(), name) != output_names_.end()) {
      Throw("Backward: several heads are named \"{}\": give the gradients by position", name);
    }
    by_head[static_cast<size_t>(found - output_names_.begin())] = &gradient;
  }
  RunBackward(by_head);
}

void DataParallelExecutorGroup::RunBackward(std::span<const HostTensor* const> head_gradients) {
  if (!options_.for_training) Throw("Backward: the group is bound for prediction; bind it with for_training = true");
  const GroupStep& step = Ran("Backward");
  if (current_->mode != Mode::kTrain) Throw("Backward: the last Forward was in prediction mode");
  if (ran_backward_) {
    Throw(
        "Backward: the values of the last Forward are used up; run Forward again (GradReq::kAdd adds up over several "
        "pairs of Forward and Backward)");
  }
  const Plan& plan = step.plan();
  std::vector<Shape> shapes;
  for (size_t i = 0; i < plan.head_gradients.size(); ++i) {
    if (plan.head_gradients[i].empty()) continue;
    if (shapes.empty()) shapes = OutputShapes();  // not where all heads are losses: a step allocates nothing
    if (head_gradients.empty() || !head_gradients[i]) {
      Throw("Backward: head \"{}\" is not a loss, so its gradient must be given (or make it a loss with MakeLoss)",
            output_names_[i]);
    }
    if (head_gradients[i]->shape() != shapes[i]) {
      Throw<ShapeError>("Backward: gradient of head \"{}\": expected {}, got {}", output_names_[i], shapes[i],
                        head_gradients[i]->shape());
    }
  }
  for (const GroupStep::Participant& p : step.participants()) p.replica->CheckFresh("Backward");

  for (size_t i = 0; i < plan.head_gradients.size(); ++i) {
    if (!plan.head_gradients[i].empty()) PushHeadGradient(static_cast<int>(i), *head_gradients[i]);
  }
  if (inputs_add_up_ && (added_up_.first != current_->shapes || added_up_.second != current_->ranges)) {
    for (const auto& replica : replicas_) replica->ZeroInputGradients();
    added_up_ = {current_->shapes, current_->ranges};
  }
  current_->step->Push({.backward = true});
  ran_backward_ = true;
}

void DataParallelExecutorGroup::PushHeadGradient(int head, const HostTensor& gradient) {
  ValueType whole = TypeOf(head);
  const int axis = whole.batch_axis;
  whole.shape = gradient.shape();
  const Shape view = axis < 0 ? whole.shape : whole.SampleView();
  const auto& participants = current_->step->participants();
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    const Tensor target = p.replica->Input(*p.bound, p.bound->plan().head_gradients[head]);
    const SampleRange range = current_->ranges[p.replica->index()];
    double weight = 1;  // of this device's value in the merged one
    if (axis < 0 && merge_rules_[head] == "mean")
      weight = static_cast<double>(range.size()) / static_cast<double>(current_->samples);
    if (axis < 0 && merge_rules_[head] == "first") weight = k == 0 ? 1 : 0;
    // The arrays of inputs have one variable, so the rest of it must be whole.
    if (weight == 0) {
      target.Fill(0);
      continue;
    }
    HostTensor share(target.dtype(), target.shape());
    CopySlice(gradient.dtype(), view, gradient.raw(), axis < 0 ? -1 : 1, range.begin, range.end, share.dtype(),
              share.raw());
    if (weight != 1) flat::Scale(share.dtype(), share.raw(), share.elements(), weight);
    target.CopyFrom(share);
  }
}

}  // namespace bindery
