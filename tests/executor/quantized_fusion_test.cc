// What predictions make of layers between DequantizeLinear and QuantizeLinear.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/quantized.h"
#include "tests/executor/group_helpers.h"
#include "tests/executor/values.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

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
