// GridSample and AffineGrid: images and volumes sampled at places that are computed, which is differentiable in both.
#pragma once

#include <array>

#include "symbol/op_def.h"
#include "symbol/ops/resize.h"

namespace bindery {

// What stands outside of the data: zeros; the nearest element; what the data shows where it is turned over at its
// edges.
enum class GridPadding { kZeros, kBorder, kReflection };
inline std::span<const EnumName> EnumNames(GridPadding*) {
  static constexpr std::array<EnumName, 3> names{{{0, "zeros"}, {1, "border"}, {2, "reflection"}}};
  return names;
}

struct GridSampleAttrs {
  ResizeMode mode = ResizeMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  // -1 and 1 are the centres of an axis' first and last element, or the outer edges of these.
  bool align_corners = false;
  static FieldList Fields() {
    using A = GridSampleAttrs;
    return {{"mode", &A::mode, "nearest, linear or cubic"},
            {"padding", &A::padding, "what is outside: zeros, border or reflection"},
            {"align_corners", &A::align_corners, "-1 and 1 are centres of elements, or their outer edges"}};
  }
};
// data (N, C, H, W), grid (N, H', W', 2) -> (N, C, H', W'): data at the place (x, y) that the grid has; or a volume at
// the places (x, y, z) of a grid (N, D', H', W', 3), linear or nearest. The grid has data's type, if that is a floating
// one; places and sums are float32 where that has 16 bits. A place that is NaN gives NaN, or with `nearest` any element
// or 0; an infinite one counts as far outside, but has no reflection: that is NaN.
const OpDef& GridSampleOp();
inline constexpr OpFunction<GridSampleAttrs, 2> GridSample{GridSampleOp};

// Of the gradient of data: several extents give the same output.
struct GridSampleGradAttrs : GridSampleAttrs {
  std::vector<int64_t> extents = {}, batches = {};
  static FieldList Fields() {
    using A = GridSampleGradAttrs;
    return Joined(GridSampleAttrs::Fields(), {{"extents", &A::extents, "(H, W) or (D, H, W) of the data, required"},
                                              {"batches", &A::batches, "batches added to each; default none"}});
  }
};
// (output gradient, grid) -> data gradient. What is outside of the data has no part in it.
const OpDef& GridSampleGradDataOp();
inline constexpr OpFunction<GridSampleGradAttrs, 2> GridSampleGradData{GridSampleGradDataOp};
// (output gradient, data, grid) -> grid gradient; 0 where a place outside counts as one at the border.
const OpDef& GridSampleGradGridOp();
inline constexpr OpFunction<GridSampleAttrs, 3> GridSampleGradGrid{GridSampleGradGridOp};

struct AffineGridAttrs {
  std::vector<int64_t> sizes = {};  // (H, W) or (D, H, W)
  bool align_corners = false;       // as in GridSample
  static FieldList Fields() {
    using A = AffineGridAttrs;
    return {{"sizes", &A::sizes, "(H, W) or (D, H, W)"},
            {"align_corners", &A::align_corners, "-1 and 1 are centres of elements, or their outer edges"}};
  }
};
// theta (N, 2, 3) -> grid (N, H, W, 2): theta (x, y, 1) for the centre (x, y) of each element of an image of this size.
// With three sizes theta (N, 3, 4) -> (N, D, H, W, 3), of (x, y, z, 1).
const OpDef& AffineGridOp();
inline constexpr OpFunction<AffineGridAttrs> AffineGrid{AffineGridOp};

}  // namespace bindery
