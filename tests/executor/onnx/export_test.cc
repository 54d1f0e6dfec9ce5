// What operators compute goes through ONNX and comes back: every case of every operator in float32, as inference has it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "symbol/graph.h"
#include "symbol/onnx/onnx.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/prepared_case.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

// Its variables declare the shapes and types of the values.
Symbol Declared(const Symbol& symbol, const HostTensorMap& values) {
  std::unordered_map<const Node*, Entry> replaced;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable()) continue;
    const HostTensor& value = values.at(node->name());
    replaced[node.get()] = Variable(node->name(), {.shape = value.shape(), .dtype = value.dtype()}).entry();
  }
  return Rewrite(
      symbol, [](const NodePtr&, const std::vector<Entry>&) { return std::vector<Entry>(); }, replaced);
}

// "" if it cannot be exported.
std::string Exported(const Symbol& symbol) {
  try {
    return SerializeOnnx({.symbol = symbol});
  } catch (const ModelError&) {
    return "";
  }
}

void ExpectEqual(const HostTensor& actual, const HostTensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_EQ(actual.dtype(), expected.dtype());
  for (int64_t i = 0; i < actual.elements(); ++i) {
    const double a = actual.At(i), e = expected.At(i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    ASSERT_LE(std::fabs(a - e), 1e-5 + 1e-4 * std::fabs(e)) << "element " << i << ": " << a << " instead of " << e;
  }
}

std::set<std::string> OperatorsOf(const Symbol& symbol) {
  std::set<std::string> names;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (!node->is_variable()) names.insert(node->op().name);
  }
  return names;
}

