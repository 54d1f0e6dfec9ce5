// ONNX Runtime's own operators, each beside the nodes of ONNX that it stands for; what they have no counterpart for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "symbol/onnx/onnx.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

const std::string kOwn = "domain: 'com.microsoft' ";
constexpr int kUInt8 = 2, kInt8 = 3, kInt32 = 6, kBool = 9, kFloat16 = 10;  // ONNX' numbers of types

std::string Float(const std::string& name, double value) {
  return fmt::format("attribute {{ name: '{}' f: {} }} ", name, value);
}
std::string Text(const std::string& name, const std::string& value) {
  return fmt::format("attribute {{ name: '{}' s: '{}' }} ", name, value);
}
std::string Integers(const std::string& name, int type, const std::string& dims, const std::string& values) {
  return fmt::format("initializer {{ name: '{}' data_type: {} dims: [{}] int32_data: [{}] }} ", name, type, dims,
                     values);
}

std::vector<HostTensor> Computed(const std::string& graph) {
  const Model model = ParseOnnx(OnnxBytes(graph, 24), "m.onnx");
  HostTensorMap values = model.params;
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (!node->is_variable() || values.contains(node->name())) continue;
    Shape shape = *node->declared_shape;
    if (shape[0] == kUnknownDim) shape.Set(0, 2);
    const DType dtype = *node->declared_dtype;
    HostTensor value(dtype, shape);
    for (int64_t i = 0; i < value.elements(); ++i) {
      value.Set(i, IsFloat(dtype)           ? std::sin(static_cast<double>(3 * i + 1))
                   : dtype == DType::kUInt8 ? static_cast<double>(i * 37 % 256)
                                            : static_cast<double>(i % 2));
    }
    values.emplace(node->name(), std::move(value));
  }
  return RunGraph(model.symbol, values, {.mode = Mode::kPredict, .batch_axes = OpenAxesOf(model.symbol)}).outputs;
}

// Both make an output y of these values.
void ExpectSame(const std::string& values, const std::string& fused, const std::string& nodes) {
  SCOPED_TRACE(fused);
  const HostTensor actual = Computed(values + fused + OnnxOutput("y"))[0];
  const HostTensor expected = Computed(values + nodes + OnnxOutput("y"))[0];
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_EQ(actual.dtype(), expected.dtype());
  EXPECT_LT(MaxAbsDiff(actual, expected), 1e-6);
}

TEST(OnnxFused, Curves) {
  const std::string x = OnnxInput("x", "N, 3") + OnnxFloats("b", "3", "0.5, -1, 2");
  const std::string sum = OnnxNode("Add", "x b", "s");
  ExpectSame(x, OnnxNode("BiasGelu", "x b", "y", kOwn), sum + OnnxNode("Gelu", "s", "y"));
  ExpectSame(x, OnnxNode("FastGelu", "x b", "y", kOwn), sum + OnnxNode("Gelu", "s", "y", Text("approximate", "tanh")));
  ExpectSame(x, OnnxNode("FastGelu", "x", "y", kOwn), OnnxNode("Gelu", "x", "y", Text("approximate", "tanh")));
  ExpectSame(x, OnnxNode("QuickGelu", "x", "y", kOwn), OnnxNode("Swish", "x", "y", Float("alpha", 1.702)));
}

