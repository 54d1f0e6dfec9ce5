#include <gtest/gtest.h>

#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Shape) { CheckOperators(ShapeCases()); }
TEST(Operators, Reduce) { CheckOperators(ReduceCases()); }
TEST(Operators, Arrange) { CheckOperators(ArrangeCases()); }

}  // namespace
}  // namespace bindery