TEST(OnnxExport, WhatOperatorsComputeComesBack) {
  std::set<std::string> exported, all;
  for (const OperatorCase& c : AllOperatorCases()) {
    SCOPED_TRACE(c.name);
    const std::set<std::string> operators = OperatorsOf(c.symbol);
    all.insert(operators.begin(), operators.end());
    const PreparedCase prepared(c);
    const HostTensorMap values = PreparedCase::CastTo(prepared.TypesFor(DType::kFloat32), c.inputs, c.symbol);
    const Symbol symbol = Declared(c.symbol, values);
    const std::string bytes = Exported(symbol);
    if (bytes.empty()) continue;
    try {
      const Model loaded = ParseOnnx(bytes);
      HostTensorMap inputs = loaded.params;
      inputs.insert(values.begin(), values.end());
      const RunOptions options{
          .mode = Mode::kPredict, .step = c.step, .batch_axes = OpenAxesOf(loaded.symbol), .watch = false};
      const RunResult expected = RunGraph(symbol, values, options), actual = RunGraph(loaded.symbol, inputs, options);
      for (size_t i = 0; i < expected.outputs.size(); ++i) {
        if (operators.contains("RandomInt")) {  // draws others
          EXPECT_EQ(actual.outputs[i].shape(), expected.outputs[i].shape());
          EXPECT_EQ(actual.outputs[i].dtype(), expected.outputs[i].dtype());
        } else {
          ExpectEqual(actual.outputs[i], expected.outputs[i]);
        }
      }
      exported.insert(operators.begin(), operators.end());
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  // Which operators are never exported stands in tests/symbol/onnx_import_test.cc.
  const std::vector<std::string> exports = OnnxExports();
  for (const std::string& op : exports) EXPECT_TRUE(exported.contains(op) || !all.contains(op)) << op;
}

// What is 1 behind a Reshape is known where its input is; else it is not guessed.
TEST(OnnxExport, SqueezeNamesAllAxes) {
  const auto squeezed = [](const Shape& shape) {
    const Symbol x = Variable("x", {.shape = shape, .dtype = DType::kFloat32});
    return SerializeOnnx({.symbol = Squeeze(Reshape(x, {.shape = {0, -1, 4, 1}}))});
  };
  const Model loaded = ParseOnnx(squeezed({kUnknownDim, 4, 1}));
  const HostTensor x = HostTensor::From({2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  const RunOptions options{.mode = Mode::kPredict, .batch_axes = {{"x", 0}}};
  EXPECT_EQ(RunGraph(loaded.symbol, {{"x", x}}, options).outputs[0], x.Reshape({2, 4}));
  EXPECT_NE(MessageOf<ModelError>([&] {
              squeezed({kUnknownDim, kUnknownDim, 1});
            }).find("name the axes"),
            std::string::npos);
}

// What won a MaxPool, and where it was put back.
TEST(OnnxExport, PoolingIsUndone) {
  const std::string windows = OnnxInts("kernel_shape", "2") + OnnxInts("strides", "2");
  const Model model =
      ParseOnnx(OnnxBytes(OnnxInput("x", "N, 1, 4") + OnnxNode("MaxPool", "x", "m i", windows) +
                          OnnxNode("MaxUnpool", "m i", "y", windows) + OnnxOutput("i") + OnnxOutput("y")));
  const HostTensor x = HostTensor::From({2, 1, 4}, {1, 2, 4, 3, 5, 6, 8, 7});
  const RunOptions options{.mode = Mode::kPredict, .batch_axes = {{"x", 0}}};
  const std::vector<HostTensor> outputs = RunGraph(ParseOnnx(SerializeOnnx(model)).symbol, {{"x", x}}, options).outputs;
  EXPECT_EQ(outputs[0], HostTensor::From({2, 1, 2}, {1, 2, 5, 6}).Cast(DType::kInt64));
  EXPECT_EQ(outputs[1], HostTensor::From({2, 1, 4}, {0, 2, 4, 0, 0, 6, 8, 0}));
}

TEST(OnnxExport, WholeNumbersAreDrawnWithinTheirBounds) {
  const Symbol drawn = RandomInt({{.shape = {500}, .dtype = DType::kInt16}, -3, 4}, "drawn");
  const Model loaded = ParseOnnx(SerializeOnnx({.symbol = drawn}));
  const HostTensor numbers = RunGraph(loaded.symbol, {}, {.mode = Mode::kPredict}).outputs[0];
  EXPECT_EQ(numbers.dtype(), DType::kInt16);
  std::set<double> different;
  for (int64_t i = 0; i < numbers.elements(); ++i) different.insert(numbers.At(i));
  EXPECT_EQ(different, (std::set<double>{-3, -2, -1, 0, 1, 2, 3}));
}

// In types that arithmetic is not done in by itself, with bits of both signs, and stretched.
TEST(OnnxExport, BitsByArithmetic) {
  for (const DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kInt32, DType::kUInt32, DType::kInt64}) {
    SCOPED_TRACE(ToString(dtype));
    HostTensor a(dtype, {3, 4}), b(dtype, {4});
    for (int64_t i = 0; i < 12; ++i)
      a.Set(i, static_cast<double>(i * i * i * 11 % 256 - (a.dtype() == DType::kInt8 ? 128 : 0)));
    const bool is_signed =
        dtype == DType::kInt8 || dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
    if (is_signed) a.Set(5, dtype == DType::kInt64 ? -0x1p62 - 0x1p11 : -100);
    b.Set(0, is_signed ? -1 : 77);
    b.Set(1, dtype == DType::kInt64 ? -0x1p50 : 126);
    b.Set(2, dtype == DType::kInt64 ? 0x1p61 + 0x1p33 : dtype == DType::kUInt32 ? 4294967295.0 : 127);
    const Symbol x = Variable("a"), y = Variable("b");
    const Symbol all = Group({BitAnd(x, y, "and"), BitOr(x, y, "or"), BitXor(x, y, "xor"), BitNot(x, "not")});
    const HostTensorMap values = {{"a", a}, {"b", b}};
    const Model loaded = ParseOnnx(SerializeOnnx({.symbol = Declared(all, values)}));
    const RunOptions options{.mode = Mode::kPredict, .batch_axes = OpenAxesOf(loaded.symbol)};
    const RunResult actual = RunGraph(loaded.symbol, values, options), expected = RunGraph(all, values, options);
    for (size_t i = 0; i < 4; ++i) ExpectEqual(actual.outputs[i], expected.outputs[i]);
  }
}

// What a file's nodes are, those of bodies left out.
std::set<std::string> NodesOf(const std::string& bytes) {
  onnx::ModelProto model;
  model.ParseFromString(bytes);
  std::set<std::string> nodes;
  for (const auto& node : model.graph().node()) nodes.insert(node.op_type());
  return nodes;
}

// Through ONNX and back; returns the file's nodes.
std::set<std::string> ExpectTheSame(const Symbol& symbol, const HostTensorMap& values) {
  const std::string bytes = SerializeOnnx({.symbol = Declared(symbol, values)});
  const Model loaded = ParseOnnx(bytes);
  const RunOptions options{.mode = Mode::kPredict, .batch_axes = OpenAxesOf(loaded.symbol)};
  const RunResult actual = RunGraph(loaded.symbol, values, options), expected = RunGraph(symbol, values, options);
  for (size_t i = 0; i < expected.outputs.size(); ++i) ExpectEqual(actual.outputs[i], expected.outputs[i]);
  return NodesOf(bytes);
}

// ONNX has shifts of unsigned numbers alone.
TEST(OnnxExport, ShiftsOfSignedNumbersByArithmetic) {
  const Symbol x = Variable("a"), y = Variable("b");
  const Symbol both = Group({ShiftLeft(x, y, "left"), ShiftRight(x, y, "right")});
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kUInt32}) {
    SCOPED_TRACE(ToString(dtype));
    const bool is_signed = dtype != DType::kUInt8 && dtype != DType::kUInt32;
    const auto bits = static_cast<double>(8 * SizeOf(dtype));
    HostTensor a(dtype, {7, 1}), b(dtype, {9});
    for (int64_t i = 0; i < 7; ++i) a.Set(i, static_cast<double>(37 * (i - (is_signed ? 3 : 0))));
    const double by[] = {0, 1, 2, 5, bits / 2, bits - 2, bits - 1, is_signed ? bits : 3.0, is_signed ? -1.0 : 4.0};
    for (int64_t i = 0; i < 9; ++i) b.Set(i, by[i]);
    EXPECT_NE(ExpectTheSame(both, {{"a", a}, {"b", b}}).contains("BitShift"), is_signed);
  }
}

TEST(OnnxExport, ProductsAlongAVector) {
  ExpectTheSame(CumProd(Variable("x"), {.axis = 0}, "y"), {{"x", HostTensor::From({4}, {1, 2, 3, 4})}});
}

// Which ONNX gave up with opset 13.
TEST(OnnxExport, HalfPixelsForNearestAreATable) {
  const ResizeAttrs attrs{.coordinates = Coordinates::kHalfPixelForNearest, .sizes = {2, 5}};
  const HostTensor x = HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_FALSE(ExpectTheSame(Resize(Variable("x"), attrs, "y"), {{"x", x}}).contains("Resize"));
}

TEST(OnnxExport, ExtentsByScalesComeBack) {
  HostTensor x(DType::kFloat32, {2, 10});
  for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, static_cast<double>(i * i));
  const ResizeAttrs attrs{.mode = ResizeMode::kLinear, .scales = {1, 0.7}};
  const Symbol y = Resize(Variable("x"), attrs, "y");
  ExpectTheSame(y, {{"x", x}});
  EXPECT_EQ(RunGraph(y, {{"x", x}}, {.mode = Mode::kPredict}).outputs[0].shape(), (Shape{2, 7}));
}

