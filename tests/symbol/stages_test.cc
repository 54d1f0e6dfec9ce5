// Graphs that are cut where they go from one placement to another.
#include "symbol/stages.h"

#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

Symbol On(const std::string& placement, const std::function<Symbol()>& make) {
  const AttrScope scope({{"ctx_group", placement}});
  return make();
}

Symbol Layer(const Symbol& x, const std::string& name) { return FullyConnected(x, {.num_hidden = 3}, name); }

// "b: c_output <- a_output to b": what each stage gives and reads.
std::vector<std::string> Describe(const Stages& stages) {
  std::vector<std::string> lines;
  for (size_t s = 0; s < stages.stages().size(); ++s) {
    const Symbol symbol = stages.SymbolOf(static_cast<int>(s), std::vector<bool>(stages.crossings().size()));
    std::string line = stages.stages()[s].placement + ":";
    for (const std::string& name : symbol.ListOutputs()) line += " " + name;
    line += " <-";
    for (const std::string& name : symbol.ListInputs()) line += " " + name;
    lines.push_back(line);
    EXPECT_EQ(ListPlacements(symbol), std::vector<std::string>());
  }
  return lines;
}

std::vector<std::string> Cut(const Symbol& symbol, std::set<std::string> data = {"data"},
                             std::set<std::string> labels = {"softmax_label"}) {
  return Describe(Stages(symbol, std::move(data), std::move(labels)));
}

using Lines = std::vector<std::string>;

TEST(Stages, WithoutPlacementsThereIsOneOfTheWhole) {
  const Symbol net = SoftmaxOutput(Layer(Variable("data"), "fc"), {}, "softmax");
  const Stages stages(net, {"data"}, {"softmax_label"});
  ASSERT_EQ(stages.stages().size(), 1u);
  EXPECT_EQ(stages.SymbolOf(0, {}).entries(), net.entries());
  EXPECT_EQ(ListPlacements(net), Lines());
}

TEST(Stages, TwoOneBehindTheOther) {
  const Symbol hidden = On("a", [] { return Layer(Variable("data"), "fc1"); });
  const Symbol net = On("b", [&] { return SoftmaxOutput(Layer(hidden, "fc2"), {}, "softmax"); });
  EXPECT_EQ(ListPlacements(net), (Lines{"a", "b"}));
  EXPECT_EQ(Cut(net), (Lines{"a: fc1_output to b_output <- data fc1_weight fc1_bias",
                             "b: softmax_output <- fc1_output to b fc2_weight fc2_bias softmax_label"}));
  EXPECT_EQ(ListPlacements(WithoutPlacements(net)), Lines());
  EXPECT_EQ(WithoutPlacements(net).ListInputs(), net.ListInputs());
}

// As MXNet's: of the first input that has one, else of a reader.
TEST(Stages, WhatHasNoPlacementFollowsItsNeighbours) {
  const Symbol first = Layer(Tanh(Variable("data"), "before"), "fc0");
  const Symbol hidden = On("a", [&] { return Layer(first, "fc1"); });
  const Symbol between = Layer(hidden, "fc2");
  const Symbol net = On("b", [&] { return Layer(between, "fc3"); });
  EXPECT_EQ(Cut(Layer(net, "fc4")),
            (Lines{"a: fc2_output to b_output <- data fc0_weight fc0_bias fc1_weight fc1_bias fc2_weight fc2_bias",
                   "b: fc4_output <- fc2_output to b fc3_weight fc3_bias fc4_weight fc4_bias"}));
}

TEST(Stages, BackAndForthWithOneWeight) {
  const Symbol weight = On("a", [] { return Variable("w"); });
  const auto on_a = [&](const Symbol& x, const std::string& name) {
    return On("a", [&] { return FullyConnected(x, weight, {}, {.num_hidden = 3, .no_bias = true}, name); });
  };
  Symbol x = on_a(Variable("data"), "a1");
  x = On("b", [&] { return Tanh(x, "b1"); });
  x = on_a(x, "a2");
  x = On("b", [&] { return Tanh(x, "b2"); });
  EXPECT_EQ(Cut(x),
            (Lines{"a: a1_output to b_output w to a_output <- data w", "b: b1_output to a_output <- a1_output to b",
                   "a: a2_output to b_output <- b1_output to a w to a", "b: b2_output <- a2_output to b"}));
}

