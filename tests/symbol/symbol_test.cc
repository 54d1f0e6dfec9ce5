#include "symbol/symbol.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "symbol/op_def.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/shape_ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

Symbol Mlp() {
  Symbol x = Variable("data");
  x = FullyConnected(x, {.num_hidden = 1000}, "fc1");
  x = Relu(x, "relu1");
  return FullyConnected(x, {.num_hidden = 10}, "fc2");
}

TEST(Symbol, ListsInDepthFirstPostOrder) {
  const Symbol net = Mlp();
  EXPECT_EQ(net.ListArguments(), (Names{"data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"}));
  EXPECT_EQ(net.ListOutputs(), Names{"fc2_output"});
  EXPECT_EQ(net.ListAuxiliaryStates(), Names{});
  EXPECT_EQ(net.ListInputs(), net.ListArguments());
}

TEST(Symbol, ListsAuxiliaryStatesApart) {
  const Symbol x = Outputs(StatefulOp(), {Variable("data")}, "s1")[0];
  const Symbol net = Outputs(StatefulOp(), {x}, "s2")[0];
  EXPECT_EQ(net.ListArguments(), (Names{"data", "s1_scale", "s2_scale"}));
  EXPECT_EQ(net.ListAuxiliaryStates(), (Names{"s1_state", "s2_state"}));
  EXPECT_EQ(net.ListInputs(), (Names{"data", "s1_scale", "s1_state", "s2_scale", "s2_state"}));
}

TEST(Symbol, SharedNodesAreListedOnce) {
  const Symbol a = Variable("a"), b = Variable("b");
  EXPECT_EQ(Group({Mul(a, b, "m"), Add(b, a, "s")}).ListArguments(), (Names{"a", "b"}));
}

TEST(Symbol, GivenVariablesTakeThePlaceOfImplicitOnes) {
  const Symbol w = Variable("w");
  const Symbol fc = FullyConnected(Variable("data"), w, {}, {.num_hidden = 3}, "fc");
  EXPECT_EQ(fc.ListArguments(), (Names{"data", "w", "fc_bias"}));
  EXPECT_EQ(FullyConnected(Symbol(), {.num_hidden = 3}, "fc").ListArguments(),
            (Names{"fc_data", "fc_weight", "fc_bias"}));
}

TEST(Symbol, HiddenOutputsAreNotListed) {
  const Symbol drop = Dropout(Variable("data"), {}, "drop");
  EXPECT_EQ(drop.size(), 1);
  EXPECT_EQ(drop.entry().node->num_outputs(), 2);
  EXPECT_EQ(drop.Internals().ListOutputs(), (Names{"data", "drop_output"}));
  EXPECT_EQ(ApplyAll(DropoutOp(), DropoutAttrs{}, {Variable("data")}, "drop").size(), 2u);
}

TEST(Symbol, SeveralOutputsAreIndexedByNumberOrName) {
  const Symbol fork = Apply(ForkOp(), {}, {Variable("data")}, "fork");
  ASSERT_EQ(fork.size(), 2);
  EXPECT_EQ(fork.name(), "fork");
  EXPECT_EQ(fork.ListOutputs(), (Names{"fork_first", "fork_second"}));
  EXPECT_EQ(fork[1].entry(), fork["fork_second"].entry());
  EXPECT_EQ(MessageOf<Error>([&] { fork[2]; }), "Error: output 2 is out of range: the symbol has 2");
  EXPECT_EQ(MessageOf<Error>([&] { fork["fork_secnd"]; }),
            "Error: unknown output \"fork_secnd\"; did you mean \"fork_second\"?");
  EXPECT_EQ(MessageOf<Error>([&] { fork.entry(); }), "Error: expected a symbol of one output, got 2");
}

TEST(Symbol, InternalsCutANet) {
  const Symbol internals = Mlp().Internals();
  EXPECT_EQ(internals.ListOutputs(), (Names{"data", "fc1_weight", "fc1_bias", "fc1_output", "relu1_output",
                                            "fc2_weight", "fc2_bias", "fc2_output"}));
  EXPECT_EQ(internals["relu1_output"].ListArguments(), (Names{"data", "fc1_weight", "fc1_bias"}));
}

TEST(Symbol, ChildrenAreTheInputs) {
  EXPECT_EQ(Mlp().Children().ListOutputs(), (Names{"relu1_output", "fc2_weight", "fc2_bias"}));
  EXPECT_TRUE(Variable("a").Children().empty());
  EXPECT_THROW(Symbol().Children(), Error);
}

