#include <gtest/gtest.h>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, Convolution) { CheckOperators(ConvolutionCases()); }

}  // namespace
}  // namespace bindery
