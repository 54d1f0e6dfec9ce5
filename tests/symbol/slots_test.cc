// Declared inputs and outputs.
#include "symbol/slots.h"

#include <gtest/gtest.h>

#include "symbol/ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

struct Attrs {
  bool no_bias = false, counted = false;
  int64_t parts = 2;
  static FieldList Fields() {
    return {{"no_bias", &Attrs::no_bias}, {"counted", &Attrs::counted}, {"parts", &Attrs::parts}};
  }
};

TEST(Slots, AbsentOnesAreNotAmongTheNodesInputs) {
  const Slots slots = {"data", Optional("bias", Unless(&Attrs::no_bias)), Optional("count", If(&Attrs::counted)), "x"};
  EXPECT_EQ(slots.Names(Attrs{}), (Names{"data", "bias", "x"}));
  EXPECT_EQ(slots.Names(Attrs{.no_bias = true, .counted = true}), (Names{"data", "count", "x"}));
  EXPECT_EQ(slots.Count(Attrs{.no_bias = true}), 2);
  // A rule counts as they are declared, the node without the absent ones.
  EXPECT_EQ(slots.Place(Attrs{.no_bias = true}, 1), -1);
  EXPECT_EQ(slots.Place(Attrs{.no_bias = true}, 3), 1);
  EXPECT_EQ(slots.Place(Attrs{.counted = true}, 3), 3);
}

TEST(Slots, LeftOutIsNotAbsent) {
  const ConvolutionAttrs with{.num_filter = 2, .kernel = {1}};
  ConvolutionAttrs without = with;
  without.no_bias = true;
  EXPECT_EQ(Convolution(Variable("x"), with, "c").ListArguments(), (Names{"x", "c_weight", "c_bias"}));
  EXPECT_EQ(Convolution(Variable("x"), without, "c").ListArguments(), (Names{"x", "c_weight"}));
}

TEST(Slots, ManyAreAsManyAsGivenOrAsTold) {
  const Slots given = {Variadic("arg")};
  EXPECT_EQ(given.Names(Attrs{}, 3), (Names{"arg0", "arg1", "arg2"}));
  EXPECT_EQ(given.Count(Attrs{}, 0), 1);
  const Slots told = {Variadic("part", [](const AnyAttrs& attrs) { return attrs.get<Attrs>().parts; })};
  EXPECT_EQ(told.Names(Attrs{.parts = 3}), (Names{"part0", "part1", "part2"}));
}

TEST(Slots, WhatFollowsAHiddenOutputIsHidden) {
  const Slots slots = {"output", Hidden("mean", Unless(&Attrs::counted)), "var", Hidden("state")};
  EXPECT_EQ(slots.Visible(Attrs{}), 1);
  EXPECT_EQ(slots.Visible(Attrs{.counted = true}), 3);
  EXPECT_EQ(slots.Count(Attrs{}), 4);
  EXPECT_TRUE(slots.may_hide());
  EXPECT_FALSE(Slots({"output"}).may_hide());
}

TEST(Slots, StatesAreAuxiliary) {
  const Slots slots = {"data", Auxiliary("running")};
  EXPECT_TRUE(slots.has_auxiliary());
  EXPECT_TRUE(slots.IsAuxiliary("running"));
  EXPECT_FALSE(slots.IsAuxiliary("data"));
}

}  // namespace
}  // namespace bindery
