// What oneDNN 2.6.3 computes wrongly of convolutions, each found by comparing with the reference. Of those in bfloat16
// kernels for AVX-512 without AMX were seen to do so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/shape.h"
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

// Gradients of weights in bfloat16, over images: channels that fill no blocks are gathered into scratch memory, of
// which a window that is dilated along the height reads what nobody wrote (rows of 29 outputs and more).
inline bool ReadsUnwrittenRows(const std::vector<Window>& windows, int64_t channels) {
  return windows.size() == 2 && windows[0].kernel > 1 && windows[0].dilate > 1 && channels > 16 && channels % 16 != 0;
}

// Gradients of weights over volumes: where along the depth, or in bfloat16 along the height, every window reaches into
// the padding, it reads and writes beyond its memory.
inline bool OverrunsVolume(const std::vector<Window>& windows, const Shape& data, DType dtype) {
  const auto is_never_whole = [&](int axis) {
    const Window& w = windows[axis];
    const int64_t first = CeilDiv(w.pad_begin, w.stride);  // the first window that does not begin before the data
    return first >= w.output || first * w.stride - w.pad_begin + w.extent() > data[2 + axis];
  };
  return windows.size() == 3 && (is_never_whole(0) || (dtype == DType::kBFloat16 && is_never_whole(1)));
}

// Gradients of data in bfloat16: of single elements, to a number of filters that is not even, for some sizes of planes
// (30, 59, 60, 89 ... elements to 21 filters).
inline bool LosesOddFilter(const std::vector<Window>& windows, int64_t filters) {
  return std::ranges::all_of(windows, [](const Window& w) { return w.kernel == 1; }) && filters % 2 != 0;
}

// Where an addend is added behind a convolution in float32: rows that see nothing but padding go without it.
inline bool LosesAddend(const std::vector<Window>& windows, const Shape& data) {
  for (size_t axis = 0; axis + 1 < windows.size(); ++axis) {
    const Window& w = windows[axis];
    if (w.pad_begin >= w.extent() || (w.output - 1) * w.stride - w.pad_begin >= data[2 + static_cast<int>(axis)])
      return true;
  }
  return false;
}

}  // namespace bindery::cpu
