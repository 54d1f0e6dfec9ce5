// ONNX files that were damaged or made to do harm: an error or a model, never a crash, nor more memory than allowed.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "symbol/onnx/onnx.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"
#include "tests/symbol/run_within.h"

namespace bindery {
namespace {

std::string ErrorOf(std::string_view bytes, const ModelLimits& limits = {}) {
  return MessageOf<ModelError>([&] { ParseOnnx(bytes, "m.onnx", "", {}, limits); });
}
std::string ErrorOfGraph(const std::string& graph, int opset = 17) { return ErrorOf(OnnxBytes(graph, opset)); }

std::string SmallModel() {
  return OnnxBytes(OnnxInput("x", "N, 2, 4, 4") +
                   OnnxFloats(
                       "w", "2, 2, 3, 3",
                       "1" +
                           [] {
                             std::string more;
                             for (int i = 0; i < 35; ++i) more += ", 0.5";
                             return more;
                           }()) +
                   OnnxFloats("f", "32, 2",
                              [] {
                                std::string all = "1";
                                for (int i = 0; i < 63; ++i) all += ", 2";
                                return all;
                              }()) +
                   OnnxInt64s("to", "2", "0, -1") + OnnxInt64s("axes", "1", "1") +
                   OnnxNode("Conv", "x w", "c", OnnxInts("pads", "1, 1, 1, 1")) + OnnxNode("Relu", "c", "r") +
                   OnnxNode("Shape", "r", "s") + OnnxNode("Reshape", "r to", "flat") + OnnxNode("Gemm", "flat f", "g") +
                   OnnxNode("Softmax", "g", "p", OnnxInt("axis", -1)) + OnnxNode("ReduceSum", "p axes", "y") +
                   OnnxOutput("y"));
}

void ExpectModelOrError(std::string_view bytes) {
  try {
    SerializeModel(ParseOnnx(bytes));
  } catch (const Error&) {
  }
}

TEST(HostileOnnx, TheModelItselfIsGood) { EXPECT_FALSE(ParseOnnx(SmallModel()).symbol.empty()); }

TEST(HostileOnnx, TruncationsAreHarmless) {
  const std::string bytes = SmallModel();
  for (size_t length = 0; length < bytes.size(); ++length) ExpectModelOrError(bytes.substr(0, length));
  EXPECT_EQ(ErrorOf(""), "ModelError: m.onnx: not an ONNX model: it has no graph");
  EXPECT_EQ(ErrorOf(bytes.substr(0, bytes.size() / 2)), "ModelError: m.onnx: damaged or cut off");
}

TEST(HostileOnnx, FlippedBitsAreHarmless) {
  const std::string bytes = SmallModel();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 1; value < 256; value = value < 128 ? 2 * value : value + 127) {  // each bit, and all of them
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ value);
      ExpectModelOrError(changed);
    }
  }
}

TEST(HostileOnnx, SizesAreComparedWithWhatIsThere) {
  const auto tensor = [](const std::string& text) {
    return ErrorOfGraph(fmt::format("initializer {{ name: 'w' {} }} output {{ name: 'w' }}", text));
  };
  const std::string who = "ModelError: m.onnx: initializer \"w\": ";
  EXPECT_EQ(tensor("data_type: 1 dims: 1000000000000 raw_data: 'abcd'"),
            who + "float32 (1000000000000) takes 4000000000000 bytes, got 4 of raw_data");
  EXPECT_EQ(tensor("data_type: 1 dims: 1000000000000 float_data: 1"),
            who + "float32 (1000000000000) has 1000000000000 elements, got 1 of float_data");
  EXPECT_EQ(tensor("data_type: 1 dims: [4294967296, 4294967296]").find(who), 0u);
  EXPECT_EQ(tensor("data_type: 1 dims: [0, 9223372036854775807, 9223372036854775807]"), "nothing was thrown");
  EXPECT_EQ(tensor("data_type: 1 dims: -1"), who + "a tensor cannot have an extent of -1");
  EXPECT_EQ(tensor("data_type: 1 dims: [1, 1, 1, 1, 1, 1, 1, 1, 1]"), who + "9 dims, at most 8 are possible");
  EXPECT_EQ(tensor("data_type: 2 dims: 1 int32_data: 256"), who + "element 0: 256 cannot be held by uint8");
  EXPECT_EQ(tensor("data_type: 8 dims: 1 string_data: 'a'"), who + "element type 8 of ONNX has no counterpart");
  EXPECT_EQ(tensor("data_type: 9 dims: 1 raw_data: '\\007'"), "nothing was thrown") << "true";
  EXPECT_EQ(tensor("data_type: 1 dims: 1 data_location: 1 external_data { key: 'location' value: 'w' }"),
            who + "data file \"w\": a model in memory has no folder");
  EXPECT_EQ(ErrorOf(SmallModel(), {.tensor_bytes = 100}),
            "ModelError: m.onnx: initializer \"w\": all tensors together take more than 100 bytes, the limit");
  EXPECT_EQ(ErrorOf(SmallModel(), {.nodes = 3}), "ModelError: m.onnx: more than 3 nodes");
}

