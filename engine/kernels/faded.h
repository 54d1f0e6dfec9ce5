// Momenta that fade.
#pragma once

#include <limits>

namespace bindery::update_rules {

// A momentum, or zero where that is nearer to zero than the smallest normal number. From the step on in which a weight's
// gradient is zero, as that of a pixel that is always black, its momentum becomes less by a factor, and would come to
// rest below that number: there processors take many times as long for each step that follows. NaN stays NaN. Not for
// what a rule divides by, or takes the sign of. nvcc compiles it for GPUs, too.
template <class T>
[[gnu::always_inline]] constexpr T Faded(T momentum) {
  constexpr T kSmallest = std::numeric_limits<T>::min();
  return ((momentum < kSmallest) & (momentum > -kSmallest)) ? T{0} : momentum;
}

}  // namespace bindery::update_rules
