#include <gtest/gtest.h>

#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Large) { CheckOperators(LargeCases()); }

}  // namespace
}  // namespace bindery
