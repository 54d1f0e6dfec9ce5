// Learning rate and weight decay of single parameters.
#pragma once

#include <string>

#include "symbol/symbol.h"

namespace bindery {

// Factors of a parameter's learning rate and weight decay: its annotations lr_mult and wd_mult; where there are none,
// 1 and 1, but weight decay 0 for names whose last word, behind "_", "." or "/", is not weight, gamma or kernel, as in
// "fc1_weight", PyTorch's "fc.weight" (and "lstm.weight_ih_l0") and Keras's "dense/kernel:0". Throws ModelError for an
// annotation that is no number.
struct Multipliers {
  double lr = 1, wd = 1;
  bool operator==(const Multipliers&) const = default;
};
Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations);

}  // namespace bindery
