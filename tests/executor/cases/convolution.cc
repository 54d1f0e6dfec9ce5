#include "symbol/ops/convolution.h"

#include "symbol/ops/fusions.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

OperatorCase ConvolutionCase(const std::string& name, const Shape& data, const ConvolutionAttrs& attrs) {
  Shape weight = Shape{attrs.num_filter, data[1] / attrs.groups};
  for (int64_t extent : attrs.kernel) weight = weight.Insert(weight.rank(), extent);
  OperatorCase c{.name = name,
                 .symbol = Convolution(Variable("x"), attrs, "conv"),
                 .inputs = {{"x", Uniform(data)}, {"conv_weight", Uniform(weight, -0.5, 0.5)}},
                 .batch_axes = {{"x", 0}},
                 // The longest sum is a gradient's: over all outputs, or over the window.
                 .terms = static_cast<double>(weight.CountFrom(1) + data.Elements() / data[1])};
  if (!attrs.no_bias) c.inputs["conv_bias"] = Uniform({attrs.num_filter}, 1, 2);  // keeps relu off its kink
  return c;
}

OperatorCase ConvolutionAddCase(const std::string& name, const Shape& data, const Shape& output,
                                const ConvolutionAttrs& attrs) {
  OperatorCase c = ConvolutionCase("and addend, " + name, data, attrs);
  std::vector<Symbol> inputs = {Variable("x"), Variable("conv_weight")};
  if (!attrs.no_bias) inputs.push_back(Variable("conv_bias"));
  inputs.push_back(Variable("addend"));
  c.symbol = Apply(ConvolutionAddOp(), attrs, inputs, "conv");
  c.inputs["addend"] = Uniform(output);
  c.batch_axes["addend"] = 0;
  c.wrt = std::vector<std::string>{};
  c.test_dtypes = {DType::kFloat32};
  return c;
}

}  // namespace