TEST(Symbol, GroupsFlattenAndKeepOrder) {
  const Symbol a = Variable("a"), b = Variable("b"), c = Variable("c");
  const Symbol group = Group({c, Group({a, b}), a});
  EXPECT_EQ(group.ListOutputs(), (Names{"c", "a", "b", "a"}));
  EXPECT_EQ(MessageOf<Error>([&] { group["a"]; }), "Error: output \"a\" is ambiguous: several have this name");
  EXPECT_EQ(MessageOf<Error>([&] { group.name(); }),
            "Error: the symbol has outputs of several nodes; pick one by its number or name");
  EXPECT_TRUE(Group(std::vector<Symbol>{}).empty());
}

TEST(Symbol, ComposesByName) {
  const Symbol head = FullyConnected(Variable("x"), {.num_hidden = 2}, "head");
  const Symbol body = Relu(Variable("data"), "body");
  const Symbol whole = head.Compose({{"x", body}});
  EXPECT_EQ(whole.ListArguments(), (Names{"data", "head_weight", "head_bias"}));
  EXPECT_EQ(whole.ListOutputs(), Names{"head_output"});
  EXPECT_EQ(head.ListArguments()[0], "x");  // the original is as it was
  EXPECT_EQ(MessageOf<Error>([&] {
              head.Compose({{"head_wieght", body}});
            }),
            "Error: unknown argument \"head_wieght\"; did you mean \"head_weight\"?");
  EXPECT_EQ(MessageOf<Error>([&] {
              head.Compose({{"x", Group({body, body})}});
            }),
            "Error: argument \"x\": expected a symbol of one output, got 2");
}

TEST(Symbol, ComposesByPosition) {
  const Symbol sum = Add(Variable("a"), Variable("b"), "sum");
  const Symbol square = Square(Variable("c"), "square");
  const Symbol both[] = {square, Variable("d")};
  EXPECT_EQ(sum.Compose(both).ListArguments(), (Names{"c", "d"}));
  const Symbol second[] = {Symbol(), square};
  EXPECT_EQ(sum.Compose(second).ListArguments(), (Names{"a", "c"}));
  const Symbol three[] = {square, square, square};
  EXPECT_EQ(MessageOf<Error>([&] { sum.Compose(three); }),
            "Error: the symbol has 2 arguments, got 3 symbols to put in their place");
}

TEST(Symbol, CompositionReplacesEveryUseAndSharesTheRest) {
  const Symbol a = Variable("a"), b = Variable("b");
  const Symbol kept = Square(b, "kept");
  const Symbol net = Group({Add(a, kept, "s"), Mul(a, a, "m"), kept});
  const Symbol composed = net.Compose({{"a", Exp(Variable("c"), "e")}});
  EXPECT_EQ(composed.ListArguments(), (Names{"c", "b"}));
  EXPECT_EQ(composed[2].entry().node, kept.entry().node);
  EXPECT_EQ(composed[1].Children()[0].entry(), composed[1].Children()[1].entry());
}

TEST(Naming, WithoutAScopeFollowsTheNearestGivenName) {
  const auto build = [] {
    const Symbol conv = FullyConnected(Variable("data"), {.num_hidden = 4}, "fc1");
    const Symbol a = Tanh(conv);
    const Symbol b = Square(a);
    return Group({a, b, Tanh(b, "given"), Square(Tanh(b, "given")), Tanh(Variable("data"))});
  };
  const Symbol net = build();
  EXPECT_EQ(net.ListOutputs(), (Names{"fc1_tanh1_output", "fc1_square2_output", "given_output", "given_square1_output",
                                      "data_tanh1_output"}));
  EXPECT_EQ(build().ListOutputs(), net.ListOutputs());  // a second copy has the same names
}

TEST(Naming, ImplicitVariablesFollowTheNodeOfAnAutomaticName) {
  EXPECT_EQ(FullyConnected(Variable("data"), {.num_hidden = 4}).ListArguments(),
            (Names{"data", "data_fullyconnected1_weight", "data_fullyconnected1_bias"}));
}

TEST(Naming, ScopesCountPerOperator) {
  const auto build = [] {
    NameScope scope("net_");
    Symbol x = Square(Square(Variable("data")));
    x = Exp(x);
    return Square(Exp(x, "given"));
  };
  const Names outputs = build().Internals().ListOutputs();
  EXPECT_EQ(outputs, (Names{"data", "net_square0_output", "net_square1_output", "net_exp0_output", "given_output",
                            "net_square2_output"}));
  EXPECT_EQ(build().Internals().ListOutputs(), outputs);
  EXPECT_EQ(NameScope::Current(), nullptr);
}

