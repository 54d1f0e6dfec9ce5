// What is particular to the loops of our own for convolutions: the same bits with any number of threads, and what they
// decline. CheckOperator has more cases of what they compute.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/direct_convolution.h"
#include "executor/kernels/cpu/plane_convolution.h"
#include "symbol/ops.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {
namespace {

KernelSpec SpecOf(const OpDef& op, AnyAttrs attrs, const std::vector<Shape>& inputs, const Shape& output, int threads) {
  KernelSpec spec{.op = &op, .attrs = std::move(attrs), .node_name = "node"};
  for (const Shape& shape : inputs) spec.inputs.push_back({.shape = shape});
  spec.outputs = {{.shape = output}};
  spec.input_formats.resize(inputs.size());
  spec.input_is_open.resize(inputs.size());
  spec.output_wishes.resize(1);
  spec.output_used = {true};
  spec.threads = threads;
  return spec;
}
KernelSpec GradDataSpec(const ConvolutionAttrs& attrs, const Shape& x, const Shape& y, const Shape& w, int threads) {
  return SpecOf(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{attrs, {x[2], x[3]}}, {y, w}, x, threads);
}

std::vector<float> Compute(const Kernel& kernel, const KernelSpec& spec) {
  std::vector<std::vector<float>> values;
  std::vector<void*> inputs;
  for (const ValueType& input : spec.inputs) {
    std::vector<float>& value = values.emplace_back(static_cast<size_t>(input.shape.Elements()));
    for (size_t i = 0; i < value.size(); ++i) value[i] = std::sin(0.37f * static_cast<float>(i + values.size()));
  }
  for (std::vector<float>& value : values) inputs.push_back(value.data());
  std::vector<float> y(static_cast<size_t>(spec.outputs[0].shape.Elements()), -7.0f);
  void* const output = y.data();
  std::vector<float> scratch(static_cast<size_t>(kernel.scratch_bytes) / sizeof(float) + 1, 1e30f);
  const StepBlock step;
  const TeamScope team(kernel.threads);
  kernel.bind({.inputs = inputs, .outputs = {&output, 1}, .scratch = scratch.data(), .step = &step})();
  return y;
}

void ExpectReference(const std::vector<float>& actual, const KernelSpec& spec) {
  const std::vector<float> expected = Compute(MakeKernel(spec, KernelPolicy::kReference), spec);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-3) << i;
}

// Few samples: threads share their channels. Taps that are added, of 3 x 3 and 5 x 5, and windows of the gradient.
TEST(PlaneConvolution, GivesTheSameBitsWithAnyNumberOfThreads) {
  struct Case {
    Shape x, y;
    int64_t kernel, pad;
  };
  for (const Case& c : {Case{{1, 13, 12, 12}, {1, 50, 8, 8}, 5, 0}, Case{{2, 9, 10, 10}, {2, 60, 8, 8}, 3, 0},
                        Case{{3, 7, 9, 9}, {3, 33, 8, 8}, 4, 1}, Case{{1, 20, 16, 16}, {1, 50, 16, 16}, 3, 1}}) {
    const ConvolutionAttrs attrs{
        .num_filter = c.y[1], .kernel = {c.kernel, c.kernel}, .pad = {c.pad, c.pad}, .no_bias = true};
    const Shape w = {c.y[1], c.x[1], c.kernel, c.kernel};
    const auto forward = [&](int threads) { return SpecOf(ConvolutionOp(), attrs, {c.x, w}, c.y, threads); };
    const auto backward = [&](int threads) { return GradDataSpec(attrs, c.x, c.y, w, threads); };
    const MaybeKernel y = PlaneConvolution(forward(1), -1), dx = PlaneConvolutionGradData(backward(1));
    if (!y || !dx) GTEST_SKIP() << "not on this machine";
    const std::vector<float> expected_y = Compute(*y, forward(1)), expected_dx = Compute(*dx, backward(1));
    ExpectReference(expected_y, forward(1));
    ExpectReference(expected_dx, backward(1));
    for (const int threads : {2, 3, 5}) {
      SCOPED_TRACE(threads);
      EXPECT_EQ(PlaneConvolution(forward(threads), -1)->threads, threads);
      EXPECT_EQ(Compute(*PlaneConvolution(forward(threads), -1), forward(threads)), expected_y);
      EXPECT_EQ(Compute(*PlaneConvolutionGradData(backward(threads)), backward(threads)), expected_dx);
    }
  }
}

