// Models written by hand, and what is said about mistakes in them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

Model Parse(const std::string& text, const ModelLimits& limits = {}) {
  return ParseModel(text, true, "net.prototxt", limits);
}

std::string ErrorOf(const std::string& text, const ModelLimits& limits = {}) {
  const std::string message = MessageOf<ModelError>([&] { Parse(text, limits); });
  const std::string prefix = "ModelError: net.prototxt";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : "not a message about the file: " + message;
}

// Of a graph with the variable "data", from line 2 on.
std::string GraphError(const std::string& nodes) {
  return ErrorOf("graph { variable { name: \"data\" }\n" + nodes + "}");
}

TEST(ModelText, IsPleasantToWrite) {
  const Model model = Parse(R"(
# LeNet's beginning.
graph {
  variable { name: "data" shape { dim: [-1, 1, 28, 28] } dtype: FLOAT32 annotation { key: "layout" value: "NCHW" } }
  variable { name: "conv1_bias" annotation { key: "init" value: "one" } }
  node { op: "Convolution" name: "conv1" input: "data"
         attr { name: "num_filter" i: 20 } attr { name: "kernel" ints: [5, 5] } }
  node { op: "BatchNorm" name: "bn1" input: "conv1" attr { name: "eps" f: 1e-5 } attr { name: "fix_gamma" b: false } }
  node { op: "Activation" name: "relu1" input: "bn1" attr { name: "type" s: "relu" } }
  output: "relu1"
  output: "conv1_weight"
}
metadata { key: "author" value: "me" }
param { name: "conv1_bias" dim: [3] value: [0.5, 1, -2e3] }
param { name: "mask" dtype: BOOL dim: [2] data: "\000\001" }
param { name: "scalar" dtype: INT64 value: 7 }
)");
  EXPECT_EQ(
      model.symbol.DebugString(),
      "data float32 (?, 1, 28, 28) [layout=NCHW]\n"
      "conv1_weight\n"
      "conv1_bias [init=one]\n"
      "conv1 = Convolution(data, conv1_weight, conv1_bias, kernel=(5, 5), num_filter=20)\n"
      "bn1_gamma\n"
      "bn1_beta\n"
      "bn1_running_mean\n"
      "bn1_running_var\n"
      "bn1 = BatchNorm(conv1, bn1_gamma, bn1_beta, bn1_running_mean, bn1_running_var, eps=1e-05, fix_gamma=false)\n"
      "relu1 = Activation(bn1)\n"
      "-> relu1, conv1_weight\n");
  EXPECT_EQ(model.symbol.ListAuxiliaryStates(), (std::vector<std::string>{"bn1_running_mean", "bn1_running_var"}));
  EXPECT_EQ(model.metadata.at("author"), "me");
  EXPECT_EQ(model.params.at("conv1_bias"), HostTensor::From({3}, {0.5, 1, -2000}));
  EXPECT_EQ(model.params.at("mask").At(1), 1);
  EXPECT_EQ(model.params.at("scalar"), HostTensor::Full(DType::kInt64, {}, 7));
}

TEST(ModelText, IsPleasantToRead) {
  const Symbol x = FullyConnected(Variable("data", {.shape = Shape{64, 784}}), {.num_hidden = 10}, "fc1");
  const Model model{.symbol = SoftmaxOutput(x, Variable("label"), {}, "softmax"),
                    .params = {{"fc1_bias", HostTensor::From({2}, {0.1f, 1})}},
                    .metadata = {{"note", "two\nlines"}}};
  EXPECT_EQ(SerializeModel(model, true), R"(version: 2
producer: "bindery 0.1"
graph {
  variable { name: "data" shape { dim: [64, 784] } }
  variable { name: "fc1_weight" }
  variable { name: "fc1_bias" }
  variable { name: "label" }
  node {
    op: "FullyConnected"
    name: "fc1"
    input: "data"
    input: "fc1_weight"
    input: "fc1_bias"
    attr { name: "num_hidden" i: 10 }
  }
  node {
    op: "SoftmaxOutput"
    name: "softmax"
    input: "fc1"
    input: "label"
  }
  output: "softmax"
}
param { name: "fc1_bias" dtype: FLOAT32 dim: [2] value: [0.10000000149011612, 1] }
metadata { key: "note" value: "two\nlines" }
)");
}

