#include <gtest/gtest.h>

#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, BatchNorm) { CheckOperators(BatchNormCases()); }

}  // namespace
}  // namespace bindery
