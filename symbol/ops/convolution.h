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
  static FieldList Fields() {
    using A = ConvolutionAttrs;
    return {{"num_filter", &A::num_filter, "output channels, required"},
            {"kernel", &A::kernel, "window, required"},
            {"stride", &A::stride, "default 1"},
            {"pad", &A::pad, kPadDoc},
            {"dilate", &A::dilate, "default 1"},
            {"auto_pad", &A::auto_pad, kAutoPadDoc},
            {"groups", &A::groups, "channel groups"},
            {"no_bias", &A::no_bias, "leave the bias out"},
            {"activation", &A::activation, "applied to the result"}};
  }
};

// Of the gradient with respect to data, which a stride leaves open: several extents give the same output.
struct ConvolutionGradDataAttrs : ConvolutionAttrs {
  std::vector<int64_t> extents = {};  // data's spatial extents; empty: the last windows leave nothing out, and
  std::vector<int64_t> beyond = {};   // so many elements follow; empty: 0
  int64_t channels = 0;               // data's; 0: they follow from the weight
  static FieldList Fields() {
    using A = ConvolutionGradDataAttrs;
    return Joined(ConvolutionAttrs::Fields(),
                  {{"extents", &A::extents, "spatial extents of the data; default from the output's"},
                   {"beyond", &A::beyond, "without extents: elements behind the last windows, fewer than the stride"},
                   {"channels", &A::channels, "of the data; default from the weight"}});
  }
};

// data (N, C, spatial...) -> (N, num_filter, spatial'...), spatial' = floor((s + pads - dilate (kernel - 1) - 1) /
// stride) + 1; weight (num_filter, C / groups, kernel...), bias (num_filter).
const OpDef& ConvolutionOp();
inline constexpr OpFunction<ConvolutionAttrs, 3> Convolution{ConvolutionOp};

// Per spatial axis of a data shape; throws ShapeError if none fits.
std::vector<Window> ConvolutionWindows(const ConvolutionAttrs& attrs, const Shape& data);

// (output gradient, weight) -> data gradient. `num_filter` may be 0: the output gradient's channels.
const OpDef& ConvolutionGradDataOp();
inline constexpr OpFunction<ConvolutionGradDataAttrs, 2> ConvolutionGradData{ConvolutionGradDataOp};
// (output gradient, data) -> weight gradient [, bias gradient unless no_bias]
const OpDef& ConvolutionGradWeightOp();
inline constexpr OpFunction<ConvolutionAttrs, 2> ConvolutionGradWeight{ConvolutionGradWeightOp};

struct DeconvolutionAttrs {
  int64_t num_filter = 0;            // output channels, required
  std::vector<int64_t> kernel = {};  // as a convolution's, as are stride, pad and dilate
  std::vector<int64_t> stride = {}, pad = {}, dilate = {};
  std::vector<int64_t> output_padding = {};  // more elements at the end, fewer than the stride; empty: 0
  // Spatial extents, from (s - 1) stride + 1 to s stride, instead of pad and output_padding, which must be empty: what
  // the windows reach beyond is cut on both sides, the odd one at the beginning unless auto_pad is same_upper.
  std::vector<int64_t> target_shape = {};
  AutoPad auto_pad = AutoPad::kNone;  // same: outputs of stride times the input
  int64_t groups = 1;
  bool no_bias = false;
};
// The transposed convolution: a convolution's gradient with respect to its data. data (N, C, spatial...) ->
// (N, num_filter, spatial'...), spatial' = (s - 1) stride + dilate (kernel - 1) + 1 - pads + output_padding; variables
// NAME_weight (C, num_filter / groups, kernel...) and NAME_bias (num_filter). NAME must be given.
Symbol Deconvolution(const Symbol& data, const DeconvolutionAttrs& attrs, const std::string& name);
// The same of a weight and a bias, which may be empty.
Symbol Deconvolution(const Symbol& data, const Symbol& weight, const Symbol& bias, const DeconvolutionAttrs& attrs,
                     const std::string& name = {});

}  // namespace bindery