std::vector<OperatorCase> ConvolutionCases() {
  std::vector<OperatorCase> cases = {
      ConvolutionCase("1 to 4 channels", {2, 1, 6, 5}, {.num_filter = 4, .kernel = {3, 3}}),
      ConvolutionCase("3 to 8 channels, padded", {2, 3, 5, 5}, {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}),
      ConvolutionCase("8 to 16 channels", {1, 8, 4, 4}, {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}),
      ConvolutionCase("16 to 16 channels, without bias", {1, 16, 4, 3},
                      {.num_filter = 16, .kernel = {1, 1}, .no_bias = true}),
      ConvolutionCase("5 to 20 channels", {2, 5, 4, 4}, {.num_filter = 20, .kernel = {2, 3}}),
      ConvolutionCase("stride", {2, 2, 7, 6}, {.num_filter = 3, .kernel = {3, 2}, .stride = {2, 3}}),
      ConvolutionCase("stride, pad and dilation", {2, 2, 8, 9},
                      {.num_filter = 3, .kernel = {3, 2}, .stride = {2, 1}, .pad = {2, 3}, .dilate = {2, 4}}),
      ConvolutionCase("a border no window reaches", {1, 2, 6, 6},
                      {.num_filter = 2, .kernel = {1, 1}, .stride = {4, 4}}),
      ConvolutionCase("few channels of single elements, stride", {2, 4, 8, 9},
                      {.num_filter = 6, .kernel = {1, 1}, .stride = {2, 3}}),
      ConvolutionCase("channels of single elements, stride", {1, 20, 5, 6},
                      {.num_filter = 24, .kernel = {1, 1}, .stride = {2, 2}}),
      ConvolutionCase("more padding than data", {1, 2, 2, 2}, {.num_filter = 2, .kernel = {3, 3}, .pad = {4, 4}}),
      ConvolutionCase("two groups", {2, 4, 4, 4}, {.num_filter = 6, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2}),
      ConvolutionCase("two groups of 8", {1, 16, 3, 3}, {.num_filter = 16, .kernel = {2, 2}, .groups = 2}),
      ConvolutionCase("depthwise", {2, 6, 4, 4}, {.num_filter = 6, .kernel = {3, 3}, .pad = {1, 1}, .groups = 6}),
      ConvolutionCase("depthwise, two filters each", {1, 3, 4, 4}, {.num_filter = 6, .kernel = {2, 2}, .groups = 3}),
      ConvolutionCase("1 spatial axis", {2, 3, 9}, {.num_filter = 4, .kernel = {3}, .stride = {2}, .pad = {1}}),
      ConvolutionCase("1 spatial axis, groups", {2, 4, 7},
                      {.num_filter = 4, .kernel = {3}, .dilate = {2}, .groups = 2}),
      ConvolutionCase("3 spatial axes", {1, 2, 3, 4, 3}, {.num_filter = 3, .kernel = {2, 3, 2}, .pad = {1, 0, 1}}),
      ConvolutionCase("3 spatial axes, stride", {1, 2, 4, 4, 5},
                      {.num_filter = 2, .kernel = {2, 2, 3}, .stride = {2, 1, 2}, .no_bias = true}),
      ConvolutionCase("sides padded unequally", {2, 3, 5, 6}, {.num_filter = 4, .kernel = {3, 2}, .pad = {2, 0, 1, 3}}),
      ConvolutionCase("sides padded unequally, 16 channels", {1, 16, 5, 5},
                      {.num_filter = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {0, 1, 1, 0}}),
      ConvolutionCase(
          "sides padded unequally, stride and dilation, groups", {2, 4, 8, 7},
          {.num_filter = 6, .kernel = {3, 2}, .stride = {2, 3}, .pad = {0, 3, 2, 1}, .dilate = {2, 3}, .groups = 2}),
      ConvolutionCase("same, even kernel", {1, 2, 5, 4},
                      {.num_filter = 3, .kernel = {4, 2}, .auto_pad = AutoPad::kSameUpper}),
      ConvolutionCase("same, more in front, stride", {2, 3, 6, 7},
                      {.num_filter = 2, .kernel = {3, 4}, .stride = {2, 3}, .auto_pad = AutoPad::kSameLower}),
      ConvolutionCase("same, dilated", {1, 8, 6, 6},
                      {.num_filter = 8, .kernel = {2, 3}, .dilate = {3, 2}, .auto_pad = AutoPad::kSameLower}),
      ConvolutionCase("valid", {1, 2, 5, 4}, {.num_filter = 3, .kernel = {4, 2}, .auto_pad = AutoPad::kValid}),
      ConvolutionCase("1 spatial axis, sides padded unequally", {2, 3, 6},
                      {.num_filter = 2, .kernel = {4}, .stride = {2}, .pad = {0, 3}}),
      ConvolutionCase("3 spatial axes, sides padded unequally", {1, 2, 3, 4, 3},
                      {.num_filter = 3, .kernel = {2, 3, 2}, .stride = {1, 2, 2}, .pad = {1, 0, 2, 0, 1, 1}}),
      // Vectors of filters that overlap, windows with parts of their taps, more samples than are summed up at once, and
      // large planes.
      ConvolutionCase("1 to 20 channels", {2, 1, 9, 12}, {.num_filter = 20, .kernel = {5, 5}}),
      ConvolutionCase("3 to 42 channels, stride and pad", {2, 3, 7, 10},
                      {.num_filter = 42, .kernel = {3, 3}, .stride = {2, 1}, .pad = {1, 1}, .no_bias = true}),
      ConvolutionCase("2 to 16 channels, dilated", {1, 2, 8, 6},
                      {.num_filter = 16, .kernel = {3, 2}, .pad = {2, 3}, .dilate = {2, 3}}),
      ConvolutionCase("1 to 17 channels, 1 spatial axis", {19, 1, 6}, {.num_filter = 17, .kernel = {3}, .pad = {2, 0}}),
      ConvolutionCase("2 to 16 channels, 3 spatial axes", {1, 2, 3, 4, 3},
                      {.num_filter = 16, .kernel = {2, 3, 2}, .pad = {1, 1, 0}}),
      ConvolutionCase("4 to 12 channels, large planes", {2, 4, 16, 17},
                      {.num_filter = 12, .kernel = {3, 2}, .pad = {1, 1}}),
      ConvolutionCase("16 to 24 channels, padded more than covered", {1, 16, 2, 3},
                      {.num_filter = 24, .kernel = {3, 3}, .pad = {3, 1}}),
      // Places two at a time: whose last window ends within the data and beyond, and more samples than there are parts.
      ConvolutionCase("16 to 32 channels, rows of 8", {3, 16, 5, 8},
                      {.num_filter = 32, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true}),
      ConvolutionCase("32 to 16 channels, stride, rows of 7", {2, 32, 7, 7},
                      {.num_filter = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .no_bias = true}),
      ConvolutionCase("16 to 16 channels, stride, rows of 8", {2, 16, 6, 8},
                      {.num_filter = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .no_bias = true}),
      ConvolutionCase("16 to 16 channels, 19 samples", {19, 16, 1, 4},
                      {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true}),
      // Rows of vectors: that overlap, with padding and dilation, of one axis, of as few samples as threads, and of more
      // than are summed up at once.
      ConvolutionCase("5 to 10 channels, rows of 13", {3, 5, 4, 13},
                      {.num_filter = 10, .kernel = {3, 3}, .pad = {1, 1}}),
      ConvolutionCase("2 to 7 channels, rows of 14, sides padded unequally, dilated", {2, 2, 5, 14},
                      {.num_filter = 7, .kernel = {3, 2}, .pad = {2, 0, 1, 3}, .dilate = {2, 3}, .no_bias = true}),
      ConvolutionCase("3 to 5 channels of rows", {2, 3, 16}, {.num_filter = 5, .kernel = {3}, .pad = {0, 1}}),
      ConvolutionCase("3 to 9 single elements of rows", {1, 3, 2, 8}, {.num_filter = 9, .kernel = {1, 1}}),
      ConvolutionCase("1 to 2 channels, many rows", {26, 1, 26, 26},
                      {.num_filter = 2, .kernel = {3, 3}, .activation = ActivationType::kTanh}),
      ConvolutionCase("one sample, one output", {1, 3, 2, 2}, {.num_filter = 1, .kernel = {2, 2}}),
      ConvolutionAddCase("1 to 4 channels", {2, 1, 6, 5}, {2, 4, 4, 3}, {.num_filter = 4, .kernel = {3, 3}}),
      ConvolutionAddCase(
          "16 to 16 channels", {2, 16, 4, 4}, {2, 16, 4, 4},
          {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true, .activation = ActivationType::kTanh}),
      ConvolutionAddCase("two groups, stride", {2, 4, 5, 5}, {2, 6, 3, 3},
                         {.num_filter = 6,
                          .kernel = {3, 3},
                          .stride = {2, 2},
                          .pad = {1, 1},
                          .groups = 2,
                          .activation = ActivationType::kSigmoid}),
      ConvolutionCase("elements that see nothing but padding", {2, 4, 3, 2},
                      {.num_filter = 5, .kernel = {2, 5}, .stride = {1, 3}, .pad = {0, 3}}),
      // What oneDNN computes wrongly (dnnl_faults.h).
      ConvolutionCase("24 to 4 channels, dilated, rows of 33", {1, 24, 5, 33},
                      {.num_filter = 4, .kernel = {3, 3}, .pad = {2, 2}, .dilate = {2, 2}, .no_bias = true}),
      ConvolutionCase("64 to 21 single elements, planes of 30", {2, 64, 5, 6}, {.num_filter = 21, .kernel = {1, 1}}),
      ConvolutionCase("64 to 1 single element, planes of 900", {1, 64, 30, 30}, {.num_filter = 1, .kernel = {1, 1}}),
      ConvolutionCase("8 to 16 channels, a volume of height 1", {2, 8, 4, 1, 4},
                      {.num_filter = 16, .kernel = {2, 2, 2}, .stride = {1, 2, 1}, .pad = {1, 1, 1}}),
      ConvolutionCase("16 to 16 channels, a volume of height 1, kernel 3", {2, 16, 4, 1, 4},
                      {.num_filter = 16, .kernel = {3, 3, 3}, .stride = {1, 2, 1}, .pad = {1, 1, 1}, .no_bias = true}),
      ConvolutionCase("32 to 16 channels, a volume of depth 3", {1, 32, 3, 5, 6},
                      {.num_filter = 16, .kernel = {3, 3, 3}, .stride = {2, 1, 1}, .pad = {1, 1, 1}}),
      ConvolutionCase("16 to 16 channels, a volume padded more than covered", {2, 16, 2, 4, 4},
                      {.num_filter = 16, .kernel = {4, 3, 3}, .stride = {2, 1, 1}, .pad = {3, 1, 1}, .no_bias = true}),
      ConvolutionAddCase("rows that see nothing but padding", {1, 16, 6, 9}, {1, 16, 8, 9},
                         {.num_filter = 16, .kernel = {1, 3}, .pad = {1, 1}}),
      ConvolutionCase("9 to 10 channels, many samples", {15, 9, 9, 8},
                      {.num_filter = 10, .kernel = {3, 3}, .pad = {1, 1}}),
      ConvolutionCase("9 to 8 channels, a large plane", {1, 9, 33, 32},
                      {.num_filter = 8, .kernel = {3, 2}, .pad = {0, 1}, .no_bias = true}),
  };
  cases[0].wrong_shapes = {{{"x", {2, 1, 6}}},
                           {{"x", {2, 1, 2, 5}}},
                           {{"x", {2, 1, 6, 5}}, {"conv_weight", {4, 2, 3, 3}}},
                           {{"x", {2, 1, 6, 5}}, {"conv_weight", {3, 1, 3, 3}}},
                           {{"x", {2, 1, 6, 5}}, {"conv_bias", {5}}}};
  cases[11].wrong_shapes = {{{"x", {2, 3, 4, 4}}}};
  for (ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                              ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    cases.push_back(ConvolutionCase(std::string("with ") + EnumNames(&type)[static_cast<int>(type)].name, {1, 3, 4, 4},
                                    {.num_filter = 4, .kernel = {3, 3}, .pad = {1, 1}, .activation = type}));
    cases.back().tolerance = 2;
    cases.back().stored = 1;  // gradients are sums of slopes, of outputs that libraries round before
  }
  const auto add_deconvolution = [&](const std::string& name, const Shape& data, const Shape& weight,
                                     const DeconvolutionAttrs& attrs) {
    cases.push_back({.name = "deconvolution, " + name,
                     .symbol = Deconvolution(Variable("x"), attrs, "conv"),
                     .inputs = {{"x", Uniform(data)}, {"conv_weight", Uniform(weight)}},
                     .batch_axes = {{"x", 0}},
                     .terms = static_cast<double>(data.CountFrom(1)),
                     .magnitude = 1});
    if (!attrs.no_bias) cases.back().inputs["conv_bias"] = Uniform({attrs.num_filter});
  };
  add_deconvolution("plain", {2, 3, 4, 5}, {3, 4, 3, 2}, {.num_filter = 4, .kernel = {3, 2}});
  add_deconvolution("strided", {2, 2, 3, 3}, {2, 4, 3, 3},
                    {.num_filter = 4, .kernel = {3, 3}, .stride = {2, 3}, .pad = {1, 0}, .output_padding = {1, 2}});
  add_deconvolution("of single elements, with others between", {2, 6, 4, 3}, {6, 4, 1, 1},
                    {.num_filter = 4, .kernel = {1, 1}, .stride = {2, 3}, .output_padding = {1, 2}});
  add_deconvolution("behind whose windows alone something is left", {2, 2, 1}, {2, 3, 2},
                    {.num_filter = 3, .kernel = {2}, .stride = {3}, .pad = {1}, .output_padding = {2}});
  add_deconvolution("1 axis, dilated, in groups", {2, 4, 5}, {4, 3, 3},
                    {.num_filter = 6, .kernel = {3}, .stride = {2}, .pad = {1, 2}, .dilate = {2}, .groups = 2});
  add_deconvolution("3 axes", {1, 2, 2, 3, 2}, {2, 3, 2, 2, 3},
                    {.num_filter = 3, .kernel = {2, 2, 3}, .stride = {1, 2, 2}, .no_bias = true});
  add_deconvolution("of the same extents", {2, 2, 3, 4}, {2, 3, 3, 3},
                    {.num_filter = 3, .kernel = {3, 3}, .stride = {2, 2}, .auto_pad = AutoPad::kSameUpper});
  add_deconvolution("of a target shape", {2, 2, 3, 4}, {2, 3, 3, 3},
                    {.num_filter = 3, .kernel = {3, 3}, .stride = {2, 2}, .target_shape = {5, 8}});
  cases.back().wrong_shapes = {{{"x", {2, 2, 4, 4}}, {"conv_weight", {2, 3, 3, 3}}}};
  // Not every gradient is asked for: the others' outputs are null pointers.
  for (const char* name : {"x", "conv_weight", "conv_bias"}) {
    cases.push_back(ConvolutionCase(std::string("gradient of ") + name + " alone", {2, 3, 4, 4},
                                    {.num_filter = 4, .kernel = {3, 3}}));
    cases.back().wrt = std::vector<std::string>{name};
  }
  cases.push_back(ConvolutionCase("2 to 18 channels, with tanh", {2, 2, 5, 4},
                                  {.num_filter = 18, .kernel = {3, 3}, .activation = ActivationType::kTanh}));
  cases.back().tolerance = 2;
  return cases;
}

}  // namespace bindery
