// ONNX' Attention: which keys its queries see, heads in both layouts, keys and values of the past. With queries of zeros
// a result is the mean of the values that are seen. And RotaryEmbedding.
#include <gtest/gtest.h>

#include "symbol/onnx/onnx.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

constexpr int kInt64 = 7, kBool = 9;  // ONNX' numbers of types

Model Import(const std::string& graph) { return ParseOnnx(OnnxBytes(graph, 23), "m.onnx"); }

std::vector<HostTensor> Computed(const Model& model, const HostTensorMap& inputs) {
  return RunGraph(model.symbol, inputs, {.mode = Mode::kPredict, .batch_axes = OpenAxesOf(model.symbol)}).outputs;
}

// Queries (N, 2, 2), keys and values (N, 2, 2): two heads of one number.
const std::string kInputs = OnnxInput("q", "N, 2, 2") + OnnxInput("k", "N, 2, 2") + OnnxInput("v", "N, 2, 2");
const std::string kTwoHeads = OnnxInt("q_num_heads", 2) + OnnxInt("kv_num_heads", 2);
const HostTensorMap kValues = {{"q", HostTensor(DType::kFloat32, {1, 2, 2})},
                               {"k", HostTensor::From({1, 2, 2}, {1, 2, 3, 4})},
                               {"v", HostTensor::From({1, 2, 2}, {1, 10, 3, 30})}};

TEST(OnnxAttention, SeesWhatItIsLet) {
  const auto attend = [](const std::string& attributes) {
    return Computed(Import(kInputs + OnnxNode("Attention", "q k v", "y", kTwoHeads + attributes) + OnnxOutput("y")),
                    kValues)[0];
  };
  EXPECT_EQ(attend(""), HostTensor::From({1, 2, 2}, {2, 20, 2, 20}));
  EXPECT_EQ(attend(OnnxInt("is_causal", 1)), HostTensor::From({1, 2, 2}, {1, 10, 2, 20}));
}

TEST(OnnxAttention, HeadsShareKeysAndValues) {
  const std::string grouped = OnnxInt("q_num_heads", 2) + OnnxInt("kv_num_heads", 1);
  const Model model = Import(OnnxInput("q", "N, 2, 2") + OnnxInput("k", "N, 2, 1") + OnnxInput("v", "N, 2, 1") +
                             OnnxNode("Attention", "q k v", "y", grouped) + OnnxOutput("y"));
  EXPECT_EQ(Computed(model, {{"q", kValues.at("q")},
                             {"k", HostTensor::From({1, 2, 1}, {1, 2})},
                             {"v", HostTensor::From({1, 2, 1}, {1, 3})}})[0],
            HostTensor::From({1, 2, 2}, {2, 2, 2, 2}));
}

TEST(OnnxAttention, AMaskOfTruthsHidesKeys) {
  const Model model = Import(kInputs + OnnxInput("mask", "2, 2", kBool) +
                             OnnxNode("Attention", "q k v mask", "y", kTwoHeads) + OnnxOutput("y"));
  HostTensorMap inputs = kValues;
  inputs["mask"] = HostTensor::From({2, 2}, {0, 1, 0, 0}).Cast(DType::kBool);
  EXPECT_EQ(Computed(model, inputs)[0], HostTensor::From({1, 2, 2}, {3, 30, 0, 0})) << "nothing is seen: 0";
}

// Queries come after the past's keys; what is present is both, with heads apart.
TEST(OnnxAttention, ThePastIsSeen) {
  const Model model = Import(kInputs + OnnxInput("pk", "N, 2, 1, 1") + OnnxInput("pv", "N, 2, 1, 1") +
                             OnnxNode("Attention", "q k v - pk pv", "y present_k present_v scores",
                                      kTwoHeads + OnnxInt("is_causal", 1) + OnnxInt("qk_matmul_output_mode", 3)) +
                             OnnxOutput("y") + OnnxOutput("present_v") + OnnxOutput("scores"));
  HostTensorMap inputs = kValues;
  inputs["pk"] = HostTensor(DType::kFloat32, {1, 2, 1, 1});
  inputs["pv"] = HostTensor::From({1, 2, 1, 1}, {5, 50});
  const std::vector<HostTensor> outputs = Computed(model, inputs);
  EXPECT_LT(MaxAbsDiff(outputs[0], HostTensor::From({1, 2, 2}, {3, 30, 3, 30})), 1e-5);
  EXPECT_EQ(outputs[1], HostTensor::From({1, 2, 3, 1}, {5, 1, 3, 50, 10, 30}));
  const float third = 1.0f / 3;
  const std::vector<float> seen = {0.5, 0.5, 0, third, third, third, 0.5, 0.5, 0, third, third, third};
  EXPECT_LT(MaxAbsDiff(outputs[2], HostTensor::From({1, 2, 2, 3}, seen)), 1e-6);
}

