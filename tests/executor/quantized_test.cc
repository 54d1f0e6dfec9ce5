// Layers of integers: exact whatever the values are, and what predictions make of layers between DequantizeLinear and
// QuantizeLinear.
#include "symbol/ops/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/team.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/evaluate.h"
#include "symbol/ops.h"
#include "symbol/ops/quantize.h"
#include "tests/executor/group_helpers.h"
#include "tests/executor/operator_cases.h"
#include "tests/executor/values.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

// --- The kernels.

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
  QuantizedConvolutionAttrs line;
  line.pad = {1};
  line.stride = {2};
  layers.push_back(convolution({3, 5, 11}, {9, 5, 4}, line));
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

// --- The fusion.

Symbol Weight(const std::string& name, const Shape& shape, bool per_output = true) {
  const Symbol w = Variable(name, {.shape = shape, .dtype = DType::kInt8});
  const Symbol scale = Variable(name + "_scale", {.shape = per_output ? Shape{shape[0]} : Shape{1}});
  return Apply(DequantizeLinearOp(), DequantizeAttrs{.axis = 0, .no_zero_point = true}, {w, scale}, name + "_real");
}
Symbol Number(double value, DType dtype = DType::kFloat32) { return Constant(HostTensor::Full(dtype, {}, value)); }
// x as the integers that stand for it, and back.
Symbol Rounded(const Symbol& x, double scale, double zero, DType dtype) {
  const Symbol s = Number(scale), z = Number(zero, dtype);
  return DequantizeLinear(QuantizeLinear(x, s, z, {.dtype = dtype}), s, z);
}

// An image's network with everything in it that may become part of a layer, or must not.
Symbol Net() {
  Symbol x = Rounded(Variable("data"), 0.01, 128, DType::kUInt8);
  x = Convolution(x, Weight("w1", {16, 3, 3, 3}), Variable("b1"), {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}},
                  "conv1");
  const Symbol first = Rounded(Relu(x), 0.02, 0, DType::kUInt8);  // read twice
  ConvolutionAttrs no_bias{.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}};
  no_bias.no_bias = true;
  x = Apply(ConvolutionOp(), no_bias, {first, Weight("w2", {16, 16, 3, 3}, false)}, "conv2");
  x = Relu(x + first);
  x = Rounded(x, 0.03, -5, DType::kInt8);
  x = Pooling(x, {.kernel = {2, 2}, .stride = {2, 2}});
  x = Rounded(x, 0.03, -5, DType::kInt8);
  x = Rounded(FullyConnected(x, Weight("w3", {10, 144}), Variable("b3"), {.num_hidden = 10}, "fc1"), 0.05, 3,
              DType::kInt8);
  return FullyConnected(x, Weight("w4", {4, 10}), Variable("b4"), {.num_hidden = 4}, "fc2");
}

GroupOptions OptionsOf(bool fuses) {
  CompileSwitches switches;
  switches.fusion = fuses;
  return {.devices = {TestDevice(0)},
          .data = {{"data", {4, 3, 6, 6}}},
          .for_training = false,
          .threads_per_device = 1,
          .switches = switches};
}

HostTensorMap ParamsOf(const ParameterStore& store) {
  HostTensorMap params;
  for (const StoredParameter& p : store.parameters()) {
    HostTensor& value = params[p.name] = RandomTensor(p.shape, StreamKey(1, p.name).k0);
    if (p.name.ends_with("scale")) value = HostTensor::Full(DType::kFloat32, p.shape, 0.002);
    for (int64_t i = 0; p.dtype == DType::kInt8 && i < value.elements(); ++i) {
      value.Set(i, std::round(value.At(i) * 127));
    }
    value = value.Cast(p.dtype);
  }
  return params;
}

int64_t CountOf(const Plan& plan, const std::string& op, bool in_run = true) {
  return std::count_if(plan.calls.begin() + (in_run ? plan.derive_calls : 0), plan.calls.end(),
                       [&](const PlanCall& call) { return call.op == op; });
}
Plan PlanOf(const Symbol& symbol, bool fuses = true) {
  return DataParallelExecutorGroup::MakePlans(symbol, OptionsOf(fuses))[0].plan;
}

TEST(QuantizedFusion, TakesWhatIsAroundALayer) {
  const Plan plan = PlanOf(Net());
  EXPECT_EQ(CountOf(plan, "QuantizedConvolution", false), 2);
  EXPECT_EQ(CountOf(plan, "QuantizedFullyConnected", false), 2);
  EXPECT_EQ(CountOf(plan, "Convolution", false) + CountOf(plan, "FullyConnected", false), 0);
  // Of the data; of the sum, whose layers come later; of what is pooled. The rest is in layers.
  EXPECT_EQ(CountOf(plan, "QuantizeLinear", false), 3);
  EXPECT_EQ(CountOf(plan, "DequantizeLinear", false), 2);  // of the addend, and before the pooling
  EXPECT_EQ(CountOf(plan, "Mul"), 0);                      // scales are multiplied once
  const Plan without = PlanOf(Net(), false);
  EXPECT_EQ(CountOf(without, "Convolution", false), 2);
  EXPECT_EQ(CountOf(without, "QuantizedConvolution", false), 0);
}

