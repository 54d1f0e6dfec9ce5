#include "base/split_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace bindery {
namespace {

using Parts = std::vector<std::string_view>;

TEST(SplitTextTest, KeepsEmptyParts) {
  EXPECT_EQ(SplitText("a,bc,d", ','), (Parts{"a", "bc", "d"}));
  EXPECT_EQ(SplitText("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(SplitText(",a,", ','), (Parts{"", "a", ""}));
  EXPECT_EQ(SplitText(",", ','), (Parts{"", ""}));
  EXPECT_EQ(SplitText("a;b", ','), Parts{"a;b"});
  EXPECT_EQ(SplitText("", ','), Parts{""});
}

TEST(SplitTextTest, SeparatesAtNullCharactersAndKeepsThem) {
  const std::string text("a\0b;c", 5);
  EXPECT_EQ(SplitText(text, '\0'), (Parts{"a", "b;c"}));
  EXPECT_EQ(SplitText(text, ';'), (Parts{text.substr(0, 3), "c"}));
}

TEST(SplitTextTest, PartsPointIntoTheText) {
  const std::string text = "ab|c";
  const Parts parts = SplitText(text, '|');
  EXPECT_EQ(parts[0].data(), text.data());
  EXPECT_EQ(parts[1].data(), text.data() + 3);
}

TEST(TrimTest, TakesBlanksFromBothEndsAlone) {
  const std::string text = " \ta b\r\n";
  EXPECT_EQ(Trim(text), "a b");
  EXPECT_EQ(Trim(text).data(), text.data() + 2);
  EXPECT_EQ(Trim(" \t\r\n"), "");
  EXPECT_EQ(Trim(""), "");
}

}  // namespace
}  // namespace bindery
