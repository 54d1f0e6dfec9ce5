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
  ForwardBackward({&batch, 1}, samples, {});
}

int64_t Updater::Compute(std::span<const BatchPtr> micro_batches, const std::function<void(size_t)>& measure) {
  const int64_t samples = CheckMicroBatches(micro_batches);
  if (adds_up_) group_->ZeroGradients();
  ForwardBackward(micro_batches, samples, measure);
  return samples;
}

int64_t Updater::CheckMicroBatches(std::span<const BatchPtr> micro_batches) const {
  if (micro_batches.empty()) Throw("Update: no batches");
  if (micro_batches.size() > StepBlock::kPrediction) {
    Throw("Update: a step has at most {} micro-batches, got {}", StepBlock::kPrediction, micro_batches.size());
  }
  for (size_t i = 0; micro_batches.size() > 1 && i < group_->param_names().size(); ++i) {
    if (group_->grad_req(group_->param_names()[i]) == GradReq::kWrite)
      Throw("micro-batches add up: bind the group with grad_req = GradReq::kAdd");
  }
  int64_t samples = 0;
  for (const BatchPtr& batch : micro_batches) samples += group_->CheckBatch(*batch, Mode::kTrain);
  return samples;
}

// Whoever writes a variable anew takes an error from it. So each micro-batch's is kept beside it, and put back at the
// end.
void Updater::PrepareKeptGate() {
  if (kept_gate_.kept) return;
  Engine& engine = *group_->engine();
  const VarPtr kept = engine.NewVar();
  const auto prepare = [&](const char* name, std::vector<VarPtr> reads, const VarPtr& writes) {
    return engine.Prepare(
        {.name = name, .device = Cpu(), .reads = std::move(reads), .writes = {writes}, .run = [](const OpContext&) {}});
  };
  kept_gate_ = {.kept = kept,
                .begin = prepare("begin of micro-batches", {}, kept),
                .keep = prepare("micro-batch", {gate_, kept}, kept),
                .end = prepare("end of micro-batches", {kept}, gate_)};
}

void Updater::ForwardBackward(std::span<const BatchPtr> micro_batches, int64_t samples,
                              const std::function<void(size_t)>& measure) {
  const auto step = static_cast<uint64_t>(run_->step);
  struct Leave {  // what runs by other hands is no part of a step, whatever is thrown here
    ExecutorGroup* group;
    uint64_t step;
    ~Leave() { group->SetStep({.step = step}); }
  } leave{group_, step};
  const StepRates rates = RatesOf(run_->step + 1, samples);
  const bool keeps = measure && micro_batches.size() > 1;
  if (keeps) PrepareKeptGate();
  Engine& engine = *group_->engine();
  if (keeps) engine.Push(kept_gate_.begin);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    group_->SetStep({.step = step,
                     .micro_batch = static_cast<uint32_t>(i),
                     .batch_size = samples,
                     .loss_scale = run_->loss_scale.scale,
                     .rates = rates,
                     .tentative = true});
    group_->ForwardBackward(micro_batches[i]);
    if (measure) measure(i);
    if (keeps) engine.Push(kept_gate_.keep);
  }
  if (keeps) engine.Push(kept_gate_.end);
}

void Updater::Update(const BatchPtr& batch) {
  FinishLast();
  Forgive();
  Compute(batch);
  Apply(group_->batch_size());
}

void Updater::Update(std::span<const BatchPtr> micro_batches) {
  const int64_t samples = CheckMicroBatches(micro_batches);
  FinishLast();
  Forgive();
  if (adds_up_) group_->ZeroGradients();
  ForwardBackward(micro_batches, samples, {});
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