TEST(OnnxFused, Products) {
  const std::string x = OnnxInput("x", "N, 3, 4") + OnnxInput("z", "N, 3, 4");
  ExpectSame(x, OnnxNode("FusedMatMul", "x z", "y", kOwn + Float("alpha", 0.5) + OnnxInt("transB", 1)),
             OnnxNode("Transpose", "z", "t", OnnxInts("perm", "0, 2, 1")) + OnnxNode("MatMul", "x t", "p") +
                 "initializer { name: 'half' data_type: 1 float_data: 0.5 } " + OnnxNode("Mul", "p half", "y"));
  ExpectSame(OnnxInput("x", "5, 2, 3") + OnnxInput("z", "2, 3, 4"),
             OnnxNode("FusedMatMul", "x z", "y", kOwn + OnnxInt("transBatchA", 1)),
             OnnxNode("Transpose", "x", "t", OnnxInts("perm", "1, 0, 2")) + OnnxNode("MatMul", "t z", "y"));
  const std::string layer =
      OnnxInput("x", "N, 2") + OnnxFloats("w", "3, 2", "1, -2, 3, -4, 5, -6") + OnnxFloats("b", "3", "0.5, -1, 2");
  const std::string attributes = OnnxInt("transB", 1) + Float("alpha", 2);
  ExpectSame(layer,
             OnnxNode("FusedGemm", "x w b", "y",
                      kOwn + attributes + Text("activation", "LeakyRelu") + Float("activation_alpha", 0.25)),
             OnnxNode("Gemm", "x w b", "g", attributes) + OnnxNode("LeakyRelu", "g", "y", Float("alpha", 0.25)));
  const std::string small = OnnxInt("transB", 1) + Float("alpha", 0.25);  // so that not all results are 0 or 1
  ExpectSame(layer,
             OnnxNode("FusedGemm", "x w b", "y",
                      kOwn + small + Text("activation", "HardSigmoid") + Float("activation_beta", 0.25)),
             OnnxNode("Gemm", "x w b", "g", small) + OnnxNode("HardSigmoid", "g", "y", Float("beta", 0.25)));
  const std::string conv = OnnxInput("x", "N, 1, 3") + OnnxInput("z", "N, 2, 2") +
                           OnnxFloats("w", "2, 1, 2", "1, -2, 3, -4") + OnnxFloats("b", "2", "0.5, -1");
  ExpectSame(conv, OnnxNode("FusedConv", "x w b z", "y", kOwn + Text("activation", "Relu")),
             OnnxNode("Conv", "x w b", "c") + OnnxNode("Add", "c z", "s") + OnnxNode("Relu", "s", "y"));
}

TEST(OnnxFused, Norms) {
  const std::string x = OnnxInput("x", "N, 2, 3") + OnnxInput("z", "N, 2, 3") + OnnxFloats("g", "3", "0.5, -1, 2") +
                        OnnxFloats("b", "3", "1, 2, 3");
  const std::string eps = Float("epsilon", 0.1), sum = OnnxNode("Add", "x z", "s"), more = OnnxNode("Add", "s b", "t");
  ExpectSame(x, OnnxNode("SkipLayerNormalization", "x z g b b", "y", kOwn + eps),
             sum + more + OnnxNode("LayerNormalization", "t g b", "y", eps));
  ExpectSame(x, OnnxNode("SkipSimplifiedLayerNormalization", "x z g b", "y - - t", kOwn + eps),
             sum + more + OnnxNode("RMSNormalization", "t g", "y", eps));
  ExpectSame(x, OnnxNode("SimplifiedLayerNormalization", "x g", "y", eps),
             OnnxNode("RMSNormalization", "x g", "y", eps));
  const std::string words = OnnxInput("i", "N, 2", kInt32) + OnnxInput("k", "N, 2", kInt32) +
                            OnnxFloats("w", "3, 3", "1, 2, 3, 4, 6, 8, 9, 7, 1") +
                            OnnxFloats("p", "3, 3", "3, 1, 4, 1, 5, 9, 2, 6, 5") +
                            OnnxFloats("t", "2, 3", "0, 1, 0, 2, 0, 1") + OnnxFloats("g", "3", "0.5, -1, 2") +
                            OnnxFloats("b", "3", "1, 2, 3") + OnnxInt64s("at", "2", "0, 1");
  ExpectSame(words, OnnxNode("EmbedLayerNormalization", "i k w p t g b", "y", kOwn + eps),
             OnnxNode("Gather", "w i", "a") + OnnxNode("Gather", "p at", "c") + OnnxNode("Gather", "t k", "d") +
                 OnnxNode("Sum", "a c d", "s") + OnnxNode("LayerNormalization", "s g b", "y", eps));
}

