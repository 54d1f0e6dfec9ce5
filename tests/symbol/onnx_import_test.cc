// What becomes of ONNX graphs: parameters and constants, any batch, shape sub-graphs, versions, errors. That operators
// compute the same is tests/executor/onnx/onnx_test.cc's subject.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/files.h"
#include "symbol/infer.h"
#include "symbol/onnx/onnx.h"
#include "symbol/ops.h"
#include "tests/symbol/onnx_models.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

Model Import(const std::string& graph, int opset = 17) { return ParseOnnx(OnnxBytes(graph, opset), "m.onnx"); }

std::string ErrorOf(const std::string& graph, int opset = 17) {
  return MessageOf<ModelError>([&] { Import(graph, opset); });
}

Shape OutputShape(const Model& model, const std::string& input, const Shape& shape) {
  return *InferShapes(model.symbol, {{input, shape}}).outputs.at(0);
}

TEST(OnnxImport, WeightsAreParametersAndLayersAreOurs) {
  const std::string head = OnnxInput("x", "N, 3") + OnnxFloats("w", "2, 3", "1, 2, 3, 4, 5, 6") +
                           OnnxFloats("v", "2, 1", "7, 8") + OnnxFloats("b", "2", "1, 2") + OnnxFloats("c", "1", "3") +
                           OnnxFloats("half", "", "0.5");
  const Model model =
      Import(head + OnnxNode("Gemm", "x w b", "h", OnnxInt("transB", 1)) + OnnxNode("Mul", "h half", "g") +
             OnnxNode("MatMul", "g v", "m") + OnnxNode("Add", "m c", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.symbol.ListArguments(), (std::vector<std::string>{"x", "w", "b", "v", "c"}));
  EXPECT_EQ(Count(model.symbol, FullyConnectedOp()), 2);
  EXPECT_EQ(model.params.at("w").shape(), (Shape{2, 3}));
  EXPECT_EQ(model.params.at("v"), HostTensor::From({1, 2}, {7, 8})) << "as our layer has it";
  EXPECT_EQ(OutputShape(model, "x", {5, 3}), (Shape{5, 1}));
}

// As exporters write attention's scale.
TEST(OnnxImport, ASingleElementIsAParameterOfLayersAlone) {
  const Model model = Import(OnnxInput("x", "N, 3") + OnnxFloats("w", "3, 1", "1, 2, 3") + OnnxFloats("b", "1", "4") +
                             OnnxFloats("scale", "1", "5") + OnnxNode("Gemm", "x w b", "h") +
                             OnnxNode("Mul", "h scale", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.symbol.ListArguments(), (std::vector<std::string>{"x", "w", "b"}));
}

// As exporters write a group-norm: what does nothing is no parameter.
TEST(OnnxImport, AnInstanceNormOfGroupsHasNoParameters) {
  const auto parameters = [](const std::string& factor) {
    return Import(OnnxInput("x", "N, 4, 3") + OnnxInt64s("to", "3", "0, 2, -1") + OnnxFloats("a", "2", factor) +
                  OnnxFloats("b", "2", "0, 0") + OnnxNode("Reshape", "x to", "g") +
                  OnnxNode("InstanceNormalization", "g a b", "y") + OnnxOutput("y"))
        .params.size();
  };
  EXPECT_EQ(parameters("1, 1"), 0u);
  EXPECT_EQ(parameters("1, 2"), 2u);
}

TEST(OnnxImport, RunningValuesAreAuxiliaryStates) {
  const Model model =
      Import(OnnxInput("x", "batch, 2, 4, 4") + OnnxFloats("g", "2", "1, 1") + OnnxFloats("b", "2", "0, 0") +
             OnnxFloats("mean", "2", "3, 4") + OnnxFloats("var", "2", "1, 2") +
             OnnxNode("BatchNormalization", "x g b mean var", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.symbol.ListAuxiliaryStates(), (std::vector<std::string>{"mean", "var"}));
  EXPECT_EQ(model.aux.at("mean"), HostTensor::From({2}, {3, 4}));
  EXPECT_EQ(model.params.size(), 2u);
}

// x.view(x.size(0), -1), as exporters write it.
TEST(OnnxImport, ExtentsThatFollowTheBatchDo) {
  const Model model = Import(
      OnnxInput("x", "N, 3, 4") + OnnxInt64s("zero", "", "0") + OnnxInt64s("axes", "1", "0") +
      OnnxInt64s("rest", "1", "-1") + OnnxNode("Shape", "x", "s") +
      OnnxNode("Gather", "s zero", "n", OnnxInt("axis", 0)) + OnnxNode("Unsqueeze", "n axes", "ns") +
      OnnxNode("Concat", "ns rest", "to", OnnxInt("axis", 0)) + OnnxNode("Reshape", "x to", "y") + OnnxOutput("y"));
  EXPECT_EQ(OutputShape(model, "x", {5, 3, 4}), (Shape{5, 12}));
  EXPECT_EQ(OutputShape(model, "x", {2, 3, 4}), (Shape{2, 12}));
  EXPECT_EQ(Count(model.symbol, TakeOp()), 0) << "the shape sub-graph is computed";
}

TEST(OnnxImport, ABatchThatTheFileSaysIsLeftOpenWhereItCanBe) {
  const std::string head = OnnxInput("x", "1, 3, 4") + OnnxInt64s("to", "2", "1, 12");
  const Model any = Import(head + OnnxNode("Reshape", "x to", "y") + OnnxOutput("y"));
  EXPECT_EQ(OutputShape(any, "x", {5, 3, 4}), (Shape{5, 12}));
  const Model one = Import(head + OnnxInt64s("flat", "1", "12") + OnnxNode("Reshape", "x flat", "y") + OnnxOutput("y"));
  EXPECT_EQ(*InferShapes(one.symbol, {}).outputs[0], (Shape{12})) << "fits a batch of 1 alone, and says so";
}

TEST(OnnxImport, ANamedBatchAxisBecomesALayout) {
  const Model model = Import(OnnxInput("x", "time, batch, 8") + OnnxNode("Relu", "x", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.symbol.Children().Annotation("layout"), "CNC");
}

// Exporters write equal weights once: they are trained apart all the same.
TEST(OnnxImport, EqualWeightsAreParametersOfTheirOwn) {
  const Model model = Import(OnnxInput("x", "N, 2") + OnnxFloats("b", "2", "1, 2") + OnnxNode("Identity", "b", "c") +
                             OnnxNode("Add", "x b", "h") + OnnxNode("Add", "h c", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.symbol.ListArguments(), (std::vector<std::string>{"x", "b", "c"}));
  EXPECT_EQ(model.params.at("c"), model.params.at("b"));
}

// A constant is none, by whatever name it is read.
TEST(OnnxImport, AConstantIsNoParameter) {
  for (const char* name : {"c", "d"}) {
    const Model model =
        Import(OnnxInput("x", "N, 2") +
               OnnxNode("Constant", "", "c", "attribute { name: 'value_floats' type: 6 floats: [1, 2] }") +
               OnnxNode("Identity", "c", "d") + OnnxNode("Mul", fmt::format("x {}", name), "y") + OnnxOutput("y"));
    EXPECT_EQ(model.symbol.ListArguments(), std::vector<std::string>{"x"}) << name;
  }
}

// Of all bits: not all are doubles, and what leaves its type is left to the operators, which wrap.
TEST(OnnxImport, IntegersAreTakenAsTheyAre) {
  const auto constant = [](const std::string& graph) {
    const Model model = Import(OnnxInput("x", "N, 2") + graph + OnnxOutput("c"));
    NodePtr node = model.symbol.entry().node;
    while (!ConstantValue(*node)) node = node->inputs().at(0).node;
    return *ConstantValue(*node);
  };
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  EXPECT_EQ(constant(OnnxNode("Constant", "", "c", OnnxInt("value_int", kOdd))).data<int64_t>()[0], kOdd);
  EXPECT_EQ(
      constant(OnnxNode("Constant", "", "c", OnnxInts("value_ints", fmt::format("1, {}", kOdd)))).data<int64_t>()[1],
      kOdd);
  const std::string most = "initializer { name: 'm' data_type: 13 dims: 1 uint64_data: 18446744073709551615 } ";
  EXPECT_EQ(constant(most + OnnxNode("Identity", "m", "c")).data<uint64_t>()[0], UINT64_MAX);

  const auto kept = [](const std::string& numbers, const char* op) {  // is the operator left?
    const Model model = Import(OnnxInput("x", "N, 2") + numbers + OnnxNode(op, "a b", "c") + OnnxOutput("c"));
    return !ConstantValue(*model.symbol.entry().node);
  };
  const auto bytes = [](int a, int b) {
    return fmt::format(
        "initializer {{ name: 'a' data_type: 2 dims: 1 int32_data: {} }} "
        "initializer {{ name: 'b' data_type: 2 dims: 1 int32_data: {} }} ",
        a, b);
  };
  EXPECT_TRUE(kept(bytes(200, 100), "Add"));
  EXPECT_TRUE(kept(bytes(1, 2), "Sub"));
  EXPECT_FALSE(kept(bytes(100, 100), "Add"));
  const std::string large = OnnxInt64s("a", "1", std::to_string(int64_t{1} << 62)) + OnnxInt64s("b", "1", "3");
  EXPECT_TRUE(kept(large, "Mul"));
  EXPECT_FALSE(kept(large, "Sub"));
}

TEST(OnnxImport, ANumberMayGetSeveralAxes) {
  const Model model = Import(OnnxInput("x", "N, 2") + OnnxInt64s("c", "", "5") + OnnxInt64s("axes", "2", "0, 1") +
                             OnnxInt64s("d", "1, 1", "6") + OnnxNode("Unsqueeze", "c axes", "u") +
                             OnnxNode("Concat", "u d", "y", OnnxInt("axis", 1)) + OnnxOutput("y"));
  EXPECT_EQ(*InferShapesPartial(model.symbol, {}).outputs[0], (Shape{1, 2}));
}

// The largest end is behind the last element, backward, too: nothing is before it.
TEST(OnnxImport, ASliceBackwardEndsBeforeItsEnd) {
  const auto taken = [](const std::string& end, const std::string& x, const std::string& begin) {
    const Model model = Import(OnnxInput("x", x) + begin + OnnxInt64s("e", "1", end) + OnnxInt64s("axes", "1", "1") +
                               OnnxInt64s("by", "1", "-1") + OnnxNode("Slice", "x b e axes by", "y") + OnnxOutput("y"));
    return OutputShape(model, "x", {1, 5})[1];
  };
  const std::string last = OnnxInt64s("b", "1", "9223372036854775807");
  const std::string computed = OnnxNode("Shape", "x", "s", OnnxInt("start", 1)) + OnnxNode("Identity", "s", "b");
  EXPECT_EQ(taken("9223372036854775807", "N, 5", last), 0);
  EXPECT_EQ(taken("-9223372036854775808", "N, 5", last), 5);
  EXPECT_EQ(taken("9223372036854775807", "N, M", computed), 0);
  EXPECT_EQ(taken("-9223372036854775808", "N, M", computed), 5);
}

// Scales are of float32, and multiplied there: 10 times 0.7 is 7.
TEST(OnnxImport, ExtentsByScalesAreThoseOfFloat32) {
  const Model model =
      Import(OnnxInput("x", "N, 3, 10, 10") + OnnxFloats("scales", "4", "1, 1, 0.7, 0.7") +
             OnnxNode("Resize", "x - scales", "y", "attribute { name: 'mode' s: 'linear' }") + OnnxOutput("y"));
  EXPECT_EQ(OutputShape(model, "x", {2, 3, 10, 10}), (Shape{2, 3, 7, 7}));
}

// As before a maximum over windows.
TEST(OnnxImport, APaddingMayBeInfinite) {
  const auto padded = [](int type) {
    return OnnxInput("x", "N, 4", type) + OnnxInt64s("pads", "4", "0, 1, 0, 1") +
           fmt::format("initializer {{ name: 'v' data_type: 1 float_data: -inf }} ") +
           OnnxNode("Pad", "x pads v", "y") + OnnxOutput("y");
  };
  EXPECT_EQ(OutputShape(Import(padded(1)), "x", {2, 4}), (Shape{2, 6}));
  const Graph whole = Graph::Of(Import(padded(7)).symbol);
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              InferTypes(whole, {{"x", {2, 4}}}, {});
            }),
            "ShapeError: Pad \"y\": -inf is no int64 to pad with");
}

TEST(OnnxImport, StatesOfZerosAreOfAnyBatch) {
  const std::string head =
      OnnxInput("x", "T, batch, 3") + OnnxInt64s("s", "3", "1, 2, 4") + OnnxNode("ConstantOfShape", "s", "h");
  std::string weights;
  for (int i = 0; i < 48; ++i) weights += fmt::format("{}0.5", i > 0 ? ", " : "");
  const Model model =
      Import(head + OnnxFloats("w", "1, 12, 3", weights.substr(0, 36 * 5 - 2)) + OnnxFloats("r", "1, 12, 4", weights) +
             OnnxNode("GRU", "x w r - - h", "y", OnnxInt("hidden_size", 4)) + OnnxOutput("y"));
  EXPECT_EQ(OutputShape(model, "x", {7, 5, 3}), (Shape{7, 1, 5, 4}));
}

TEST(OnnxImport, InitializersMayBeInputsToo) {
  const Model model = Import(OnnxInput("x", "N, 2") + OnnxInput("b", "2") + OnnxFloats("b", "2", "1, 2") +
                             OnnxNode("Add", "x b", "y") + OnnxOutput("y"));
  EXPECT_EQ(model.params.at("b"), HostTensor::From({2}, {1, 2}));
}

TEST(OnnxImport, AnOutputMayBeAnInputOrAConstant) {
  const Model model = Import(OnnxInput("x", "N, 2") + OnnxInt64s("k", "1", "7") + OnnxOutput("x") + OnnxOutput("k"));
  EXPECT_EQ(model.symbol.size(), 2);
  EXPECT_EQ(model.symbol.ListArguments(), std::vector<std::string>{"x"});
}

TEST(OnnxImport, AVersionIsThatOfTheOpset) {
  const std::string graph = OnnxInput("x", "N, 3, 4") + OnnxNode("Softmax", "x", "y") + OnnxOutput("y");
  EXPECT_EQ(Count(Import(graph, 12).symbol, ReshapeOp()), 2) << "of all axes but the first";
  EXPECT_EQ(Count(Import(graph, 13).symbol, ReshapeOp()), 0) << "of the last axis";
  EXPECT_EQ(ErrorOf(graph, 29), "ModelError: m.onnx: it is of opset 29, but 1 to 28 can be read");
}

TEST(OnnxImport, ATypeMayBeStated) {
  const std::string scale = OnnxFloats("s", "", "0.5");
  const auto type_of = [](const Model& model) {
    return InferDTypes(model.symbol, {{"x", DType::kFloat32}}).outputs.at(0);
  };
  const auto quantize = [&](const std::string& inputs, int64_t type) {
    return OnnxInput("x", "N, 3") + scale + OnnxNode("QuantizeLinear", inputs, "q", OnnxInt("output_dtype", type)) +
           OnnxOutput("q");
  };
  EXPECT_EQ(type_of(Import(quantize("x s", 3), 21)), DType::kInt8);
  EXPECT_EQ(type_of(Import(quantize("x s", 0), 21)), DType::kUInt8);
  const std::string zero = "initializer { name: 'z' data_type: 2 int32_data: [7] } ";
  EXPECT_EQ(type_of(Import(zero + quantize("x s z", 2), 21)), DType::kUInt8);
  EXPECT_NE(ErrorOf(zero + quantize("x s z", 3), 21).find("output_dtype says int8, but the zero point is uint8"),
            std::string::npos);
  const std::string back = OnnxNode("DequantizeLinear", "q s", "y", OnnxInt("output_dtype", 10)) + OnnxOutput("y");
  EXPECT_EQ(InferDTypes(Import(quantize("x s", 3) + back, 23).symbol, {{"x", DType::kFloat32}}).outputs.at(1),
            DType::kFloat16);
}

// What stands for a weight is as large as one: kept as kernels like it, and not made anew in each run.
TEST(OnnxImport, IntegersThatStandForAWeightAreAParameter) {
  const std::string integers =
                        "initializer { name: 'w' data_type: 3 dims: 2 dims: 3 int32_data: [1, -2, 3, 4, -5, 6] } ",
                    zeros = "initializer { name: 'z' data_type: 3 dims: 2 int32_data: [0, 0] } ";
  const Model model = Import(OnnxInput("x", "N, 3") + integers + zeros + OnnxFloats("s", "2", "0.5, 0.25") +
                             OnnxNode("DequantizeLinear", "w s z", "real", OnnxInt("axis", 0)) +
                             OnnxNode("Gemm", "x real", "y", OnnxInt("transB", 1)) + OnnxOutput("y"));
  ASSERT_TRUE(model.params.contains("w"));
  EXPECT_EQ(model.params.at("w").dtype(), DType::kInt8);
  EXPECT_EQ(model.params.at("w").At(4), -5);
  EXPECT_FALSE(model.params.contains("z"));
  const Model convolution =
      Import(OnnxInput("x", "N, 1, 3", 2) + OnnxFloats("s", "", "0.5") +
             "initializer { name: 'z' data_type: 2 int32_data: [7] } " +
             "initializer { name: 'zw' data_type: 3 int32_data: [0] } "
             "initializer { name: 'w' data_type: 3 dims: 1 dims: 1 dims: 2 int32_data: [1, -2] } " +
             OnnxNode("QLinearConv", "x s z w s zw s z", "y") + OnnxOutput("y"));
  ASSERT_TRUE(convolution.params.contains("w"));
  EXPECT_EQ(convolution.params.at("w").dtype(), DType::kInt8);
}

TEST(OnnxImport, AProductOfKnownNumbersMayStateAllItsAttributes) {
  const auto reshaped = [](const std::string& attributes) {
    return Import(OnnxInput("x", "2, 3, 4") + OnnxNode("Shape", "x", "s") +
                      OnnxNode("ReduceProd", "s", "n", attributes) + OnnxNode("Reshape", "x n", "y") + OnnxOutput("y"),
                  18);
  };
  EXPECT_EQ(OutputShape(reshaped(OnnxInt("noop_with_empty_axes", 0)), "x", {2, 3, 4}), Shape{24});
  EXPECT_EQ(OutputShape(reshaped(OnnxInt("noop_with_empty_axes", 1)), "x", {2, 3, 4}), (Shape{2, 3, 4}));
}

TEST(OnnxImport, NumbersOfOldVersionsMayStateThatTheyBroadcast) {
  const Model model = Import(
      OnnxInput("x", "2, 3, 4") + OnnxNode("Shape", "x", "s") + OnnxInt64s("k", "3", "2, 1, 1") +
          OnnxNode("Div", "s k", "t", OnnxInt("broadcast", 1)) + OnnxInt64s("m", "3", "1, 2, 1") +
          OnnxNode("Mul", "t m", "u", OnnxInt("broadcast", 1)) + OnnxNode("Reshape", "x u", "y") + OnnxOutput("y"),
      6);
  EXPECT_EQ(OutputShape(model, "x", {2, 3, 4}), (Shape{1, 6, 4}));
}

TEST(OnnxImport, UnknownOperatorsAreListedAtOnce) {
  EXPECT_EQ(ErrorOf(OnnxInput("x", "N, 2") + OnnxNode("Foo", "x", "a") + OnnxNode("Foo", "a", "b") +
                    OnnxNode("Foo", "b", "c") + OnnxNode("Foo", "c", "d") +
                    OnnxNode("Bar", "d", "y", "name: 'last' domain: 'com.example'") + OnnxOutput("y")),
            "ModelError: m.onnx: operators of opset 17 that cannot be imported, with the nodes that use them: "
            "Foo (\"a\", \"b\", \"c\" and 1 more); com.example.Bar (\"last\")");
}

TEST(OnnxImport, ErrorsNameNodeAndAttribute) {
  const std::string x = OnnxInput("x", "N, 2, 8, 8"), w = OnnxFloats("w", "1, 2, 1, 1", "1, 2");
  const auto conv = [&](const std::string& attributes) {
    return ErrorOf(x + w + OnnxNode("Conv", "x w", "y", "name: 'c1' " + attributes) + OnnxOutput("y"));
  };
  const std::string who = "ModelError: m.onnx: node 0, Conv \"c1\": ";
  EXPECT_EQ(conv(OnnxInt("strides", 2)), who + "attribute \"strides\": expected integers") << "without a type";
  EXPECT_EQ(conv("attribute { name: 'strides' type: 1 f: 2 }"), who + "attribute \"strides\": expected integers");
  EXPECT_EQ(conv(OnnxInt("sides", 2)), who + "attribute \"sides\" is not known");
  EXPECT_EQ(conv(OnnxInts("kernel_shape", "3, 3")), who + "attribute \"kernel_shape\": the weight is (1, 2, 1, 1)");
  EXPECT_EQ(conv("attribute { name: 'auto_pad' s: 'SOME' }"),
            who + "attribute \"auto_pad\": expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got \"SOME\"");
  EXPECT_NE(conv(OnnxInts("strides", "0, 0")).find(who), std::string::npos);
  EXPECT_EQ(ErrorOf(x + OnnxNode("Relu", "z", "y") + OnnxOutput("y")),
            "ModelError: m.onnx: node 0, Relu \"y\": input 0: nothing before it is called \"z\"");
  EXPECT_EQ(ErrorOf(x + OnnxNode("Relu", "x", "x")), "ModelError: m.onnx: node 0, Relu \"x\": \"x\" is defined twice");
  EXPECT_EQ(ErrorOf(x + OnnxNode("Conv", "x", "y") + OnnxOutput("y")),
            "ModelError: m.onnx: node 0, Conv \"y\": input 1 is missing");
}

std::string NewFolder() {
  std::string path = testing::TempDir() + "/onnx.XXXXXX";  // mkdtemp's form
  return ::mkdtemp(path.data());
}

TEST(OnnxImport, DataFilesAreInTheModelsFolder) {
  const std::string folder = NewFolder();
  ASSERT_EQ(::mkdir((folder + "/weights").c_str(), 0700), 0);
  std::ofstream(folder + "/weights/w") << "skip" << std::string("\0\0\200\077\0\0\0\100", 8);
  std::ofstream(folder + "/../outside.bin") << std::string(8, '\0');
  ASSERT_EQ(::symlink("weights/w", (folder + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("weights", (folder + "/links").c_str()), 0);
  const auto import = [&](const std::string& location, const std::string& more = "{ key: 'offset' value: '4' }") {
    const std::string graph = OnnxInput("x", "N, 2") + OnnxNode("Add", "x w", "y") + OnnxOutput("y") +
                              fmt::format(
                                  "initializer {{ name: 'w' data_type: 1 dims: 2 data_location: 1 external_data "
                                  "{{ key: 'location' value: '{}' }} external_data {} }}",
                                  location, more);
    return ParseOnnx(OnnxBytes(graph), "m.onnx", folder);
  };
  EXPECT_EQ(import("weights/w").params.at("w"), HostTensor::From({2}, {1, 2}));
  const auto error = [&](const auto&... arguments) { return MessageOf<ModelError>([&] { import(arguments...); }); };
  for (const char* outside : {"../outside.bin", "/etc/passwd", "weights/../../outside.bin", "weights//w", "./weights/w",
                              "", "weights/w\\000"}) {
    EXPECT_NE(error(outside).find("expected the name of a file in the model's folder"), std::string::npos) << outside;
  }
  EXPECT_NE(error("link").find("a link"), std::string::npos);
  EXPECT_NE(error("links/w").find("cannot open"), std::string::npos);
  EXPECT_NE(error("weights").find("not a regular file"), std::string::npos);
  EXPECT_NE(error("weights/w", "{ key: 'offset' value: '8' }").find("takes 8 bytes, got 4"), std::string::npos);
  EXPECT_NE(error("weights/w", "{ key: 'length' value: '99' }").find("takes 8 bytes, got 99"), std::string::npos);
  EXPECT_NE(error("weights/w", "{ key: 'offset' value: '-4' }").find("number of bytes"), std::string::npos);
  EXPECT_NE(error("weights/w", "{ key: 'offset' value: '9223372036854775807' }"), "nothing was thrown");
}

TEST(OnnxExport, LargeParametersAreInADataFile) {
  const Symbol y = FullyConnected(Variable("x", {.shape = Shape{kUnknownDim, 600}}), {.num_hidden = 2}, "fc");
  Model model{.symbol = y};
  HostTensor& weight = model.params["fc_weight"] = HostTensor(DType::kFloat32, {2, 600});
  for (int64_t i = 0; i < weight.elements(); ++i) weight.Set(i, static_cast<double>(i));
  model.params["fc_bias"] = HostTensor::From({2}, {1, 2});
  EXPECT_EQ(WriteOnnx(model, "m.onnx").data_file, "") << "there is room in the message";

  const OnnxFile file = WriteOnnx(model, "m.onnx", 1000);
  EXPECT_EQ(file.data_file.substr(0, 7) + file.data_file.substr(23), "m.onnx..data");
  EXPECT_EQ(OnnxDataFiles(file.message), std::set<std::string>{file.data_file});
  EXPECT_LT(file.message.size(), 2000u);
  const std::string folder = NewFolder();
  WriteFileAtomically(folder + "/" + file.data_file, file.write_data);
  const Model loaded = ParseOnnx(file.message, "m.onnx", folder);
  EXPECT_EQ(loaded.params, model.params);
  EXPECT_NE(MessageOf<ModelError>([&] { ParseOnnx(file.message, "m.onnx", folder + "/.."); }).find(file.data_file),
            std::string::npos);
}

// Every operator is exported, as it is or as what it is made of; or it stands here.
TEST(OnnxExport, OperatorsThatAreNotExportedAreKnown) {
  const std::set<std::string> not_there = {
      // Of inference nothing is left of them, or what they predict.
      "BlockGrad", "Dropout", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "MakeLoss",
      "SVMOutput", "Scalar", "ScaleLoss", "SoftmaxOutput",
      // Gradients, fusions and groups of devices are made of them.
      "AddRelu", "BatchNormNormalize", "BatchNormStatistics", "BatchStatistics", "ConvolutionAdd", "FirstOutside",
      "LossScale", "MergeStatistics", "MoveStatistics", "QuantizedConvolution", "QuantizedFullyConnected", "RankOf",
      "RowNumbers", "SumExactly", "SumOverDevices", "SumTo",
      // Opset 17 has no such operator; as a head it is what it trains.
      "CTCLoss"};
  const std::vector<std::string> exports = OnnxExports();
  const std::set<std::string> exported(exports.begin(), exports.end());
  for (const OpExample& example : OpExamples()) {
    const std::string& name = example.op->name;
    if (example.op->compose || name.find("Grad") != std::string::npos) continue;
    EXPECT_NE(exported.contains(name), not_there.contains(name)) << name;
  }
}

}  // namespace
}  // namespace bindery
