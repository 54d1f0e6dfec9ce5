// Models that were saved and loaded are the same.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

void ExpectSameSymbol(const Symbol& a, const Symbol& b) {
  EXPECT_EQ(a.DebugString(), b.DebugString());
  EXPECT_EQ(a.ListOutputs(), b.ListOutputs());
  EXPECT_EQ(a.ListArguments(), b.ListArguments());
  EXPECT_EQ(a.ListAuxiliaryStates(), b.ListAuxiliaryStates());
  const Graph x = Graph::Of(a), y = Graph::Of(b);
  ASSERT_EQ(x.nodes.size(), y.nodes.size());
  for (size_t i = 0; i < x.nodes.size(); ++i) {
    const Node &left = *x.nodes[i], &right = *y.nodes[i];
    EXPECT_EQ(left.name(), right.name());
    EXPECT_EQ(left.annotations(), right.annotations());
    EXPECT_EQ(left.declared_shape, right.declared_shape);
    EXPECT_EQ(left.declared_dtype, right.declared_dtype);
    EXPECT_EQ(left.auto_base, right.auto_base) << left.name();
    EXPECT_EQ(left.auto_depth, right.auto_depth) << left.name();
    ASSERT_EQ(left.is_variable(), right.is_variable());
    if (left.is_variable()) continue;
    EXPECT_EQ(&left.op(), &right.op());
    EXPECT_TRUE(left.attrs() == right.attrs()) << left.name();
    ASSERT_EQ(left.inputs().size(), right.inputs().size());
    for (size_t k = 0; k < left.inputs().size(); ++k) {
      EXPECT_EQ(x.IndexOf(left.inputs()[k].node), y.IndexOf(right.inputs()[k].node));
      EXPECT_EQ(left.inputs()[k].output, right.inputs()[k].output);
    }
  }
}

void ExpectRoundTrip(const Model& model) {
  for (const bool text : {false, true}) {
    const std::string bytes = SerializeModel(model, text);
    const Model read = ParseModel(bytes, text);
    if (!model.symbol.empty()) ExpectSameSymbol(model.symbol, read.symbol);
    EXPECT_EQ(read.symbol.empty(), model.symbol.empty());
    EXPECT_EQ(read.params, model.params);
    EXPECT_EQ(read.aux, model.aux);
    EXPECT_EQ(read.metadata, model.metadata);
    EXPECT_EQ(SerializeModel(read, text), bytes);
  }
}

TEST(ModelRoundTrip, EveryOperatorWithItsAttributes) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    std::vector<Symbol> inputs;
    for (size_t i = 0; i < example.inputs.size(); ++i) inputs.push_back(Variable("x" + std::to_string(i)));
    ExpectRoundTrip({.symbol = Group(ApplyAll(*example.op, example.attrs, inputs, "node"))});
  }
}

TEST(ModelRoundTrip, ANetAndItsGradient) {
  Symbol x = Variable("data", {.shape = Shape{kUnknownDim, 1, 28, 28}, .dtype = DType::kFloat32, .layout = "NCHW"});
  x = Convolution(x, {.num_filter = 4, .kernel = {5, 5}}, "conv1");
  x = BatchNorm(x, {.fix_gamma = false}, "bn1");
  x = Tanh(x);
  x = FullyConnected(x, Variable("tied", {.init = "normal(0.1)", .lr_mult = 0.1}), Symbol(), {.num_hidden = 10}, "fc1");
  x = SoftmaxOutput(x, Variable("softmax_label", {.dtype = DType::kInt32}), {}, "softmax");
  ExpectRoundTrip({.symbol = x});
  const GradientResult gradient = Gradient(x, std::vector<std::string>{"tied", "conv1_weight", "bn1_gamma"});
  ExpectRoundTrip({.symbol = Group(gradient.gradients)});
  ExpectRoundTrip({.symbol = x.Internals()});
}

TEST(ModelRoundTrip, OperatorsOfOneName) {
  const Symbol x = Variable("x");
  // Without a name scope, and applied to the same input, these are both called x_exp1; more by hand.
  const Symbol a = Exp(x), b = Exp(x), c = Log(b, "same"), d = Tanh(c, "same#2");
  EXPECT_EQ(a.name(), b.name());
  ExpectRoundTrip({.symbol = Group({a, b, c, d, Add(a, b, "same"), Relu(a, "same")})});
}

