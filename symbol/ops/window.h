// Windows that slide over 1 to 3 spatial axes of (N, C, spatial...): what convolution and pooling have in common.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "symbol/op_def.h"

namespace bindery {

// What lies around the data along each axis: what the attribute `pad` says, nothing, or as much as outputs of
// ceil(s / stride) for an input of s need, half on each side, the odd one at the end (upper) or at the beginning.
enum class AutoPad { kNone, kValid, kSameUpper, kSameLower };
inline std::span<const EnumName> EnumNames(AutoPad*) {
  static constexpr std::array<EnumName, 4> names{{{0, "none"}, {1, "valid"}, {2, "same_upper"}, {3, "same_lower"}}};
  return names;
}
inline constexpr char kPadDoc[] = "per axis, both sides; or all beginnings, then all ends; default 0";
inline constexpr char kAutoPadDoc[] = "instead of pad: valid, same_upper, same_lower";

// The windows of one axis, resolved: window p has `kernel` taps, at p stride - pad_begin and each `dilate` further.
// Elements from -pad_begin to -1, and pad_end of them from the input's end on, are padding.
struct Window {
  int64_t kernel = 1, stride = 1, dilate = 1, pad_begin = 0, pad_end = 0, output = 1;
  int64_t extent() const { return dilate * (kernel - 1) + 1; }
};

// --- Private to symbol/ops.
namespace rule {

inline constexpr size_t kMaxSpatial = 3;
// Of kernels, strides, pads and dilations, so that a product of two overflows nowhere.
inline constexpr int64_t kMaxWindow = INT32_MAX;

// The attributes that say where windows are.
struct WindowAttrs {
  const std::vector<int64_t>&kernel, &stride, &pad, &dilate;
  AutoPad auto_pad;
  bool ceil_mode;  // a last window may reach beyond the padding, if it does not start there
};
template <class Attrs>
WindowAttrs WindowsOf(const Attrs& a) {
  bool ceil_mode = false;
  if constexpr (requires { a.ceil_mode; }) ceil_mode = a.ceil_mode;
  return {a.kernel, a.stride, a.pad, a.dilate, a.auto_pad, ceil_mode};
}

// 1 to 3 spatial axes, and everything in its bounds, or ModelError.
void CheckWindows(const WindowAttrs& attrs);
// Empty, or `count` numbers, one per spatial axis, from `least` to kMaxWindow, or ModelError.
void CheckPerAxis(const char* field, const std::vector<int64_t>& list, size_t count, int64_t least);
// The windows over an input of `size` along a spatial axis; throws ShapeError if none fits.
Window WindowOf(const WindowAttrs& attrs, int axis, int64_t size);
// The input that gives `output` windows: the smallest that leaves nothing out and `beyond` elements behind it, or, padded
// to be the same, the largest. Throws ShapeError if there is none.
int64_t InputOf(const WindowAttrs& attrs, int axis, int64_t output, int64_t beyond = 0);

const char* DataAxes(int rank);  // "(N, C, H, W)" for 4
// Only the batch may be empty: throws ShapeError if a channel or spatial extent is 0.
void ExpectNotEmpty(const Shape& data);

}  // namespace rule
}  // namespace bindery
