// States that fade.
#pragma once

#include <limits>

namespace bindery::flat {

// A state, or zero if it is nearer to zero than the smallest normal number. Where a weight's gradient is zero from some
// step on, as that of a pixel that is always black, its momentum becomes less by a factor, and would come to rest below
// that number, not at zero; there processors take many times as long for each step that follows. NaN stays NaN. For
// GPUs, too, so that all devices have the same bits.
template <class T>
[[gnu::always_inline]] constexpr T FadedToZero(T state) {
  constexpr T kSmallest = std::numeric_limits<T>::min();
  return (state < kSmallest) & (state > -kSmallest) ? T{0} : state;
}

}  // namespace bindery::flat
