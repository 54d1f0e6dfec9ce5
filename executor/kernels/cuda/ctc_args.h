// What kernels of connectionist temporal classification are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_ctc[];

namespace bindery::cuda {

// CTCLossOp: data (steps, samples, classes), labels (samples, labels) -> loss (samples), or with dy its gradient. A block
// a sample, in double.
struct CTCArgs {
  static constexpr const char* kName = "bindery_ctc";
  static constexpr const unsigned long long* kImage = bindery_cuda_ctc;
  int64_t steps = 0, samples = 0, classes = 1, labels = 0;
  int64_t blank = 0;  // from 0 on
  int32_t zero_infinity = 0;
  Source dy = {}, data = {}, label = {}, data_lengths = {}, label_lengths = {};
  Target out = {};
  // Of each sample: the logarithm of each step's sum; the sums of paths to each state from the first step on, of two
  // steps or, for a gradient, of all; for one, those from the last step on, of two. And what states and classes are.
  double* sums = nullptr;
  int32_t* states = nullptr;
  FaultRing faults = {};
  void Addresses(const auto& visit) {
    VisitIn(visit, dy, data, label, data_lengths, label_lengths, out, sums, states, faults);
  }
  constexpr int64_t max_states() const { return 2 * labels + 1; }  // blank, label, blank ... blank
  constexpr int64_t sums_of_sample(bool gradient) const { return steps + (gradient ? steps + 2 : 2) * max_states(); }
  // Classes of states; the first state of the same class; the first state of each class, or -1; how many states and steps.
  constexpr int64_t states_of_sample() const { return 2 * max_states() + classes + 2; }
};

using CTCImage = std::tuple<CTCArgs>;

}  // namespace bindery::cuda
