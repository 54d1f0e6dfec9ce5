// What is particular to the loops of our own for convolutions: the same bits with any number of threads, and what they
// decline. CheckOperator has more cases of what they compute.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/direct_convolution.h"
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