TEST(HostileOnnx, NamesAreLimited) {
  const auto relu = [](size_t node, size_t value) {
    const std::string y(value, 'y');
    return ErrorOfGraph(
        OnnxInput("x", "N, 2") +
        fmt::format("node {{ op_type: 'Relu' input: 'x' output: '{}' name: '{}' }}", y, std::string(node, 'n')) +
        OnnxOutput(y));
  };
  EXPECT_EQ(relu(4096, 4096), "nothing was thrown");
  EXPECT_NE(relu(4097, 1).find("n...\" has more than 4096 bytes"), std::string::npos);
  EXPECT_NE(relu(1, 4097).find("y...\" has more than 4096 bytes"), std::string::npos);
}

TEST(HostileOnnx, WhatShapeSubGraphsComputeIsLimited) {
  const std::string x = OnnxInput("x", "N, 2"), huge = OnnxInt64s("h", "1", "9000000000000000000");
  const std::string fill = OnnxNode("ConstantOfShape", "h", "y") + OnnxOutput("y");
  // Whatever extents such nodes ask for, reading makes nothing of them.
  ExpectModelOrError(OnnxBytes(x + huge + fill));
  ExpectModelOrError(OnnxBytes(x + OnnxInt64s("h", "1", "1000000000000") + fill));
  EXPECT_NE(ErrorOfGraph(x + OnnxInt64s("h", "1", "-1") + fill), "nothing was thrown");
  for (const char* op : {"Add", "Mul", "Sub"}) {
    ExpectModelOrError(OnnxBytes(x + huge + OnnxNode(op, "h h", "k") + OnnxNode("Mul", "k h", "y") + OnnxOutput("y")));
  }
  const std::string range = OnnxInt64s("a", "", "0") + OnnxInt64s("b", "", "9000000000000000000") +
                            OnnxInt64s("c", "", "1") + OnnxNode("Range", "a b c", "y") + OnnxOutput("y");
  ExpectModelOrError(OnnxBytes(x + range));
  const std::string division = OnnxInt64s("a", "", "-9223372036854775808") + OnnxInt64s("b", "", "-1") +
                               OnnxNode("Div", "a b", "y") + OnnxOutput("y");
  ExpectModelOrError(OnnxBytes(x + division));
}

// What a few numbers of a file ask for is not made when it is read.
TEST(HostileOnnx, ReadingTakesLittleMemory) {
  constexpr int64_t kMemory = 64 << 20;
  const auto expect_little = [](const std::string& graph, int opset = 17) {
    const std::string bytes = OnnxBytes(graph, opset);
    EXPECT_TRUE(RunsWithin(kMemory, [&] { ExpectModelOrError(bytes); })) << graph;
  };
  for (const char* huge : {"100000000", "1000000000000", "4000000000000000000"}) {
    const std::string n = huge, x = OnnxInput("x", "N, 2, 3, 3"),
                      list = OnnxInt64s("n", "4", fmt::format("1, 2, {0}, {0}", n));
    const std::string number = OnnxInt64s("m", "", n), one = OnnxInt64s("one", "", "1"), y = OnnxOutput("y");
    expect_little(x + list + OnnxNode("ConstantOfShape", "n", "c") + OnnxNode("Add", "c c", "y") + y);
    for (const char* op : {"Expand", "Reshape", "Tile"}) expect_little(x + list + OnnxNode(op, "x n", "y") + y);
    expect_little(x + OnnxInt64s("n", "8", fmt::format("0, 0, {0}, {0}, 0, 0, 0, 0", n)) + OnnxNode("Pad", "x n", "y") +
                  y);
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      expect_little(x + list +
                    OnnxNode("Resize", "x - - n", "y", fmt::format("attribute {{ name: 'mode' s: '{}' }}", mode)) + y);
    }
    expect_little(x + OnnxInt64s("zero", "", "0") + number + one + OnnxNode("Range", "zero m one", "r") +
                  OnnxNode("Add", "r r", "y") + y);
    expect_little(x + number + OnnxInt64s("values", "2", "0, 1") + OnnxNode("OneHot", "m m values", "y") + y);
    expect_little(x + number + OnnxNode("TopK", "x m", "y i") + y);
    expect_little(x + OnnxNode("Split", "x", "y", OnnxInt("num_outputs", 1)) + y, 18);
    expect_little(OnnxInput("x", fmt::format("{0}, {0}", n)) + OnnxNode("EyeLike", "x", "y") + y);
    expect_little(OnnxInput("x", fmt::format("{0}, {0}", n)) +
                  OnnxNode("Einsum", "x", "y", "attribute { name: 'equation' s: 'ii->i' }") + y);
    const std::string q = OnnxInput("x", fmt::format("N, 1, {}, 1", n));
    expect_little(
        q + OnnxNode("Attention", "x x x", "y - - s", OnnxInt("qk_matmul_output_mode", 3) + OnnxInt("is_causal", 1)) +
            y + OnnxOutput("s"),
        23);
  }
}

