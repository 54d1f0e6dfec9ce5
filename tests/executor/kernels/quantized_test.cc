// Layers of integers: exact whatever the values are.
#include "symbol/ops/quantized.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "executor/evaluate.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

struct Layer {
  Shape data, weight;
  QuantizedConvolutionAttrs attrs;  // kernel is empty: a full connection
  bool one_scale = false;
};

std::vector<Layer> Layers() {
  const auto convolution = [](const Shape& data, const Shape& weight, QuantizedConvolutionAttrs attrs) {
    attrs.num_filter = weight[0];
    for (int i = 2; i < weight.rank(); ++i) attrs.kernel.push_back(weight[i]);
    return Layer{data, weight, attrs};
  };
  QuantizedConvolutionAttrs plain, padded, strided, wide, uneven, beyond;
  padded.pad = {1, 1};
  padded.activation = ActivationType::kRelu;
  strided.stride = {2, 3};
  strided.pad = {2, 0};
  wide.dilate = {2, 3};
  wide.pad = {3, 3};
  wide.no_bias = true;
  uneven.pad = {0, 2, 1, 0};
  beyond.pad = {4, 4};
  beyond.stride = {3, 3};
  std::vector<Layer> layers = {
      convolution({2, 1, 9, 8}, {5, 1, 3, 3}, padded),      convolution({1, 3, 12, 13}, {16, 3, 5, 5}, strided),
      convolution({3, 4, 7, 7}, {20, 4, 3, 2}, wide),       convolution({2, 20, 6, 6}, {50, 20, 3, 3}, uneven),
      convolution({2, 64, 5, 5}, {33, 64, 1, 1}, plain),    convolution({2, 7, 4, 4}, {16, 7, 2, 2}, beyond),
      convolution({1, 16, 12, 400}, {17, 16, 3, 3}, padded)};
  layers.push_back(convolution({2, 1, 14, 11}, {20, 1, 5, 5}, padded));
  layers.push_back(convolution({2, 1, 13, 12}, {9, 1, 2, 3}, wide));
  QuantizedConvolutionAttrs line;
  line.pad = {1};
  line.stride = {2};
  layers.push_back(convolution({3, 5, 11}, {9, 5, 4}, line));
  layers.push_back(convolution({3, 1, 17}, {17, 1, 6}, line));
  QuantizedConvolutionAttrs connection;
  for (const auto& [rows, inputs, outputs] : {std::array<int64_t, 3>{1, 33, 10}, {7, 400, 50}, {40, 64, 16}}) {
    layers.push_back({{rows, inputs}, {outputs, inputs}, connection});
    layers.back().one_scale = rows == 7;
  }
  return layers;
}

// Of data and weights in the ranges given.
struct Range {
  int64_t low, high, low_weight, high_weight, zero;
};

std::vector<HostTensor> InputsOf(const Layer& layer, DType dtype, const Range& range) {
  const int64_t outputs = layer.weight[0], products = layer.weight.CountFrom(1);
  std::vector<HostTensor> inputs = {Integers(layer.data, range.low, range.high).Cast(dtype),
                                    Integers(layer.weight, range.low_weight, range.high_weight).Cast(DType::kInt8)};
  const double scale = 1e-3 / static_cast<double>(products);
  inputs.push_back(layer.one_scale ? HostTensor::Full(DType::kFloat32, {1}, scale)
                                   : Uniform({outputs}, scale / 2, scale).Cast(DType::kFloat32));
  inputs.push_back(HostTensor::Full(dtype, {}, static_cast<double>(range.zero)));
  if (!layer.attrs.no_bias) inputs.push_back(Uniform({outputs}).Cast(DType::kFloat32));
  if (layer.attrs.dtype == DType::kFloat32) return inputs;
  inputs.push_back(HostTensor::Full(DType::kFloat32, {1}, 0.03));
  inputs.push_back(HostTensor::Full(layer.attrs.dtype, {1}, layer.attrs.dtype == DType::kInt8 ? -3 : 100));
  return inputs;
}

Symbol SymbolOf(const Layer& layer, size_t inputs) {
  std::vector<Symbol> variables;
  for (size_t i = 0; i < inputs; ++i) variables.push_back(Variable(fmt::format("x{}", i)));
  if (!layer.attrs.kernel.empty()) return Apply(QuantizedConvolutionOp(), layer.attrs, variables, "y");
  QuantizedFullyConnectedAttrs attrs;
  attrs.num_hidden = layer.weight[0];
  attrs.no_bias = layer.attrs.no_bias;
  attrs.dtype = layer.attrs.dtype;
  return Apply(QuantizedFullyConnectedOp(), attrs, variables, "y");
}

TEST(Operators, Quantized) { CheckOperators(QuantizedCases()); }

