#include "symbol/print/summary.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/ops.h"
#include "symbol/passes/mixed_precision.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

Symbol Mlp() {
  Symbol x = FullyConnected(Variable("data"), {.num_hidden = 1500}, "fc1");
  x = Relu(x, "relu1");
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc2"), {}, "softmax");
}

TEST(Summary, OneRowPerLayer) {
  EXPECT_EQ(Summary(Mlp(), {{"data", {64, 784}}}),
            "Layer (operator)         Output shape  Parameters  Previous layer\n"
            "=================================================================\n"
            "data (input)             (64, 784)              0\n"
            "-----------------------------------------------------------------\n"
            "fc1 (FullyConnected)     (64, 1500)     1,177,500  data\n"
            "-----------------------------------------------------------------\n"
            "relu1 (Activation)       (64, 1500)             0  fc1\n"
            "-----------------------------------------------------------------\n"
            "fc2 (FullyConnected)     (64, 10)          15,010  relu1\n"
            "-----------------------------------------------------------------\n"
            "softmax_label (input)    (64)                   0\n"
            "-----------------------------------------------------------------\n"
            "softmax (SoftmaxOutput)  (64, 10)               0  fc2\n"
            "                                                   softmax_label\n"
            "-----------------------------------------------------------------\n"
            "Parameters: 1,192,510\n");
}

// Types, and no rows for Casts of parameters, which count for the layers.
TEST(Summary, OfMixedPrecision) {
  EXPECT_EQ(Summary(MixedPrecision(Mlp()), {{"data", {64, 784}}}),
            "Layer (operator)           Output shape         Parameters  Previous layer\n"
            "==============================================================================\n"
            "data (input)               (64, 784)                     0\n"
            "------------------------------------------------------------------------------\n"
            "data_bfloat16 (Cast)       (64, 784) bfloat16            0  data\n"
            "------------------------------------------------------------------------------\n"
            "fc1 (FullyConnected)       (64, 1500) bfloat16   1,177,500  data_bfloat16\n"
            "------------------------------------------------------------------------------\n"
            "relu1 (Activation)         (64, 1500) bfloat16           0  fc1\n"
            "------------------------------------------------------------------------------\n"
            "fc2 (FullyConnected)       (64, 10) bfloat16        15,010  relu1\n"
            "------------------------------------------------------------------------------\n"
            "fc2_output_float32 (Cast)  (64, 10)                      0  fc2\n"
            "------------------------------------------------------------------------------\n"
            "softmax_label (input)      (64)                          0\n"
            "------------------------------------------------------------------------------\n"
            "softmax (SoftmaxOutput)    (64, 10)                      0  fc2_output_float32\n"
            "                                                            softmax_label\n"
            "------------------------------------------------------------------------------\n"
            "Parameters: 1,192,510\n");
}

TEST(Summary, UnknownShapesAreMarked) {
  const std::string text = Summary(Mlp(), {{"data", {64, kUnknownDim}}});
  EXPECT_NE(text.find("fc1 (FullyConnected)     (64, 1500)     1,500 + ?  data\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Parameters: 16,510\nNot counted: parameters of unknown shape, marked ?\n"), std::string::npos)
      << text;
  EXPECT_NE(Summary(Square(Variable("x"), "s"), {}).find("s (Square)        ?"), std::string::npos);
}

// A file's names are anything.
TEST(Summary, NamesAreFitForATerminal) {
  const std::string text =
      Summary(Square(Variable("\033[31mred\nrow"), std::string(1000, 'x')), {{"\033[31mred\nrow", {2}}});
  EXPECT_NE(text.find("\\x1b[31mred\\x0arow (input) "), std::string::npos) << text;
  EXPECT_NE(text.find(std::string(100, 'x') + "... (Square) "), std::string::npos) << text;
  EXPECT_NE(Summary(SliceChannel(Variable("x"), {.num_outputs = 9}), {}).find("?, ? and 1 more "), std::string::npos);
}

TEST(Summary, AuxiliaryStatesAreCountedApart) {
  const Symbol net = Outputs(StatefulOp(), {Variable("data")}, "st")[0];
  const std::string text = Summary(net, {{"data", {2, 3}}});
  EXPECT_NE(text.find("Parameters: 1\nAuxiliary states: 1\n"), std::string::npos) << text;
  const ParameterCount count = CountParameters(net, {{"data", {2, 3}}});
  EXPECT_EQ(count.arguments, 1);
  EXPECT_EQ(count.auxiliary, 1);
}

