// MXNet's files that were damaged or made to do harm: an error or a model, never a crash, nor more memory than allowed.
#include <gtest/gtest.h>

#include <string>

#include "symbol/mxnet/mxnet.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/symbol/mxnet_files.h"
#include "tests/symbol/run_within.h"

namespace bindery {
namespace {

std::string SmallGraph() {
  return MxnetGraph(MxnetNode("null", "data") + ", " + MxnetNode("null", "w", "", "'__shape__': '(2, 1, 3, 3)'") +
                        ", " +
                        MxnetNode("Convolution", "c", "[0, 0, 0], [1, 0, 0]",
                                  "'kernel': '(3, 3)', 'num_filter': '2', 'no_bias': 'True'") +
                        ", " + MxnetNode("Reshape", "r", "[2, 0, 0]", "'shape': '(0, -3, -2)'") + ", " +
                        MxnetNode("SliceChannel", "s", "[3, 0, 0]", "'num_outputs': '2'"),
                    "[4, 0, 0], [4, 1, 0]");
}
std::string SmallParams() {
  const HostTensor w = HostTensor::Full(DType::kFloat32, {2, 1, 3, 3}, 0.5);
  return MxnetFile({{"arg:w", MxnetArray(w)}, {"aux:m", MxnetArray(w, 1)}, {"old", MxnetArray(w, 0)}});
}

void ExpectModelOrError(const std::string& graph) {
  try {
    const Model model = ParseMxnet(graph);
    SerializeModel(model);
  } catch (const ModelError&) {
  }
}
void ExpectParamsOrError(const std::string& bytes) {
  try {
    ParseMxnetParams(bytes);
  } catch (const ModelError&) {
  }
}
std::string ErrorOf(const std::string& graph, const ModelLimits& limits = {}) {
  return MessageOf<ModelError>([&] { ParseMxnet(graph, {}, "m.json", limits); });
}

TEST(HostileMxnet, TheFilesThemselvesAreGood) {
  EXPECT_EQ(ParseMxnet(SmallGraph()).symbol.size(), 2);
  EXPECT_EQ(ParseMxnetParams(SmallParams()).others.size(), 1u);
}

TEST(HostileMxnet, TruncationsAreErrors) {
  const std::string graph = SmallGraph(), params = SmallParams();
  for (size_t length = 0; length < graph.size(); ++length) {
    EXPECT_THROW(ParseMxnet(graph.substr(0, length)), ModelError) << length;
  }
  for (size_t length = 0; length < params.size(); ++length) {
    EXPECT_THROW(ParseMxnetParams(params.substr(0, length)), ModelError) << length;
  }
}

TEST(HostileMxnet, FlippedBitsAreHarmless) {
  const std::string graph = SmallGraph(), params = SmallParams();
  const auto flip = [](const std::string& bytes, const auto& look) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (int value = 1; value < 256; value = value < 128 ? 2 * value : value + 127) {  // each bit, and all of them
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ value);
        look(changed);
      }
    }
  };
  flip(graph, ExpectModelOrError);
  flip(params, ExpectParamsOrError);
}

