// The order of a sum whose parts are in several places.
#include "train/updater/tree_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace bindery {
namespace {

// The sum as it is written, of leaves that are shared out at these borders.
std::string SumOf(int64_t leaves, const std::vector<int64_t>& borders, size_t* most = nullptr) {
  TreeSum top(leaves);
  std::map<int, std::string> tops;
  for (size_t place = 0; place + 1 < borders.size(); ++place) {
    TreeSum sum(leaves);
    std::map<int, std::string> slots;
    for (int64_t leaf = borders[place]; leaf < borders[place + 1]; ++leaf) {
      for (const TreeSum::Action& action : sum.AddLeaf(leaf)) {
        const std::string from = action.from == TreeSum::kLeaf ? std::to_string(leaf) : slots.at(action.from);
        slots[action.to] = action.adds ? "(" + slots.at(action.to) + "+" + from + ")" : from;
      }
    }
    if (most) *most = std::max(*most, static_cast<size_t>(sum.num_slots()));
    for (TreeSum::Node node : sum.nodes()) {
      const std::string text = slots.at(node.slot);
      node.slot = static_cast<int>(tops.size());
      tops[node.slot] = text;
      for (const TreeSum::Action& action : top.AddNode(node)) {
        EXPECT_TRUE(action.adds);
        tops.at(action.to) = "(" + tops.at(action.to) + "+" + tops.at(action.from) + ")";
      }
    }
  }
  EXPECT_EQ(top.nodes().size(), 1u);
  return tops.at(top.nodes()[0].slot);
}

TEST(TreeSum, IsTheTreeOfAllLeaves) {
  EXPECT_EQ(SumOf(1, {0, 1}), "0");
  EXPECT_EQ(SumOf(2, {0, 2}), "(0+1)");
  EXPECT_EQ(SumOf(3, {0, 3}), "((0+1)+2)");
  EXPECT_EQ(SumOf(6, {0, 6}), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(SumOf(7, {0, 7}), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(TreeSum, IsTheSameWhoeverHasWhich) {
  for (int64_t leaves = 1; leaves <= 20; ++leaves) {
    const std::string expected = SumOf(leaves, {0, leaves});
    for (int64_t a = 0; a <= leaves; ++a) {
      for (int64_t b = a; b <= leaves; ++b) {
        ASSERT_EQ(SumOf(leaves, {0, a, b, leaves}), expected) << leaves << " at " << a << ", " << b;
      }
    }
  }
}

TEST(TreeSum, KeepsFewSumsAtOnce) {
  size_t most = 0;
  SumOf(1000, {0, 1000}, &most);
  EXPECT_LE(most, 10u);
  most = 0;
  for (int64_t begin = 1; begin < 1000; begin += 37) SumOf(1000, {0, begin, 1000}, &most);
  EXPECT_LE(most, 20u);
  EXPECT_GE(most, 10u);
}

}  // namespace
}  // namespace bindery
