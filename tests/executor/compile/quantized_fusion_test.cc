// What predictions make of layers between DequantizeLinear and QuantizeLinear.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/data_parallel_executor_group.h"
#include "symbol/onnx/onnx.h"
#include "symbol/ops.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/quantized.h"
#include "tests/executor/group_helpers.h"
#include "tests/executor/values.h"
#include "tests/symbol/onnx_models.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

Symbol Weight(const std::string& name, const Shape& shape, bool per_output = true, int axis = 0) {
  const Symbol w = Variable(name, {.shape = shape, .dtype = DType::kInt8});
  const Symbol scale = Variable(name + "_scale", {.shape = per_output ? Shape{shape[shape.Axis(axis)]} : Shape{1}});
  return Apply(DequantizeLinearOp(), DequantizeAttrs{.axis = axis, .no_zero_point = true}, {w, scale}, name + "_real");
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
    for (int64_t i = 0; i < value.elements(); ++i) {
      if (p.name.ends_with("scale")) value.Set(i, 0.002 + 0.001 * value.At(i));
      if (p.dtype == DType::kInt8) value.Set(i, std::round(value.At(i) * 127));
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

HostTensor Predict(const Symbol& net, bool fuses) {
  DataParallelExecutorGroup group(net, OptionsOf(fuses));
  group.SetParams(ParamsOf(group.store()), {});
  Batch batch;
  batch.data = {RandomTensor({4, 3, 6, 6}, 7)};
  group.Forward(batch, Mode::kPredict);
  return group.Outputs()[0].ToHost();
}

// As the real numbers have it, but for numbers that lie on the border of two integers.
TEST(QuantizedFusion, ChangesNoMeaning) {
  // Each layer's own result, by integers from the same integers.
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    for (const bool relu : {false, true}) {
      Symbol x = Rounded(Variable("data"), 0.01, dtype == DType::kInt8 ? 5 : 128, dtype);
      x = Convolution(x, Weight("w1", {16, 3, 3, 3}), Variable("b1"), {.num_filter = 16, .kernel = {3, 3}}, "conv1");
      if (relu) x = Relu(x);
      x = QuantizeLinear(x, Number(0.01), Number(11, dtype), {.dtype = dtype});
      const HostTensor with = Predict(x, true), without = Predict(x, false);
      ExpectNear(with, without, 1, "a layer");
      EXPECT_EQ(with.dtype(), dtype);
      EXPECT_GT(MaxAbs(without), 20);
    }
  }
  const HostTensor with = Predict(Net(), true), without = Predict(Net(), false);
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

// --- Products of matrices.

int64_t ConnectionsOf(const Symbol& symbol) { return CountOf(PlanOf(symbol), "QuantizedFullyConnected", false); }

// A file's (inputs, outputs) are transposed once, and not in each run.
TEST(QuantizedFusion, ProductsByMatricesAreConnections) {
  Symbol x = Rounded(Variable("data"), 0.01, 128, DType::kUInt8);
  x = Relu(MatMul(x, Weight("w1", {6, 16}, true, 1)) + Variable("b1", {.shape = Shape{16}}));
  x = Rounded(x, 0.02, 3, DType::kUInt8);
  x = MatMul(x, Weight("w2", {5, 16}), {.transpose_b = true}, "y");
  const Plan plan = PlanOf(x);
  EXPECT_EQ(CountOf(plan, "QuantizedFullyConnected", false), 2);
  for (const char* op : {"MatMul", "Add", "Activation", "DequantizeLinear"}) EXPECT_EQ(CountOf(plan, op, false), 0);
  EXPECT_EQ(CountOf(plan, "QuantizeLinear", false), 1);
  EXPECT_EQ(CountOf(plan, "Transpose", false), 1);
  EXPECT_EQ(CountOf(plan, "Transpose"), 0);
  EXPECT_EQ(CountOf(PlanOf(x, false), "MatMul", false), 2);
  const HostTensor with = Predict(x, true), without = Predict(x, false);
  ExpectNear(with, without, 0.02 * MaxAbs(without), "two products");
  EXPECT_EQ(with.shape(), (Shape{4, 3, 6, 5}));
}

TEST(QuantizedFusion, ProductsKeepTheirMeaning) {
  const Symbol data = Variable("data"), b = Variable("b", {.shape = Shape{10}});
  const Symbol weights[] = {Weight("w", {6, 10}, true, 1),
                            Weight("w", {6, 10}, true, -1),
                            Weight("w", {6, 10}, false, 1),
                            Transpose(Weight("w", {10, 6}, true, -2)),
                            Transpose(Weight("w", {10, 6}), {.axes = {1, 0}}),
                            Transpose(Weight("w", {6, 10}, true, 1), {.axes = {0, 1}})};
  for (const DType dtype : {DType::kUInt8, DType::kInt8}) {
    const Symbol x = Rounded(data, 0.01, dtype == DType::kInt8 ? 5 : 128, dtype);
    const Symbol turned = MatMul(x, Weight("w", {10, 6}), {.transpose_b = true});
    std::vector<Symbol> products = {
        turned,           MatMul(x, Transpose(Weight("w", {6, 10}, true, 1)), {.transpose_b = true}),
        turned + b,       b + turned,
        Relu(b + turned), Relu(turned)};
    for (const Symbol& w : weights) products.push_back(MatMul(x, w) + b);
    const FullyConnectedAttrs attrs{.num_hidden = 10, .no_bias = true, .flatten = false};
    products.push_back(Apply(FullyConnectedOp(), attrs, {x, Weight("w", {10, 6})}) + b);
    products.push_back(Apply(FullyConnectedOp(), attrs, {x, Transpose(Weight("w", {6, 10}, true, 1))}));
    for (size_t i = 0; i < products.size(); ++i) {
      const std::string what = fmt::format("product {} of {}", i, dtype);
      const HostTensor with = Predict(products[i], true), without = Predict(products[i], false);
      ExpectNear(with, without, 1e-5 * MaxAbs(without), what);
      EXPECT_GT(MaxAbs(without), 0.5) << what;
      const Symbol q = QuantizeLinear(products[i], Number(0.01), Number(11, dtype), {.dtype = dtype});
      ExpectNear(Predict(q, true), Predict(q, false), 1, what);
      for (const Symbol& y : {products[i], q}) {
        const Plan plan = PlanOf(y);
        EXPECT_EQ(CountOf(plan, "QuantizedFullyConnected"), 1) << what;
        EXPECT_EQ(CountOf(plan, "Add") + CountOf(plan, "Activation") + CountOf(plan, "Transpose"), 0) << what;
      }
      EXPECT_EQ(CountOf(PlanOf(q), "QuantizeLinear"), 1) << what;
    }
  }
  const Symbol row = Rounded(Reshape(data, {.shape = {-1}}), 0.01, 128, DType::kUInt8);
  const Symbol y = MatMul(row, Weight("w", {432, 10}, true, 1)) + b;
  EXPECT_EQ(ConnectionsOf(y), 1) << "of a vector";
  ExpectNear(Predict(y, true), Predict(y, false), 1e-4, "of a vector");
}

TEST(QuantizedFusion, OtherProductsAreLeftAlone) {
  const Symbol data = Variable("data"), x = Rounded(data, 0.01, 128, DType::kUInt8);
  const Symbol w = Weight("w", {6, 10}, true, 1), b = Variable("b", {.shape = Shape{10}});
  EXPECT_EQ(ConnectionsOf(MatMul(x, w)), 1);
  EXPECT_EQ(ConnectionsOf(MatMul(data, w)), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(x, w, {.transpose_a = true})), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(Weight("w", {10, 6}), x)), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(x, Weight("w", {3, 6, 10}, false))), 0) << "several matrices";
  EXPECT_EQ(ConnectionsOf(MatMul(x, Weight("w", {6}, false))), 0) << "a vector";
  // Scales along what is summed.
  EXPECT_EQ(ConnectionsOf(MatMul(x, Weight("w", {6, 10}))), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(x, Weight("w", {10, 6}, true, 1), {.transpose_b = true})), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(x, Transpose(Weight("w", {10, 6}, true, 1)))), 0);
  // Zero points; integers that are no parameter.
  const Symbol ints = Variable("w", {.shape = Shape{6, 10}, .dtype = DType::kInt8}), one = Number(0.01);
  const auto shifted = [&](double last) {
    HostTensor zeros(DType::kInt8, {10});
    zeros.Set(9, last);
    return MatMul(x, DequantizeLinear(ints, Variable("scale", {.shape = Shape{10}}), Constant(zeros), {.axis = 1}));
  };
  EXPECT_EQ(ConnectionsOf(shifted(0)), 1);
  EXPECT_EQ(ConnectionsOf(shifted(1)), 0);
  EXPECT_EQ(ConnectionsOf(MatMul(x, Rounded(Variable("real", {.shape = Shape{6, 10}}), 0.1, 0, DType::kInt8))), 0);
  // Data by several scales.
  const Symbol scales = Variable("scales", {.shape = Shape{3}}), zeros = Constant(HostTensor(DType::kUInt8, Shape{3}));
  EXPECT_EQ(ConnectionsOf(MatMul(DequantizeLinear(QuantizeLinear(data, scales, zeros, {}), scales, zeros), w)), 0);
  // What is added is no vector, or the product has its bias, or is read by others.
  const auto expect_sum = [](const Symbol& y) {
    EXPECT_EQ(ConnectionsOf(y), 1);
    EXPECT_EQ(CountOf(PlanOf(y), "Add"), 1);
    ExpectNear(Predict(y, true), Predict(y, false), 1e-4, "a sum");
  };
  const Symbol y = MatMul(x, w);
  expect_sum(y + Variable("matrix", {.shape = Shape{6, 10}}));
  expect_sum(y + Variable("number", {.shape = Shape{1}}));
  expect_sum(y + b + Variable("c", {.shape = Shape{10}}));
  expect_sum(y + y);
  expect_sum(Group({y + b, y}));
  // More than 32 bits hold.
  const Symbol by_rows = MatMul(x, x, {.transpose_b = true});
  const Node &product = *y.entry().node, &turned = *by_rows.entry().node;
  EXPECT_EQ(AxisOfOutputs(product, {kMostProducts, 2}), 1);
  EXPECT_EQ(AxisOfOutputs(product, {kMostProducts + 1, 2}), std::nullopt);
  EXPECT_EQ(AxisOfOutputs(turned, {2, kMostProducts}), 0);
  EXPECT_EQ(AxisOfOutputs(turned, {2, kMostProducts + 1}), std::nullopt);
  EXPECT_EQ(AxisOfOutputs(product, {0, 2}), std::nullopt) << "sums of nothing";
}