TEST(OnnxFused, PlacesComeFirst) {
  const std::string x = OnnxInput("x", "N, 2, 4") + OnnxFloats("cos", "3, 1", "1, 0, -1") +
                        OnnxFloats("sin", "3, 1", "0, 1, 0") + OnnxInt64s("from", "1", "1") +
                        OnnxInt64s("at", "1, 2", "1, 2");
  ExpectSame(x, OnnxNode("RotaryEmbedding", "x from cos sin", "y", kOwn),
             OnnxNode("RotaryEmbedding", "x cos sin at", "y", OnnxInt("num_heads", 2)));
}

TEST(OnnxFused, AttributesThatChangeNothing) {
  const std::string x = OnnxInput("x", "N, 2, 4") + OnnxInput("n", "N", kInt32) + Integers("t", kInt32, "", "2");
  const std::string heads = kOwn + OnnxInt("num_heads", 2), grouped = heads + OnnxInt("kv_num_heads", 2);
  ExpectSame(x, OnnxNode("MultiHeadAttention", "x x x", "y", heads + Float("mask_filter_value", -1)),
             OnnxNode("MultiHeadAttention", "x x x", "y", heads));
  ExpectSame(x, OnnxNode("GroupQueryAttention", "x x x - - n t", "y", grouped + OnnxInt("smooth_softmax", -1)),
             OnnxNode("GroupQueryAttention", "x x x - - n t", "y", grouped));
}

TEST(OnnxFused, Integers) {
  const std::string x = OnnxInput("x", "N, 2", kUInt8) + OnnxInput("c", "N, 2", kBool) + OnnxFloats("sx", "", "0.5") +
                        OnnxFloats("sy", "", "0.25") + Integers("zx", kUInt8, "", "3") +
                        Integers("zy", kUInt8, "", "7") + Integers("w", kInt8, "2, 3", "1, -2, 3, -4, 5, -6") +
                        OnnxFloats("sw", "3", "0.5, 1, 2") + Integers("zw", kInt8, "3", "0, 1, -1") +
                        OnnxFloats("b", "3", "0.5, -1, 2") + Integers("bi", kInt32, "3", "10, -20, 30");
  const std::string real = OnnxNode("DequantizeLinear", "x sx zx", "r");
  const std::string weight = OnnxNode("DequantizeLinear", "w sw zw", "rw", OnnxInt("axis", 1));
  const std::string quantized = OnnxNode("QuantizeLinear", "q sy zy", "y");
  ExpectSame(x, OnnxNode("QLinearAdd", "x sx zx x sx zx sy zy", "y", kOwn),
             real + OnnxNode("Add", "r r", "q") + quantized);
  ExpectSame(x, OnnxNode("QLinearWhere", "c x sx zx x sy zx sy zy", "y", kOwn),
             real + OnnxNode("DequantizeLinear", "x sy zx", "o") + OnnxNode("Where", "c r o", "q") + quantized);
  ExpectSame(x, OnnxNode("QGemm", "x sx zx w sw zw bi sy zy", "y", kOwn),
             real + weight + OnnxNode("Mul", "sx sw", "sb") +
                 OnnxNode("DequantizeLinear", "bi sb", "rb", OnnxInt("axis", 0)) + OnnxNode("MatMul", "r rw", "p") +
                 OnnxNode("Add", "p rb", "q") + quantized);
  ExpectSame(x, OnnxNode("MatMulIntegerToFloat", "x w sx sw zx zw b", "y", kOwn),
             real + weight + OnnxNode("MatMul", "r rw", "p") + OnnxNode("Add", "p b", "y"));
  ExpectSame(x, real + OnnxNode("DynamicQuantizeMatMul", "r w sw zw b", "y", kOwn),
             real + weight + OnnxNode("DynamicQuantizeLinear", "r", "qr s z") +
                 OnnxNode("DequantizeLinear", "qr s z", "d") + OnnxNode("MatMul", "d rw", "p") +
                 OnnxNode("Add", "p b", "y"));
  const std::string sequence = OnnxInput("x", "N, 2, 1", kUInt8) + OnnxFloats("s", "", "0.5") +
                               Integers("z", kUInt8, "", "3") + Integers("w", kInt8, "1, 3", "1, -2, 3") +
                               OnnxFloats("b", "3", "0.5, -1, 2");
  ExpectSame(sequence, OnnxNode("QAttention", "x w b s s - z", "y", kOwn + OnnxInt("num_heads", 1)),
             OnnxNode("DequantizeLinear", "x s z", "rx") + OnnxNode("DequantizeLinear", "w s", "rw") +
                 OnnxNode("Attention", "rx rw b", "y", kOwn + OnnxInt("num_heads", 1)));
  ExpectSame(sequence + OnnxFloats("list", "1", "0.5"),
             OnnxNode("QAttention", "x w b list list - z", "y", kOwn + OnnxInt("num_heads", 1)),
             OnnxNode("QAttention", "x w b s s - z", "y", kOwn + OnnxInt("num_heads", 1)));
  const std::string halves =
      Integers("hx", kFloat16, "", "14336") + Integers("hw", kFloat16, "3", "14336, 15360, 16384");
  ExpectSame(x + halves, OnnxNode("MatMulIntegerToFloat", "x w hx hw zx zw", "y", kOwn),
             OnnxNode("MatMulIntegerToFloat", "x w sx sw zx zw", "r", kOwn) +
                 OnnxNode("Cast", "r", "y", OnnxInt("to", kFloat16)));
}

