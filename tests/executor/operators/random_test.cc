#include "symbol/ops/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

TEST(Operators, Random) { CheckOperators(RandomCases()); }

HostTensor Draw(const Symbol& symbol, const HostTensor& x, const StepBlock& step, int threads = 2) {
  return RunGraph(symbol, {{"x", x}}, {.threads = threads, .step = step, .batch_axes = {{"x", 0}}}).outputs[0];
}

TEST(Random, SamplesKeepTheirNumbersInAnySplit) {
  const Symbol x = Variable("x");
  for (const Symbol& y : {RandomUniformLike(x), RandomNormalLike(x), Bernoulli(x), RandomIntLike(x, {{}, 0, 100})}) {
    const auto draw = [&](int64_t samples, const StepBlock& step, int threads) {
      return Draw(y, HostTensor::Full(DType::kFloat64, {samples, 5}, 0.5), step, threads);
    };
    const HostTensor all = draw(6, {.seed = 3, .step = 8}, 2);
    const HostTensor some = draw(4, {.seed = 3, .step = 8, .sample_offset = 2}, 1);
    for (int64_t i = 0; i < some.elements(); ++i) EXPECT_EQ(some.At(i), all.At(i + 10)) << i;
    EXPECT_NE(draw(6, {.seed = 4, .step = 8}, 2), all);
  }
}

// The mean of f over many numbers.
double MeanOf(const HostTensor& numbers, const std::function<double(double)>& f) {
  double sum = 0;
  for (int64_t i = 0; i < numbers.elements(); ++i) sum += f(numbers.At(i));
  return sum / static_cast<double>(numbers.elements());
}

TEST(Random, HasTheMomentsOfItsDistribution) {
  const Symbol x = Variable("x");
  const HostTensor zeros(DType::kFloat32, {400, 100});
  const auto same = [](double v) { return v; };
  const auto square = [](double v) { return v * v; };
  const HostTensor uniform = Draw(RandomUniformLike(x, {{}, 2, 4}), zeros, {});
  EXPECT_NEAR(MeanOf(uniform, same), 3, 0.01);
  EXPECT_NEAR(MeanOf(uniform, square), 9 + 1.0 / 3, 0.06);
  const HostTensor normal = Draw(RandomNormalLike(x, {{}, 1, 2}), zeros, {});
  EXPECT_NEAR(MeanOf(normal, same), 1, 0.05);
  EXPECT_NEAR(MeanOf(normal, square), 5, 0.15);
  EXPECT_NEAR(MeanOf(normal, [](double v) { return std::fabs(v - 1) < 2; }), 0.6827, 0.01);
  EXPECT_NEAR(MeanOf(Draw(RandomIntLike(x, {{}, 0, 10}), zeros, {}), same), 4.5, 0.08);
  EXPECT_NEAR(MeanOf(Draw(Bernoulli(x), HostTensor::Full(DType::kFloat32, {400, 100}, 0.3), {}), same), 0.3, 0.01);
  HostTensor weights(DType::kFloat32, {40, 3});
  for (int64_t i = 0; i < weights.elements(); ++i) weights.Set(i, i % 3 == 1 ? 0 : 1 + i % 3);
  const HostTensor drawn = Draw(Multinomial(x, {.sample_size = 1000}), weights, {});
  EXPECT_NEAR(MeanOf(drawn, [](double v) { return v == 2; }), 0.75, 0.01);
  EXPECT_EQ(MeanOf(drawn, [](double v) { return v == 1; }), 0);
}

}  // namespace
}  // namespace bindery
