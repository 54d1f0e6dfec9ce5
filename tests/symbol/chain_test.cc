// Networks one behind the other as one symbol.
#include "symbol/chain.h"

#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "symbol/stages.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

Symbol Layer(const std::string& name, const std::string& input = "data") {
  return Tanh(FullyConnected(Variable(input), {.num_hidden = 3}, name), name + "_tanh");
}
Symbol Loss(const std::string& name) {
  return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, name), Variable("softmax_label"), {},
                       name + "_softmax");
}

TEST(Chain, IsTheNetworkInOne) {
  const Symbol chain =
      Chain({{.name = "low", .symbol = Layer("fc1")}, {.name = "high", .symbol = Loss("fc2"), .take_labels = true}});
  const Symbol hidden = Layer("fc1");
  const Symbol whole =
      SoftmaxOutput(FullyConnected(hidden, {.num_hidden = 3}, "fc2"), Variable("softmax_label"), {}, "fc2_softmax");
  EXPECT_EQ(chain.DebugString(), whole.DebugString());
}

TEST(Chain, PartsHavePlacements) {
  const Symbol own = Layer("fc2").WithAnnotation("ctx_group", "c");
  const Symbol chain = Chain({{.symbol = Layer("fc1"), .placement = "a"}, {.symbol = own, .placement = "b"}});
  EXPECT_EQ(ListPlacements(chain), (Names{"a", "b", "c"}));
  const auto annotations = chain.AllAnnotations();
  EXPECT_EQ(annotations.at("fc1_weight").at("ctx_group"), "a");
  EXPECT_EQ(annotations.at("fc2").at("ctx_group"), "b");
  EXPECT_EQ(annotations.at("fc2_tanh").at("ctx_group"), "c");
  EXPECT_EQ(ListPlacements(own), (Names{"c"}));  // what is given stays as it is
}

TEST(Chain, WiresByPositionOrByName) {
  const Symbol both = Group({Layer("x"), Layer("y")});
  EXPECT_THROW(Chain({{.symbol = both}}), ModelError);  // two variables called data
  const Symbol data = Variable("data");
  const Symbol two = Group({Tanh(data, "x"), Sigmoid(data, "y")});
  const Symbol difference = Sub(Variable("left"), Variable("right"), "d");
  const auto inputs_of = [](const Symbol& chain) {
    Names names;
    for (const Entry& input : chain.entry().node->inputs()) names.push_back(input.node->name());
    return names;
  };
  EXPECT_EQ(inputs_of(Chain({{.symbol = two}, {.symbol = difference, .data = {"left", "right"}}})), (Names{"x", "y"}));
  EXPECT_EQ(inputs_of(Chain({{.symbol = two}, {.symbol = difference, .data = {"right", "left"}}})), (Names{"y", "x"}));
  EXPECT_EQ(inputs_of(Chain({{.symbol = two}, {.symbol = difference, .wiring = {{"right", "x_output"}}}})),
            (Names{"left", "x"}));
}

TEST(Chain, PartsShareLabels) {
  const Symbol chain = Chain({{.symbol = Loss("a"), .take_labels = true}, {.symbol = Loss("b"), .take_labels = true}});
  EXPECT_EQ(chain.ListArguments(), (Names{"data", "a_weight", "a_bias", "softmax_label", "b_weight", "b_bias"}));
  EXPECT_EQ(chain.ListOutputs(), (Names{"b_softmax_output"}));
}

TEST(Chain, WhatDoesNotFitIsNamed) {
  const auto message = [](const std::vector<ChainPart>& parts) { return MessageOf<Error>([&] { Chain(parts); }); };
  const ChainPart low{.name = "low", .symbol = Layer("fc1")};
  EXPECT_EQ(message({}), "Error: a chain needs a part");
  EXPECT_EQ(message({{.name = "low"}}), "Error: part \"low\" has no symbol");
  EXPECT_EQ(message({low, {.name = "high", .symbol = Loss("fc2")}}),
            "Error: part \"high\" has a label, \"softmax_label\": say that it takes labels");
  EXPECT_EQ(message({low, {.name = "high", .symbol = Layer("fc1")}}),
            "Error: parts \"low\" and \"high\" both have \"fc1_weight\": name the layers of one of them differently (a "
            "NameScope does)");
  EXPECT_EQ(message({low, {.name = "high", .symbol = Layer("fc2", "hidden")}}),
            "Error: part \"high\": \"data\" is not one of its inputs; known: hidden, fc2_weight, fc2_bias");
  EXPECT_EQ(message({low, {.name = "high", .symbol = Layer("fc2"), .data = {"data", "data"}}}),
            "Error: part \"high\": expected the part before to have 2 outputs, one for each of its data, got 1");
  EXPECT_EQ(
      message({low, {.name = "high", .symbol = Layer("fc2"), .wiring = {{"data", "fc1_tanh_outptu"}}}}),
      "Error: part \"high\": the part before has no output \"fc1_tanh_outptu\"; did you mean \"fc1_tanh_output\"?");
  EXPECT_EQ(message({low, {.name = "high", .symbol = Layer("fc2"), .wiring = {{"dat", "fc1_tanh_output"}}}}),
            "Error: part \"high\": \"dat\" is not one of its inputs; did you mean \"data\"?");
}

}  // namespace
}  // namespace bindery