TEST(ModelText, NodesMayComeInAnyOrder) {
  const Model model = Parse(R"(graph {
    output: "b"
    node { op: "Add" name: "b" input: "a:0" input: "a_weight" }
    node { op: "FullyConnected" name: "a" input: "data" input: "" input: "c" attr { name: "num_hidden" i: 2 } }
    node { op: "Exp" name: "c" input: "d" }
    variable { name: "d" } variable { name: "data" }
  })");
  EXPECT_EQ(model.symbol.DebugString(),
            "data\na_weight\nd\nc = Exp(d)\na = FullyConnected(data, a_weight, c, num_hidden=2)\n"
            "b = Add(a, a_weight)\n-> b\n");
}

TEST(ModelText, AnIdTellsNodesOfOneNameApart) {
  const Model model = Parse(R"(graph { variable { name: "x" }
    node { op: "Exp" name: "e" input: "x" } node { op: "Log" name: "e" id: "other" input: "e" }
    output: "other" output: "e" })");
  EXPECT_EQ(model.symbol.DebugString(), "x\ne = Exp(x)\ne = Log(e)\n-> e, e\n");
}

TEST(ModelText, SaysWhereTheGrammarEnds) {
  EXPECT_EQ(ErrorOf("graph {\n  node { op: \"Exp\" nmae: \"e\" }\n}"),
            ":2:24: Message type \"bindery.proto.Node\" has no field named \"nmae\".");
  EXPECT_EQ(ErrorOf("graph {\n  node { op: Exp }\n}"), ":2:14: Expected string, got: Exp");
  EXPECT_EQ(ErrorOf("graph {"), ":1:8: Expected identifier, got: ");
  EXPECT_EQ(ErrorOf("graph { output: \"x }\n}"), ":1:21: String literals cannot cross line boundaries.");
  EXPECT_EQ(ErrorOf("param { dtype: FLOAT8 }"), ":1:23: Unknown enumeration value of \"FLOAT8\" for field \"dtype\".");
  EXPECT_EQ(ErrorOf("param { dim: 1 dim: 99999999999999999999 }"),
            ":1:21: Integer out of range (99999999999999999999)");
  EXPECT_EQ(ErrorOf("version: 2 version: 2"), ":1:19: Non-repeated field \"version\" is specified multiple times.");
  EXPECT_EQ(ErrorOf(std::string("graph \0", 7)), ":1:7: Invalid control characters encountered in text.");
}

TEST(ModelText, SaysWhichNodeIsWrong) {
  EXPECT_EQ(GraphError("node { op: \"Convolutoin\" name: \"c\" input: \"data\" }"),
            ":2:8: node \"c\": unknown operator \"Convolutoin\"; did you mean \"Convolution\"?");
  EXPECT_EQ(GraphError("node { name: \"c\" }"), ":2:1: node \"c\": it has no op");
  EXPECT_EQ(GraphError("node { op: \"Exp\" input: \"data\" }"), ":2:1: node number 0, \"Exp\", has no name");
  EXPECT_EQ(GraphError("variable { }"), ":2:1: variable number 1 has no name");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"e\" input: \"dta\" }"),
            ":2:28: Exp \"e\", input 0: nothing is called \"dta\"; did you mean \"data\"?");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"e\" input: \"data\" input: \"data\" }"),
            ":2:42: Exp \"e\": takes at most 1 inputs (data), got 2");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"e\" input: \"data:1\" }"),
            ":2:28: Exp \"e\", input 0: \"data\" has 1 output, got \"data:1\"");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"e\" input: \"data:99999999999999999999\" }"),
            ":2:28: Exp \"e\", input 0: \"data\" has 1 output, got \"data:99999999999999999999\"");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"e\" input: \"data:-1\" }"),
            ":2:28: Exp \"e\", input 0: nothing is called \"data:-1\"");
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"data\" input: \"data\" }"),
            ":2:1: Exp \"data\": something else has this name; names are unique (or nodes have unique ids)");
  EXPECT_EQ(GraphError("variable { name: \"data\" }"),
            ":2:1: variable \"data\": something else has this name; names are unique (or nodes have unique ids)");
  EXPECT_EQ(
      GraphError("node { op: \"Exp\" name: \"fc_bias\" input: \"data\" }\n"
                 "node { op: \"FullyConnected\" name: \"fc\" input: \"data\" attr { name: \"num_hidden\" i: 2 } }"),
      ":3:1: FullyConnected \"fc\" needs a variable \"fc_bias\": something else has this name; names are unique (or "
      "nodes "
      "have unique ids)");
  EXPECT_EQ(GraphError("variable { name: \"x\" annotation { key: \"a\" } annotation { key: \"a\" value: \"b\" } }"),
            ":2:1: variable \"x\": two annotations are called \"a\"");
  EXPECT_EQ(
      GraphError("variable { name: \"x\" shape { dim: -2 } }"),
      ":2:22: variable \"x\": " + std::string(MessageOf<ShapeError>([] { Shape{-2}; })).substr(strlen("ShapeError: ")));
  EXPECT_EQ(GraphError(""), ":1:1: the graph has no output");
  EXPECT_EQ(GraphError("output: \"dat\""), ":2:1: output: nothing is called \"dat\"; did you mean \"data\"?");
}

