#include <gtest/gtest.h>

#include "base/files.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/mxnet/mxnet.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/symbol/mxnet_files.h"
#include "tests/test_folder.h"

namespace bindery {
namespace {

const std::string kData = MxnetNode("null", "data");

// One operator of `data` and the variables w, b, u, v.
Symbol OperatorOf(const std::string& op, const std::string& attrs, int inputs = 1, int version = 10901) {
  std::string nodes = kData, entries = "[0, 0, 0]";
  const char* const names[] = {"w", "b", "u", "v"};
  for (int i = 1; i < inputs; ++i) {
    nodes += ", " + MxnetNode("null", names[i - 1]);
    entries += fmt::format(", [{}, 0, 0]", i);
  }
  return ParseMxnet(
             MxnetGraph(nodes + ", " + MxnetNode(op, "n", entries, attrs), fmt::format("[{}, 0, 0]", inputs), version),
             {}, "m.json")
      .symbol;
}
std::string ErrorOf(const std::string& op, const std::string& attrs, int inputs = 1) {
  return MessageOf<ModelError>([&] { OperatorOf(op, attrs, inputs); });
}
template <class A>
const A& AttrsOf(const Symbol& symbol) {
  return symbol.entry().node->attrs().get<A>();
}

TEST(MxnetParams, ArraysOfEveryVersionAndType) {
  const HostTensor x = HostTensor::From({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const int version : {0, 1, 2, 3}) {
    const MxnetParams params = ParseMxnetParams(MxnetFile(
        {{"arg:x", MxnetArray(x, version)}, {"aux:mean", MxnetArray(x, version)}, {"plain", MxnetArray(x, version)}}));
    EXPECT_EQ(params.args.at("x"), x) << version;
    EXPECT_EQ(params.aux.at("mean"), x) << version;
    EXPECT_EQ(params.others.at("plain"), x) << version;
  }
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8, DType::kInt32,
                              DType::kInt8,    DType::kInt64,   DType::kBool,    DType::kInt16, DType::kUInt16,
                              DType::kUInt32,  DType::kUInt64,  DType::kBFloat16};
  for (int32_t flag = 0; flag < std::ssize(kTypes); ++flag) {
    const HostTensor value = HostTensor::Full(kTypes[flag], {3}, 1);
    EXPECT_EQ(ParseMxnetParams(MxnetFile({{"arg:x", MxnetArray(value, 2, flag)}})).args.at("x"), value) << flag;
  }
  const HostTensor scalar = HostTensor::Full(DType::kFloat32, {}, 7);
  EXPECT_EQ(ParseMxnetParams(MxnetFile({{"arg:x", MxnetArray(scalar, 3)}})).args.at("x"), scalar);
}

TEST(MxnetParams, WhatCannotBeReadIsSaid) {
  const HostTensor x = HostTensor::From({2}, {1, 2});
  const auto error = [](const std::string& bytes) {
    return MessageOf<ModelError>([&] { ParseMxnetParams(bytes, "m.params"); });
  };
  const std::string sparse = Bytes(0xF993FAC9u) + Bytes(int32_t{1});
  EXPECT_EQ(error(MxnetFile({{"arg:x", MxnetArray(x)}, {"arg:s", sparse}})),
            "ModelError: m.params: array 1: it is sparse (row_sparse), and only dense arrays can be read: "
            "tostype('default') before saving");
  EXPECT_EQ(error(MxnetFile({{"arg:x", MxnetArray(x, 2, 13)}})),
            "ModelError: m.params: array 0: element type 13 of MXNet has no counterpart");
  EXPECT_EQ(error(MxnetFile({{"arg:x", MxnetArray(x)}, {"arg:x", MxnetArray(x)}})),
            "ModelError: m.params: two arrays are called \"x\"");
  EXPECT_EQ(error(MxnetFile({{"arg:x", MxnetArray(x)}}) + "."),
            "ModelError: m.params: bytes follow after the last name");
  EXPECT_EQ(error("PK\3\4 something else"), "ModelError: m.params: not a file of MXNet's arrays");
}

TEST(MxnetImport, DefaultsAreThoseOfMxnet) {
  const auto conv = OperatorOf("Convolution", "'kernel': '(3, 3)', 'num_filter': '8', 'workspace': '512'", 3);
  EXPECT_FALSE(AttrsOf<ConvolutionAttrs>(conv).no_bias);
  EXPECT_EQ(AttrsOf<ConvolutionAttrs>(conv).kernel, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(conv.ListArguments(), (std::vector<std::string>{"data", "w", "b"}));
  const auto norm = OperatorOf("BatchNorm", "", 5);
  EXPECT_TRUE(AttrsOf<BatchNormAttrs>(norm).fix_gamma);
  EXPECT_EQ(AttrsOf<BatchNormAttrs>(norm).eps, 1e-3);
  EXPECT_EQ(AttrsOf<BatchNormAttrs>(norm).momentum, 0.9);
  EXPECT_EQ(norm.ListAuxiliaryStates(), (std::vector<std::string>{"u", "v"}));
  EXPECT_EQ(AttrsOf<CurveAttrs>(OperatorOf("LeakyReLU", "")).alpha, 0.25);
  EXPECT_EQ(AttrsOf<LRNAttrs>(OperatorOf("LRN", "'nsize': '5L'")).bias, 2);
  EXPECT_EQ(AttrsOf<EmbeddingAttrs>(OperatorOf("Embedding", "'input_dim': '4', 'output_dim': '2'", 2)).mode,
            IndexMode::kClip);
  const auto softmax = OperatorOf(
      "SoftmaxOutput", "'use_ignore': 'True', 'ignore_label': '3.0', 'normalization': 'valid', 'multi_output': '1'", 2);
  EXPECT_TRUE(AttrsOf<SoftmaxOutputAttrs>(softmax).use_ignore);
  EXPECT_TRUE(AttrsOf<SoftmaxOutputAttrs>(softmax).multi_output);
  EXPECT_EQ(AttrsOf<SoftmaxOutputAttrs>(softmax).ignore_label, 3);
  EXPECT_EQ(AttrsOf<SoftmaxOutputAttrs>(softmax).normalization, Normalization::kValid);
  EXPECT_EQ(softmax.ListOutputs(), (std::vector<std::string>{"n_output"}));
}

TEST(MxnetImport, ScoresOfAttentionAreOfAnyType) {
  const Symbol scaled = OperatorOf("_contrib_div_sqrt_dim", "");
  for (const Shape& shape : {Shape{4}, Shape{2, 3, 4}}) {
    EXPECT_EQ(*InferShapes(scaled, {{"data", shape}}).outputs[0], shape);
  }
  EXPECT_EQ(InferDTypes(scaled, {{"data", DType::kFloat16}}).outputs[0], DType::kFloat16);
  EXPECT_EQ(InferTypes(Graph::Of(scaled), {{"data", {1, 4}}}, {}, {{"data", 0}}).back()[0].batch_axis, 0);
}

// Coordinates are an axis beside the channels' there.
TEST(MxnetImport, GridsOfPlaces) {
  const std::string affine = "'transform_type': 'affine', 'target_shape': '(4, 6)'";
  EXPECT_EQ(*InferShapes(OperatorOf("GridGenerator", affine), {{"data", {5, 6}}}).outputs[0], (Shape{5, 2, 4, 6}));
  EXPECT_EQ(*InferShapes(OperatorOf("BilinearSampler", "'cudnn_off': 'False'", 2),
                         {{"data", {5, 3, 8, 9}}, {"w", {5, 2, 4, 6}}})
                 .outputs[0],
            (Shape{5, 3, 4, 6}));
  EXPECT_EQ(*InferShapes(OperatorOf("SpatialTransformer", affine + ", 'sampler_type': 'bilinear'", 2),
                         {{"data", {5, 3, 8, 9}}, {"w", {5, 6}}})
                 .outputs[0],
            (Shape{5, 3, 4, 6}));
  EXPECT_EQ(ErrorOf("GridGenerator", "'transform_type': 'warp'"),
            "ModelError: m.json: node 1, \"GridGenerator\" \"n\": attribute \"transform_type\" of \"warp\" cannot be "
            "imported");
}

TEST(MxnetImport, AttributesThatAreWrongAreErrors) {
  const std::string who = "ModelError: m.json: node 2, \"Activation\" \"n\": ";
  const auto error = [](const std::string& attrs) { return ErrorOf("Activation", attrs, 2); };
  EXPECT_EQ(error("'act_type': 'relu', 'speed': '9'"), who + "attribute \"speed\" is not known");
  EXPECT_EQ(error("'act_type': 'warp'"), who + "attribute \"act_type\" of \"warp\" cannot be imported");
  EXPECT_EQ(ErrorOf("Convolution", "'kernel': '(3, x)', 'num_filter': '8'", 3),
            "ModelError: m.json: node 3, \"Convolution\" \"n\": attribute \"kernel\": expected whole numbers, got "
            "\"(3, x)\"");
  EXPECT_EQ(ErrorOf("Convolution", "'kernel': '(3, 3)'", 3),
            "ModelError: m.json: node 3, \"Convolution\" \"n\": attribute \"num_filter\" is missing");
  EXPECT_EQ(ErrorOf("Convolution", "'kernel': '(3, 3)', 'num_filter': '8', 'layout': 'NHWC'", 3),
            "ModelError: m.json: node 3, \"Convolution\" \"n\": attribute \"layout\" of \"NHWC\" cannot be "
            "imported");
  EXPECT_EQ(ErrorOf("FullyConnected", "'num_hidden': '8'", 2),
            "ModelError: m.json: node 2, \"FullyConnected\" \"n\": input 2 is missing");
}

TEST(MxnetImport, OperatorsThatAreNotKnownAreNamedAtOnce) {
  const std::string nodes = kData + ", " + MxnetNode("Custom", "a", "[0, 0, 0]") + ", " +
                            MxnetNode("ROIPooling", "b", "[1, 0, 0]") + ", " + MxnetNode("Custom", "c", "[2, 0, 0]");
  EXPECT_EQ(MessageOf<ModelError>([&] { ParseMxnet(MxnetGraph(nodes, "[3, 0, 0]"), {}, "m.json"); }),
            "ModelError: m.json: operators of MXNet that cannot be imported, with the nodes that use them: \"Custom\" "
            "(\"a\", \"c\"); \"ROIPooling\" (\"b\")");
}

TEST(MxnetImport, AnnotationsOfVariables) {
  const std::string attrs =
      "'__lr_mult__': '2.0', '__wd_mult__': '0.0', '__shape__': '(4, 0)', '__dtype__': '0', '__mood__': 'angry', "
      "'__init__': '[\\'xavier\\', {\\'factor_type\\': \\'in\\', \\'magnitude\\': 2.34, "
      "\\'rnd_type\\': \\'gaussian\\'}]', '__ctx_group__': 'stage1', 'num_hidden': '4'";
  const Symbol symbol = ParseMxnet(MxnetGraph(kData + ", " + MxnetNode("null", "w", "", attrs) + ", " +
                                                  MxnetNode("FullyConnected", "fc", "[0, 0, 0], [1, 0, 0]",
                                                            "'num_hidden': '4', 'no_bias': 'True'"),
                                              "[2, 0, 0]"))
                            .symbol;
  const Annotations expected = {{"lr_mult", "2.0"},
                                {"wd_mult", "0.0"},
                                {"init", "xavier(gaussian, in, 2.34)"},
                                {"__mood__", "angry"},
                                {"__ctx_group__", "stage1"}};
  EXPECT_EQ(symbol.AllAnnotations().at("w"), expected);
  EXPECT_EQ(symbol.Internals()["w"].entry().node->declared_shape, (Shape{4, kUnknownDim}));
}

// Gluon writes the name alone; a tensor of constants is no initializer of ours.
TEST(MxnetImport, InitializersOfVariables) {
  const auto annotations = [](const std::string& init) {
    const std::string nodes =
        MxnetNode("null", "w", "", "'__init__': '" + init + "'") + ", " + MxnetNode("relu", "y", "[0, 0, 0]");
    return ParseMxnet(MxnetGraph(nodes, "[1, 0, 0]")).symbol.AllAnnotations().at("w");
  };
  EXPECT_EQ(annotations("zeros"), (Annotations{{"init", "zero"}}));
  EXPECT_EQ(annotations(R"([\'constant\', {\'value\': 2.5}])"), (Annotations{{"init", "constant(2.5)"}}));
  EXPECT_EQ(annotations(R"([\'uniform\', {}])"), (Annotations{{"init", "uniform(0.07)"}}));
  EXPECT_EQ(annotations(R"([\'constant\', {\'value\': [1.0, 2.0]}])"),
            (Annotations{{"__init__", R"(["constant", {"value": [1.0, 2.0]}])"}}));
}

// A condition of one axis is of rows, of whatever type and however many samples there are.
TEST(MxnetImport, WhereChoosesElementsOrRows) {
  const std::string nodes = MxnetNode("_arange", "c", "", "'start': '0', 'stop': '3'") + ", " +
                            MxnetNode("_arange", "a", "", "'start': '1', 'stop': '10'") + ", " +
                            MxnetNode("Reshape", "x", "[1, 0, 0]", "'shape': '(3, 3)'") + ", " +
                            MxnetNode("zeros_like", "z", "[2, 0, 0]") + ", " +
                            MxnetNode("where", "rows", "[0, 0, 0], [2, 0, 0], [3, 0, 0]") + ", " +
                            MxnetNode("where", "elements", "[3, 0, 0], [3, 0, 0], [2, 0, 0]");
  const Graph graph = Graph::Of(ParseMxnet(MxnetGraph(nodes, "[4, 0, 0], [5, 0, 0]")).symbol);
  NodeNumbers numbers;
  InferTypes(graph, {}, {}, {}, {}, &numbers);
  const auto values = [&](int head) {
    std::vector<double> found;
    for (const Number& number : *numbers[graph.IndexOf(graph.outputs[head].node)][0]) found.push_back(number.at[0]);
    return found;
  };
  EXPECT_EQ(values(0), (std::vector<double>{0, 0, 0, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(values(1), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}));

  const Graph batched = Graph::Of(OperatorOf("where", "", 3));
  const ShapeMap shapes = {{"data", {3}}, {"w", {3, 3, 2}}, {"b", {3, 3, 2}}};
  EXPECT_EQ(InferTypes(batched, shapes, {}, {{"data", 0}, {"w", 0}, {"b", 0}}).back()[0].batch_axis, 0);
}

// What 0.8 wrote: attributes in "param" and "attr", multipliers on the operator, no auxiliary states, entries of two.
TEST(MxnetImport, OldFiles) {
  const std::string nodes =
      kData + ", " + MxnetNode("null", "fc_weight") + ", " + MxnetNode("null", "fc_bias") + ", " +
      R"({"op": "FullyConnected", "param": {"num_hidden": "4"}, "name": "fc", "inputs": [[0, 0], [1, 0], [2, 0]],
          "backward_source_id": -1, "attr": {"weight_lr_mult": "0.5", "ctx_group": "dev1"}})" +
      ", " + MxnetNode("null", "bn_gamma") + ", " + MxnetNode("null", "bn_beta") + ", " +
      MxnetNode("BatchNorm", "bn", "[3, 0], [4, 0], [5, 0]", "'fix_gamma': 'False'", "param");
  const Symbol symbol =
      ParseMxnet(fmt::format(R"({{"nodes": [{}], "arg_nodes": [0, 1, 2, 4, 5], "heads": [[6, 0]]}})", nodes)).symbol;
  EXPECT_EQ(symbol.ListAuxiliaryStates(), (std::vector<std::string>{"bn_moving_mean", "bn_moving_var"}));
  EXPECT_EQ(symbol.AllAnnotations().at("fc_weight"), (Annotations{{"lr_mult", "0.5"}}));
  // A newer file has them, or is damaged.
  const std::string newer = MxnetGraph(nodes, "[6, 0, 0]");
  EXPECT_EQ(MessageOf<ModelError>([&] { ParseMxnet(newer, {}, "m.json"); }),
            "ModelError: m.json: node 6, \"BatchNorm\" \"bn\": input 3 is missing");
  // Before 0.9.5 an axis of -1 was no axis.
  const std::map<std::string, Shape> data = {{"data", {2, 3}}};
  const auto shape = [&](int version) {
    return *InferShapes(OperatorOf("argmax", "'axis': '-1'", 1, version), data).outputs[0];
  };
  EXPECT_EQ(shape(904), (Shape{1}));
  EXPECT_EQ(shape(905), (Shape{2}));
}

TEST(MxnetImport, ReshapeCodes) {
  const auto shape = [](const std::string& codes, bool reverse = false) {
    const std::string attrs = fmt::format("'shape': '{}', 'reverse': '{}'", codes, reverse ? "True" : "False");
    return *InferShapes(OperatorOf("Reshape", attrs), {{"data", {2, 6, 4, 5}}}).outputs[0];
  };
  EXPECT_EQ(shape("(0, -1)"), (Shape{2, 120}));
  EXPECT_EQ(shape("(-3, -2)"), (Shape{12, 4, 5}));
  EXPECT_EQ(shape("(0, -4, 3, -1, -2)"), (Shape{2, 3, 2, 4, 5}));
  EXPECT_EQ(shape("(0, 0, -3)"), (Shape{2, 6, 20}));
  EXPECT_EQ(shape("(-1, 0)", true), (Shape{48, 5}));
  EXPECT_EQ(shape("(-2, -3)", true), (Shape{2, 6, 20}));
  EXPECT_EQ(shape("(-2, 1, 1)"), (Shape{2, 6, 4, 5, 1, 1}));
  EXPECT_EQ(shape("(0, -2, 1)"), (Shape{2, 6, 4, 5, 1}));
  EXPECT_EQ(shape("(1, -2)", true), (Shape{1, 2, 6, 4, 5}));
  EXPECT_NE(ErrorOf("Reshape", "'shape': '(-5,)'"), "nothing was thrown");
  EXPECT_NE(ErrorOf("Reshape", "'shape': '(-2, 0)'"), "nothing was thrown");
}

// The vector is cut into the weights and biases of each layer and direction.
TEST(MxnetImport, AVectorOfRecurrentParametersIsSplit) {
  const int64_t size = 4 * 3 * (2 + 3 + 2);  // an LSTM's, of 3 units over 2 inputs
  HostTensor vector(DType::kFloat32, {size});
  for (int64_t i = 0; i < size; ++i) vector.Set(i, static_cast<double>(i));
  const std::string nodes = kData + ", " + MxnetNode("null", "lstm_parameters") + ", " + MxnetNode("null", "h") + ", " +
                            MxnetNode("null", "c") + ", " +
                            MxnetNode("RNN", "lstm", "[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]",
                                      "'mode': 'lstm', 'state_size': '3', 'num_layers': '1'");
  const std::string graph = MxnetGraph(nodes, "[4, 0, 0]");
  const Model model = ParseMxnet(graph, {.args = {{"lstm_parameters", vector}}}, "m.json");
  EXPECT_FALSE(model.params.contains("lstm_parameters"));
  EXPECT_EQ(model.params.at("lstm_l0_i2h_weight").shape(), (Shape{12, 2}));
  EXPECT_EQ(model.params.at("lstm_l0_h2h_weight").At(0), 24);
  EXPECT_EQ(model.params.at("lstm_l0_i2h_bias").At(0), 60);
  EXPECT_EQ(model.params.at("lstm_l0_h2h_bias").At(11), 83);
  EXPECT_EQ(ParseMxnet(graph, {.aux = {{"lstm_parameters", vector}}}).params, model.params) << "what the graph says";
  // Without values the data's width is open.
  const Symbol open = ParseMxnet(graph).symbol;
  const InferredShapes shapes = InferShapes(open, {{"data", {5, 2, 7}}, {"h", {1, 2, 3}}, {"c", {1, 2, 3}}});
  EXPECT_EQ(*shapes.outputs[0], (Shape{5, 2, 3}));
  EXPECT_EQ(*shapes.arguments[1], (Shape{12, 7}));
  EXPECT_EQ(MessageOf<ModelError>([&] {
              ParseMxnet(graph, {.args = {{"lstm_parameters", HostTensor(DType::kFloat32, {85})}}}, "m.json");
            }),
            "ModelError: m.json: node 4, \"RNN\" \"lstm\": its parameters are 85 numbers, which no width of the data "
            "gives");
}

class MxnetFiles : public testing::Test {
 protected:
  void Write(const std::string& name, double value) {
    const HostTensor w = HostTensor::Full(DType::kFloat32, {4, 2}, value);
    WriteFileAtomically(folder_ + "/" + name, MxnetFile({{"arg:w", MxnetArray(w)}}));
  }
  const TestFolder made_;
  const std::string folder_ = made_.path();
};

TEST_F(MxnetFiles, TheLatestEpochBesideAGraphIsItsValues) {
  const std::string graph =
      MxnetGraph(kData + ", " + MxnetNode("null", "w") + ", " +
                     MxnetNode("FullyConnected", "fc", "[0, 0, 0], [1, 0, 0]", "'num_hidden': '4', 'no_bias': '1'"),
                 "[2, 0, 0]");
  const std::string path = folder_ + "/net-symbol.json";
  WriteFileAtomically(path, graph);
  EXPECT_TRUE(LoadModel(path).params.empty()) << "an architecture alone";
  Write("net-0002.params", 2);
  Write("net-0010.params", 10);
  Write("net-last.params", 3);
  Write("another-0099.params", 99);
  const Model model = LoadModel(path);
  EXPECT_EQ(model.params.at("w").At(0), 10);
  EXPECT_EQ(LoadModel(folder_ + "/net-0002.params").params.at("w").At(0), 2);
  EXPECT_TRUE(LoadModel(folder_ + "/net-0002.params").symbol.empty());
  Write("plain.params", 5);
  WriteFileAtomically(folder_ + "/plain.json", graph);
  EXPECT_EQ(LoadModel(folder_ + "/plain.json").params.at("w").At(0), 5);
  EXPECT_EQ(ParseModel(SerializeModel(model)).params.at("w").At(0), 10) << "a model like any other";
  EXPECT_NE(MessageOf<ModelError>([&] { SaveModel(model, path); }).find("read, not written"), std::string::npos);
}

}  // namespace
}  // namespace bindery