TEST(OnnxFused, WithoutZeroPointIntegersKeepTheirType) {
  const std::string x = OnnxInput("x", "N, 3", kInt8) + OnnxInput("c", "N, 3", kBool) + OnnxFloats("s", "", "0.5") +
                        Integers("w", kInt8, "3", "-5, 1, -3") + Integers("z", kInt8, "", "0");
  const std::string real = OnnxNode("DequantizeLinear", "x s", "r") + OnnxNode("DequantizeLinear", "w s", "rw");
  const std::string quantized = OnnxNode("QuantizeLinear", "q s z", "y"), axis = OnnxInt("axis", 1);
  ExpectSame(x, OnnxNode("QLinearAdd", "x s - w s - s", "y", kOwn), real + OnnxNode("Add", "r rw", "q") + quantized);
  ExpectSame(x, OnnxNode("QLinearWhere", "c x s - w s - s", "y", kOwn),
             real + OnnxNode("Where", "c r rw", "q") + quantized);
  const std::string sum = OnnxNode("QLinearAdd", "x s - w s - s z", "a", kOwn);
  ExpectSame(x, sum + OnnxNode("QLinearConcat", "s - a s - x s -", "y", kOwn + axis),
             sum + OnnxNode("Concat", "a x", "y", axis));
}

// Of 4 bits, the first in the lowest; and by scales of two each, the last of one.
TEST(OnnxFused, FewBits) {
  const std::string x = OnnxInput("x", "N, 3") + Integers("q", 22, "3", "127, 9") + Integers("z", 22, "", "15") +
                        OnnxFloats("s", "", "0.125") + OnnxFloats("t", "", "0.0625") +
                        OnnxFloats("ss", "1, 2", "0.125, 1");
  const HostTensor nine = Computed(x + OnnxNode("DequantizeLinear", "q s", "y") + OnnxOutput("y"))[0];
  EXPECT_EQ(nine, HostTensor::From({3}, {-0.125, 0.875, -0.875}));
  const std::string blocks = OnnxInt("block_size", 2) + OnnxInt("axis", 1);
  const std::vector<HostTensor> few =
      Computed(x + OnnxNode("Identity", "z", "same") + OnnxNode("QuantizeLinear", "x t same", "y") +
               OnnxNode("QuantizeLinear", "x ss", "k", blocks) + OnnxOutput("y") + OnnxOutput("k"));
  for (int64_t i = 0; i < 6; ++i) {
    const double value = std::sin(static_cast<double>(3 * i + 1));
    EXPECT_EQ(few[0].At(i), std::clamp(std::nearbyint(value * 16) - 1, -8.0, 7.0));
    EXPECT_EQ(few[1].At(i), std::max(std::nearbyint(value * (i % 3 < 2 ? 8 : 1)), 0.0));
  }
}