TEST(ModelText, SaysWhichAttributeIsWrong) {
  const auto attr_error = [](const std::string& attr) {
    return GraphError(
        "node { op: \"Convolution\" name: \"c\" input: \"data\" attr { name: \"kernel\" ints: [3, 3] }\n" + attr +
        " }");
  };
  EXPECT_EQ(attr_error("attr { name: \"num_filtr\" i: 3 }"),
            ":3:1: Convolution \"c\": unknown attribute \"num_filtr\"; did you mean \"num_filter\"?");
  EXPECT_EQ(attr_error("attr { name: \"num_filter\" s: \"3\" }"),
            ":3:1: Convolution \"c\": attribute \"num_filter\": expected an integer, got the string \"3\"");
  EXPECT_EQ(attr_error("attr { name: \"num_filter\" i: 3 ints: [3] }"),
            ":3:1: Convolution \"c\": attribute \"num_filter\" has two values");
  EXPECT_EQ(attr_error("attr { name: \"pad\" ints: [1, 1] floats: 1 }"),
            ":3:1: Convolution \"c\": attribute \"pad\" has two values");
  EXPECT_EQ(attr_error("attr { name: \"pad\" strings: [\"1\", \"1\"] s: \"1\" }"),
            ":3:1: Convolution \"c\": attribute \"pad\" has two values");
  EXPECT_EQ(attr_error("attr { name: \"pad\" floats: [1, 1] }"),
            ":3:1: Convolution \"c\": attribute \"pad\": expected a list of integers, got the list (1, 1)");
  EXPECT_EQ(attr_error("attr { name: \"num_filter\" i: 3 } attr { name: \"pad\" ints: [1, 1, 1] }"),
            ":2:1: Convolution \"c\": pad must have 2 numbers, one per extent of the kernel, or twice as many, got (1, "
            "1, 1)");
  EXPECT_EQ(attr_error("attr { name: \"auto_pad\" s: \"same\" }"),
            ":3:1: Convolution \"c\": attribute \"auto_pad\": expected one of none, valid, same_upper, same_lower, got "
            "the string \"same\"");
  EXPECT_EQ(attr_error("attr { name: \"kernel\" ints: [5, 5] }"),
            ":3:1: Convolution \"c\": two attributes are called \"kernel\"");
  EXPECT_EQ(attr_error("attr { name: \"activation\" s: \"rely\" }"),
            ":3:1: Convolution \"c\": attribute \"activation\": expected one of none, relu, sigmoid, tanh, softrelu, "
            "softsign, got "
            "the string \"rely\"");
  EXPECT_TRUE(attr_error("attr { name: \"num_filter\" i: -1 }").starts_with(":2:1: Convolution \"c\": "));
  EXPECT_EQ(attr_error("attr { name: \"num_filter\" i: 1 f: 2 }").substr(0, 7), ":3:33: ");
}

TEST(ModelText, NamesTheNodesOfACycle) {
  const auto exp = [](const std::string& name, const std::string& input) {
    return "node { op: \"Exp\" name: \"" + name + "\" input: \"" + input + "\" }\n";
  };
  EXPECT_EQ(GraphError(exp("a", "a")), ":2:1: the nodes form a cycle: \"a\" <- \"a\"");
  EXPECT_EQ(GraphError(exp("out", "b") + exp("a", "c") + exp("b", "a") + exp("c", "b")),
            ":4:1: the nodes form a cycle: \"b\" <- \"a\" <- \"c\" <- \"b\"");
  std::string ring;
  for (int i = 0; i < 1000; ++i) ring += exp("n" + std::to_string(i), "n" + std::to_string((i + 1) % 1000));
  EXPECT_EQ(GraphError(ring),
            ":2:1: the nodes form a cycle: \"n0\" <- \"n1\" <- \"n2\" <- \"n3\" <- \"n4\" <- \"n5\" <- \"n6\" <- "
            "\"n7\" <- \"n8\" <- "
            "\"n9\" <- \"n10\" <- ...");
}

