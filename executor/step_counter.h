// StepCounter: gives each run the numbers that random operators and divisors read (StepBlock). Counts by itself, unless
// a trainer says which step it is. Copies count together, so that no two of them draw the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "executor/kernel.h"
#include "executor/step_block.h"

namespace bindery {

// What random numbers and divisors depend on, besides the batch. Set by a trainer; otherwise the step counts by itself.
struct StepNumber {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  int64_t batch_size = 0;  // samples of the whole step; 0: of this batch
  double loss_scale = 1;   // factor of its gradients, where losses are scaled (ScaleLosses)
  StepRates rates = {};    // of its update
  // Auxiliary states are not committed with the forward that moves them; micro-batches after the first see them moved.
  // Whoever makes the step commits it (AppendPublish).
  bool tentative = false;
  bool checked = false;  // whoever runs batches has looked at their values (ExecutorGroup::CheckBatch)
  // Not the first run of the step. Unset, a run by hand: so where gradients are added to those of the runs before.
  std::optional<bool> continues = {};
};

class StepCounter {
 public:
  void Set(const StepNumber& step) {
    step_ = step;
    count_->predictions = 0;
    if (!step.continues.value_or(true)) begun_ = false;
  }
  // What was run has been applied: the next run begins a step, also where nobody sets it.
  void End() { begun_ = false; }
  bool tentative() const { return step_ && step_->tentative; }
  bool checked() const { return step_ && step_->checked; }

  // Of the next run, of a batch of `samples`; `adds_up`: its gradients are added to those of the runs before.
  StepBlock Next(Mode mode, int64_t samples, uint64_t seed, bool adds_up) {
    StepBlock block{.seed = seed, .step = step_ ? step_->step : count_->steps};
    if (mode == Mode::kTrain) {
      if (step_) {
        block.micro_batch = step_->micro_batch;
      } else {
        ++count_->steps;
      }
      count_->predictions = 0;
    } else {
      block.step += count_->predictions++;
      block.micro_batch = StepBlock::kPrediction;
    }
    block.batch_size = step_ && step_->batch_size > 0 ? step_->batch_size : samples;
    if (step_) block.loss_scale = step_->loss_scale;
    if (step_) block.rates = step_->rates;
    const std::optional<bool> says = step_ ? step_->continues : std::nullopt;
    const bool continues = mode == Mode::kPredict || says.value_or(adds_up);
    block.continues = begun_ && continues ? 1 : 0;
    begun_ |= mode == Mode::kTrain;
    return block;
  }

 private:
  struct Count {
    uint64_t steps = 0;        // training forwards so far, where nobody sets the step
    uint64_t predictions = 0;  // since the last step
  };
  std::optional<StepNumber> step_;
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  bool begun_ = false;  // the step has had a run
};

}  // namespace bindery