// Two rows of six of 4 bits, in blocks of four, the last of which is padded.
const std::string kPacked = Integers("q", kUInt8, "8", "33, 67, 101, 0, 239, 205, 171, 0") +
                            OnnxFloats("s", "2, 2", "0.5, 1, 2, 0.25") + OnnxInt64s("to", "3", "2, 2, -1");
const std::string kTwoRows = kOwn + OnnxInt("N", 2) + OnnxInt("block_size", 4);

TEST(OnnxFused, PackedWeights) {
  const std::string x = kPacked + OnnxInput("x", "N, 6") + OnnxInput("z", "N, 5") +
                        OnnxFloats("w", "6, 2", "-3.5, 14, -3, 12, -2.5, 10, -2, 8, -3, 0.75, -2, 0.5") +
                        OnnxFloats("v", "5, 2", "-3.5, 14, -3, 12, -2.5, 10, -2, 8, -3, 0.75");
  const std::string six = kTwoRows + OnnxInt("K", 6), shaped = OnnxNode("Reshape", "q to", "p");
  const std::string product = OnnxNode("MatMul", "x w", "y");
  ExpectSame(x, OnnxNode("MatMulNBits", "x q s", "y", six), product);
  ExpectSame(x, shaped + OnnxNode("Identity", "p", "same") + OnnxNode("MatMulNBits", "x same s", "y", six), product);
  ExpectSame(x,
             OnnxNode("MatMulNBits", "x q s", "a", six) +
                 OnnxNode("MatMulNBits", "z q s", "b", kTwoRows + OnnxInt("K", 5)) + OnnxNode("Add", "a b", "y"),
             OnnxNode("MatMul", "x w", "a") + OnnxNode("MatMul", "z v", "b") + OnnxNode("Add", "a b", "y"));
}

// Their integers count as what the file holds does.
TEST(OnnxFused, UnpackedWeightsAreLimited) {
  const std::string graph = kPacked + OnnxInput("x", "N, 6") +
                            OnnxNode("MatMulNBits", "x q s", "y", kTwoRows + OnnxInt("K", 6)) + OnnxOutput("y");
  const auto parse = [&](int64_t bytes) { ParseOnnx(OnnxBytes(graph, 24), "m.onnx", "", {}, {.tensor_bytes = bytes}); };
  constexpr int64_t kInFile = 8 + 4 * 4 + 3 * 8;
  parse(kInFile + 12);
  EXPECT_EQ(
      MessageOf<ModelError>([&] { parse(kInFile + 11); }),
      "ModelError: m.onnx: node 0, com.microsoft.MatMulNBits \"y\": all tensors together take more than 59 bytes, "
      "the limit");
}

