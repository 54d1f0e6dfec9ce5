// Resize, and the operator that it is made of: Resample, a sparse matrix applied along one axis.
#pragma once

#include <array>

#include "symbol/op_def.h"

namespace bindery {

struct ResampleAttrs {
  int64_t axis = 0, extent = 0;  // `extent`: of the input along the axis
  // Output i is the sum of weights[k] * input indices[k] for k from starts[i] to before starts[i + 1]; `outside` where
  // there is no k.
  std::vector<int64_t> starts = {}, indices = {};
  std::vector<double> weights = {};  // empty: 1
  double outside = 0;
  static FieldList Fields() {
    using A = ResampleAttrs;
    return {{"axis", &A::axis, "axis along which elements are combined"},
            {"extent", &A::extent, "of the input along the axis"},
            {"starts", &A::starts, "where the terms of each element begin, and the last end"},
            {"indices", &A::indices, "of the input's elements"},
            {"weights", &A::weights, "of the terms; empty: 1"},
            {"outside", &A::outside, "an element without terms"}};
  }
};
void CheckTerms(int64_t count);  // ShapeError: too many terms for a table
// Sums of 16-bit floats are taken in float32, of integers in double; a single term of weight 1 is a copy.
const OpDef& ResampleOp();
inline constexpr OpFunction<ResampleAttrs> Resample{ResampleOp};

enum class ResizeMode { kNearest, kLinear, kCubic };
inline std::span<const EnumName> EnumNames(ResizeMode*) {
  static constexpr std::array<EnumName, 3> names{{{0, "nearest"}, {1, "linear"}, {2, "cubic"}}};
  return names;
}
// Where the centre of element i of the output is in the input; s: the scale, n and m: extents of input and output. Where
// scales are given, s n may be more than m, which is cut to a whole number.
enum class Coordinates {
  kHalfPixel,            // (i + 0.5) / s - 0.5
  kHalfPixelSymmetric,   // the same, moved so that both middles meet where m is not s n
  kPytorchHalfPixel,     // the same as the first; -0.5 if s n = 1
  kAlignCorners,         // i (n - 1) / (s n - 1)
  kAsymmetric,           // i / s
  kHalfPixelForNearest,  // (i + 0.5) / s
  kCropAndResize,        // from roi's begin to its end, as parts of n - 1; outside of the input `extrapolation` stands
};
inline std::span<const EnumName> EnumNames(Coordinates*) {
  static constexpr std::array<EnumName, 7> names{{{0, "half_pixel"},
                                                  {1, "half_pixel_symmetric"},
                                                  {2, "pytorch_half_pixel"},
                                                  {3, "align_corners"},
                                                  {4, "asymmetric"},
                                                  {5, "tf_half_pixel_for_nn"},
                                                  {6, "tf_crop_and_resize"}}};
  return names;
}
enum class NearestMode { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
inline std::span<const EnumName> EnumNames(NearestMode*) {
  static constexpr std::array<EnumName, 4> names{
      {{0, "round_prefer_floor"}, {1, "round_prefer_ceil"}, {2, "floor"}, {3, "ceil"}}};
  return names;
}
// What sizes mean if they do not keep the ratio of the extents: as they are; at most; at least.
enum class AspectPolicy { kStretch, kNotLarger, kNotSmaller };
inline std::span<const EnumName> EnumNames(AspectPolicy*) {
  static constexpr std::array<EnumName, 3> names{{{0, "stretch"}, {1, "not_larger"}, {2, "not_smaller"}}};
  return names;
}

struct ResizeAttrs {
  ResizeMode mode = ResizeMode::kNearest;
  Coordinates coordinates = Coordinates::kHalfPixel;
  NearestMode nearest = NearestMode::kRoundPreferFloor;
  // Of the axes; one of them is given: extents are floor(scale n), multiplied in float32 as ONNX has it, or the sizes
  // with scale m / n.
  std::vector<double> scales = {};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> sizes_batches = {};  // batches added to each size
  std::vector<int64_t> axes = {};           // no axes: all
  std::vector<double> roi = {};             // begins of all axes, then ends
  double cubic_coefficient = -0.75;
  bool exclude_outside = false;  // elements outside have no weight, the others more; else they are the nearest's
  bool antialias = false;        // where it shrinks, take in all that lies between
  double extrapolation = 0;
  AspectPolicy aspect = AspectPolicy::kStretch;
  static FieldList Fields() {
    using A = ResizeAttrs;
    return {{"mode", &A::mode, "nearest, linear or cubic"},
            {"coordinates", &A::coordinates, "where the output's elements lie in the input"},
            {"nearest", &A::nearest, "which of two is the nearest"},
            {"scales", &A::scales, "output extent per input extent"},
            {"sizes", &A::sizes, "output extents"},
            {"sizes_batches", &A::sizes_batches, "batches added to each size; default none"},
            {"axes", &A::axes, "default all"},
            {"roi", &A::roi, "part of the input, begins and then ends"},
            {"cubic_coefficient", &A::cubic_coefficient, "of cubic interpolation"},
            {"exclude_outside", &A::exclude_outside, "elements outside have no weight"},
            {"antialias", &A::antialias, "wider filters where it shrinks"},
            {"extrapolation", &A::extrapolation, "what stands outside of the input"},
            {"aspect", &A::aspect, "stretch, not_larger or not_smaller"}};
  }
};
// As ONNX defines Resize (opset 19), axis by axis; an axis of samples that keeps its extent is left alone.
const OpDef& ResizeOp();
inline constexpr OpFunction<ResizeAttrs> Resize{ResizeOp};

}  // namespace bindery
