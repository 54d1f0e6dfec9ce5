#include <gtest/gtest.h>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Large) { CheckOperators(LargeCases()); }

}  // namespace
}  // namespace bindery