TEST(QuantizedFusion, ProductsMayShareAMatrix) {
  const Symbol w = Weight("w", {6, 6}, false, 1);
  const Symbol first = Rounded(MatMul(Rounded(Variable("data"), 0.01, 128, DType::kUInt8), w), 0.02, 3, DType::kInt8);
  const Symbol y = MatMul(first, w) + Sum(w, {.axes = {0}});  // which is read otherwise, too
  const Plan plan = PlanOf(y);
  EXPECT_EQ(CountOf(plan, "QuantizedFullyConnected"), 2);
  EXPECT_EQ(CountOf(plan, "Transpose", false), 1);
  const HostTensor with = Predict(y, true), without = Predict(y, false);
  ExpectNear(with, without, 0.02 * MaxAbs(without), "both");
}

// Files of ONNX with integers around products.
TEST(QuantizedFusion, ProductsOfFiles) {
  const std::string zeros = "initializer { name: 'zw' data_type: 3 dims: 2 int32_data: [0, 0] } ",
                    zero = "initializer { name: 'z' data_type: 2 int32_data: [7] } ",
                    matrix =
                        "initializer { name: 'w' data_type: 3 dims: [6, 2] "
                        "int32_data: [1, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, -12] } ";
  const std::string inputs = OnnxInput("data", "N, 3, 6, 6") + zeros + zero + matrix + OnnxFloats("s", "", "0.01") +
                             OnnxFloats("w_scale", "2", "0.5, 0.25") + OnnxFloats("b", "2", "1, 2");
  const std::string from = OnnxNode("QuantizeLinear", "data s z", "q"),
                    rows = OnnxInt64s("to", "2", "-1, 6") + OnnxNode("Reshape", "data to", "rows") +
                           OnnxNode("QuantizeLinear", "rows s z", "q"),
                    real = OnnxNode("DequantizeLinear", "q s z", "x") +
                           OnnxNode("DequantizeLinear", "w w_scale zw", "real", OnnxInt("axis", 1)),
                    to = OnnxNode("QuantizeLinear", "p s z", "y");
  const std::string graphs[] = {from + real + OnnxNode("MatMul", "x real", "product") +
                                    OnnxNode("Add", "b product", "sum") + OnnxNode("Relu", "sum", "p") + to,
                                rows + real + OnnxNode("Gemm", "x real b", "p") + to,
                                from + OnnxNode("QLinearMatMul", "q s z w w_scale zw s z", "y")};
  for (const std::string& graph : graphs) {
    const Symbol y = ParseOnnx(OnnxBytes(inputs + graph + OnnxOutput("y"), 17), "m.onnx").symbol;
    const Plan plan = PlanOf(y);
    EXPECT_EQ(CountOf(plan, "QuantizedFullyConnected"), 1) << graph;
    EXPECT_EQ(CountOf(plan, "QuantizeLinear"), 1) << graph;
    for (const char* op : {"MatMul", "Add", "Activation", "DequantizeLinear", "Transpose"}) {
      EXPECT_EQ(CountOf(plan, op), 0) << op << " in " << graph;
    }
    const HostTensor with = Predict(y, true), without = Predict(y, false);
    ExpectNear(with, without, 1, graph);
    EXPECT_GT(MaxAbs(without), 20);
  }
}

}  // namespace
}  // namespace bindery
