#include "symbol/passes/mixed_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "symbol/ops/cast.h"
#include "tests/message_of.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using enum DType;
using Names = std::vector<std::string>;

// Element types of the first outputs of what is no Cast, by name.
std::map<std::string, DType> TypesOf(const Symbol& symbol, const DTypeMap& dtypes = {}) {
  const Graph graph = Graph::Of(symbol);
  const auto types = InferDTypes(graph, dtypes);
  std::map<std::string, DType> result;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!CastFrom(*graph.nodes[n])) result[graph.nodes[n]->name()] = types[n][0];
  }
  return result;
}

// The Casts, in order.
Names CastsOf(const Symbol& symbol) {
  Names names;
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    if (CastFrom(*node)) names.push_back(node->name());
  }
  return names;
}

Symbol Conv(const Symbol& x, const std::string& name) {
  return Convolution(x, {.num_filter = 4, .kernel = {3, 3}, .pad = {1, 1}}, name);
}
Symbol Dense(const Symbol& x, const std::string& name) { return FullyConnected(x, {.num_hidden = 4}, name); }

TEST(MixedPrecision, LayersAreLowAndLossesAreNot) {
  Symbol x = Activation(Conv(Variable("data"), "conv"), {ActivationType::kTanh}, "tanh");
  x = Pooling(x, {.kernel = {2, 2}, .stride = {2, 2}}, "pool");
  const Symbol net = SoftmaxOutput(Dense(Flatten(x, "flat"), "fc"), {}, "softmax");
  for (const DType low : {kBFloat16, kFloat16}) {
    const Symbol mixed = MixedPrecision(net, {.dtype = low});
    const std::map<std::string, DType> wanted = {{"data", kFloat32},
                                                 {"conv_weight", kFloat32},
                                                 {"conv_bias", kFloat32},
                                                 {"conv", low},
                                                 {"tanh", low},
                                                 {"pool", low},
                                                 {"flat", low},
                                                 {"fc_weight", kFloat32},
                                                 {"fc_bias", kFloat32},
                                                 {"softmax_label", kFloat32},
                                                 {"fc", low},
                                                 {"softmax", kFloat32}};
    EXPECT_EQ(TypesOf(mixed), wanted);
    const std::string to = fmt::format("_{}", low);
    EXPECT_EQ(CastsOf(mixed), (Names{"data" + to, "conv_weight" + to, "conv_bias" + to, "fc_weight" + to,
                                     "fc_bias" + to, "fc_output_float32"}));
    EXPECT_EQ(mixed.ListInputs(), net.ListInputs());
    EXPECT_EQ(mixed.ListOutputs(), net.ListOutputs());
    EXPECT_EQ(ListLabels(mixed), ListLabels(net));
    EXPECT_EQ(MixedPrecision(mixed, {.dtype = low}).DebugString(), mixed.DebugString());
  }
}

// No Cast in the block: the norm takes data in the low type beside its own parameters in float32.
TEST(MixedPrecision, ResidualBlocksStayLow) {
  const Symbol x = Conv(Variable("data"), "conv0");
  Symbol y = Activation(BatchNorm(x, {}, "bn"), {}, "relu");
  y = Add(Conv(y, "conv1"), x, "sum");
  const Symbol mixed = MixedPrecision(Sum(y, {}, "loss"));
  EXPECT_EQ(CastsOf(mixed), (Names{"data_bfloat16", "conv0_weight_bfloat16", "conv0_bias_bfloat16",
                                   "conv1_weight_bfloat16", "conv1_bias_bfloat16", "sum_output_float32"}));
  const auto types = TypesOf(mixed);
  for (const char* name : {"conv0", "bn", "relu", "conv1", "sum"}) EXPECT_EQ(types.at(name), kBFloat16) << name;
  for (const char* name : {"bn_gamma", "bn_beta", "bn_running_mean", "bn_running_var"}) {
    EXPECT_EQ(types.at(name), kFloat32) << name;
  }
}

