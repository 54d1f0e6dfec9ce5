// Pooling: maximum or average over windows of 1 to 3 spatial axes.
#pragma once

#include <array>
#include <vector>

#include "symbol/op_def.h"
#include "symbol/ops/window.h"

namespace bindery {

enum class PoolType { kMax, kAvg };
inline std::span<const EnumName> EnumNames(PoolType*) {
  static constexpr std::array<EnumName, 2> names{{{0, "max"}, {1, "avg"}}};
  return names;
}
struct PoolingAttrs {
  PoolType type = PoolType::kMax;
  std::vector<int64_t> kernel = {};  // not needed if global
  std::vector<int64_t> stride = {};  // empty: 1
  std::vector<int64_t> pad = {};     // empty: 0; one per axis: on both sides; or all beginnings, then all ends
  std::vector<int64_t> dilate = {};  // empty: 1
  AutoPad auto_pad = AutoPad::kNone;
  bool global = false;            // one window over everything
  bool ceil_mode = false;         // spatial' rounded up: the last window starts inside the input or its left padding
  bool count_include_pad = true;  // does an average's divisor count padding?
  static FieldList Fields() {
    using A = PoolingAttrs;
    return {{"type", &A::type, "max or avg"},
            {"kernel", &A::kernel, "window; not needed if global"},
            {"stride", &A::stride, "default 1"},
            {"pad", &A::pad, kPadDoc},
            {"dilate", &A::dilate, "default 1"},
            {"auto_pad", &A::auto_pad, kAutoPadDoc},
            {"global", &A::global, "one window over all spatial axes"},
            {"ceil_mode", &A::ceil_mode, "round the output extents up"},
            {"count_include_pad", &A::count_include_pad, "count padding in an average's divisor"}};
  }
};

// Of the gradient: several extents of data give the same output.
struct PoolingGradAttrs : PoolingAttrs {
  std::vector<int64_t> extents = {};
  static FieldList Fields() {
    return Joined(PoolingAttrs::Fields(),
                  {{"extents", &PoolingGradAttrs::extents, "spatial extents of the data, required"}});
  }
};

// data (N, C, spatial...) -> output (N, C, spatial'...), spatial' = floor((s + pads - dilate (kernel - 1) - 1) /
// stride) + 1, or ceil. For max, a hidden second output "state" holds, in a form only
// the kernels know, which element won; ties go to the first.
const OpDef& PoolingOp();
inline constexpr OpFunction<PoolingAttrs> Pooling{PoolingOp};

// Per spatial axis of a data shape; throws ShapeError if none fits. Every window holds at least one element of the
// input. With ceil_mode the last may reach beyond the padding, where nothing is: that part is never counted in an
// average.
std::vector<Window> PoolWindows(const PoolingAttrs& attrs, const Shape& data);

// (output gradient [, state if max]) -> data gradient
const OpDef& PoolingGradOp();
inline constexpr OpFunction<PoolingGradAttrs, 2> PoolingGrad{PoolingGradOp};

}  // namespace bindery