TEST(HostileOnnx, ListsOfOtherLengthsAreErrors) {
  const std::string x = OnnxInput("x", "N, 2, 4, 4"), y = OnnxNode("Relu", "x", "y") + OnnxOutput("y");
  EXPECT_NE(ErrorOfGraph(x + OnnxNode("Split", "x", "", OnnxInt("axis", 1)) + y).find("it has no outputs"),
            std::string::npos);
  const std::string weight = OnnxFloats("w", "2, 1, 1, 2", "1, 1, 1, 1");
  for (const char* list : {"strides", "dilations"}) {
    const std::string error = ErrorOfGraph(
        x + weight + OnnxNode("ConvTranspose", "x w", "y", OnnxInts("output_shape", "9, 9") + OnnxInts(list, "2")) +
        OnnxOutput("y"));
    EXPECT_NE(error.find("must have 2 numbers, one per extent of the kernel, got (2)"), std::string::npos) << error;
  }
}

TEST(HostileOnnx, ALongChainOfFunctionsTakesLittleStack) {
  std::string functions;
  constexpr int kFunctions = 60'000;
  for (int i = 0; i < kFunctions; ++i) {
    const bool is_last = i + 1 == kFunctions;
    functions += fmt::format(
        "functions {{ name: 'f{}' domain: 'd' input: 'a' output: 'b' opset_import {{ version: 17 }} "
        "node {{ op_type: '{}' domain: '{}' input: 'a' output: 'b' }} }} ",
        i, is_last ? "Relu" : fmt::format("f{}", i + 1), is_last ? "" : "d");
  }
  const std::string bytes =
      OnnxBytes(OnnxInput("x", "N, 2") + OnnxNode("f0", "x", "y", "domain: 'd'") + OnnxOutput("y"), 17, functions);
  ExpectErrorWithin(int64_t{1} << 30, "more than 64 graphs within graphs", [&] { ParseOnnx(bytes); });
}

// What steps take and give counts, and what sequences are cut into, not the nodes alone.
TEST(HostileOnnx, ManyValuesOfStepsTakeLittleMemory) {
  const auto expect_limited = [](const std::string& graph, const std::string& functions = "") {
    const std::string bytes = OnnxBytes(graph, 17, functions);
    ExpectErrorWithin(64 << 20, "make more than 100000 nodes and values", [&] { ParseOnnx(bytes); });
  };
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::string one = "attribute { name: 'scan_input_axes' type: 7 " + times(400, "ints: 1 ") + "} ";
  expect_limited(OnnxInput("x", "2, 65536") +
                 OnnxNode("Scan", times(399, "x ") + "x", "y",
                          OnnxInt("num_scan_inputs", 400) + one +
                              OnnxGraph("body", OnnxInput("a", "2") + OnnxNode("Relu", "a", "b") + OnnxOutput("b"))) +
                 OnnxOutput("y"));
  expect_limited(OnnxInput("x", "N, 2") + OnnxInput("v", "2") + OnnxInt64s("trips", "", "2000") +
                 OnnxNode("Loop", "trips -", "y",
                          OnnxGraph("body", OnnxInput("i", "", 7) + OnnxInput("go", "", 9) + OnnxOutput("go") +
                                                times(1000, OnnxOutput("v")))) +
                 OnnxOutput("y"));
  const std::string function = "functions { name: 'f' domain: 'd' output: 'b' opset_import { version: 17 } ";
  expect_limited(
      OnnxInput("x", "N, 2") + times(1000, OnnxNode("f", "x", "", "domain: 'd'")) + OnnxOutput("x"), function + [] {
        std::string inputs;
        for (int i = 0; i < 1000; ++i) inputs += fmt::format("input: 'a{}' ", i);
        return inputs;
      }() + "} ");
}