// Sums are whole numbers, which float64 holds: what the plain loops give is right to the rounding of the results.
TEST(QuantizedKernels, AsThePlainLoops) {
  for (const DType data : {DType::kUInt8, DType::kInt8}) {
    const bool is_signed = data == DType::kInt8;
    const int64_t low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
    const Range ranges[] = {{low, high, -128, 127, 3},
                            {high, high, 127, 127, low},
                            {high, high, -128, -128, low},
                            {low, low, -128, -128, high},
                            {high, high, 127, 127, 0}};
    for (const Range& range : ranges) {
      for (Layer layer : Layers()) {
        for (const DType dtype : {DType::kFloat32, DType::kUInt8, DType::kInt8}) {
          if (dtype != DType::kFloat32 && (layer.data.Elements() > 10'000 || &range != ranges)) continue;
          layer.attrs.dtype = dtype;
          const std::vector<HostTensor> inputs = InputsOf(layer, data, range);
          const Symbol y = SymbolOf(layer, inputs.size());
          const Node& node = *y.entry().node;
          const HostTensor fast = EvaluateNode(node, inputs, Mode::kPredict, KernelPolicy::kFast)[0];
          const HostTensor plain = EvaluateNode(node, inputs, Mode::kPredict, KernelPolicy::kReference)[0];
          const std::string what = fmt::format("{} by {}, {} to {}, {} {}", layer.data, layer.weight, data, dtype,
                                               range.low, range.low_weight);
          ExpectNear(fast, plain, dtype == DType::kFloat32 ? 1e-5 : 1, what);
          // At most a number that float32 puts on the other side of a half.
          int64_t others = 0;
          for (int64_t i = 0; i < fast.elements(); ++i) others += fast.At(i) != plain.At(i);
          if (dtype != DType::kFloat32) {
            EXPECT_LE(others, 1 + fast.elements() / 1000) << what;
          }
        }
      }
    }
  }
}

// By hand: 255 times 127, so often, is no more than it is; bytes' own products would have ended at 32767.
TEST(QuantizedKernels, SumsOfTheLargest) {
  constexpr int64_t kProducts = 65536;
  const auto full = [](DType dtype, const Shape& shape, double value) { return HostTensor::Full(dtype, shape, value); };
  QuantizedFullyConnectedAttrs attrs;
  attrs.num_hidden = 1;
  attrs.no_bias = true;
  const Symbol y = Apply(QuantizedFullyConnectedOp(), attrs,
                         {Variable("x"), Variable("w"), Variable("scale"), Variable("zero")}, "y");
  for (const auto& [x, w] : {std::pair(255, 127), std::pair(255, -128)}) {
    const std::vector<HostTensor> inputs = {full(DType::kUInt8, {1, kProducts}, x),
                                            full(DType::kInt8, {1, kProducts}, w), full(DType::kFloat32, {}, 1),
                                            full(DType::kUInt8, {}, 0)};
    EXPECT_EQ(EvaluateNode(*y.entry().node, inputs, Mode::kPredict, KernelPolicy::kFast)[0].At(0),
              static_cast<float>(int64_t{x} * w * kProducts));
  }
}

TEST(QuantizedKernels, WhatIsNoNumberIsZero) {
  QuantizedFullyConnectedAttrs attrs;
  attrs.num_hidden = 2;
  attrs.dtype = DType::kUInt8;
  std::vector<Symbol> inputs;
  for (const char* name : {"x", "w", "scale", "zero", "bias", "output_scale", "output_zero"}) {
    inputs.push_back(Variable(name));
  }
  const Symbol y = Apply(QuantizedFullyConnectedOp(), attrs, inputs, "y");
  const auto full = [](DType dtype, const Shape& shape, double value) { return HostTensor::Full(dtype, shape, value); };
  HostTensor bias(DType::kFloat32, {2});
  bias.Set(0, std::nan(""));
  bias.Set(1, INFINITY);
  for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    const HostTensor q =
        EvaluateNode(*y.entry().node,
                     {full(DType::kUInt8, {1, 4}, 1), full(DType::kInt8, {2, 4}, 1), full(DType::kFloat32, {}, 1),
                      full(DType::kUInt8, {}, 0), bias, full(DType::kFloat32, {}, 1), full(DType::kUInt8, {}, 7)},
                     Mode::kPredict, policy)[0];
    EXPECT_EQ(q.At(0), 0);
    EXPECT_EQ(q.At(1), 255);
  }
}

// Windows that reach further than memory does, all over padding: a hostile file may say so.
TEST(QuantizedKernels, WindowsBeyondMemory) {
  QuantizedConvolutionAttrs attrs;
  attrs.num_filter = 1;
  attrs.kernel = {2, 2};
  attrs.dilate = {INT32_MAX, INT32_MAX};  // 2^62 places, of 4 channels
  attrs.pad = {int64_t{1} << 30, int64_t{1} << 30};
  attrs.stride = {2, 2};
  const Layer layer{{1, 4, 1, 1}, {1, 4, 2, 2}, attrs};
  const std::vector<HostTensor> inputs = InputsOf(layer, DType::kUInt8, {1, 255, 1, 127, 0});
  const HostTensor y =
      EvaluateNode(*SymbolOf(layer, inputs.size()).entry().node, inputs, Mode::kPredict, KernelPolicy::kFast)[0];
  ASSERT_EQ(y.elements(), 1);
  EXPECT_EQ(y.At(0), inputs[4].At(0));  // the bias
}

}  // namespace
}  // namespace bindery
