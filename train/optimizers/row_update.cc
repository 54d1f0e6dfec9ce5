#include "train/optimizers/row_update.h"

namespace bindery {

void RowUpdate::Run(const Optimizer& optimizer, const UpdateArgs& args, const RowSums& sums,
                    std::span<void* const> weights, std::span<void* const> states) {
  states_.resize(states.size());
  void* own[kMaxUpdateStates];
  sums.Take(weights[0], &weights_);
  for (size_t i = 0; i < states.size(); ++i) {
    sums.Take(states[i], &states_[i]);
    own[i] = states_[i].data();
  }
  const void* const gradient = sums.sums();
  optimizer.Update(sums.dtype(), args, {&gradient, 1}, weights_.data(), {own, states.size()}, {}, sums.elements());
  for (void* const weight : weights) sums.Put(weights_, weight);
  for (size_t i = 0; i < states.size(); ++i) sums.Put(states_[i], states[i]);
}

}  // namespace bindery
