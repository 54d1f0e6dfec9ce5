#include "base/names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bindery {
namespace {

using Names = std::vector<std::string>;

TEST(NamesTest, FindsMisspellings) {
  const Names names = {"data", "fc1_weight", "fc1_bias", "fc2_weight", "softmax_label"};
  EXPECT_EQ(NearestName("fc1_wieght", names), "fc1_weight");
  EXPECT_EQ(NearestName("fc2_weigh", names), "fc2_weight");
  EXPECT_EQ(NearestName("dta", names), "data");
  EXPECT_EQ(NearestName("Data", names), "data");
  EXPECT_EQ(NearestName("label", names), "");
  EXPECT_EQ(NearestName("fc1_weight", names), "fc1_weight");
  EXPECT_EQ(NearestName("softmaxlabel", names), "softmax_label");
}

TEST(NamesTest, TheFirstOfEquallyNearNamesWins) {
  EXPECT_EQ(NearestName("conv3_weight", Names{"conv1_weight", "conv2_weight"}), "conv1_weight");
}

TEST(NamesTest, TheLimitGrowsWithTheName) {
  EXPECT_EQ(NearestName("abcdef", Names{"abcdxy"}), "abcdxy");           // distance 2, limit 2
  EXPECT_EQ(NearestName("abcdef", Names{"abcxyz"}), "");                 // distance 3
  EXPECT_EQ(NearestName("abcdefghi", Names{"abcdefxyz"}), "abcdefxyz");  // distance 3, limit 3
  EXPECT_EQ(NearestName("abcdefghi", Names{"abcdewxyz"}), "");           // distance 4
}

TEST(NamesTest, InShort) {
  EXPECT_EQ(NamesInShort(Names{"fc1_weight"}), "fc1_weight");
  EXPECT_EQ(NamesInShort(Names{"fc1_weight", "fc1_bias", "fc2_weight"}), "fc1_weight and 2 more");
}

TEST(NamesTest, NamesWithNothingInCommonAreNotNear) {
  EXPECT_EQ(NearestName("x", Names{"ab"}), "");
  EXPECT_EQ(NearestName("", Names{"a", "ab"}), "");
  EXPECT_EQ(NearestName("a", Names{""}), "");
  EXPECT_EQ(NearestName("a", Names{}), "");
}

TEST(NamesTest, HugeNamesCostNothing) {
  const std::string huge(1 << 22, 'a');
  const Names names(10, std::string(1 << 22, 'b'));  // a comparison would take hours
  EXPECT_EQ(NearestName(huge, names), "");
  EXPECT_EQ(NearestName("b", names), "");
}

TEST(NamesTest, HintSuggestsWhatBeginsWithTheName) {
  const Names models = {"mlp", "lenet", "resnet20", "resnet18"};
  EXPECT_EQ(NameHint("resnet", models), "; did you mean \"resnet20\"?");
  EXPECT_EQ(NameHint("renet", models), "; did you mean \"lenet\"?");  // one mistake
  EXPECT_EQ(NameHint("cross", Names{"loss", "cross-entropy"}), "; did you mean \"cross-entropy\"?");
  EXPECT_EQ(NameHint("acc", Names{"top-k", "accumulated"}), "; known: top-k, accumulated");  // too short to tell
}

TEST(NamesTest, HintSuggestsOrLists) {
  EXPECT_EQ(NameHint("fc1_wieght", Names{"data", "fc1_weight"}), "; did you mean \"fc1_weight\"?");
  EXPECT_EQ(NameHint("momentum", Names{"data", "label"}), "; known: data, label");
  EXPECT_EQ(NameHint("momentum", Names{}), "; there are none");
  Names many;
  for (int i = 0; i < 23; ++i) many.push_back("argument" + std::to_string(i));
  const std::string hint = NameHint("x", many);
  EXPECT_NE(hint.find("argument19 and 3 more"), std::string::npos) << hint;
  EXPECT_EQ(hint.find("argument20"), std::string::npos) << hint;
}

}  // namespace
}  // namespace bindery