TEST(MixedPrecision, AValueIsCastOnce) {
  const Symbol x = Variable("x"), w = Variable("w");
  const Symbol a = Dot(x, w, {}, "a"), b = Dot(Exp(a, "e"), w, {}, "b");
  const Symbol net = Add(Add(b, Exp(a, "f"), "s"), Log(a, "g"), "t");
  EXPECT_EQ(CastsOf(MixedPrecision(net)),
            (Names{"x_bfloat16", "w_bfloat16", "a_output_float32", "e_output_bfloat16", "b_output_float32"}));
}

// What a Cast brought up goes down again by itself.
TEST(MixedPrecision, CastsCancel) {
  const Symbol a = Dot(Variable("x"), Variable("w"), {}, "a");
  const Symbol mine = Cast(a, {.dtype = kFloat32}, "mine");
  const Symbol mixed = MixedPrecision(Group({Dot(mine, Variable("v"), {}, "b"), Exp(mine, "e")}));
  EXPECT_EQ(CastsOf(mixed), (Names{"x_bfloat16", "w_bfloat16", "v_bfloat16", "b", "mine"}));
  for (const NodePtr& node : PostOrder(mixed.entries())) {
    if (node->name() != "b" || CastFrom(*node)) continue;
    EXPECT_EQ(node->inputs()[0].node->name(), "a");
  }
}

TEST(MixedPrecision, OperandsThatDifferAreFloat32) {
  const Symbol a = Dot(Variable("x"), Variable("w"), {}, "a");
  const Symbol mixed = MixedPrecision(Tanh(Add(a, Variable("bias"), "sum"), "y"));
  EXPECT_EQ(TypesOf(mixed).at("sum"), kFloat32);
  EXPECT_EQ(TypesOf(mixed).at("y"), kFloat32);
  const Symbol condition = Variable("c", {.dtype = kBool});
  EXPECT_EQ(TypesOf(MixedPrecision(Square(Where(condition, a, a * 2.0, "chosen")))).at("chosen"), kBFloat16);
}

// Also one that both a low and another operator read.
TEST(MixedPrecision, NumbersFollow) {
  const Symbol a = Dot(Variable("x"), Variable("w"), {}, "a"), two = Scalar(2);
  const Symbol half = Constant(HostTensor::Full(kFloat32, {}, 0.5), "half");
  const Symbol net = Add(Sum(Mul(Mul(a, two, "low"), half, "halved")), Mul(Variable("y"), two, "high"), "net");
  const Symbol mixed = MixedPrecision(net);
  const auto types = TypesOf(mixed);
  EXPECT_EQ(types.at("low"), kBFloat16);
  EXPECT_EQ(types.at("halved"), kBFloat16);
  EXPECT_EQ(types.at("high"), kFloat32);
  EXPECT_EQ(MixedPrecision(mixed).DebugString(), mixed.DebugString());
}

// A number that masks is infinite in float16, and one that keeps from dividing by 0 is 0.
TEST(MixedPrecision, NumbersThatDoNotFitStayFloat32) {
  const Symbol a = Dot(Variable("x"), Variable("w"), {}, "a"), condition = Variable("c", {.dtype = kBool});
  const Symbol small = Constant(HostTensor::Full(kFloat32, {}, 1e-8), "small");
  const Symbol net = Group({Sum(Where(condition, a, -1e9, "masked")), Sum(Add(a, small, "kept")),
                            Sum(PRelu(a, Constant(HostTensor::Full(kFloat32, {}, 1e-9)), "rectified")),
                            Sum(Mul(a, 65504.0, "largest")), Sum(Add(a, 0.0, "zero")),
                            Sum(Where(condition, a, -HUGE_VAL, "infinite"))});
  for (const DType low : {kFloat16, kBFloat16}) {
    const Symbol mixed = MixedPrecision(net, {.dtype = low});
    const auto types = TypesOf(mixed);
    const DType beyond = low == kFloat16 ? kFloat32 : low;
    for (const char* name : {"masked", "kept", "rectified"}) EXPECT_EQ(types.at(name), beyond) << name;
    for (const char* name : {"largest", "zero", "infinite"}) EXPECT_EQ(types.at(name), low) << name;
    EXPECT_EQ(MixedPrecision(mixed, {.dtype = low}).DebugString(), mixed.DebugString());
  }
  const Symbol wide = Add(Variable("d", {.dtype = kFloat64}), 1e-8);
  EXPECT_EQ(MixedPrecision(wide, {.dtype = kFloat16}).entries(), wide.entries());
}

