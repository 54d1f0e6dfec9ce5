// StepBlock: the values that change from step to step, in device memory, read by kernels when they run and never
// captured by value, so that a program, and a GPU graph captured of it, is the same for every step. This is the half
// that the host writes, at the head of a step, by one copy, but for what a kernel says in it; the other, which the
// device owns, is StepTally (engine/kernels/update.h).
#pragma once

#include <cstdint>

#include "engine/kernels/update.h"

namespace bindery {

struct StepBlock {
  static constexpr uint32_t kPrediction = 0x8000;  // outside the numbers of micro-batches: predictions draw their own

  uint64_t seed = 0;          // of the run
  uint64_t step = 0;          // steps done before this one
  uint32_t micro_batch = 0;   // within the step; kPrediction: no training
  uint32_t continues = 0;     // 1: what comes before it is of the same step, and `refusal` stays
  int64_t sample_offset = 0;  // global index, within the micro-batch, of this shard's first sample
  int64_t batch_size = 1;     // samples of the whole step, on all devices: the divisor of `batch` normalisation
  double loss_scale = 1;      // of what ScaleLoss scales (symbol/ops/loss.h)
  StepRates rates = {};       // of whoever updates: programs do not look at them
  Refusal refusal = {};       // last; by a GPU's kernel that found data it cannot work on
};

}  // namespace bindery