TEST(ModelText, SaysWhichTensorIsWrong) {
  const auto tensor_error = [](const std::string& tensor) { return ErrorOf("param { name: \"w\" " + tensor + " }"); };
  EXPECT_EQ(tensor_error("dim: [2, 3] value: [1, 2]"),
            ":1:1: param \"w\": float32 (2, 3) has 6 elements, got 2 values");
  EXPECT_EQ(tensor_error("dim: 2"), ":1:1: param \"w\": float32 (2) has 2 elements, got 0 values");
  EXPECT_EQ(tensor_error("dim: 2 data: \"1234567\""), ":1:1: param \"w\": float32 (2) takes 8 bytes, got 7");
  EXPECT_EQ(tensor_error("dim: -1"), ":1:1: param \"w\": a tensor cannot have an extent of -1");
  EXPECT_EQ(tensor_error("dim: [1,1,1,1,1,1,1,1,1]"), ":1:1: param \"w\": 9 dims, at most 8 are possible");
  EXPECT_EQ(tensor_error("dim: 1 value: 1 data: \"1234\""),
            ":1:1: param \"w\": expected one of data, value and external, got 2");
  EXPECT_EQ(tensor_error("dtype: BOOL dim: 2 data: \"\\001\\002\""),
            ":1:1: param \"w\": element 1 of a bool tensor is 2, expected 0 or 1");
  EXPECT_EQ(tensor_error("dtype: UINT16 dim: 2 value: [1, 65536]"),
            ":1:1: param \"w\": element 1: 65536 cannot be held by uint16");
  EXPECT_EQ(tensor_error("dtype: UINT64 value: -1"), ":1:1: param \"w\": element 0: -1 cannot be held by uint64");
  EXPECT_EQ(tensor_error("dtype: INT8 value: 0.5"), ":1:1: param \"w\": element 0: 0.5 cannot be held by int8");
  EXPECT_EQ(tensor_error("dtype: INT32 value: nan"), ":1:1: param \"w\": element 0: nan cannot be held by int32");
  EXPECT_EQ(tensor_error("dim: 1 external { file: \"d\" bytes: 4 checksum: 1 }"),
            ":1:1: param \"w\": data file \"d\": a model in memory has no folder");
  EXPECT_EQ(ErrorOf("param { value: 1 }"), ":1:1: param \"\": it has no name");
  EXPECT_EQ(ErrorOf("param { name: \"a\" value: 1 }\naux { name: \"a\" value: 1 }"),
            ":2:1: aux \"a\": something else has this name");
  EXPECT_EQ(ErrorOf("param { name: \"a\" value: 1 }\nmetadata { key: \"k\" }\nmetadata { key: \"k\" }"),
            ":3:1: metadata \"k\" is there twice");
}

TEST(ModelText, RefusesOtherVersions) {
  const std::string newer =
      ":1:1: format version 3, but this program reads version 2: the file was written by a newer Bindery, please "
      "update";
  EXPECT_EQ(ErrorOf("version: 3 graph { }"), newer);
  EXPECT_EQ(ErrorOf("version: 3\nnew_field { x: 1 }\n graph { layer { } }"), newer);
  const std::string older =
      ":1:1: format version 1, but this program reads version 2: the file was written by an older Bindery, please "
      "write it again with this one";
  EXPECT_EQ(ErrorOf("version: 1 graph { }"), older);
  EXPECT_EQ(ErrorOf("version: 1 graph { variable { name: \"x\" } output: \"x\" }"), older);
  EXPECT_EQ(ErrorOf("version: 0"), ":1:1: format version 0 does not exist");
  EXPECT_EQ(ErrorOf("version: -5"), ":1:1: format version -5 does not exist");
  EXPECT_EQ(ErrorOf(""), ": it has neither a graph nor parameters");
}

TEST(ModelText, RefusesDeepNesting) {
  for (const char* piece : {"graph {", "x {", "[", "param { external {", "<", "x: [", "x: <"}) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += piece;
    EXPECT_TRUE(ErrorOf(text).starts_with(":")) << piece;
  }
}

TEST(ModelText, EscapesNamesInMessages) {
  EXPECT_EQ(GraphError("node { op: \"Exp\" name: \"a\\033[31m\" input: \"" + std::string(200, 'b') + "\" }"),
            ":2:36: Exp \"a\\x1b[31m\", input 0: nothing is called \"" + std::string(100, 'b') + "...\"");
}

}  // namespace
}  // namespace bindery
