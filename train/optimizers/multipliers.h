// Learning rate and weight decay of single parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "symbol/symbol.h"

namespace bindery {

// Factors of a parameter's learning rate and weight decay: its annotations lr_mult and wd_mult; where there are none,
// 1 and 1, but weight decay 0 for names whose last word, behind "_", "." or "/", is not weight, gamma or kernel, as in
// "fc1_weight", PyTorch's "fc.weight" (and "lstm.weight_ih_l0") and Keras's "dense/kernel:0".
struct Multipliers {
  double lr = 1, wd = 1;
  bool operator==(const Multipliers&) const = default;
};

// Others in their place, for parameters whose names fit a pattern (FitsPattern): of a model whose variables are made
// already. Of each factor the first pattern that fits and has one counts.
struct NamedMultipliers {
  std::string names;
  std::optional<double> lr = {}, wd = {};
};
using MultiplierList = std::vector<NamedMultipliers>;

// Throws ModelError for an annotation that is no number.
Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations,
                          const MultiplierList& list = {});
// Throws Error for a pattern that fits no parameter, and for what is no factor.
void CheckMultipliers(const MultiplierList& list, const std::vector<std::string>& parameters);
std::string ToText(const MultiplierList& list);  // "conv*: lr=0.1 wd=0, *_bias: lr=2"

}  // namespace bindery
