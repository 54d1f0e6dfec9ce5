// How fast something goes, as the command line says it.
#include "tools/cli/rate.h"

#include <gtest/gtest.h>

#include <limits>

namespace bindery::cli {
namespace {

TEST(Rate, HasTwoDigitsBelowTen) {
  EXPECT_EQ(Rate(0), "0.0");
  EXPECT_EQ(Rate(0.0123), "0.012");
  EXPECT_EQ(Rate(0.12), "0.12");
  EXPECT_EQ(Rate(1), "1.0");
  EXPECT_EQ(Rate(3.24), "3.2");
  EXPECT_EQ(Rate(9.94), "9.9");
}

TEST(Rate, IsAWholeNumberFromTenOn) {
  EXPECT_EQ(Rate(9.95), "10");  // not "9.9" or "10."
  EXPECT_EQ(Rate(10.4), "10");
  EXPECT_EQ(Rate(1718.6), "1719");
  EXPECT_EQ(Rate(2.5e6), "2500000");
}

TEST(Rate, IsNoneOfWhatIsNone) {
  for (const double none : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Rate(none), "--") << none;
  }
}

}  // namespace
}  // namespace bindery::cli