TEST(HostileMxnet, GraphsThatAreNoGraphs) {
  EXPECT_EQ(ErrorOf("[1, 2]"), "ModelError: m.json: not a graph of MXNet: no nodes or no heads");
  EXPECT_EQ(ErrorOf("7"), "ModelError: m.json: not a graph of MXNet");
  EXPECT_EQ(ErrorOf("{}"), "ModelError: m.json: not a graph of MXNet: no nodes or no heads");
  EXPECT_EQ(ErrorOf("{"), "ModelError: m.json: no JSON, damaged or cut off, at byte 2");
  const std::string data = MxnetNode("null", "data");
  EXPECT_EQ(ErrorOf(MxnetGraph(data, "")), "ModelError: m.json: its graph has no heads");
  EXPECT_EQ(ErrorOf(MxnetGraph(data, "[1, 0, 0]")), "ModelError: m.json: a head: output 0 of node 1 is not before it");
  EXPECT_EQ(ErrorOf(MxnetGraph(data, "[0, 1, 0]")),
            "ModelError: m.json: a head: output 1 of \"null\" \"data\" cannot be had");
  const auto relu = [&](const std::string& entry) {
    return ErrorOf(MxnetGraph(data + ", " + MxnetNode("relu", "r", entry), "[1, 0, 0]"));
  };
  const std::string who = "ModelError: m.json: node 1, \"r\": output 0 of node ";
  EXPECT_EQ(relu("[1, 0, 0]"), who + "1 is not before it") << "a circle";
  EXPECT_EQ(relu("[-1, 0, 0]"), who + "-1 is not before it");
  EXPECT_EQ(relu("[9223372036854775807, 0, 0]"), who + "9223372036854775807 is not before it");
  EXPECT_NE(relu("[18446744073709551615, 0, 0]").find("too large a number"), std::string::npos);
  EXPECT_NE(relu("[0]").find("needs the numbers"), std::string::npos);
  EXPECT_NE(relu("[0, 0.5, 0]").find("of whole numbers"), std::string::npos);
  EXPECT_EQ(ErrorOf(R"({"nodes": [{"op": "null"}], "heads": []})"), "ModelError: m.json: node 0 has no \"name\"");
  EXPECT_NE(ErrorOf(MxnetGraph(data + ", " + data, "[0, 0, 0]")).find("another variable has this name"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(SmallGraph(), {.nodes = 3}), "ModelError: m.json: more than 3 nodes");
  std::string deep(1'000'000, '[');
  EXPECT_EQ(ErrorOf("{\"x\": " + deep), "ModelError: m.json: more than 100 levels");
}

TEST(HostileMxnet, SizesAreComparedWithWhatIsThere) {
  constexpr int64_t kMemory = 64 << 20;
  const auto params = [](const std::string& array) { return MxnetFile({{"arg:x", array}}); };
  const std::string v2 = Bytes(0xF993FAC9u) + Bytes(int32_t{0}),
                    rest = Bytes(int32_t{1}) + Bytes(int32_t{0}) + Bytes(int32_t{0});
  for (const int64_t extent : {int64_t{1} << 40, INT64_MAX, int64_t{-5}, INT64_MIN}) {
    const std::string bytes = params(v2 + Bytes(int32_t{2}) + Bytes(extent) + Bytes(extent) + rest);
    ExpectErrorWithin(kMemory, "ModelError: <memory>: array 0: ", [&] { ParseMxnetParams(bytes); });
  }
  for (const int32_t axes : {-1, 0, 9, INT32_MAX, INT32_MIN}) {
    const std::string bytes = params(v2 + Bytes(axes) + rest);
    ExpectErrorWithin(kMemory, "ModelError: <memory>: array 0: ", [&] { ParseMxnetParams(bytes); });
  }
  for (const uint64_t count : {uint64_t{1} << 40, UINT64_MAX}) {
    const std::string bytes = Bytes(uint64_t{0x112}) + Bytes(uint64_t{0}) + Bytes(count);
    ExpectErrorWithin(kMemory, "arrays, but has 0 bytes more", [&] { ParseMxnetParams(bytes); });
  }
  const std::string name = Bytes(uint64_t{0x112}) + Bytes(uint64_t{0}) + Bytes(uint64_t{1}) +
                           MxnetArray(HostTensor(DType::kFloat32, {1})) + Bytes(uint64_t{1}) + Bytes(UINT64_MAX);
  ExpectErrorWithin(kMemory, "bytes of a name", [&] { ParseMxnetParams(name); });
  const HostTensor x(DType::kFloat32, {100});
  EXPECT_NE(MessageOf<ModelError>([&] {
              ParseMxnetParams(params(MxnetArray(x)), "m.params", {.tensor_bytes = 399});
            }).find("more bytes than the limit"),
            std::string::npos);
}

// Sizes of a recurrent network whose sum, in 64 bits, comes out as what a vector of 10,256,108 elements has left.
TEST(HostileMxnet, PiecesOfAVectorLieWithinIt) {
  const std::string graph =
      MxnetGraph(MxnetNode("null", "data") + ", " + MxnetNode("null", "rnn_parameters") + ", " +
                     MxnetNode("null", "state") + ", " +
                     MxnetNode("RNN", "rnn", "[0, 0, 0], [1, 0, 0], [2, 0, 0]",
                               "'mode': 'gru', 'bidirectional': 'True', 'num_layers': '47', 'state_size': '148722554'"),
                 "[3, 0, 0]");
  MxnetParams params;
  params.args["rnn_parameters"] = HostTensor(DType::kInt8, {10'256'108});
  ExpectErrorWithin(256 << 20, "10256108 numbers, which no width of the data gives",
                    [&] { ParseMxnet(graph, params, "m.json"); });
}

TEST(HostileMxnet, ListsMakeNoMoreNodesThanAllowed) {
  std::string places = "0";
  for (int i = 0; i < 200'000; ++i) places += ", 0";
  const auto error = [&](const std::string& op, const std::string& inputs, const std::string& attrs) {
    return ErrorOf(MxnetGraph(
        MxnetNode("null", "data") + ", " + MxnetNode("null", "like") + ", " + MxnetNode(op, "n", inputs, attrs),
        "[2, 0, 0]"));
  };
  EXPECT_NE(error("_split_v2", "[0, 0, 0]", "'indices': '(" + places + ")'").find("too many nodes"), std::string::npos);
  // Nor of more bytes: each has the annotations of the node that it is a part of.
  const std::string few = "'indices': '(" + places.substr(0, 30'000) + ")', '__mood__': '" + std::string(1 << 20, 'm');
  ExpectErrorWithin(64 << 20, "too many bytes", [&] { throw Error(error("_split_v2", "[0, 0, 0]", few + "'")); });
  EXPECT_NE(error("slice_like", "[0, 0, 0], [1, 0, 0]", "'axes': '(" + places + ")'").find("expected axes"),
            std::string::npos);
  EXPECT_NE(error("broadcast_axis", "[0, 0, 0]", "'axis': '(" + places + ")', 'size': '(1)'").find("expected axes"),
            std::string::npos);
}

TEST(HostileMxnet, NamesAreLimited) {
  const auto relu = [](size_t length) {
    return MxnetGraph(MxnetNode("null", "data") + ", " + MxnetNode("relu", std::string(length, 'n'), "[0, 0, 0]"),
                      "[1, 0, 0]");
  };
  EXPECT_EQ(ErrorOf(relu(4096)), "nothing was thrown");
  EXPECT_NE(ErrorOf(relu(4097)).find("n...\" has more than 4096 bytes"), std::string::npos);
}

// Every operator with few and many inputs, and with numbers that are no axes, extents or counts; in little memory.
TEST(HostileMxnet, OperatorsOfAnyAttributesAreModelsOrErrors) {
  const char* const lists[] = {"kernel", "stride", "pad",  "dilate", "shape", "axes",      "axis",   "begin",
                               "end",    "step",   "reps", "adj",    "size",  "pad_width", "indices"};
  const char* const numbers[] = {"num_filter",   "num_hidden", "num_group", "num_outputs", "scale",    "dim",
                                 "state_size",   "num_layers", "depth",     "k",           "sections", "input_dim",
                                 "output_dim",   "block_size", "repeats",   "scalar",      "a_min",    "a_max",
                                 "target_shape", "stop",       "nsize",     "num_args",    "start",    "p"};
  EXPECT_TRUE(RunsWithin(256 << 20, [&] {
    for (const std::string& op : MxnetImports()) {
      for (const char* number : {"-9", "0", "1", "2", "1000000", "9223372036854775807", "-9223372036854775808"}) {
        for (const int inputs : {1, 2, 3, 5}) {
          std::string nodes, entries, attrs = "'mode': 'lstm', 'dtype': 'float32', 'pool_type': 'avg'";
          for (int i = 0; i < inputs; ++i) {
            nodes += MxnetNode("null", fmt::format("v{}", i)) + ", ";
            entries += fmt::format("{}[{}, 0, 0]", i == 0 ? "" : ", ", i);
          }
          for (const char* key : lists) attrs += fmt::format(", '{}': '({}, {})'", key, number, number);
          for (const char* key : numbers) attrs += fmt::format(", '{}': '{}'", key, number);
          ExpectModelOrError(MxnetGraph(nodes + MxnetNode(op, "n", entries, attrs), fmt::format("[{}, 0, 0]", inputs)));
        }
      }
    }
  }));
}

}  // namespace
}  // namespace bindery
