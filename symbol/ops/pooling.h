// Pooling: maximum or average over windows of 1 to 3 spatial axes.
#pragma once

#include <array>

#include "symbol/op_def.h"

namespace bindery {

enum class PoolType { kMax, kAvg };
inline std::span<const EnumName> EnumNames(PoolType*) {
  static constexpr std::array<EnumName, 2> names{{{0, "max"}, {1, "avg"}}};
  return names;
}
// Output extent for input s, kernel k, stride t, pad p:
//   valid: floor((s + 2p - k) / t) + 1
//   full:  ceil((s + 2p - k) / t) + 1, the last window starting inside the input or its left padding
//   same:  ceil(s / t); `pad` must be 0, the padding needed is put half on each side, the odd one at the end
enum class PoolConvention { kValid, kFull, kSame };
inline std::span<const EnumName> EnumNames(PoolConvention*) {
  static constexpr std::array<EnumName, 3> names{{{0, "valid"}, {1, "full"}, {2, "same"}}};
  return names;
}

struct PoolingAttrs {
  PoolType type = PoolType::kMax;
  std::vector<int64_t> kernel = {};  // not needed if global
  std::vector<int64_t> stride = {};  // empty: 1
  std::vector<int64_t> pad = {};     // empty: 0
  bool global = false;               // one window over everything
  PoolConvention convention = PoolConvention::kValid;
  bool count_include_pad = true;  // does an average's divisor count padding?
  static constexpr auto Fields() {
    using A = PoolingAttrs;
    return std::tuple{Field{"type", &A::type, "max or avg"},
                      Field{"kernel", &A::kernel, "window; not needed if global"},
                      Field{"stride", &A::stride, "default 1"},
                      Field{"pad", &A::pad, "default 0"},
                      Field{"global", &A::global, "one window over all spatial axes"},
                      Field{"convention", &A::convention, "output extent: valid, full, same"},
                      Field{"count_include_pad", &A::count_include_pad, "count padding in an average's divisor"}};
  }
  bool operator==(const PoolingAttrs&) const = default;
};

// Of the gradient: several extents of data give the same output.
struct PoolingGradAttrs : PoolingAttrs {
  std::vector<int64_t> extents = {};
  static constexpr auto Fields() {
    return std::tuple_cat(PoolingAttrs::Fields(), std::tuple{Field{"extents", &PoolingGradAttrs::extents,
                                                                   "spatial extents of the data, required"}});
  }
  bool operator==(const PoolingGradAttrs&) const = default;
};

// data (N, C, spatial...) -> output (N, C, spatial'...). For max, a hidden second output "state" holds, in a form only
// the kernels know, which element won; ties go to the first.
Symbol Pooling(const Symbol& data, const PoolingAttrs& attrs, const std::string& name = {});

// The windows of one axis, resolved: window i covers input elements i stride - pad_begin up to kernel further. Every
// window holds at least one element of the input. Elements before 0 down to -pad_begin, and from the input's end on up
// to pad_end, are padding; a last window of `full` may reach beyond, where nothing is: that part is never counted in an
// average.
struct PoolWindow {
  int64_t kernel, stride, pad_begin, pad_end, output;
};
// Per spatial axis of a data shape; throws ShapeError if a window does not fit.
std::vector<PoolWindow> PoolWindows(const PoolingAttrs& attrs, const Shape& data);

// (output gradient [, state if max]) -> data gradient
Symbol PoolingGrad(const Symbol& output_grad, const Symbol& state, const PoolingGradAttrs& attrs,
                   const std::string& name = {});

const OpDef& PoolingOp();
const OpDef& PoolingGradOp();

}  // namespace bindery
