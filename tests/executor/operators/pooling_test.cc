#include <gtest/gtest.h>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Pooling) { CheckOperators(PoolingCases()); }

}  // namespace
}  // namespace bindery
