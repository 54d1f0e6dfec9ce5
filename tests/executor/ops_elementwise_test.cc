#include <gtest/gtest.h>

#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Activation) { CheckOperators(ActivationCases()); }
TEST(Operators, Binary) { CheckOperators(BinaryCases()); }
TEST(Operators, Unary) { CheckOperators(UnaryCases()); }

}  // namespace
}  // namespace bindery
