// Convolution (cross-correlation, as everywhere in the field) over 1 to 3 spatial axes.
#pragma once

#include "symbol/op_def.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/window.h"

namespace bindery {

struct ConvolutionAttrs {
  int64_t num_filter = 0;
  std::vector<int64_t> kernel = {};  // 1 to 3 extents; decides the number of spatial axes
  std::vector<int64_t> stride = {};  // empty: 1 everywhere
  std::vector<int64_t> pad = {};     // empty: 0; one per axis: on both sides; or all beginnings, then all ends
  std::vector<int64_t> dilate = {};  // empty: 1
  AutoPad auto_pad = AutoPad::kNone;
  int64_t groups = 1;
  bool no_bias = false;
  ActivationType activation = ActivationType::kNone;  // applied to the result
  static constexpr auto Fields() {
    using A = ConvolutionAttrs;
    return std::tuple{Field{"num_filter", &A::num_filter, "output channels, required"},
                      Field{"kernel", &A::kernel, "window, required"},
                      Field{"stride", &A::stride, "default 1"},
                      Field{"pad", &A::pad, kPadDoc},
                      Field{"dilate", &A::dilate, "default 1"},
                      Field{"auto_pad", &A::auto_pad, kAutoPadDoc},
                      Field{"groups", &A::groups, "channel groups"},
                      Field{"no_bias", &A::no_bias, "leave the bias out"},
                      Field{"activation", &A::activation, "applied to the result"}};
  }
};

// Of the gradient with respect to data, which a stride leaves open: several extents give the same output.
struct ConvolutionGradDataAttrs : ConvolutionAttrs {
  std::vector<int64_t> extents = {};  // data's spatial extents; empty: those that a stride of 1 gives
  static constexpr auto Fields() {
    return std::tuple_cat(ConvolutionAttrs::Fields(),
                          std::tuple{Field{"extents", &ConvolutionGradDataAttrs::extents,
                                           "spatial extents of the data; may be left out if no stride is above 1"}});
  }
};

// data (N, C, spatial...) -> (N, num_filter, spatial'...), spatial' = floor((s + pads - dilate (kernel - 1) - 1) /
// stride) + 1; weight (num_filter, C / groups, kernel...), bias (num_filter).
const OpDef& ConvolutionOp();
inline constexpr OpFunction<ConvolutionAttrs, 3> Convolution{ConvolutionOp};

// Per spatial axis of a data shape; throws ShapeError if none fits.
std::vector<Window> ConvolutionWindows(const ConvolutionAttrs& attrs, const Shape& data);

// (output gradient, weight) -> data gradient
const OpDef& ConvolutionGradDataOp();
inline constexpr OpFunction<ConvolutionGradDataAttrs, 2> ConvolutionGradData{ConvolutionGradDataOp};
// (output gradient, data) -> weight gradient [, bias gradient unless no_bias]
const OpDef& ConvolutionGradWeightOp();
inline constexpr OpFunction<ConvolutionAttrs, 2> ConvolutionGradWeight{ConvolutionGradWeightOp};

}  // namespace bindery