// Of any length: places are computed.
TEST(OnnxAttention, AnOpenPastIsSeen) {
  const Model model =
      Import(kInputs + OnnxInput("pk", "N, 2, p, 1") + OnnxInput("pv", "N, 2, p, 1") +
             OnnxNode("Attention", "q k v - pk pv", "y", kTwoHeads + OnnxInt("is_causal", 1)) + OnnxOutput("y"));
  HostTensorMap inputs = kValues;
  inputs["pk"] = HostTensor(DType::kFloat32, {1, 2, 1, 1});
  inputs["pv"] = HostTensor::From({1, 2, 1, 1}, {5, 50});
  EXPECT_LT(MaxAbsDiff(Computed(model, inputs)[0], HostTensor::From({1, 2, 2}, {3, 30, 3, 30})), 1e-5);
}

// How many keys there are; queries are the last of them. And a window, and a mask that ends before the last key.
TEST(OnnxAttention, KeysBehindTheLastAreNotSeen) {
  const std::string inputs = OnnxInput("q", "N, 2, 1, 1") + OnnxInput("k", "N, 2, 3, 1") +
                             OnnxInput("v", "N, 2, 3, 1") + OnnxInput("n", "N", kInt64) + OnnxInput("m", "1, 2", kBool);
  HostTensorMap values = {{"q", HostTensor(DType::kFloat32, {2, 2, 1, 1})},
                          {"k", HostTensor(DType::kFloat32, {2, 2, 3, 1})},
                          {"v", HostTensor::From({2, 2, 3, 1}, {1, 2, 6, 1, 2, 6, 1, 2, 6, 1, 2, 6})},
                          {"n", HostTensor::From({2}, {2, 3}).Cast(DType::kInt64)},
                          {"m", HostTensor::From({1, 2}, {0, 1}).Cast(DType::kBool)}};
  const auto attend = [&](const std::string& names, const std::string& attributes) {
    const Model model =
        ParseOnnx(OnnxBytes(inputs + OnnxNode("Attention", names, "y", attributes) + OnnxOutput("y"), 25));
    HostTensorMap asked;
    for (const std::string& name : model.symbol.ListInputs()) asked.emplace(name, values.at(name));
    return Computed(model, asked)[0].Reshape({4});
  };
  EXPECT_LT(MaxAbsDiff(attend("q k v - - - n", ""), HostTensor::From({4}, {1.5, 1.5, 3, 3})), 1e-6);
  EXPECT_EQ(attend("q k v - - - n", OnnxInt("left_window_size", 0) + OnnxInt("is_causal", 1)),
            HostTensor::From({4}, {2, 2, 6, 6}));
  EXPECT_EQ(attend("q k v m", ""), HostTensor::From({4}, {2, 2, 2, 2}));
}

// By right angles: (a, b) becomes (-b, a). Of three numbers of a head two are turned.
TEST(OnnxAttention, PairsAreTurnedByTheirPlaces) {
  const auto turned = [](const std::string& attributes) {
    const Model model = Import(OnnxInput("x", "N, 2, 6") + OnnxFloats("cos", "3, 1", "1, 0, -1") +
                               OnnxFloats("sin", "3, 1", "0, 1, 0") + OnnxInput("places", "N, 2", kInt64) +
                               OnnxNode("RotaryEmbedding", "x cos sin places", "y",
                                        OnnxInt("num_heads", 2) + OnnxInt("rotary_embedding_dim", 2) + attributes) +
                               OnnxOutput("y"));
    HostTensorMap inputs = model.params;
    inputs["x"] = HostTensor::From({1, 2, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    inputs["places"] = HostTensor::From({1, 2}, {2, 1}).Cast(DType::kInt64);
    return Computed(model, inputs)[0];
  };
  const HostTensor expected = HostTensor::From({1, 2, 6}, {-1, -2, 3, -4, -5, 6, -8, 7, 9, -11, 10, 12});
  EXPECT_EQ(turned(""), expected);
  EXPECT_EQ(turned(OnnxInt("interleaved", 1)), expected);
}

TEST(OnnxAttention, ErrorsSayWhatIsMissing) {
  const auto error = [](const std::string& inputs, const std::string& attributes) {
    return MessageOf<ModelError>(
        [&] { Import(kInputs + OnnxNode("Attention", inputs, "y", attributes) + OnnxOutput("y")); });
  };
  EXPECT_EQ(error("q k v", ""),
            "ModelError: m.onnx: node 0, Attention \"y\": attributes \"q_num_heads\" and \"kv_num_heads\" are needed "
            "for inputs of three axes");
  EXPECT_EQ(error("q k v - k", kTwoHeads),
            "ModelError: m.onnx: node 0, Attention \"y\": input 4, the past keys, and input 5, the past values, go "
            "together");
}

}  // namespace
}  // namespace bindery