TEST(ModelRoundTrip, NamesOfAnyKind) {
  const Symbol a = Variable("data:0"), b = Variable("data"), c = Variable("with \"quotes\"\n and ümläuts");
  const Symbol sum = Apply(AddNOp(), {}, {a, b, c}, "sum:1");
  ExpectRoundTrip({.symbol = Group({Relu(sum, "0"), Relu(a, ":"), Relu(b, "a:"), sum}),
                   .params = {{"w:1", HostTensor::Full(DType::kFloat32, {2}, 1)}},
                   .metadata = {{"", "empty key"}, {"zero", std::string("\0\xff", 2)}}});
}

TEST(ModelRoundTrip, HiddenOutputs) {
  const std::vector<Symbol> outputs = ApplyAll(BatchNormOp(), BatchNormAttrs{}, {Variable("x")}, "bn");
  ASSERT_EQ(outputs.size(), 3u);
  ExpectRoundTrip({.symbol = Group({Relu(outputs[1], "mean"), Relu(outputs[2], "var"), outputs[0]})});
}

TEST(ModelRoundTrip, AutomaticNamesGoOnAsBefore) {
  const Symbol net = Relu(Tanh(Variable("data")));
  const Symbol read = ParseModel(SerializeModel({.symbol = net})).symbol;
  EXPECT_EQ(Relu(read).name(), Relu(net).name());
  EXPECT_EQ(Relu(read).name(), "data_relu3");
}

// 1 - x is named after x.
TEST(ModelRoundTrip, AutomaticNamesBehindAConstantGoOnAsBefore) {
  const Symbol net = 1.0 - Variable("data");
  const Symbol read = ParseModel(SerializeModel({.symbol = net})).symbol;
  EXPECT_EQ(Relu(net).name(), "data_relu2");
  EXPECT_EQ(Relu(read).name(), "data_relu2");
}

TEST(ModelRoundTrip, ScopesOfTheReaderAreNotItsBusiness) {
  const Model model{.symbol = FullyConnected(Variable("data"), {.num_hidden = 3}, "fc")};
  const AttrScope attributes({{"ctx_group", "a"}});
  const NameScope names("prefix_");
  ExpectSameSymbol(ParseModel(SerializeModel(model)).symbol, model.symbol);
  EXPECT_TRUE(ParseModel("graph { variable { name: \"x\" } node { op: \"FullyConnected\" name: \"fc\" attr { name: "
                         "\"num_hidden\" i: 2 } input: \"x\" } output: \"fc\" }",
                         true)
                  .symbol.AllAnnotations()
                  .empty());
}

TEST(ModelRoundTrip, TensorsOfEveryType) {
  Model model;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0}, Shape{4}, Shape{5, 7}}) {
      HostTensor tensor(dtype, shape);
      for (int64_t k = 0; k < tensor.elements(); ++k) tensor.Set(k, static_cast<double>(k) * 1.25 - 3);
      model.params[fmt::format("{}{}", dtype, shape)] = std::move(tensor);
    }
  }
  ExpectRoundTrip(model);
}

// Every bit, also of numbers that text cannot show as numbers.
TEST(ModelRoundTrip, BitsOfTensors) {
  Model model;
  const auto bits = []<class T>(DType dtype, std::initializer_list<T> patterns) {
    HostTensor tensor(dtype, {static_cast<int64_t>(patterns.size())});
    std::memcpy(tensor.raw(), patterns.begin(), patterns.size() * sizeof(T));
    return tensor;
  };
  model.params["nan32"] = bits(DType::kFloat32, {0x7fc00000u, 0xffc00001u, 0x7f800001u, 0x3f800000u});
  model.params["special32"] = bits(DType::kFloat32, {0x7f800000u, 0xff800000u, 0x80000000u, 0x00000001u, 0x7f7fffffu});
  model.params["nan64"] = bits(DType::kFloat64, {uint64_t{0x7ff8000000000000}, uint64_t{0xfff0000000000001}});
  model.params["special64"] = bits(DType::kFloat64, {uint64_t{0x7ff0000000000000}, uint64_t{0x8000000000000000},
                                                     uint64_t{1}, uint64_t{0x3fb999999999999a}});
  model.params["nan16"] =
      bits(DType::kFloat16, {uint16_t{0x7e00}, uint16_t{0xfc01}, uint16_t{0x0001}, uint16_t{0x8000}});
  model.params["nanb16"] = bits(DType::kBFloat16, {uint16_t{0x7fc1}, uint16_t{0xff80}, uint16_t{0x0001}});
  model.params["int64"] = bits(DType::kInt64, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                                               (int64_t{1} << 53) + 1});
  model.params["exact64"] = bits(DType::kInt64, {int64_t{1} << 53, int64_t{-5}});
  model.params["uint64"] = bits(DType::kUInt64, {uint64_t{0}, std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63});
  model.params["uint32"] = bits(DType::kUInt32, {0u, 0xffffffffu});
  model.params["int16"] = bits(DType::kInt16, {int16_t{-32768}, int16_t{32767}});
  model.params["int8"] = bits(DType::kInt8, {int8_t{-128}, int8_t{127}});
  model.params["bool"] = bits(DType::kBool, {uint8_t{0}, uint8_t{1}});
  ExpectRoundTrip(model);
  const std::string text = SerializeModel(model, true);
  EXPECT_NE(text.find("param { name: \"exact64\" dtype: INT64 dim: [2] value: [9007199254740992, -5] }"),
            std::string::npos);
  EXPECT_EQ(text.find("param { name: \"int64\" dtype: INT64 dim: [3] value"), std::string::npos);
  EXPECT_NE(
      text.find("param { name: \"special32\" dtype: FLOAT32 dim: [5] value: [inf, -inf, -0, 1.4012984643248171e-45"),
      std::string::npos);
}

