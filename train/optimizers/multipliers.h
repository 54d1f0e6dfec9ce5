// Learning rate and weight decay of single parameters.
#pragma once

#include <string>

#include "symbol/symbol.h"

namespace bindery {

// Factors of a parameter's learning rate and weight decay: its annotations lr_mult and wd_mult; where there are none,
// 1 and 1, but weight decay 0 for names that end neither in _weight nor in _gamma. Throws ModelError for an annotation
// that is no number.
struct Multipliers {
  double lr = 1, wd = 1;
  bool operator==(const Multipliers&) const = default;
};
Multipliers MultipliersOf(const std::string& parameter, const Annotations& annotations);

}  // namespace bindery