TEST(MixedPrecision, HeadsKeepTypesNamesAndAnnotations) {
  const Symbol x = Variable("x"), a = Dot(x, Variable("w"), {}, "a").WithAnnotation("merge", "mean");
  const std::vector<Symbol> fork = Outputs(ForkOp(), {Dot(a, Variable("v"), {}, "b")}, "fork");
  const Symbol net = Group({a, fork[0], fork[1], a, x}), mixed = MixedPrecision(net);
  EXPECT_EQ(mixed.ListOutputs(), net.ListOutputs());
  EXPECT_EQ(InferDTypes(mixed, {}).outputs, std::vector<DType>(5, kFloat32));
  EXPECT_EQ(mixed[0].Annotation("merge"), "mean");
  EXPECT_EQ(mixed[0].entry(), mixed[3].entry());
  EXPECT_EQ(mixed[4].entry(), net[4].entry());
  const Symbol head = BlockGrad(Dense(Variable("data"), "fc"), "stop");
  EXPECT_TRUE(IsLoss(*MixedPrecision(head).entry().node));
}

TEST(MixedPrecision, ListsAreTheUsers) {
  const Symbol net = Softmax(Pooling(Conv(Variable("data"), "conv"), {.kernel = {2, 2}}, "pool"), {}, "softmax");
  const auto types = [&](const OperatorPrecisions& operators) {
    return TypesOf(MixedPrecision(Exp(net), {.operators = operators}));
  };
  EXPECT_EQ(types({}).at("pool"), kBFloat16);
  EXPECT_EQ(types({{"Pooling", Precision::kFloat32}}).at("pool"), kFloat32);
  EXPECT_EQ(types({{"Convolution", Precision::kFloat32}}).at("conv"), kFloat32);
  EXPECT_EQ(types({{"Convolution", Precision::kFollow}, {"Pooling", Precision::kLow}}).at("conv"), kFloat32);
  EXPECT_EQ(types({{"Convolution", Precision::kFollow}, {"Pooling", Precision::kLow}}).at("pool"), kBFloat16);
  EXPECT_EQ(types({}).at("softmax"), kFloat32);
  EXPECT_EQ(types({{"Softmax", Precision::kFollow}}).at("softmax"), kBFloat16);
  for (const auto& [name, precision] : DefaultPrecisions()) EXPECT_NE(FindOpOrNull(name), nullptr) << name;

  EXPECT_EQ(MessageOf([&] {
              types({{"Pooing", Precision::kLow}});
            }),
            "ModelError: unknown operator \"Pooing\"; did you mean \"Pooling\"?");
  EXPECT_EQ(MessageOf([&] {
              types({{"SoftmaxOutput", Precision::kLow}});
            }),
            "Error: SoftmaxOutput is a loss: it cannot run in bfloat16");
  EXPECT_EQ(MessageOf([&] { MixedPrecision(net, {.dtype = kFloat64}); }),
            "Error: mixed precision is of bfloat16 or float16, got float64");
}

// 301 steps are 300 in bfloat16, and word 257 is word 256.
TEST(MixedPrecision, IndicesAndLengthsStayExact) {
  const Symbol words = Embedding(Variable("words"), Variable("table"), {.input_dim = 1000, .output_dim = 4}, "embed");
  for (const Precision precision : {Precision::kLow, Precision::kFollow}) {
    const Symbol mixed = MixedPrecision(words, {.operators = {{"Embedding", precision}}});
    for (const std::string& cast : CastsOf(mixed)) EXPECT_FALSE(cast.starts_with("words")) << cast;
  }
  const auto find = [&](const OpExample& example) {
    return example.op->name == "Recurrent" && example.label.find("lengths=true") != std::string::npos;
  };
  const auto example = std::ranges::find_if(OpExamples(), find);
  ASSERT_NE(example, OpExamples().end());
  const std::vector<Symbol> outputs = NodeOf(*example->op, example->attrs, static_cast<int>(example->inputs.size()));
  const Names casts = CastsOf(MixedPrecision(outputs[0]));
  EXPECT_FALSE(casts.empty());
  for (const std::string& cast : casts) EXPECT_EQ(cast.find("lengths"), std::string::npos) << cast;
}

