// Operators of ONNX that are made of ours while a file is read: those that came after Debian's data for onnx_test, and
// batches that this has none of.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/executor.h"
#include "symbol/onnx/onnx.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

constexpr int kInt64 = 7;  // ONNX' number of a type

HostTensor Int64s(const Shape& shape, std::initializer_list<double> values) {
  return Values(shape, values).Cast(DType::kInt64);
}
HostTensor Floats(const Shape& shape, std::initializer_list<double> values) {
  return Values(shape, values).Cast(DType::kFloat32);
}

std::string Text(const std::string& name, const std::string& value) {
  return fmt::format("attribute {{ name: '{}' s: '{}' }} ", name, value);
}

// What a graph with the output y computes.
void ExpectOutput(const std::string& graph, int opset, const HostTensorMap& inputs, const HostTensor& expected) {
  const Model model = ParseOnnx(OnnxBytes(graph + OnnxOutput("y"), opset), "m.onnx");
  HostTensorMap values = inputs;
  values.insert(model.params.begin(), model.params.end());
  const RunResult result =
      RunGraph(model.symbol, values, {.mode = Mode::kPredict, .batch_axes = OpenAxesOf(model.symbol)});
  ExpectNear(result.outputs[0], expected, 4e-6, "y");
}
std::string ErrorOf(const std::string& graph, int opset) {
  return MessageOf<ModelError>([&] { ParseOnnx(OnnxBytes(graph + OnnxOutput("y"), opset), "m.onnx"); });
}