TEST(HostileOnnx, ProductsOfManyOperandsTakeLittleTime) {
  constexpr int kOperands = 5000;
  std::string inputs = "x", equation = "a";
  for (int i = 1; i < kOperands; ++i) inputs += " x", equation += ",a";
  const std::string bytes =
      OnnxBytes(OnnxInput("x", "N") +
                OnnxNode("Einsum", inputs, "y", fmt::format("attribute {{ name: 'equation' s: '{}->a' }}", equation)) +
                OnnxOutput("y"));
  const std::clock_t begin = std::clock();
  ExpectModelOrError(bytes);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
}

TEST(HostileOnnx, AttentionOfAnyShapesIsAModelOrAnError) {
  const std::string inside =
      OnnxInt("qk_matmul_output_mode", 3) + OnnxInt("q_num_heads", 2) + OnnxInt("kv_num_heads", 2);
  for (const char* query :
       {"", "2", "2, 4", "N, 3, 4", "N, 0, 4", "2, 2, 3, 0", "2, 2, 3, 4", "N, 2, 0, 4", "1, 1, 1, 1, 1"}) {
    for (const char* key : {"", "2", "2, 4", "N, 3, 4", "N, 3, 5", "2, 2, 3, 4", "N, 0, 3, 4", "1, 1, 1, 1, 1"}) {
      const std::string inputs = OnnxInput("q", query) + OnnxInput("k", key);
      const std::string outputs = OnnxOutput("y") + OnnxOutput("s") + OnnxOutput("p");
      for (const char* names : {"q k k", "q k k q", "q k k - k k", "q k k k q q"}) {
        ExpectModelOrError(OnnxBytes(inputs + OnnxNode("Attention", names, "y p - s", inside) + outputs, 23));
      }
    }
  }
}

// A model that is read may ask for more than can be exported.
TEST(HostileOnnx, ExportingTakesLittleMemory) {
  const std::string q = OnnxInput("x", "N, 1, 10000000, 1");
  const std::string bytes =
      OnnxBytes(q + OnnxNode("Attention", "x x x", "y", OnnxInt("is_causal", 1)) + OnnxOutput("y"), 23);
  ExpectErrorWithin(64 << 20, "too long", [&] { SerializeOnnx(ParseOnnx(bytes)); });
}

// Every operator with inputs of no, few and many axes, and with numbers that are no axes, extents or groups.
TEST(HostileOnnx, OperatorsOfAnyInputsAreModelsOrErrors) {
  const char* const shapes[] = {"", "3", "0, 3", "2, 3", "N, 4, 5", "2, 1, 4, 4", "1, 1, 1, 1, 1, 1, 1, 1"};
  const char* const attributes[] = {"axis",       "axes",  "perm",  "kernel_shape", "strides", "pads",
                                    "dilations",  "group", "split", "to",           "start",   "num_groups",
                                    "batch_dims", "size",  "p",     "shape"};
  for (const auto& [op, versions] : OnnxImports()) {
    for (const char* shape : shapes) {
      for (const char* other : {"", "3", "2, 3", "4, 1, 3, 3"}) {
        for (const int64_t number : {int64_t{-9}, int64_t{0}, int64_t{1}, INT64_MAX, INT64_MIN}) {
          std::string given;
          for (const char* attribute : attributes) {
            if (std::hash<std::string>()(attribute + op + shape) % 3 != 0) continue;
            const std::string name = attribute;
            const bool is_list = name.ends_with("s") || name.ends_with("ads") || name == "kernel_shape" ||
                                 name == "perm" || name == "shape" || name == "split";
            given += is_list ? OnnxInts(name, std::to_string(number)) : OnnxInt(name, number);
          }
          for (const int version : versions) {
            const std::string list = OnnxInt64s("k", "2", fmt::format("{}, 1", number));
            ExpectModelOrError(OnnxBytes(OnnxInput("x", shape) + OnnxInput("z", other) + list +
                                             OnnxNode(op, "x z k", "y", given) + OnnxOutput("y"),
                                         version));
            ExpectModelOrError(OnnxBytes(OnnxInput("x", shape) + list + OnnxNode(op, "x k k k k", "y o", given) +
                                             OnnxOutput("y") + OnnxOutput("o"),
                                         version));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery
