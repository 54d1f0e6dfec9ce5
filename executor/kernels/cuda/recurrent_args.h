// What kernels of recurrent layers are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_recurrent[];

namespace bindery::cuda {

// A recurrent layer in one direction (symbol/ops/recurrent.h).
struct RecurrentShape {
  int64_t steps = 0, samples = 0, hidden = 0, gates = 1, saved = 1;
  int64_t next_step = 0, next_sample = 0;
  int64_t place[4] = {}, peephole_place[3] = {};
  int32_t lstm = 0, gru = 0, tanh = 0;
  int32_t reverse = 0, reset_after = 1, coupled = 0;
  double clip = 0;
};

// One block per sample, step by step; `scratch` is 4 hidden numbers of each. A sample whose length cannot be has NaN in
// all outputs.
struct RecurrentArgs {
  static constexpr const char* kName = "bindery_recurrent";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentShape shape = {};
  Source data = {}, weight = {}, bias = {}, peephole = {}, state = {}, cell = {}, lengths = {};
  Target y = {}, last = {}, last_cell = {}, previous = {}, saved = {}, previous_cell = {};
  void* scratch = nullptr;
  FaultRing faults = {};
  void Addresses(const auto& visit) {
    VisitIn(visit, data, weight, bias, peephole, state, cell, lengths, y, last, last_cell, previous, saved,
            previous_cell, scratch, faults);
  }
};

// `scratch` is 3 hidden and gates hidden numbers of each sample. It reports nothing: forward has read the same lengths.
struct RecurrentGradArgs {
  static constexpr const char* kName = "bindery_recurrent_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentShape shape = {};
  Source dy = {}, d_last = {}, d_last_cell = {}, weight = {}, peephole = {}, lengths = {};
  Source previous = {}, saved = {}, previous_cell = {};
  Target dx = {}, d_state = {}, d_cell = {}, d_product = {};
  void* scratch = nullptr;
  void Addresses(const auto& visit) {
    VisitIn(visit, dy, d_last, d_last_cell, weight, peephole, lengths, previous, saved, previous_cell, dx, d_state,
            d_cell, d_product, scratch);
  }
};

// What is done between products by weights, of all samples: before the first step; between the two products of a GRU
// whose reset gate comes before the second; in a step, when its products are there; behind the last.
enum class RecurrentPhase : int32_t { kBegin, kReset, kStep, kEnd };

// One step. Forward has no kEnd: the last step does it. All numbers are of the type that is computed with: `products` of
// states by weights (samples, gates hidden), `left` by the reset gate, and states, (samples, hidden).
struct RecurrentStepArgs {
  static constexpr const char* kName = "bindery_recurrent_step";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentArgs layer = {};
  void *h = nullptr, *c = nullptr, *left = nullptr, *products = nullptr;
  int64_t step = 0;
  RecurrentPhase phase = {};
  FaultRing faults = {};  // of kBegin, which looks at all lengths
  void Addresses(const auto& visit) { VisitIn(visit, layer, h, c, left, products, faults); }
};
// Gradients of states (samples, hidden), and of products `d` (samples, gates hidden). `through` (samples, hidden): what
// comes of those through weights, of what the reset gate left in kReset, of the state before the step else; the next
// phase takes it.
struct RecurrentStepGradArgs {
  static constexpr const char* kName = "bindery_recurrent_step_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentGradArgs layer = {};
  void *dh = nullptr, *dc = nullptr, *through = nullptr, *d = nullptr;
  int64_t step = 0;
  RecurrentPhase phase = {};
  void Addresses(const auto& visit) { VisitIn(visit, layer, dh, dc, through, d); }
};

using RecurrentImage = std::tuple<RecurrentArgs, RecurrentGradArgs, RecurrentStepArgs, RecurrentStepGradArgs>;

}  // namespace bindery::cuda
