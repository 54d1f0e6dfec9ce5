// Updater: what is pushed for a step, batch by batch.
#include "train/updater/rows.h"
#include "train/updater/updater.h"

namespace bindery {

StepRates Updater::RatesOf(int64_t step, int64_t samples) const {
  const double automatic = divide_by_samples_ ? 1.0 / static_cast<double>(samples) : 1.0;
  return {.learning_rate = LearningRateOf(step),
          .rescale = optimizer_->options().rescale_gradient.value_or(automatic) / run_->loss_scale.scale,
          .step = step};
}

void Updater::Compute(const BatchPtr& batch) {
  const int64_t samples = group_->CheckBatch(*batch, Mode::kTrain);
  if (adds_up_) group_->ZeroGradients();
  Compute({&batch, 1}, samples);
}

void Updater::Compute(std::span<const BatchPtr> micro_batches, int64_t samples) {
  const auto step = static_cast<uint64_t>(run_->step);
  struct Leave {  // what runs by other hands is no part of a step, whatever is thrown here
    ExecutorGroup* group;
    uint64_t step;
    ~Leave() { group->SetStep({.step = step}); }
  } leave{group_, step};
  const StepRates rates = RatesOf(run_->step + 1, samples);
  uint32_t number = 0;
  for (const BatchPtr& batch : micro_batches) {
    group_->SetStep({.step = step,
                     .micro_batch = number++,
                     .batch_size = samples,
                     .loss_scale = run_->loss_scale.scale,
                     .rates = rates,
                     .tentative = true});
    group_->ForwardBackward(batch);
  }
}

void Updater::Update(const BatchPtr& batch) {
  FinishLast();
  Forgive();
  Compute(batch);
  Apply(group_->batch_size());
}

void Updater::Update(std::span<const BatchPtr> micro_batches) {
  if (micro_batches.empty()) Throw("Update: no batches");
  if (micro_batches.size() > StepBlock::kPrediction) {
    Throw("Update: a step has at most {} micro-batches, got {}", StepBlock::kPrediction, micro_batches.size());
  }
  for (const std::string& name : group_->param_names()) {
    if (group_->grad_req(name) == GradReq::kWrite)
      Throw("micro-batches add up: bind the group with grad_req = GradReq::kAdd");
  }
  int64_t samples = 0;
  for (const BatchPtr& batch : micro_batches) samples += group_->CheckBatch(*batch, Mode::kTrain);
  FinishLast();
  Forgive();
  group_->ZeroGradients();
  Compute(micro_batches, samples);
  Apply(samples);
}

void Updater::Apply(int64_t samples) {
  if (samples < 1) Throw("Apply: gradients are of at least 1 sample, got {}", samples);
  ++run_->step;
  if (!blocks_.empty()) {
    group_->SetRates(RatesOf(run_->step, samples));
    update_.Push();
  }
  commit_[run_->step % kInFlight].Push();
  run_->scale_before[run_->step % kInFlight] = run_->loss_scale;
  if (loss_scaling_) run_->loss_scale = AfterCommit(*loss_scaling_, run_->loss_scale);  // else Finish goes back
}

void Updater::Verdict::Reach() {
  for (const Tensor& tensor : statuses) {
    const StepStatus& status = *static_cast<const StepStatus*>(tensor.data());
    if (status.kind != StepStatus::kNotFinite) continue;
    overflowed = true;
    ThrowNotFinite(names[static_cast<size_t>(status.place)], status.element, status.value);
  }
  ++committed;
}

}  // namespace bindery
