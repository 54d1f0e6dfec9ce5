// Elements put elsewhere: ExpandDims, Squeeze, SwapAxes, Expand, Tile, Repeat, Split, Stack, Flip, Crop, CenterCropPad,
// PadWith, DepthToSpace, SpaceToDepth; and tensors of given numbers: Full, FullLike, EyeLike. Each is made of Reshape,
// Transpose, BroadcastTo, Slice, Concat, Pad and Resample, most as soon as the shape of its input is known.
#pragma once

#include <array>

#include "symbol/ops/shape_ops.h"

namespace bindery {

struct AxesAttrs {
  std::vector<int64_t> axes = {};  // negative ones count from the end
  static FieldList Fields() { return {{"axes", &AxesAttrs::axes, "axes, negative from the end"}}; }
};
// With new axes of extent 1: `axes` are those of the output.
const OpDef& ExpandDimsOp();
inline constexpr OpFunction<AxesAttrs> ExpandDims{ExpandDimsOp};
// Without these axes, whose extents are 1; no axes: without all such.
const OpDef& SqueezeOp();
inline constexpr OpFunction<AxesAttrs> Squeeze{SqueezeOp};
// The elements in reverse along these axes, at least one.
Symbol Flip(const Symbol& data, const AxesAttrs& attrs, const std::string& name = {});
// The inputs, of one shape, along a new axis of the output.
Symbol Stack(std::span<const Symbol> inputs, int64_t axis = 0, const std::string& name = {});

struct SwapAxesAttrs {
  int64_t a = 0, b = 1;
  static FieldList Fields() { return {{"a", &SwapAxesAttrs::a, "one axis"}, {"b", &SwapAxesAttrs::b, "the other"}}; }
};
const OpDef& SwapAxesOp();
inline constexpr OpFunction<SwapAxesAttrs> SwapAxes{SwapAxesOp};

// data and a tensor of this shape stretched to each other: an extent of 1 on either side is stretched.
const OpDef& ExpandOp();
inline constexpr OpFunction<ToShapeAttrs> Expand{ExpandOp};

struct TileAttrs {
  std::vector<int64_t> repeats = {};  // aligned with the last axes, missing ones on either side are 1
  static FieldList Fields() { return {{"repeats", &TileAttrs::repeats, "copies along each axis"}}; }
};
// The whole, so many times along each axis: 1 2 becomes 1 2 1 2.
const OpDef& TileOp();
inline constexpr OpFunction<TileAttrs> Tile{TileOp};

struct RepeatAttrs {
  int64_t repeats = 1, axis = 0;
  bool flatten = false;  // of the elements in one row
  static FieldList Fields() {
    using A = RepeatAttrs;
    return {{"repeats", &A::repeats, "copies of each element"},
            {"axis", &A::axis, "axis along which they stand"},
            {"flatten", &A::flatten, "of the elements in one row"}};
  }
};
// Each element so many times, side by side: 1 2 becomes 1 1 2 2.
const OpDef& RepeatOp();
inline constexpr OpFunction<RepeatAttrs> Repeat{RepeatOp};

struct SplitAttrs {
  int64_t axis = 0;
  std::vector<int64_t> sizes = {};  // of the parts; empty: as equal as they can be, the last the smallest
  int64_t num_outputs = 1;          // where there are no sizes
  static FieldList Fields() {
    using A = SplitAttrs;
    return {{"axis", &A::axis, "axis that is cut"},
            {"sizes", &A::sizes, "extents of the parts"},
            {"num_outputs", &A::num_outputs, "parts, where there are no sizes"}};
  }
};
const OpDef& SplitOp();
inline constexpr OpFunction<SplitAttrs> Split{SplitOp};

struct CropAttrs {
  std::vector<int64_t> shape = {}, offset = {};  // of the last axes
  bool center = false;                           // in the middle, whatever the offset is
  static FieldList Fields() {
    using A = CropAttrs;
    return {{"shape", &A::shape, "extents of the last axes"},
            {"offset", &A::offset, "where they begin; default 0"},
            {"center", &A::center, "in the middle"}};
  }
};
const OpDef& CropOp();
inline constexpr OpFunction<CropAttrs> Crop{CropOp};

struct CenterCropPadAttrs {
  std::vector<int64_t> shape = {}, axes = {};  // no axes: all
  static FieldList Fields() {
    using A = CenterCropPadAttrs;
    return {{"shape", &A::shape, "extents of the output along the axes"}, {"axes", &A::axes, "default all"}};
  }
};
// The middle of what is too long, zeros around what is too short.
const OpDef& CenterCropPadOp();
inline constexpr OpFunction<CenterCropPadAttrs> CenterCropPad{CenterCropPadOp};

enum class PadMode { kConstant, kReflect, kEdge, kWrap };
inline std::span<const EnumName> EnumNames(PadMode*) {
  static constexpr std::array<EnumName, 4> names{{{0, "constant"}, {1, "reflect"}, {2, "edge"}, {3, "wrap"}}};
  return names;
}
struct PadWithAttrs {
  std::vector<int64_t> begin = {}, end = {}, axes = {};  // no axes: 0, 1, ...; negative numbers take elements away
  PadMode mode = PadMode::kConstant;  // what is put there: a value; 3 2 |1 2 3| 2 1; 1 1 |1 2 3| 3 3; 2 3 |1 2 3| 1 2
  double value = 0;
  static FieldList Fields() {
    using A = PadWithAttrs;
    return {{"begin", &A::begin, "how many before the first element, per axis"},
            {"end", &A::end, "how many after the last"},
            {"axes", &A::axes, "default 0, 1, ..."},
            {"mode", &A::mode, "what they are: constant, reflect, edge, wrap"},
            {"value", &A::value, "of constant ones"}};
  }
};
const OpDef& PadWithOp();
inline constexpr OpFunction<PadWithAttrs> PadWith{PadWithOp};

// The order in which a block's elements lie in the channels: (block, block, channels) or (channels, block, block).
enum class DepthMode { kDCR, kCRD };
inline std::span<const EnumName> EnumNames(DepthMode*) {
  static constexpr std::array<EnumName, 2> names{{{0, "DCR"}, {1, "CRD"}}};
  return names;
}
struct DepthAttrs {
  int64_t block = 2;
  DepthMode mode = DepthMode::kDCR;
  static FieldList Fields() {
    return {{"block", &DepthAttrs::block, "extent of a block"},
            {"mode", &DepthAttrs::mode, "order of the channels: DCR or CRD"}};
  }
};
const OpDef& DepthToSpaceOp();  // (N, C b b, H, W) -> (N, C, H b, W b)
inline constexpr OpFunction<DepthAttrs> DepthToSpace{DepthToSpaceOp};
const OpDef& SpaceToDepthOp();  // and back
inline constexpr OpFunction<DepthAttrs> SpaceToDepth{SpaceToDepthOp};

// Tensors of one number, and of ones along a diagonal: `diagonal` axes right of the main one.
Symbol Full(const Shape& shape, double value, DType dtype = DType::kFloat32, const std::string& name = {});
struct FullLikeAttrs {
  double value = 0;
  static FieldList Fields() { return {{"value", &FullLikeAttrs::value, "of all elements"}}; }
};
const OpDef& FullLikeOp();  // of data's shape and type
inline constexpr OpFunction<FullLikeAttrs> FullLike{FullLikeOp};
Symbol Eye(int64_t rows, int64_t columns, int64_t diagonal = 0, DType dtype = DType::kFloat32,
           const std::string& name = {});
struct EyeLikeAttrs {
  int64_t diagonal = 0;
  static FieldList Fields() { return {{"diagonal", &EyeLikeAttrs::diagonal, "right of the main"}}; }
};
const OpDef& EyeLikeOp();  // of data's shape, (rows, columns), and type
inline constexpr OpFunction<EyeLikeAttrs> EyeLike{EyeLikeOp};

}  // namespace bindery