TEST(Naming, NestedScopesConcatenate) {
  NameScope outer("a_");
  {
    NameScope inner("b_");
    EXPECT_EQ(Square(Variable("x")).name(), "a_b_square0");
    EXPECT_EQ(NameScope::Current(), &inner);
  }
  EXPECT_EQ(Square(Variable("x")).name(), "a_square0");
  NameScope alone("c_", false);
  EXPECT_EQ(Square(Variable("x")).name(), "c_square0");
}

TEST(Naming, ScopesBelongToTheirThread) {
  NameScope scope("a_");
  AttrScope attributes({{"ctx_group", "g"}});
  std::thread([] {
    EXPECT_EQ(NameScope::Current(), nullptr);
    EXPECT_TRUE(AttrScope::Current().empty());
  }).join();
}

TEST(Annotations, VariableOptionsAreAnnotations) {
  const Symbol v = Variable("v", {.shape = Shape{2, kUnknownDim},
                                  .dtype = DType::kFloat64,
                                  .init = "zero",
                                  .lr_mult = 0.5,
                                  .wd_mult = 0,
                                  .layout = "TNC",
                                  .annotations = {{"mine", "yes"}}});
  EXPECT_EQ(v.AllAnnotations(),
            (std::map<std::string, Annotations>{
                {"v", {{"init", "zero"}, {"lr_mult", "0.5"}, {"wd_mult", "0"}, {"layout", "TNC"}, {"mine", "yes"}}}}));
  EXPECT_EQ(v.Annotation("lr_mult"), "0.5");
  EXPECT_EQ(v.Annotation("other"), std::nullopt);
  EXPECT_EQ(v.entry().node->declared_shape, (Shape{2, kUnknownDim}));
  EXPECT_EQ(v.entry().node->declared_dtype, DType::kFloat64);
  EXPECT_EQ(MessageOf<Error>([] { Variable(""); }), "Error: a variable needs a name");
}

TEST(Annotations, ScopesAnnotateNodesAndImplicitVariables) {
  AttrScope outer({{"ctx_group", "stage1"}, {"lr_mult", "2"}, {"layout", "NC"}, {"merge", "sum"}});
  Symbol net;
  {
    AttrScope inner({{"ctx_group", "stage2"}, {"wd_mult", "0"}});
    net = FullyConnected(Variable("data", {.lr_mult = 3}), {.num_hidden = 2}, "fc");
  }
  const auto all = net.AllAnnotations();
  EXPECT_EQ(
      all.at("fc"),
      (Annotations{{"ctx_group", "stage2"}, {"layout", "NC"}, {"lr_mult", "2"}, {"merge", "sum"}, {"wd_mult", "0"}}));
  // A weight has not the axes of the data.
  EXPECT_EQ(all.at("fc_weight"), (Annotations{{"ctx_group", "stage2"}, {"lr_mult", "2"}, {"wd_mult", "0"}}));
  EXPECT_EQ(all.at("fc_bias"), all.at("fc_weight"));
  EXPECT_EQ(all.at("data").at("lr_mult"), "3");
  EXPECT_EQ(all.at("data").at("layout"), "NC");
  EXPECT_EQ(Square(net, "after").Annotation("ctx_group"), "stage1");
}

TEST(Annotations, WithAnnotationCopiesTheNodeAndSharesItsInputs) {
  const Symbol fork = Apply(ForkOp(), {}, {Variable("data")}, "fork");
  const Symbol annotated = fork.WithAnnotation("merge", "mean");
  EXPECT_EQ(annotated.Annotation("merge"), "mean");
  EXPECT_EQ(fork.Annotation("merge"), std::nullopt);
  EXPECT_EQ(annotated.size(), 2);
  EXPECT_EQ(annotated.name(), "fork");
  EXPECT_EQ(annotated.Children().entry(), fork.Children().entry());
  EXPECT_EQ(Tanh(Tanh(Variable("a")).WithAnnotation("k", "v")).name(), "a_tanh2");
}

TEST(Apply, ErrorsNameTheNode) {
  const Symbol a = Variable("a"), fork = Apply(ForkOp(), {}, {a}, "fork");
  EXPECT_EQ(MessageOf<ModelError>([&] {
              Apply(Square.op(), {}, {a, a}, "sq");
            }),
            "ModelError: Square \"sq\": takes at most 1 inputs (data), got 2");
  EXPECT_EQ(
      MessageOf<ModelError>([&] { Apply(Square.op(), {}, {fork}, "sq"); }),
      "ModelError: Square \"sq\", argument \"data\": expected one output, got 2 (fork_first, fork_second); pick one "
      "by its number or name");
  EXPECT_EQ(MessageOf<ModelError>([&] { Apply(Square.op(), ScalarAttrs{2}, {a}, "sq"); }),
            "ModelError: Square \"sq\": these are the attributes of another operator");
}

