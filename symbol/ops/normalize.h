// Normalisations whose groups of elements lie within one sample: LayerNorm, RMSNorm, GroupNorm, InstanceNorm and
// L2Normalization are one operator; LRN, over a window of channels, is another. (BatchNorm is of the whole batch.)
#pragma once

#include <array>
#include <concepts>
#include <span>

#include "symbol/op_def.h"

namespace bindery {

// y = (x - m) r gamma + beta, with the mean m of a group (0 without `center`) and r = 1 / sqrt(q + eps), q the mean of
// (x - m)^2 (with `sum` the sum). A group is either all elements from axis `axis` on, and gamma and beta have the shape
// of these axes; or, with `groups`, channels (axis 1) that follow each other, and gamma and beta are (C).
struct NormalizeAttrs {
  int64_t axis = -1;
  int64_t groups = 0;  // 0: by axis; -1: each channel is a group
  double eps = 1e-5;
  bool center = true, sum = false;
  bool scale = true, shift = true;  // is there a gamma, a beta?
  bool output_statistics = false;   // m and r as outputs
  static FieldList Fields() {
    using A = NormalizeAttrs;
    return {{"axis", &A::axis, "first axis of a group"},
            {"groups", &A::groups, "groups of channels; 0: by axis, -1: every channel"},
            {"eps", &A::eps, "added to the mean square"},
            {"center", &A::center, "subtract the mean"},
            {"sum", &A::sum, "divide by the root of the sum of squares, not of their mean"},
            {"scale", &A::scale, "multiply by gamma"},
            {"shift", &A::shift, "add beta"},
            {"output_statistics", &A::output_statistics, "means and inverse deviations as outputs"}};
  }
};

// data [, gamma] [, beta] -> output [, mean, inverse deviation: of float32, of float64 for float64 data; by axis they
// have data's shape with extents of 1 from the axis on, else (N, groups)]. Parameters that are not given become
// variables "<name>_gamma" and "<name>_beta". The statistics have no gradient.
const OpDef& NormalizeOp();
inline constexpr OpFunction<NormalizeAttrs, 3> Normalize{NormalizeOp};
// LayerNorm(x, {.eps = 1e-6}, "norm"), as operators are called, or with the numbers one by one. (A template, because {}
// would be an axis of 0.)
struct LayerNormAttrs {
  int64_t axis = -1;  // first axis of a group
  double eps = 1e-5;
};
inline Symbol LayerNorm(const Symbol& data, const LayerNormAttrs& attrs = {}, const std::string& name = {}) {
  return Normalize(data, {.axis = attrs.axis, .eps = attrs.eps}, name);
}
template <std::integral Axis>
Symbol LayerNorm(const Symbol& data, Axis axis, double eps = 1e-5, const std::string& name = {}) {
  return LayerNorm(data, LayerNormAttrs{axis, eps}, name);
}
// x / sqrt(mean x^2 + eps) gamma; Zhang and Sennrich, arXiv 1910.07467
inline Symbol RMSNorm(const Symbol& data, const LayerNormAttrs& attrs = {}, const std::string& name = {}) {
  return Normalize(data, {.axis = attrs.axis, .eps = attrs.eps, .center = false, .shift = false}, name);
}
template <std::integral Axis>
Symbol RMSNorm(const Symbol& data, Axis axis, double eps = 1e-5, const std::string& name = {}) {
  return RMSNorm(data, LayerNormAttrs{axis, eps}, name);
}
inline Symbol GroupNorm(const Symbol& data, int64_t groups, double eps = 1e-5, const std::string& name = {}) {
  return Normalize(data, {.groups = groups, .eps = eps}, name);
}
inline Symbol InstanceNorm(const Symbol& data, double eps = 1e-5, const std::string& name = {}) {
  return GroupNorm(data, -1, eps, name);
}

// (x - m) / sqrt(q + eps), with the mean m (0 without `center`) and the mean q of squares (with `sum` their sum) over
// axes that need not follow each other; of 16-bit data computed in float32.
struct StandardizeAttrs {
  std::vector<int64_t> axes = {};  // none: all
  double eps = 1e-5;
  bool center = true, sum = false;
  static FieldList Fields() {
    using A = StandardizeAttrs;
    return {{"axes", &A::axes, "axes of a group; default all"},
            {"eps", &A::eps, "added to the mean square"},
            {"center", &A::center, "subtract the mean"},
            {"sum", &A::sum, "divide by the root of the sum of squares, not of their mean"}};
  }
};
const OpDef& StandardizeOp();
inline constexpr OpFunction<StandardizeAttrs> Standardize{StandardizeOp};

// x / sqrt(sum x^2 + eps): the sum over a sample, over the channels at each position, or over the positions of each
// channel, of data (N, C, ...).
enum class L2Mode { kInstance, kChannel, kSpatial };
Symbol L2Normalization(const Symbol& data, L2Mode mode = L2Mode::kInstance, double eps = 1e-10,
                       const std::string& name = {});
// (x - m) / sqrt(var + eps^2), the statistics over `axes`
Symbol MeanVarianceNormalization(const Symbol& data, const std::vector<int64_t>& axes = {0, 2, 3}, double eps = 1e-9,
                                 const std::string& name = {});

const OpDef& NormalizeGradOp();  // (output gradient, data, mean, inverse [, gamma]) -> data [, gamma] [, beta] gradient

// y = x s^-beta, s = bias + alpha / size sum x^2 over the channels from c - floor((size - 1) / 2) to
// c + ceil((size - 1) / 2), as far as there are such, of data (N, C, ...); Krizhevsky and others, 2012.
struct LRNAttrs {
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, bias = 1;
  static FieldList Fields() {
    using A = LRNAttrs;
    return {{"size", &A::size, "channels in a window"},
            {"alpha", &A::alpha, "factor of the mean square"},
            {"beta", &A::beta, "exponent"},
            {"bias", &A::bias, "added; above 0"}};
  }
};
const OpDef& LRNOp();
inline constexpr OpFunction<LRNAttrs> LRN{LRNOp};
const OpDef& LRNGradOp();  // (output gradient, data) -> data gradient

}  // namespace bindery