TEST(OnnxExport, AnInfinitePaddingComesBack) {
  const Symbol padded = Pad(Variable("x"), {.begin = {0, 0, 0}, .end = {0, 0, 1}, .value = -HUGE_VAL}, "padded");
  ExpectTheSame(Group({padded, Pooling(padded, {.kernel = {2}, .stride = {2}}, "y")}),
                {{"x", HostTensor::From({1, 2, 3}, {-1, -2, -3, 4, 5, 6})}});
}

// ONNX has none but the smallest number for "to the beginning".
TEST(OnnxExport, ASliceBackwardToTheEndGoesToTheBeginning) {
  const Symbol y = Slice(Variable("x", {.shape = Shape{kUnknownDim, 5}}),
                         {.begin = {-1, 0}, .end = {kSliceEnd, kSliceEnd}, .step = {-1, 2}, .axes = {1, 0}}, "y");
  const std::string bytes = SerializeOnnx({.symbol = y});
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(bytes));
  const std::string& ends = model.graph().node(0).input(2);
  for (const auto& tensor : model.graph().initializer()) {
    if (tensor.name() != ends) continue;
    int64_t values[2];
    ASSERT_EQ(tensor.raw_data().size(), sizeof(values));
    std::memcpy(values, tensor.raw_data().data(), sizeof(values));
    EXPECT_EQ(values[0], INT64_MIN);
    EXPECT_EQ(values[1], INT64_MAX);
  }
  ExpectTheSame(y, {{"x", HostTensor::From({1, 5}, {1, 2, 3, 4, 5})}});
}

// With sums that 16 bits cannot hold.
HostTensor LargeValues(DType dtype, const Shape& shape) {
  HostTensor x(dtype, shape);
  for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, 300 * std::sin(static_cast<double>(i)));
  return x;
}

TEST(OnnxExport, NormsOfOpenExtentsComeBack) {
  const Shape open = {kUnknownDim, 3, kUnknownDim, kUnknownDim};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const HostTensorMap values = {{"x", LargeValues(dtype, {2, 3, 4, 5})}};
    const Symbol x = Variable("x", {.shape = open, .dtype = dtype});
    for (const Symbol& y :
         {L2Normalization(x, L2Mode::kChannel, 1e-10, "y"), MeanVarianceNormalization(x, {0, 2, 3}, 1e-9, "y"),
          Standardize(x, {.center = false}, "y")}) {
      const std::string bytes = SerializeOnnx({.symbol = y});
      const Model loaded = ParseOnnx(bytes);
      EXPECT_EQ(*Graph::Of(loaded.symbol).nodes[0]->declared_shape, open);
      EXPECT_EQ(NodesOf(bytes).contains("Cast"), dtype == DType::kFloat16);
      const RunOptions options{.mode = Mode::kPredict, .batch_axes = {{"x", 0}}};
      ExpectEqual(RunGraph(loaded.symbol, values, options).outputs[0], RunGraph(y, values, options).outputs[0]);
    }
  }
}

// Imported, they are finite and keep their name; and so they are exported.
TEST(OnnxExport, LpNormsComeBack) {
  for (const int type : {1, 10}) {
    for (const int p : {1, 2}) {
      const Model first = ParseOnnx(
          OnnxBytes(OnnxInput("x", "batch, 3, h, w", type) +
                    OnnxNode("LpNormalization", "x", "y", OnnxInt("axis", 2) + OnnxInt("p", p)) + OnnxOutput("y")));
      const Model second = ParseOnnx(SerializeOnnx(first));
      const HostTensorMap values = {{"x", LargeValues(type == 1 ? DType::kFloat32 : DType::kFloat16, {2, 3, 900, 1})}};
      const RunOptions options{.mode = Mode::kPredict, .batch_axes = {{"x", 0}}};
      const HostTensor y = RunGraph(first.symbol, values, options).outputs[0];
      double sum = 0;
      for (int64_t i = 0; i < 900; ++i) sum += std::pow(std::fabs(y.At(i)), p);
      EXPECT_NEAR(sum, 1, 1e-2) << "type " << type << ", p = " << p;
      ExpectEqual(RunGraph(second.symbol, values, options).outputs[0], y);
      EXPECT_EQ(first.symbol.ListOutputs(), std::vector<std::string>{"y_output"});
      EXPECT_EQ(second.symbol.ListOutputs(), std::vector<std::string>{"y_output"});
    }
  }
}

TEST(OnnxExport, LossesOf16BitsKeepTheirNames) {
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    const std::string graph = OnnxInput("x", "batch, 3", 10) + OnnxInput("label", "batch", 7) +
                              OnnxNode(op, "x label", "loss") + OnnxOutput("loss");
    const Model first = ParseOnnx(OnnxBytes(graph)), second = ParseOnnx(SerializeOnnx(first));
    EXPECT_EQ(first.symbol.ListOutputs(), std::vector<std::string>{"loss_output"});
    EXPECT_EQ(second.symbol.ListOutputs(), std::vector<std::string>{"loss_output"});
  }
}

TEST(OnnxExport, AHeadTrainedByCtcPredictsProbabilities) {
  const Symbol data = Variable("data", {.shape = Shape{5, 2, 4}});
  const Symbol head = MakeLoss(CTCLoss(data, Variable("label"), {}, "ctc"), {}, "loss");
  const Model loaded = ParseOnnx(SerializeOnnx({.symbol = head}));
  EXPECT_EQ(loaded.symbol.ListInputs(), std::vector<std::string>{"data"});
  HostTensor x(DType::kFloat32, {5, 2, 4});
  for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, std::sin(static_cast<double>(i)));
  const HostTensorMap values = {{"data", x}};
  const RunOptions options{.mode = Mode::kPredict, .batch_axes = OpenAxesOf(loaded.symbol)};
  ExpectEqual(RunGraph(loaded.symbol, values, options).outputs[0],
              RunGraph(Softmax(data, {.axis = 2}, "p"), values, options).outputs[0]);
}

}  // namespace
}  // namespace bindery
