// Text for JSON and markup, whatever its bytes are.
#include "train/quoted_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace bindery {
namespace {

constexpr const char* kBad = "\xef\xbf\xbd";

TEST(QuotedText, Utf8IsKeptAndAllElseReplaced) {
  for (const std::string good :
       {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ValidUtf8(good), good);
  }
  const std::string bad = kBad;
  EXPECT_EQ(ValidUtf8("a\xff"
                      "b"),
            "a" + bad + "b");
  EXPECT_EQ(ValidUtf8("\xc3"), bad);            // cut off
  EXPECT_EQ(ValidUtf8("\xe2\x82"), bad + bad);  // cut off
  EXPECT_EQ(ValidUtf8("\xc0\x80"), bad + bad);  // longer than need be
  EXPECT_EQ(ValidUtf8("\xe0\x80\x80"), bad + bad + bad);
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), bad + bad + bad);            // half of a surrogate pair
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond Unicode
  EXPECT_EQ(ValidUtf8("\x80\xc3\xa9"), bad + "\xc3\xa9");
}

TEST(QuotedText, Json) {
  EXPECT_EQ(JsonText("a \"b\" \\ \n\t\x01 \xff"),
            std::string("\"a \\\"b\\\" \\\\ \\u000a\\u0009\\u0001 ") + kBad + "\"");
  EXPECT_EQ(JsonNumber(0.1), "0.1");
  EXPECT_EQ(std::stod(JsonNumber(1.0 / 3)), 1.0 / 3);
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(JsonNumber(-std::numeric_limits<double>::infinity()), "null");
}

TEST(QuotedText, Markup) {
  EXPECT_EQ(MarkupText("<a b=\"c\"> & 'd'\x02\n\xff"),
            std::string("&lt;a b=&quot;c&quot;&gt; &amp; &#39;d&#39;") + kBad + "\n" + kBad);
}

}  // namespace
}  // namespace bindery