struct ListsAttrs {
  std::vector<int64_t> ints = {1};
  std::vector<double> floats = {1};
  std::vector<std::string> strings = {"one"};
  static FieldList Fields() {
    using A = ListsAttrs;
    return {{"ints", &A::ints}, {"floats", &A::floats}, {"strings", &A::strings}};
  }
};

TEST(ModelRoundTrip, ListsInAttributesOfAUsersOperator) {
  OpDef op = IdentityOp();
  op.name = "Lists";
  op.attrs_type = &AttrsOf<ListsAttrs>();
  AddOp(op);
  for (const ListsAttrs& attrs : {ListsAttrs{}, ListsAttrs{{}, {}, {}}, ListsAttrs{{-1, 2}, {-0.0, 0.1, 1e300}, {""}},
                                  ListsAttrs{{7}, {5e-324}, {"two", std::string("\0\xff\n", 3), "\"", "three"}}}) {
    ExpectRoundTrip({.symbol = Apply(FindOp("Lists"), attrs, {Variable("x")}, "y")});
  }
  const Symbol y = Apply(FindOp("Lists"), ListsAttrs{{2}, {0.5, -1}, {"a", "b"}}, {Variable("x")}, "y");
  const std::string text = SerializeModel({.symbol = y}, true);
  EXPECT_NE(text.find("attr { name: \"floats\" floats: [0.5, -1] }\n"), std::string::npos) << text;
  EXPECT_NE(text.find("attr { name: \"strings\" strings: \"a\" strings: \"b\" }\n"), std::string::npos) << text;
}

TEST(ModelRoundTrip, NumbersInAttributes) {
  for (const double value :
       {0.1, -0.0, 1e300, 5e-324, 1.0 / 3, std::numeric_limits<double>::infinity(), 9007199254740993.0}) {
    ExpectRoundTrip({.symbol = Apply(ScalarOp(), ScalarAttrs{value}, {}, "y")});
  }
}

TEST(ModelRoundTrip, ParametersWithoutAGraph) {
  ExpectRoundTrip(
      {.params = {{"w", HostTensor::From({2}, {1, 2})}}, .aux = {{"m", HostTensor::Full(DType::kInt8, {3}, 4)}}});
}

TEST(ModelRoundTrip, ALongChain) {
  constexpr int kNodes = 100'000;
  Symbol x = Variable("x");
  for (int i = 0; i < kNodes; ++i) x = Relu(x, "relu" + std::to_string(i));
  for (const bool text : {false, true}) {
    const Model read = ParseModel(SerializeModel({.symbol = x}, text), text);
    EXPECT_EQ(Graph::Of(read.symbol).nodes.size(), kNodes + 1u);
    EXPECT_EQ(read.symbol.name(), x.name());
  }
}

TEST(ModelRoundTrip, ManyUsersOfOneValue) {
  const Symbol x = Variable("x");
  std::vector<Symbol> users;
  for (int i = 0; i < 20'000; ++i) users.push_back(Relu(x, "relu" + std::to_string(i)));
  const Symbol sum = Apply(AddNOp(), {}, users, "sum");
  const Model read = ParseModel(SerializeModel({.symbol = sum}));
  EXPECT_EQ(read.symbol.entry().node->inputs().size(), users.size());
}

}  // namespace
}  // namespace bindery