TEST(Apply, CallsTheOperatorsCheck) {
  static const OpDef picky = [] {
    OpDef op;
    op.name = "Picky";
    op.attrs_type = &AttrsOf<ScalarAttrs>();
    op.infer = [](InferContext&) {};
    op.check = [](const AnyAttrs& attrs) {
      if (attrs.get<ScalarAttrs>().scalar < 0) Throw<ModelError>("scalar must not be negative");
    };
    return op;
  }();
  EXPECT_EQ(Apply(picky, ScalarAttrs{1}, {Variable("a")}, "p").size(), 1);
  EXPECT_EQ(MessageOf<ModelError>([] { Apply(picky, ScalarAttrs{-1}, {Variable("a")}, "p"); }),
            "ModelError: Picky \"p\": scalar must not be negative");
}

TEST(Registry, FindsBuiltInOperatorsAndSuggestsNames) {
  EXPECT_EQ(&FindOp("FullyConnected"), &FullyConnectedOp());
  EXPECT_EQ(FindOpOrNull("fullyconnected"), nullptr);
  EXPECT_EQ(MessageOf<ModelError>([] { FindOp("FullyConected"); }),
            "ModelError: unknown operator \"FullyConected\"; did you mean \"FullyConnected\"?");
  const auto all = ListOps();
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1]->name, all[i]->name);
}

TEST(Registry, TakesOperatorsOfUsers) {
  OpDef op;
  op.name = "UsersOwn";
  EXPECT_EQ(MessageOf<Error>([&] { AddOp(op); }), "Error: operator \"UsersOwn\" needs an infer rule");
  op.infer = [](InferContext&) {};
  op.asks = {{.input = "data"}};
  EXPECT_EQ(MessageOf<Error>([&] { AddOp(op); }),
            "Error: operator \"UsersOwn\" asks for numbers in \"data\" without a range");
  op.asks = {{.input = "dat", .range = [](auto&, auto) { return WholeNumbers::UpTo(1); }}};
  EXPECT_EQ(MessageOf<Error>([&] { AddOp(op); }),
            "Error: operator \"UsersOwn\" asks for numbers in \"dat\", which is no input of it");
  op.asks.clear();
  AddOp(op);
  EXPECT_EQ(MessageOf<Error>([&] { AddOp(op); }), "Error: there is an operator \"UsersOwn\" already");
  op.name = "";
  EXPECT_EQ(MessageOf<Error>([&] { AddOp(op); }), "Error: an operator needs a name");
  const Symbol used = Apply(FindOp("UsersOwn"), {}, {Variable("a")});
  EXPECT_EQ(used.name(), "a_usersown1");
}

TEST(Symbol, PrintsOneLinePerNode) {
  const Symbol data = Variable("data", {.shape = Shape{kUnknownDim, 4}, .dtype = DType::kFloat32});
  const Symbol fc = FullyConnected(data, {.num_hidden = 3, .no_bias = true}, "fc").WithAnnotation("ctx_group", "g");
  const Symbol fork = Apply(ForkOp(), {}, {fc}, "fork");
  EXPECT_EQ(Add(fork[0], fork[1], "sum").DebugString(),
            "data float32 (?, 4)\n"
            "fc_weight\n"
            "fc = FullyConnected(data, fc_weight, no_bias=true, num_hidden=3) [ctx_group=g]\n"
            "fork = Fork(fc)\n"
            "sum = Add(fork, fork:1)\n"
            "-> sum\n");
}

TEST(Symbol, AuxiliaryStatesAreVariables) {
  const Symbol norm = BatchNorm(Variable("x"), {}, "bn"), computed = Exp(Variable("m"), "e");
  EXPECT_EQ(MessageOf<ModelError>([&] {
              norm.Compose({{"bn_running_var", computed}});
            }),
            "ModelError: BatchNorm \"bn\", argument \"running_var\": an auxiliary state must be a variable, got Exp "
            "\"e\"");
  EXPECT_NO_THROW(norm.Compose({{"bn_running_var", Variable("v")}, {"bn_gamma", computed}}));
}

// One attribute makes many outputs; naming them takes no time to speak of.
TEST(Symbol, ManyOutputs) {
  const Symbol parts = SliceChannel(Variable("x"), {.num_outputs = 65'536}, "parts");
  const std::vector<std::string> names = parts.ListOutputs();
  ASSERT_EQ(names.size(), 65'536u);
  EXPECT_EQ(names.back(), "parts_output65535");
  EXPECT_EQ(Group({parts[7], Variable("y"), parts[3]}).ListOutputs(),
            (std::vector<std::string>{"parts_output7", "y", "parts_output3"}));
}

}  // namespace
}  // namespace bindery
