#include "base/parse_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace bindery {
namespace {

TEST(ParseNumber, TakesWholeTexts) {
  EXPECT_EQ(ParseNumber<int64_t>("-12"), -12);
  EXPECT_EQ(ParseNumber<int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ParseNumber<double>("1e-3"), 1e-3);
  EXPECT_EQ(ParseNumber<float>("0.1"), 0.1f);
  EXPECT_TRUE(std::isinf(ParseNumber<double>("inf").value_or(0)));
  EXPECT_TRUE(std::isnan(ParseNumber<double>("nan").value_or(0)));
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1,5", "-", "one"}) {
    EXPECT_FALSE(ParseNumber<int64_t>(text)) << text;
    EXPECT_FALSE(ParseNumber<double>(text)) << text;
  }
  EXPECT_FALSE(ParseNumber<int64_t>("1.5"));
  EXPECT_FALSE(ParseNumber<int64_t>("9223372036854775808"));
  EXPECT_FALSE(ParseNumber<uint64_t>("-1"));
  EXPECT_FALSE(ParseNumber<float>("1e39"));
  EXPECT_FALSE(ParseNumber<double>("1e999"));
}

}  // namespace
}  // namespace bindery
