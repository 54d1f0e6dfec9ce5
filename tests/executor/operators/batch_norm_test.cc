#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

TEST(Operators, BatchNorm) { CheckOperators(BatchNormCases()); }
TEST(Operators, Normalize) { CheckOperators(NormalizeCases()); }

// Squares of 16-bit data, and what is added to them, may be no numbers of 16 bits.
TEST(Normalize, SquaresAreOfFloat32) {
  const Symbol x = Variable("x");
  const auto run = [](const Symbol& y, const Shape& shape, std::initializer_list<double> values) {
    return RunGraph(y, {{"x", Values(shape, values).Cast(DType::kFloat16)}}, {}).outputs[0];
  };
  const auto half = [](const Shape& shape, std::initializer_list<double> values) {
    return Values(shape, values).Cast(DType::kFloat16);
  };
  const Symbol length = L2Normalization(x, L2Mode::kChannel, 1e-10, "y");
  EXPECT_EQ(run(length, {1, 2, 1}, {300, 400}), half({1, 2, 1}, {0.6, 0.8}));
  EXPECT_EQ(run(length, {1, 2, 1}, {0, 0}), half({1, 2, 1}, {0, 0}));
  const Symbol standard = MeanVarianceNormalization(x, {0, 2}, 1e-9, "y");
  EXPECT_EQ(run(standard, {2, 1, 1}, {-300, 300}), half({2, 1, 1}, {-1, 1}));
  EXPECT_EQ(run(standard, {2, 1, 1}, {3, 3}), half({2, 1, 1}, {0, 0}));
}

}  // namespace
}  // namespace bindery