// A few elements, between which lie thousands of padding: copies with all of that are not worth it.
TEST(PlaneConvolution, DeclinesWhatWouldBeMostlyPadding) {
  constexpr int64_t kFar = 10'000;
  const ConvolutionAttrs attrs{
      .num_filter = 21, .kernel = {2, 2}, .pad = {kFar / 2, kFar / 2}, .dilate = {kFar, kFar}, .no_bias = true};
  const Shape x = {1, 1, 16, 16}, y = {1, 21, 16, 16}, w = {21, 1, 2, 2};
  EXPECT_FALSE(PlaneConvolution(SpecOf(ConvolutionOp(), attrs, {x, w}, y, 1), -1));
  EXPECT_FALSE(PlaneConvolutionGradData(GradDataSpec(attrs, x, y, w, 1)));
}

// Blocks of channels, channels last, and vectors that overlap.
TEST(DirectConvolution, GivesTheSameBitsWithAnyNumberOfThreadsAndTheSameSumsBothWays) {
  const ConvolutionAttrs attrs{.num_filter = 0, .kernel = {3, 3}, .pad = {1, 0}, .no_bias = true};
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{16, 48}, {13, 16}, {5, 21}}) {
    const auto spec = [&, in = in, out = out](int threads) {
      ConvolutionAttrs of = attrs;
      of.num_filter = out;
      return SpecOf(ConvolutionGradWeightOp(), of, {{19, out, 6, 5}, {19, in, 6, 7}}, {out, in, 3, 3}, threads);
    };
    std::vector<std::vector<float>> sums;
    for (const DirectWay way : {DirectWay::kAsItLies, DirectWay::kBatchInside}) {
      const MaybeKernel kernel = DirectConvolutionGradWeight(spec(1), way);
      ASSERT_TRUE(kernel);
      sums.push_back(Compute(*kernel, spec(1)));
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(Compute(*DirectConvolutionGradWeight(spec(threads), way), spec(threads)), sums.back()) << threads;
      }
    }
    for (size_t i = 0; i < sums[0].size(); ++i) ASSERT_NEAR(sums[0][i], sums[1][i], 2e-3) << i;
  }
}

TEST(DirectConvolution, DeclinesTapsThatItsOffsetsCannotReach) {
  constexpr int64_t kFar = int64_t{1} << 28;
  const auto makes = [](int64_t far) {
    const ConvolutionAttrs attrs{
        .num_filter = 16, .kernel = {1, 2}, .stride = {1, far}, .pad = {0, far}, .dilate = {1, far}, .no_bias = true};
    return DirectConvolutionGradWeight(
               SpecOf(ConvolutionGradWeightOp(), attrs, {{1, 16, 3, 2}, {1, 16, 3, 3}}, {16, 16, 1, 2}, 1),
               DirectWay::kAsItLies)
        .has_value();
  };
  EXPECT_TRUE(makes(4));
  EXPECT_FALSE(makes(kFar));
}

// They take and give the same formats: only by their names measurements know them apart.
TEST(DirectConvolution, BothWaysHaveNames) {
  const ConvolutionAttrs attrs{.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true};
  const KernelSpec spec = SpecOf(ConvolutionGradWeightOp(), attrs, {{2, 16, 8, 8}, {2, 16, 8, 8}}, {16, 16, 3, 3}, 1);
  const MaybeKernel as_it_lies = DirectConvolutionGradWeight(spec, DirectWay::kAsItLies);
  const MaybeKernel inside = DirectConvolutionGradWeight(spec, DirectWay::kBatchInside);
  ASSERT_TRUE(as_it_lies && inside);
  EXPECT_EQ(as_it_lies->implementation, "direct");
  EXPECT_EQ(inside->implementation, "direct inside");
}

}  // namespace
}  // namespace bindery::cpu
