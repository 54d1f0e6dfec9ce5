#include "symbol/ops/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

const StepBlock kStep{.seed = 11, .step = 5, .micro_batch = 1, .sample_offset = 40};

// The output for data of ones: mask / (1 - p).
HostTensor Drop(const Shape& shape, const DropoutAttrs& attrs, KernelPolicy policy, const StepBlock& step = kStep,
                int batch_axis = 0, const std::string& name = "drop") {
  RunOptions options{.policy = policy, .step = step};
  if (batch_axis >= 0) options.batch_axes = {{"x", batch_axis}};
  return RunGraph(Dropout(Variable("x"), attrs, name), {{"x", HostTensor::Full(DType::kFloat32, shape, 1)}}, options)
      .outputs[0];
}

class DropoutTest : public testing::TestWithParam<KernelPolicy> {};
INSTANTIATE_TEST_SUITE_P(Tables, DropoutTest, testing::Values(KernelPolicy::kReference, KernelPolicy::kFast),
                         [](const auto& info) { return info.param == KernelPolicy::kFast ? "fast" : "reference"; });

TEST(Operators, Dropout) { CheckOperators(DropoutCases()); }

// The rule, word by word: word i % 4 of the block with counter (i / 4, sample, sample's upper half ^ micro-batch << 16,
// step) under the node's key; i counts the elements of one sample.
TEST_P(DropoutTest, MasksFollowTheRule) {
  const Shape shape{3, 5, 7};
  const double p = 0.3;
  const HostTensor y = Drop(shape, {.p = p}, GetParam());
  const PhiloxKey key = StreamKey(kStep.seed, "drop");
  for (uint32_t n = 0; n < 3; ++n) {
    for (uint32_t i = 0; i < 35; ++i) {
      const PhiloxBlock block = Philox4x32({i / 4, 40 + n, 1u << 16, 5}, key);
      const bool keep = UniformFloat(block[i % 4]) >= p;
      EXPECT_NEAR(y.At(n * 35 + i), keep ? 1 / (1 - p) : 0, 1e-6) << n << " " << i;
    }
  }
}

// Long runs and datasets: the upper halves of the step and of the sample's index count.
TEST_P(DropoutTest, UpperHalvesCount) {
  const StepBlock step{.seed = 11, .step = (7ull << 32) + 5, .sample_offset = (3ll << 32) + 40};
  const HostTensor y = Drop({1, 64}, {}, GetParam(), step);
  PhiloxKey key = StreamKey(11, "drop");
  key.k1 ^= 7;
  for (uint32_t i = 0; i < 64; ++i) {
    const bool keep = UniformFloat(Philox4x32({i / 4, 40, 3, 5}, key)[i % 4]) >= 0.5;
    EXPECT_EQ(y.At(i), keep ? 2 : 0) << i;
  }
}

// Splitting a batch over devices changes no mask, whatever the axes.
TEST_P(DropoutTest, SplitsDoNotMatter) {
  for (const DropoutAttrs& attrs : {DropoutAttrs{}, DropoutAttrs{.axes = {1}}, DropoutAttrs{.axes = {0}}}) {
    const HostTensor whole = Drop({7, 3, 5}, attrs, GetParam());
    std::vector<HostTensor> parts;
    for (auto [begin, count] : {std::pair{0, 2}, {2, 4}, {6, 1}}) {
      StepBlock step = kStep;
      step.sample_offset += begin;
      parts.push_back(Drop({count, 3, 5}, attrs, GetParam(), step));
    }
    EXPECT_EQ(Concatenate(parts, 0), whole);
  }
  const HostTensor whole = Drop({3, 6, 2}, {}, GetParam(), kStep, 1);
  StepBlock later = kStep;
  later.sample_offset += 2;
  EXPECT_EQ(
      Concatenate(std::vector{Drop({3, 2, 2}, {}, GetParam(), kStep, 1), Drop({3, 4, 2}, {}, GetParam(), later, 1)}, 1),
      whole);
}

TEST_P(DropoutTest, SharedAxesShareTheDecision) {
  const HostTensor y = Drop({4, 6, 5}, {.axes = {2}}, GetParam());
  for (int64_t i = 0; i < y.elements(); ++i) EXPECT_EQ(y.At(i), y.At(i / 5 * 5));
  const HostTensor same = Drop({4, 30}, {.axes = {0}}, GetParam());
  for (int64_t i = 0; i < same.elements(); ++i) EXPECT_EQ(same.At(i), same.At(i % 30));
}

// Seed, step, micro-batch and the node's name each give other masks; nothing else does.
TEST_P(DropoutTest, StreamsDiffer) {
  const Shape shape{8, 64};
  const HostTensor y = Drop(shape, {}, GetParam());
  EXPECT_EQ(Drop(shape, {}, GetParam()), y);
  for (int change = 0; change < 4; ++change) {
    StepBlock step = kStep;
    if (change == 0) ++step.seed;
    if (change == 1) ++step.step;
    if (change == 2) ++step.micro_batch;
    if (change == 3) ++step.sample_offset;
    const HostTensor other = Drop(shape, {}, GetParam(), step);
    int64_t differ = 0;
    for (int64_t i = 0; i < y.elements(); ++i) differ += other.At(i) != y.At(i);
    EXPECT_NEAR(static_cast<double>(differ), 256, 60) << change;  // independent masks differ in half of 512 places
  }
  EXPECT_FALSE(Drop(shape, {}, GetParam(), kStep, 0, "drop2") == y);
}

// The share of zeros is p within 5 standard deviations, over all and in every column.
TEST_P(DropoutTest, Statistics) {
  for (double p : {0.1, 0.5, 0.9}) {
    const int64_t rows = 1000, columns = 16;
    const HostTensor y = Drop({rows, columns}, {.p = p}, GetParam());
    int64_t total = 0;
    for (int64_t c = 0; c < columns; ++c) {
      int64_t dropped = 0;
      for (int64_t r = 0; r < rows; ++r) dropped += y.At(r * columns + c) == 0;
      EXPECT_NEAR(static_cast<double>(dropped), p * rows, 5 * std::sqrt(rows * p * (1 - p)));
      total += dropped;
    }
    EXPECT_NEAR(static_cast<double>(total), p * rows * columns, 5 * std::sqrt(rows * columns * p * (1 - p)));
  }
}

TEST_P(DropoutTest, PredictionIsTheIdentity) {
  const HostTensor x = Uniform({4, 9}).Cast(DType::kFloat32);
  const RunOptions options{.mode = Mode::kPredict, .policy = GetParam(), .step = kStep};
  EXPECT_EQ(RunGraph(Dropout(Variable("x")), {{"x", x}}, options).outputs[0], x);
}

}  // namespace
}  // namespace bindery
