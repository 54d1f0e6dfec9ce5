// Gradients of weights that oneDNN computes wrongly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "symbol/ops/window.h"

namespace bindery::cpu {

// oneDNN gathers what single elements with a stride see into scratch memory, channels last; for fewer channels than it
// takes at once it writes beyond that memory (oneDNN issue 6035, open in 3.12).
inline bool OverrunsScratch(const std::vector<Window>& windows, int64_t channels) {
  return std::ranges::all_of(windows, [](const Window& w) { return w.kernel == 1; }) &&
         std::ranges::any_of(windows, [](const Window& w) { return w.stride > 1; }) && channels % 16 != 0;
}

// In bfloat16 oneDNN 2.6.3 takes what scratch memory holds for what elements of the kernel see that see, along the last
// axis, nothing but padding, whatever the window.
inline bool ReadsUnwrittenScratch(const Window& last, int64_t extent) {
  for (int64_t element = 0; element < last.kernel; ++element) {
    const int64_t before = std::max<int64_t>(last.pad_begin - element * last.dilate, 0);
    const int64_t window = CeilDiv(before, last.stride);  // the first one that has it behind the padding
    if (window >= last.output || window * last.stride + element * last.dilate - last.pad_begin >= extent) return true;
  }
  return false;
}

}  // namespace bindery::cpu