TEST(Stages, AValueThatSeveralReadIsSentToEach) {
  const Symbol x = On("a", [] { return Tanh(Variable("data"), "x"); });
  const Symbol b = On("b", [&] { return Sigmoid(x, "b"); }), c = On("c", [&] { return Exp(x, "c"); });
  const Symbol net = Group({On("d", [&] { return Add(b, c, "d"); }), x});
  EXPECT_EQ(Cut(net), (Lines{"a: x_output x_output to b_output x_output to c_output <- data",
                             "b: b_output to d_output <- x_output to b", "c: c_output to d_output <- x_output to c",
                             "d: d_output <- b_output to d c_output to d"}));
}

// What follows from labels, parameters and constants alone is computed where and when it is read: its placement may
// have no data before.
TEST(Stages, WhatNeedsNoDataWaitsForItsReaders) {
  const Symbol hidden = On("a", [] { return Layer(Variable("data"), "fc1"); });
  const Symbol net = On("b", [&] {
    const Symbol label = Reshape(Variable("softmax_label"), {.shape = {-1}}, "label");
    const Symbol weight = Square(Variable("w"), "squared");
    return SoftmaxOutput(FullyConnected(hidden, weight, {}, {.num_hidden = 3, .no_bias = true}, "fc2"), label, {},
                         "softmax");
  });
  EXPECT_EQ(Cut(net), (Lines{"a: fc1_output to b_output <- data fc1_weight fc1_bias",
                             "b: softmax_output <- fc1_output to b w softmax_label"}));
  EXPECT_EQ(MessageOf<ModelError>([] {
              const Symbol w = On("b", [] { return Variable("w"); });
              const Symbol x = On("a", [&] { return Variable("data") * w; });
              Cut(On("b", [&] { return Tanh(x, "y"); }));
            }),
            "ModelError: variable \"w\": Mul \"data_mul1\" needs it before its placement \"b\" has anything to "
            "compute from data; give it the placement of what reads it");
}

TEST(Stages, ScopesOfTheCallerAreNotForThem) {
  const Symbol hidden = On("a", [] { return Layer(Variable("data"), "fc1"); });
  const Symbol net = On("b", [&] { return Layer(hidden, "fc2"); });
  const AttrScope scope({{"lr_mult", "0"}});
  const NameScope names("p_");
  for (const std::string& line : Cut(net)) EXPECT_EQ(line.find("p_"), std::string::npos);
  for (const bool blocked : {false, true}) {
    const Symbol first = Stages(net, {"data"}, {}).SymbolOf(0, {blocked});
    EXPECT_EQ(first.AllAnnotations(), (std::map<std::string, Annotations>{{"fc1_output to b", {{"merge", "sum"}}}}));
    EXPECT_EQ(first.entries()[0].node->op().name, blocked ? "BlockGrad" : "Identity");
  }
}

TEST(Stages, AStateIsInOne) {
  const auto on_a = [](const char* name) { return On("a", [&] { return Variable(name); }); };
  const Symbol mean = on_a("mean"), variance = on_a("variance"), gamma = on_a("gamma"), beta = on_a("beta");
  const auto norm = [&](const Symbol& x, const std::string& name) {
    return Apply(FindOp("BatchNorm"), BatchNormAttrs{}, {x, gamma, beta, mean, variance}, name);
  };
  const Symbol first = On("a", [&] { return norm(Variable("data"), "bn1"); });
  const Symbol net = On("b", [&] { return norm(first, "bn2"); });
  EXPECT_EQ(
      MessageOf<ModelError>([&] { Cut(net); }),
      "ModelError: the auxiliary state \"mean\" is used on placement \"a\" and on \"b\", by BatchNorm \"bn2\": it "
      "can be in one");
}

}  // namespace
}  // namespace bindery