// As the real numbers have it, but for numbers that lie on the border of two integers.
TEST(QuantizedFusion, ChangesNoMeaning) {
  const auto predict = [](const Symbol& net, bool fuses) {
    DataParallelExecutorGroup group(net, OptionsOf(fuses));
    group.SetParams(ParamsOf(group.store()), {});
    Batch batch;
    batch.data = {RandomTensor({4, 3, 6, 6}, 7)};
    group.Forward(batch, Mode::kPredict);
    std::vector<HostTensor> outputs;
    for (const auto& output : group.Outputs()) outputs.push_back(output.ToHost());
    return outputs;
  };
  // Each layer's own result, by integers from the same integers.
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    for (const bool relu : {false, true}) {
      Symbol x = Rounded(Variable("data"), 0.01, dtype == DType::kInt8 ? 5 : 128, dtype);
      x = Convolution(x, Weight("w1", {16, 3, 3, 3}), Variable("b1"), {.num_filter = 16, .kernel = {3, 3}}, "conv1");
      if (relu) x = Relu(x);
      x = QuantizeLinear(x, Number(0.01), Number(11, dtype), {.dtype = dtype});
      const HostTensor with = predict(x, true)[0], without = predict(x, false)[0];
      ExpectNear(with, without, 1, "a layer");
      EXPECT_EQ(with.dtype(), dtype);
      EXPECT_GT(MaxAbs(without), 20);
    }
  }
  const HostTensor with = predict(Net(), true)[0], without = predict(Net(), false)[0];
  ExpectNear(with, without, 0.02 * MaxAbs(without), "the network");
  EXPECT_GT(MaxAbs(without), 0.1);
}

TEST(QuantizedFusion, LeavesOthersAlone) {
  const Symbol x = Rounded(Variable("data"), 0.01, 128, DType::kUInt8);
  const auto fused = [](const Symbol& symbol) { return CountOf(PlanOf(symbol), "QuantizedConvolution", false); };
  const auto layer = [](const Symbol& data, const Symbol& weight, int64_t groups = 1,
                        ActivationType activation = ActivationType::kNone) {
    return Apply(ConvolutionOp(),
                 ConvolutionAttrs{
                     .num_filter = 6, .kernel = {3, 3}, .groups = groups, .no_bias = true, .activation = activation},
                 {data, weight}, "conv");
  };
  const Symbol w = Weight("w", {6, 3, 3, 3});
  EXPECT_EQ(fused(layer(x, w)), 1);
  EXPECT_EQ(fused(layer(x, w, 1, ActivationType::kRelu)), 1);
  EXPECT_EQ(fused(layer(x, w, 1, ActivationType::kTanh)), 0);
  EXPECT_EQ(fused(layer(x, Weight("w", {6, 1, 3, 3}), 3)), 0);
  EXPECT_EQ(fused(layer(Variable("data"), w)), 0);
  const Symbol ints = Variable("w", {.shape = Shape{6, 3, 3, 3}, .dtype = DType::kInt8}), one = Number(0.01);
  const auto shifted = [&](double zero) {
    return layer(x, DequantizeLinear(ints, one, Number(zero, DType::kInt8), {.axis = 0}));
  };
  EXPECT_EQ(fused(shifted(0)), 1);
  EXPECT_EQ(fused(shifted(1)), 0);
  // Scales along another axis.
  const Symbol scales = Variable("scales", {.shape = Shape{3}});
  EXPECT_EQ(
      fused(layer(x, Apply(DequantizeLinearOp(), DequantizeAttrs{.axis = 1, .no_zero_point = true}, {ints, scales}))),
      0);
  // A result that is not quantized, but a scale that others are quantized by.
  const Symbol data = Variable("data");
  const Symbol line = Rounded(Reshape(data, {.shape = {-1}}), 0.01, 128, DType::kUInt8);
  const FullyConnectedAttrs one_number{.num_hidden = 1, .no_bias = true, .flatten = false};
  const Symbol scale = Apply(FullyConnectedOp(), one_number, {line, Weight("w", {1, 432})}, "fc");
  const Plan scaled = PlanOf(QuantizeLinear(data, scale, Constant(HostTensor(DType::kUInt8, {1})), {}));
  EXPECT_EQ(CountOf(scaled, "QuantizedFullyConnected", false), 1);
  EXPECT_EQ(CountOf(scaled, "QuantizeLinear", false), 2);
  // A result that is read as a number, too.
  const Symbol y = layer(x, w);
  const Plan both = PlanOf(Group({Rounded(y, 0.02, 3, DType::kUInt8), y}));
  EXPECT_EQ(CountOf(both, "QuantizedConvolution", false), 1);
  EXPECT_EQ(CountOf(both, "QuantizeLinear", false), 2);
}

}  // namespace
}  // namespace bindery