TEST(CountParameters, SharedOnesCountOnce) {
  const Symbol data = Variable("data"), w = Variable("w");
  Symbol x = FullyConnected(data, w, {}, {.num_hidden = 8, .no_bias = true}, "fc1");
  x = FullyConnected(x, w, {}, {.num_hidden = 8, .no_bias = true}, "fc2");
  EXPECT_EQ(CountParameters(x, {{"data", {2, 8}}}).arguments, 64);
  EXPECT_EQ(CountParameters(Mlp(), {{"data", {1, 784}}}).arguments, 1192510);
  EXPECT_EQ(MessageOf<ShapeError>([] {
              CountParameters(Mlp(), {{"data", {1, kUnknownDim}}});
            }),
            "ShapeError: the shape of parameter \"fc1_weight\" is not known");
}

// What the group and the trainer take for labels: a loss whose gradient is asked for has some, BlockGrad has none.
TEST(CountParameters, LabelsAreWhatIsCalledSo) {
  const Symbol data = Variable("data"), scores = FullyConnected(data, {.num_hidden = 10}, "fc");
  const Symbol entropy = SoftmaxCrossEntropy(scores, Variable("y"));
  EXPECT_EQ(CountParameters(MakeLoss(entropy), {{"data", {64, 8}}}).arguments, 90);
  const Symbol steps = FullyConnected(data, {.num_hidden = 5, .flatten = false}, "fc");
  const Symbol open = MakeLoss(CTCLoss(steps, Variable("y")));  // how many labels a sample has does not follow
  EXPECT_EQ(CountParameters(open, {{"data", {4, 64, 2}}}).arguments, 15);
  const Symbol w = Variable("w");
  const FullyConnectedAttrs square = {.num_hidden = 8, .no_bias = true};
  const Symbol twice = FullyConnected(FullyConnected(data, w, {}, square), BlockGrad(w), {}, square);
  EXPECT_EQ(CountParameters(twice, {{"data", {64, 8}}}).arguments, 64);
}

TEST(CountParameters, WhatIsDeclaredForBatchesOfAnySizeIsGiven) {
  const Symbol other = Variable("other", {.shape = Shape{kUnknownDim, 3}});
  const Symbol net = Variable("data") + FullyConnected(other, {.num_hidden = 8}, "fc");
  EXPECT_EQ(CountParameters(net, {{"data", {64, 8}}}).arguments, 32);
  const Symbol gamma = Variable("gamma", {.shape = Shape{kUnknownDim}});
  const Symbol norm = Apply(BatchNormOp(), BatchNormAttrs{.fix_gamma = false}, {net, gamma}, "bn");
  EXPECT_EQ(CountParameters(norm, {{"data", {64, 8}}}).arguments, 48) << "of MXNet, whose width was not known yet";
}

TEST(Dot, DrawsLayersAndHidesWeights) {
  const Symbol net = Relu(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), "relu");
  EXPECT_EQ(ToDot(net, {{"data", {2, 4}}}),
            "digraph bindery {\n"
            "  rankdir=BT;\n"
            "  node [fontname=\"Helvetica\", style=filled];\n"
            "  n0 [label=\"data\", shape=ellipse, fillcolor=\"#e8eef7\"];\n"
            "  n3 [label=\"fc\\nFullyConnected\\nnum_hidden=3\", shape=box, fillcolor=\"#fde9c9\"];\n"
            "  n4 [label=\"relu\\nActivation\", shape=box, fillcolor=\"#fde9c9\"];\n"
            "  n0 -> n3 [label=\"(2, 4)\"];\n"
            "  n3 -> n4 [label=\"(2, 3)\"];\n"
            "}\n");
  const std::string all = ToDot(net, {}, {.hide_weights = false});
  EXPECT_NE(all.find("label=\"fc_weight\""), std::string::npos);
  EXPECT_NE(all.find("  n2 -> n3 [label=\"(3)\"];\n"), std::string::npos);
}

TEST(Dot, LabelsOfLossesAreDrawnAndStatesAreHidden) {
  EXPECT_NE(ToDot(Mlp()).find("softmax_label"), std::string::npos);
  EXPECT_NE(ToDot(Apply(CrossEntropyOp(), CrossEntropyAttrs{}, {Variable("data")}, "ce")).find("ce_label"),
            std::string::npos);
  EXPECT_EQ(ToDot(BatchNorm(Variable("data"), {}, "bn")).find("running_mean"), std::string::npos);
}

TEST(Dot, EscapesNames) {
  const std::string text = ToDot(Square(Variable("a\"]; evil [\\"), "line\nbreak\ttab"));
  EXPECT_NE(text.find("label=\"a\\\"]; evil [\\\\\""), std::string::npos) << text;
  EXPECT_NE(text.find("label=\"line\\nbreak tab\\nSquare\""), std::string::npos) << text;
}

}  // namespace
}  // namespace bindery
