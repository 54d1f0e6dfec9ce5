// Layers of integers. Scales are powers of 2, so that results are exact in float32 and no half is on two sides.
#include "symbol/ops/quantized.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

template <class Attrs>
OperatorCase Case(const std::string& name, const OpDef& op, const Attrs& attrs, const Shape& data, const Shape& weight,
                  DType dtype) {
  std::vector<Symbol> inputs = {Variable("x"), Variable("w"), Variable("scale"), Variable("zero")};
  const bool is_signed = dtype == DType::kInt8;
  OperatorCase c{.name = name,
                 .inputs = {{"x", is_signed ? Integers(data, -128, 127) : Integers(data, 0, 255)},
                            {"w", Integers(weight, -128, 127)},
                            {"scale", HostTensor::Full(DType::kFloat64, {weight[0]}, 1.0 / 1024)},
                            {"zero", HostTensor::Full(DType::kFloat64, {}, 9)}},
                 .dtypes = {{"x", dtype}, {"w", DType::kInt8}, {"scale", DType::kFloat32}, {"zero", dtype}},
                 .batch_axes = {{"x", 0}},
                 .mode = Mode::kPredict,
                 .test_dtypes = {DType::kFloat32},
                 .terms = static_cast<double>(weight.CountFrom(1)),
                 .magnitude = 32.0 * static_cast<double>(weight.CountFrom(1))};
  const auto add = [&](const std::string& input, HostTensor value, DType of) {
    inputs.push_back(Variable(input));
    c.inputs[input] = std::move(value);
    c.dtypes[input] = of;
  };
  if (!attrs.no_bias) add("bias", Integers({weight[0]}, -20, 20), DType::kFloat32);
  if (attrs.dtype != DType::kFloat32) {
    add("output_scale", HostTensor::Full(DType::kFloat64, {1}, 0.5), DType::kFloat32);
    add("output_zero", HostTensor::Full(DType::kFloat64, {1}, 5), attrs.dtype);
  }
  c.symbol = Apply(op, attrs, inputs, "y");
  c.wrt.emplace();
  return c;
}

OperatorCase Convolved(const std::string& name, ConvolutionAttrs layer, const Shape& data, DType from, DType to) {
  QuantizedConvolutionAttrs attrs{std::move(layer)};
  attrs.dtype = to;
  Shape weight = Shape{attrs.num_filter, data[1] / attrs.groups};
  for (const int64_t extent : attrs.kernel) weight = weight.Insert(weight.rank(), extent);
  return Case(name, QuantizedConvolutionOp(), attrs, data, weight, from);
}

OperatorCase Connected(const std::string& name, FullyConnectedAttrs layer, const Shape& data, int64_t inputs,
                       DType from, DType to) {
  QuantizedFullyConnectedAttrs attrs{layer};
  attrs.dtype = to;
  return Case(name, QuantizedFullyConnectedOp(), attrs, data, {layer.num_hidden, inputs}, from);
}

}  // namespace

std::vector<OperatorCase> QuantizedCases() {
  constexpr DType kReal = DType::kFloat32, kSigned = DType::kInt8, kUnsigned = DType::kUInt8;
  return {
      Convolved("integers, 3 channels", {.num_filter = 8, .kernel = {3, 3}, .pad = {1, 1}}, {2, 3, 6, 5}, kUnsigned,
                kReal),
      Convolved("integers, 8 to 20 channels, relu",
                {.num_filter = 20, .kernel = {3, 2}, .stride = {2, 1}, .activation = ActivationType::kRelu},
                {2, 8, 7, 6}, kSigned, kUnsigned),
      Convolved("integers, dilation, without bias",
                {.num_filter = 5, .kernel = {2, 3}, .pad = {2, 3}, .dilate = {3, 2}, .no_bias = true}, {1, 4, 6, 7},
                kUnsigned, kSigned),
      Convolved("integers, 1 spatial axis", {.num_filter = 4, .kernel = {3}, .pad = {1}}, {2, 5, 9}, kSigned, kReal),
      Convolved("integers, groups", {.num_filter = 6, .kernel = {3, 3}, .groups = 2}, {2, 4, 5, 5}, kUnsigned, kReal),
      Convolved("integers, 3 spatial axes", {.num_filter = 2, .kernel = {2, 2, 2}}, {1, 2, 3, 4, 3}, kUnsigned, kReal),
      Connected("integers connected", {.num_hidden = 10}, {3, 2, 5}, 10, kUnsigned, kReal),
      Connected("integers connected along the last axis, relu",
                {.num_hidden = 17, .flatten = false, .activation = ActivationType::kRelu}, {2, 3, 7}, 7, kSigned,
                kSigned),
      Connected("integers connected, without bias", {.num_hidden = 3, .no_bias = true}, {4, 33}, 33, kUnsigned,
                kUnsigned),
  };
}

// What large.cc has of them.
std::vector<OperatorCase> LargeQuantizedCases() {
  std::vector<OperatorCase> cases = {
      Convolved("large convolution of integers", {.num_filter = 24, .kernel = {3, 3}, .pad = {1, 1}}, {7, 20, 19, 17},
                DType::kUInt8, DType::kUInt8),
      Connected("large connection of integers", {.num_hidden = 65}, {67, 257}, 257, DType::kInt8, DType::kFloat32)};
  for (OperatorCase& c : cases) c.large = true;
  return cases;
}

}  // namespace bindery