TEST(MixedPrecision, OtherTypesStay) {
  const Symbol x = Variable("x", {.dtype = kFloat64});
  const Symbol net = Dot(Exp(x), Variable("w"), {}, "dot");
  EXPECT_EQ(MixedPrecision(net).entries(), net.entries());
  const Symbol words = Embedding(Variable("words"), Variable("table"), {.input_dim = 8, .output_dim = 4}, "embedded");
  const Symbol mixed = MixedPrecision(Dense(words, "fc"), {}, {{"words", kInt32}});
  EXPECT_EQ(TypesOf(mixed, {{"words", kInt32}}).at("embedded"), kFloat32);
  EXPECT_EQ(CastsOf(mixed), (Names{"embedded_output_bfloat16", "fc_weight_bfloat16", "fc_bias_bfloat16", "fc"}));
}

TEST(MixedPrecision, GradientsAreFloat32) {
  const Symbol x = Conv(Activation(BatchNorm(Conv(Variable("data"), "conv0"), {}, "bn"), {}, "relu"), "conv1");
  const Symbol mixed = MixedPrecision(SoftmaxOutput(Dense(x, "fc"), {}, "softmax"));
  const Names names = mixed.ListArguments();
  const GivenTypes given{.shapes = {{"data", {2, 3, 8, 8}}}};
  const GradientResult result = Gradient(mixed, names, given);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "softmax_label") continue;
    ASSERT_FALSE(result.gradients[i].empty()) << names[i];
    EXPECT_EQ(InferDTypes(result.gradients[i], {}).outputs, std::vector{kFloat32}) << names[i];
  }
}

// Whatever an operator's rule says of types, and whatever the lists say of it, the graph stays one whose types fit, with
// outputs of the types they had; behind and before operators that are low.
TEST(MixedPrecision, EveryOperatorInEveryList) {
  int cast = 0;
  for (const OpExample& example : OpExamples()) {
    const OpDef& op = *example.op;
    const int count = static_cast<int>(example.inputs.size());
    const Symbol node = Group(NodeOf(op, example.attrs, count));
    std::map<std::string, Symbol> low;
    for (const std::string& name : node.ListArguments()) {
      if (name != "state") low[name] = Dot(Variable(name + "_a"), Variable(name + "_b"), {}, name);
    }
    const Symbol behind = node.Compose(low);
    for (const Symbol& net : {node, behind, Group({behind, node})}) {
      InferredDTypes before;
      try {
        before = InferDTypes(net, {});
      } catch (const ShapeError&) {
        continue;  // of integers
      }
      for (const Precision precision : {Precision::kLow, Precision::kFloat32, Precision::kFollow}) {
        if (precision == Precision::kLow && op.is_loss && !op.blocks_gradient) continue;
        SCOPED_TRACE(example.label + " " + std::to_string(static_cast<int>(precision)));
        const MixedPrecisionOptions options{.operators = {{op.name, precision}}};
        const Symbol mixed = MixedPrecision(net, options);
        InferredDTypes after;
        ASSERT_NO_THROW(after = InferDTypes(mixed, {})) << mixed.DebugString();
        EXPECT_EQ(after.outputs, before.outputs);
        EXPECT_EQ(after.arguments, before.arguments);
        EXPECT_EQ(after.auxiliary, before.auxiliary);
        EXPECT_EQ(mixed.ListInputs(), net.ListInputs());
        EXPECT_EQ(MixedPrecision(mixed, options).DebugString(), mixed.DebugString());
        cast += !CastsOf(mixed).empty();
      }
    }
  }
  EXPECT_GT(cast, 1000);
}

}  // namespace
}  // namespace bindery