TEST(OnnxFused, ErrorsSayWhatIsMissing) {
  const auto error = [](const std::string& op, const std::string& inputs, const std::string& attributes) {
    const std::string x = kPacked + OnnxInput("x", "N, 2, 4") + OnnxInput("u", "N, 2, d") +
                          OnnxInput("n", "N", kInt32) + OnnxFloats("w", "2, 4", "1, 2, 3, 4, 5, 6, 7, 8") +
                          OnnxFloats("b", "8", "1, 2, 3, 4, 5, 6, 7, 8") +
                          Integers("i", kInt8, "2, 4", "1, 2, 3, 4, 5, 6, 7, 8");
    return MessageOf<ModelError>([&] {
      ParseOnnx(OnnxBytes(x + OnnxNode(op, inputs, "y", kOwn + attributes) + OnnxOutput("y"), 24), "m.onnx");
    });
  };
  const std::string node = "ModelError: m.onnx: node 0, com.microsoft.";
  EXPECT_EQ(error("MoE", "x x", ""),
            "ModelError: m.onnx: operators of opset 24 that cannot be imported, with the nodes that use them: "
            "com.microsoft.MoE (\"y\")");
  EXPECT_EQ(error("GroupQueryAttention", "x x x - - x x - - - - x", OnnxInt("num_heads", 2)),
            node + "GroupQueryAttention \"y\": its input 11 cannot be had");
  EXPECT_EQ(error("MultiHeadAttention", "x x x", ""),
            node + "MultiHeadAttention \"y\": attribute \"num_heads\": expected 1 to 1048576, got 0");
  EXPECT_EQ(error("MatMulNBits", "x w w", OnnxInt("K", 4) + OnnxInt("N", 2) + OnnxInt("block_size", 16)),
            node + "MatMulNBits \"y\": input 1: float32 (2, 4) does not hold 2 rows of 16 numbers of 4 bits");
  EXPECT_EQ(error("MatMulNBits", "x q s", OnnxInt("K", 4) + OnnxInt("N", 2) + OnnxInt("block_size", 4)),
            node + "MatMulNBits \"y\": input 1: uint8 (8) does not hold 2 rows of 4 numbers of 4 bits");
  EXPECT_EQ(error("MatMulNBits", "x q s", OnnxInt("K", 4) + OnnxInt("N", 2) + OnnxInt("block_size", 3)),
            node + "MatMulNBits \"y\": attribute \"block_size\": 3 numbers of 4 bits are no whole bytes");
  EXPECT_EQ(error("MatMulNBits", "x q s", OnnxInt("K", 4) + OnnxInt("N", 2) + OnnxInt("block_size", 8)),
            node + "MatMulNBits \"y\": input 2: (2, 2) has not 1 for each of 2 rows, one for each block of 8");
  EXPECT_EQ(error("DequantizeLinear", "i s", OnnxInt("axis", 1) + OnnxInt("block_size", 4)),
            node + "DequantizeLinear \"y\": input 1: (2, 2) has not 1 along axis 1, one for each block of 4");
  EXPECT_EQ(error("GatherBlockQuantized", "i n s", OnnxInt("block_size", 1)),
            node + "GatherBlockQuantized \"y\": input 2: (2, 2) has not 4 along axis 1, one for each block of 1");
  EXPECT_EQ(error("MultiHeadAttention", "x x x b", OnnxInt("num_heads", 2)),
            node + "MultiHeadAttention \"y\": widths of queries, keys and values: expected more than 0, got 0");
  const std::string open =
      "the width of (?, 2, ?) is not known; the file leaves open axis 2 (\"d\") of input \"u\": state them in the file "
      "or in the options of ParseOnnx (shapes)";
  EXPECT_EQ(error("MultiHeadAttention", "u u u b", OnnxInt("num_heads", 2)),
            node + "MultiHeadAttention \"y\": " + open);
  const std::string heads = OnnxInt("num_heads", 2) + OnnxInt("kv_num_heads", 2);
  EXPECT_EQ(error("GroupQueryAttention", "u - - - - n n", heads), node + "GroupQueryAttention \"y\": " + open);
  EXPECT_EQ(error("GroupQueryAttention", "x - - - - n n", heads),
            node + "GroupQueryAttention \"y\": input 0: 4 numbers cannot be shared by 2 heads of queries and twice 2");
  EXPECT_EQ(error("GroupQueryAttention", "x x x - - n n", heads + OnnxInt("smooth_softmax", 1)),
            node + "GroupQueryAttention \"y\": attribute \"smooth_softmax\": 1 cannot be had");
  EXPECT_EQ(error("FusedGemm", "x w", Text("activation", "Selu")),
            node +
                "FusedGemm \"y\": attribute \"activation\": expected Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, or "
                "Clip with two numbers, got \"Selu\" with 0");
}

}  // namespace
}  // namespace bindery