TEST(OnnxOperators, GridsOfVolumes) {
  const std::string inputs = OnnxInput("x", "N, 1, 2, 1, 2") + OnnxInput("g", "N, 1, 1, 2, 3");
  const auto sample = [&](const std::string& attributes) {
    return inputs + OnnxNode("GridSample", "x g", "y", OnnxInt("align_corners", 1) + attributes);
  };
  const HostTensorMap values = {{"x", Floats({2, 1, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                                {"g", Floats({2, 1, 1, 2, 3}, {0, 0, 0, 1, 0, -0.5, -1, 0, 1, 2, 0, -1})}};
  ExpectOutput(sample(""), 20, values, Floats({2, 1, 1, 1, 2}, {2.5, 2.5, 7, 3}));
  ExpectOutput(sample(Text("mode", "nearest") + Text("padding_mode", "border")), 22, values,
               Floats({2, 1, 1, 1, 2}, {1, 2, 7, 6}));
  EXPECT_NE(ErrorOf(sample(Text("mode", "bilinear")), 20).find("got \"bilinear\""), std::string::npos);
}

TEST(OnnxOperators, AGridOfASizeThatIsKnownWhenItIsBound) {
  const HostTensor theta = Floats({2, 2, 3}, {1, 0, 0, 0, 1, 0, 0, 2, 0, 1, 0, 1});
  const HostTensor grid = Floats({2, 1, 2, 2}, {-1, 0, 1, 0, 0, 0, 0, 2});
  const std::string node = OnnxNode("AffineGrid", "theta size", "y", OnnxInt("align_corners", 1));
  ExpectOutput(OnnxInput("theta", "N, 2, 3") + OnnxInt64s("size", "4", "2, 3, 1, 2") + node, 20, {{"theta", theta}},
               grid);
  // The first sample stays, the second is all from its middle.
  const std::string sampled = OnnxNode("AffineGrid", "theta size", "g", OnnxInt("align_corners", 1)) +
                              OnnxNode("GridSample", "x g", "y", OnnxInt("align_corners", 1));
  ExpectOutput(OnnxInput("theta", "N, 2, 3") + OnnxInput("x", "N, 3, H, W") + OnnxNode("Shape", "x", "size") + sampled,
               20, {{"theta", theta}, {"x", Floats({2, 3, 1, 2}, {1, 2, 3, 4, 5, 6, 2, 4, 6, 8, 10, 12})}},
               Floats({2, 3, 1, 2}, {1, 2, 3, 4, 5, 6, 3, 3, 7, 7, 11, 11}));
}

TEST(OnnxOperators, Swish) {
  const auto swish = [](double x, double alpha) { return x / (1 + std::exp(-alpha * x)); };
  const std::string x = OnnxInput("x", "N, 2"), alpha = "attribute { name: 'alpha' f: 2.5 }";
  ExpectOutput(x + OnnxNode("Swish", "x", "y"), 24, {{"x", Floats({1, 2}, {-1, 2})}},
               Floats({1, 2}, {swish(-1, 1), swish(2, 1)}));
  ExpectOutput(x + OnnxNode("Swish", "x", "y", alpha), 24, {{"x", Floats({1, 2}, {-1, 2})}},
               Floats({1, 2}, {swish(-1, 2.5), swish(2, 2.5)}));
}

TEST(OnnxOperators, NormsOfWindows) {
  const std::string x = OnnxInput("x", "N, 1, 4");
  const HostTensorMap values = {{"x", Floats({2, 1, 4}, {1, -2, 3, 4, 0, 0, 0, 2})}};
  const std::string windows = OnnxInts("kernel_shape", "2") + OnnxInts("strides", "2");
  ExpectOutput(x + OnnxNode("LpPool", "x", "y", windows), 18, values, Floats({2, 1, 2}, {std::sqrt(5.), 5, 0, 2}));
  ExpectOutput(x + OnnxNode("LpPool", "x", "y", windows + OnnxInt("p", 3)), 22, values,
               Floats({2, 1, 2}, {std::cbrt(9.), std::cbrt(91.), 0, 2}));
  ExpectOutput(x + OnnxNode("LpPool", "x", "y", windows + OnnxInts("pads", "1, 1") + OnnxInt("p", 1)), 11, values,
               Floats({2, 1, 3}, {1, 5, 4, 0, 0, 2}));
  ExpectOutput(x + OnnxNode("GlobalLpPool", "x", "y"), 17, values, Floats({2, 1, 1}, {std::sqrt(30.), 2}));
  EXPECT_NE(ErrorOf(x + OnnxNode("LpPool", "x", "y", windows + OnnxInt("ceil_mode", 1)), 18).find("ceil_mode"),
            std::string::npos);
}

// Windows overlap in the second of three columns; what stands in padding is gone.
TEST(OnnxOperators, ColumnsAreAddedUpWhereTheyStand) {
  const std::string sizes = OnnxInt64s("image", "2", "1, 3") + OnnxInt64s("block", "2", "1, 2");
  const HostTensorMap values = {{"x", Floats({2, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40, 50, 60, 70, 80})}};
  ExpectOutput(OnnxInput("x", "N, 4, 2") + sizes + OnnxNode("Col2Im", "x image block", "y"), 18, values,
               Floats({2, 2, 1, 3}, {1, 5, 4, 5, 13, 8, 10, 50, 40, 50, 130, 80}));
  const std::string padded = OnnxInts("pads", "0, 1, 0, 0") + OnnxInts("strides", "1, 2");
  ExpectOutput(OnnxInput("x", "N, 4, 2") + sizes + OnnxNode("Col2Im", "x image block", "y", padded), 18, values,
               Floats({2, 2, 1, 3}, {3, 2, 4, 7, 6, 8, 30, 20, 40, 70, 60, 80}));
  EXPECT_NE(ErrorOf(OnnxInput("x", "N, 4, 3") + sizes + OnnxNode("Col2Im", "x image block", "y"), 18)
                .find("expected (N, channels times 2, 2), got 4 and 3"),
            std::string::npos);
}

// Values that ONNX Runtime gives for x = 7 i mod 11; ties go to the first, and padding never wins.
TEST(OnnxOperators, WhichElementsWon) {
  const auto image = [](const Shape& shape) {
    HostTensor x(DType::kFloat32, shape);
    for (int64_t i = 0; i < x.elements(); ++i) x.Set(i, static_cast<double>(i * 7 % 11));
    return x;
  };
  const auto won = [&](const std::string& dims, const std::string& attributes) {
    return OnnxInput("x", dims) + OnnxNode("MaxPool", "x", "m y", attributes);
  };
  const std::string windows = OnnxInts("kernel_shape", "2, 2") + OnnxInts("strides", "1, 2");
  const std::string padded = windows + OnnxInts("pads", "1, 0, 0, 1");
  const HostTensorMap images = {{"x", image({2, 2, 3, 4})}};
  ExpectOutput(
      won("N, 2, 3, 4", padded), 17, images,
      Int64s({2, 2, 3, 2}, {1, 3, 1, 3, 9, 6, 12, 14, 17, 14, 17, 23, 25, 26, 25, 31, 28, 31, 36, 39, 36, 39, 45, 47}));
  ExpectOutput(
      won("N, 2, 3, 4", padded + OnnxInt("storage_order", 1)), 17, images,
      Int64s({2, 2, 3, 2}, {3, 9, 3, 9, 5, 7, 12, 18, 16, 18, 16, 23, 27, 30, 27, 34, 25, 34, 36, 45, 36, 45, 41, 47}));
  const std::string apart = OnnxInts("kernel_shape", "2") + OnnxInts("dilations", "2") + OnnxInts("strides", "2");
  ExpectOutput(won("2, 1, 6", apart + OnnxInt("ceil_mode", 1)), 17, {{"x", image({2, 1, 6})}},
               Int64s({2, 1, 3}, {2, 4, 4, 6, 10, 10}));
  EXPECT_NE(ErrorOf(won("N, 2, 3, W", padded), 17).find("extent 3 of its input (?, 2, 3, ?) is not known"),
            std::string::npos);
  const std::string around = OnnxInts("kernel_shape", "2") + OnnxInts("dilations", "3") + OnnxInts("pads", "1, 2");
  EXPECT_NE(ErrorOf(won("2, 1, 1", around), 17).find("could see nothing but padding"), std::string::npos);
}

// As segmentation nets have it, and backward: what won has its own slope and that of where it is put.
TEST(OnnxOperators, WhatWonIsPutWhereItWas) {
  const std::string windows = OnnxInts("kernel_shape", "2, 2") + OnnxInts("strides", "2, 2");
  const std::string graph = OnnxInput("x", "N, 1, 2, 4") + OnnxNode("MaxPool", "x", "m i", windows) +
                            OnnxNode("MaxUnpool", "m i", "y", windows);
  const HostTensor x = Floats({2, 1, 2, 4}, {1, 5, 2, 2, 3, 4, 0, 1, -1, -2, 7, 8, -3, -4, 9, 6});
  const HostTensor y = Floats({2, 1, 2, 4}, {0, 5, 2, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 9, 0});
  ExpectOutput(graph, 17, {{"x", x}}, y);
  const Model model = ParseOnnx(OnnxBytes(graph + OnnxOutput("y"), 17), "m.onnx");
  Executor net(model.symbol,
               {.inputs = {{"x", x.shape()}}, .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}});
  net.Forward({{"x", x}});
  net.Backward(Floats({2, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  ExpectNear(net.Gradient("x"), Floats({2, 1, 2, 4}, {0, 2, 3, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 15, 0}), 1e-6, "x");
}

// As ONNX Runtime's quantizer has a bias that all outputs share one scale of.
TEST(OnnxOperators, AScaleOfOneElementBesideAZeroPointWithoutAxes) {
  const std::string bias =
      "initializer { name: 'b' data_type: 6 dims: [3] int32_data: [2, -4, 6] } "
      "initializer { name: 'zero' data_type: 6 int32_data: [0] } ";
  const std::string weight = OnnxFloats("w", "3, 2", "1, 0, 0, 1, 1, 1") + OnnxFloats("scale", "1", "0.5");
  ExpectOutput(OnnxInput("x", "N, 2") + bias + weight + OnnxNode("DequantizeLinear", "b scale zero", "c") +
                   OnnxNode("Gemm", "x w c", "y", OnnxInt("transB", 1)),
               17, {{"x", Floats({1, 2}, {10, 20})}}, Floats({1, 3}, {11, 18, 33}));
}

// Indices count in the whole batch.
TEST(OnnxOperators, WhatWonIsPutBack) {
  const std::string inputs = OnnxInput("x", "N, 1, 2") + OnnxInput("i", "N, 1, 2", kInt64);
  const std::string windows = OnnxInts("kernel_shape", "2") + OnnxInts("strides", "2");
  const HostTensorMap values = {{"x", Floats({2, 1, 2}, {1, 2, 3, 4})}, {"i", Int64s({2, 1, 2}, {1, 2, 4, 7})}};
  ExpectOutput(inputs + OnnxNode("MaxUnpool", "x i", "y", windows), 11, values,
               Floats({2, 1, 4}, {0, 1, 2, 0, 3, 0, 0, 4}));
  ExpectOutput(inputs + OnnxInt64s("shape", "3", "2, 1, 5") + OnnxNode("MaxUnpool", "x i shape", "y", windows), 11,
               values, Floats({2, 1, 5}, {0, 1, 2, 0, 0, 3, 0, 0, 4, 0}));
}

TEST(OnnxOperators, ProductsAlongAnAxis) {
  const std::string inputs = OnnxInput("x", "N, 3") + OnnxInt64s("axis", "", "1");
  ExpectOutput(inputs + OnnxNode("CumProd", "x axis", "y", OnnxInt("exclusive", 1) + OnnxInt("reverse", 1)), 26,
               {{"x", Floats({1, 3}, {2, 3, 4})}}, Floats({1, 3}, {12, 4, 1}));
}

TEST(OnnxOperators, ACacheIsWrittenFromEachSamplesIndexOn) {
  const std::string inputs = OnnxInput("past", "N, 3, 1") + OnnxInput("new", "N, 2, 1") + OnnxInput("at", "N", kInt64);
  const HostTensorMap values = {{"past", Floats({2, 3, 1}, {1, 2, 3, 4, 5, 6})},
                                {"new", Floats({2, 2, 1}, {10, 20, 30, 40})},
                                {"at", Int64s({2}, {1, 2})}};
  ExpectOutput(inputs + OnnxNode("TensorScatter", "past new at", "y", Text("mode", "circular")), 24, values,
               Floats({2, 3, 1}, {1, 10, 20, 40, 5, 30}));
  ExpectOutput(OnnxInput("past", "N, 3, 1") + OnnxInput("new", "N, 2, 1") + OnnxNode("TensorScatter", "past new", "y"),
               24, {{"past", values.at("past")}, {"new", values.at("new")}}, Floats({2, 3, 1}, {10, 20, 3, 30, 40, 6}));
}

TEST(OnnxOperators, WindowsOfSignals) {
  const std::string size = OnnxInt64s("size", "", "4");
  ExpectOutput(size + OnnxNode("HannWindow", "size", "y"), 17, {}, Floats({4}, {0, 0.5, 1, 0.5}));
  ExpectOutput(size + OnnxNode("HannWindow", "size", "y", OnnxInt("periodic", 0)), 17, {},
               Floats({4}, {0, 0.75, 0.75, 0}));
  ExpectOutput(OnnxInt64s("size", "", "1") + OnnxNode("HammingWindow", "size", "y", OnnxInt("periodic", 0)), 17, {},
               Floats({1}, {1}));
  EXPECT_NE(
      ErrorOf(OnnxInt64s("size", "", "99999999999") + OnnxNode("BlackmanWindow", "size", "y"), 17).find("too long"),
      std::string::npos);
}

TEST(OnnxOperators, Determinants) {
  const auto det = [](const std::string& dims) { return OnnxInput("x", dims) + OnnxNode("Det", "x", "y"); };
  ExpectOutput(det("N, 3, 3"), 11, {{"x", Floats({2, 3, 3}, {2, 0, 1, 1, 3, 2, 1, 1, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9})}},
               Floats({2}, {18, 0}));
  ExpectOutput(det("N, 1, 1"), 11, {{"x", Floats({2, 1, 1}, {2, 3})}}, Floats({2}, {2, 3}));
  EXPECT_NE(ErrorOf(det("N, 4, 4"), 11).find("square matrices of 1 to 3 rows"), std::string::npos);
}

TEST(OnnxOperators, ZerosStayZerosWhereNormsAreOne) {
  for (const int p : {1, 2}) {
    const Model model = ParseOnnx(
        OnnxBytes(OnnxInput("x", "N, 2") + OnnxNode("LpNormalization", "x", "y", OnnxInt("p", p)) + OnnxOutput("y")));
    const HostTensor x = HostTensor::From({2, 2}, {0, 0, 0, -2});
    EXPECT_EQ(RunGraph(model.symbol, {{"x", x}}, {.mode = Mode::kPredict, .batch_axes = {{"x", 0}}}).outputs[0],
              HostTensor::From({2, 2}, {0, 0, 0, -1}));
  }
}

}  // namespace
}  // namespace bindery
