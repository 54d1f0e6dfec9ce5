// What is particular to the loops of our own for convolutions: the same bits with any number of threads, and what they
// decline. CheckOperator has more cases of what they compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "executor/kernels/cpu/convolution/direct_convolution.h"
#include "executor/kernels/cpu/convolution/direct_windows.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "symbol/ops.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/kernels/run_kernel.h"
#include "tests/executor/values.h"

namespace bindery::cpu {
namespace {

KernelSpec SpecOf(const OpDef& op, AnyAttrs attrs, const std::vector<Shape>& inputs, const Shape& output, int threads) {
  KernelSpec spec{.op = &op, .attrs = std::move(attrs), .node_name = "node"};
  for (const Shape& shape : inputs) spec.inputs.push_back(FloatOf(shape));
  spec.outputs = {FloatOf(output)};
  spec.input_formats.resize(inputs.size());
  spec.input_is_open.resize(inputs.size());
  spec.output_wishes.resize(1);
  spec.output_used = {true};
  spec.threads = threads;
  return spec;
}
std::pair<Shape, Shape> WeightAndOutput(const ConvolutionAttrs& attrs, const Shape& data) {
  Shape weight = {attrs.num_filter, data[1]}, output = {data[0], attrs.num_filter};
  for (const int64_t extent : attrs.kernel) weight = weight.Insert(weight.rank(), extent);
  for (const Window& window : ConvolutionWindows(attrs, data)) output = output.Insert(output.rank(), window.output);
  return {weight, output};
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
      sums.push_back(RunOnNoise(*kernel, spec(1)));
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(RunOnNoise(*DirectConvolutionGradWeight(spec(threads), way), spec(threads)), sums.back()) << threads;
      }
    }
    for (size_t i = 0; i < sums[0].size(); ++i) ASSERT_NEAR(sums[0][i], sums[1][i], 2e-3) << i;
  }
}

// Images as they lie, blocks of channels, channels last, vectors that overlap; windows that reach out of the data.
TEST(DirectConvolution, ConvolvesAsTheReferenceWithAnyNumberOfThreads) {
  struct Case {
    Shape data;
    ConvolutionAttrs attrs;
    bool adds = false;
  };
  const std::vector<Case> cases = {
      {{3, 1, 28, 28}, {.num_filter = 20, .kernel = {5, 5}, .activation = ActivationType::kRelu}},
      {{2, 3, 15, 17}, {.num_filter = 64, .kernel = {7, 7}, .stride = {2, 2}, .pad = {3, 3}}},
      {{2, 3, 11, 40}, {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}, .activation = ActivationType::kTanh}},
      {{2, 2, 7, 9}, {.num_filter = 50, .kernel = {3, 2}, .stride = {2, 1}, .pad = {2, 0, 1, 3}, .no_bias = true}},
      {{1, 1, 6, 5}, {.num_filter = 33, .kernel = {3, 3}, .pad = {4, 5}, .dilate = {2, 3}}},
      {{2, 16, 6, 19}, {.num_filter = 48, .kernel = {3, 3}, .pad = {1, 1}, .activation = ActivationType::kSigmoid}},
      {{2, 16, 9, 23}, {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}, .activation = ActivationType::kRelu}, true},
      {{1, 3, 7, 50}, {.num_filter = 32, .kernel = {3, 5}, .pad = {1, 0}, .no_bias = true}, true},
      {{2, 21, 5, 19}, {.num_filter = 16, .kernel = {3, 3}, .pad = {1, 1}}},
      {{2, 21, 5, 4}, {.num_filter = 37, .kernel = {2, 3}, .pad = {0, 2}}},
      {{3, 2, 300}, {.num_filter = 18, .kernel = {5}, .stride = {3}, .pad = {2, 4}}},
      {{1, 2, 4, 5, 18}, {.num_filter = 17, .kernel = {2, 3, 2}, .stride = {1, 2, 1}, .pad = {1, 0, 2}}},
  };
  for (const Case& c : cases) {
    const auto [weight, output] = WeightAndOutput(c.attrs, c.data);
    SCOPED_TRACE(ToString(c.data) + " to " + ToString(output));
    std::vector<Shape> inputs = {c.data, weight};
    if (!c.attrs.no_bias) inputs.push_back({c.attrs.num_filter});
    if (c.adds) inputs.push_back(output);
    const int addend = c.adds ? static_cast<int>(inputs.size()) - 1 : -1;
    const OpDef& op = c.adds ? ConvolutionAddOp() : ConvolutionOp();
    const auto spec = [&](int threads) { return SpecOf(op, c.attrs, inputs, output, threads); };
    const std::vector<float> expected = RunOnNoise(MakeKernel(spec(1), KernelPolicy::kReference), spec(1));
    const MaybeKernel kernel = DirectConvolution(spec(1), addend);
    ASSERT_TRUE(kernel);
    const std::vector<float> actual = RunOnNoise(*kernel, spec(1));
    const auto terms = static_cast<float>(weight.CountFrom(1));
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-7f * terms + 1e-6f) << i;
    for (const int threads : {2, 3, 5}) {
      EXPECT_EQ(RunOnNoise(*DirectConvolution(spec(threads), addend), spec(threads)), actual) << threads;
    }
  }
}

// Blocks of channels, channels last, vectors that overlap; windows that reach out of the data, and stored weights of any
// format.
TEST(DirectConvolution, GivesGradientsOfDataAsTheReferenceBothWaysWithAnyNumberOfThreads) {
  struct Case {
    Shape data;
    ConvolutionGradDataAttrs attrs;
    Format weight = {};
  };
  const auto attrs = [](const ConvolutionAttrs& of) { return ConvolutionGradDataAttrs{of, {}, {}, 0}; };
  const std::vector<Case> cases = {
      {{17, 20, 12, 12}, attrs({.num_filter = 50, .kernel = {5, 5}})},
      {{3, 20, 9, 7}, attrs({.num_filter = 16, .kernel = {3, 2}, .pad = {1, 0, 2, 1}}), TapsByFilters(4)},
      {{2, 32, 6, 5}, attrs({.num_filter = 48, .kernel = {3, 3}, .pad = {1, 1}}), ChannelBlocked(4, 16)},
      {{2, 37, 11, 8},
       attrs({.num_filter = 3, .kernel = {3, 3}, .pad = {2, 6}, .dilate = {2, 3}}),
       Format::ChannelsLast(4)},
      {{1, 20, 3, 4, 3}, attrs({.num_filter = 9, .kernel = {2, 3, 2}, .pad = {1, 0, 1}})},
      {{19, 16, 30}, attrs({.num_filter = 18, .kernel = {5}, .pad = {2, 4}})},
      {{5, 21, 3, 4}, attrs({.num_filter = 24, .kernel = {1, 1}})},
  };
  for (const Case& c : cases) {
    const auto [weight, output] = WeightAndOutput(c.attrs, c.data);
    SCOPED_TRACE(ToString(output) + " to " + ToString(c.data));
    const auto spec = [&](int threads) {
      KernelSpec of = SpecOf(ConvolutionGradDataOp(), c.attrs, {output, weight}, c.data, threads);
      of.input_formats[1] = c.weight;
      return of;
    };
    const std::vector<float> expected = RunOnNoise(MakeKernel(spec(1), KernelPolicy::kReference), spec(1));
    const auto terms = static_cast<float>(weight.Elements() / c.data[1]);
    for (const DirectWay way : {DirectWay::kAsItLies, DirectWay::kBatchInside}) {
      const MaybeKernel kernel = DirectConvolutionGradData(spec(1), way);
      if (c.data.rank() == 5 && way == DirectWay::kBatchInside) {
        EXPECT_FALSE(kernel);  // samples would be a fourth axis
        continue;
      }
      ASSERT_TRUE(kernel);
      EXPECT_EQ(kernel->implementation, way == DirectWay::kAsItLies ? "direct" : "direct inside");
      EXPECT_EQ(kernel->input_formats[1], c.weight);
      const std::vector<float> actual = RunOnNoise(*kernel, spec(1));
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-7f * terms + 1e-6f) << i;
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(RunOnNoise(*DirectConvolutionGradData(spec(threads), way), spec(threads)), actual) << threads;
      }
    }
  }
}

TEST(DirectConvolution, DeclinesGradientsOfDataThatAreNoConvolution) {
  const auto makes = [](const ConvolutionAttrs& of, const Shape& data) {
    const ConvolutionGradDataAttrs attrs{of, {}, {}, 0};
    Shape output = {data[0], of.num_filter};
    for (const Window& window : ConvolutionWindows(of, data)) output = output.Insert(output.rank(), window.output);
    const Shape weight = {of.num_filter, data[1] / of.groups, of.kernel[0], of.kernel[1]};
    return DirectConvolutionGradData(SpecOf(ConvolutionGradDataOp(), attrs, {output, weight}, data, 1),
                                     DirectWay::kAsItLies)
        .has_value();
  };
  EXPECT_TRUE(makes({.num_filter = 5, .kernel = {3, 3}, .pad = {2, 2}}, {1, 20, 6, 6}));
  EXPECT_FALSE(makes({.num_filter = 5, .kernel = {3, 3}, .pad = {3, 2}}, {1, 20, 6, 6}));
  EXPECT_FALSE(makes({.num_filter = 5, .kernel = {3, 3}, .stride = {1, 2}}, {1, 20, 6, 6}));
  constexpr int64_t kFar = (int64_t{1} << 30) + 2;  // twice that is more than a padding may be
  EXPECT_FALSE(
      makes({.num_filter = 5, .kernel = {1, 3}, .pad = {0, 0, 0, 2 * kFar - 5}, .dilate = {1, kFar}}, {1, 20, 6, 6}));
  EXPECT_FALSE(makes({.num_filter = 6, .kernel = {3, 3}, .groups = 2}, {1, 20, 6, 6}));
  EXPECT_FALSE(makes({.num_filter = 5, .kernel = {3, 3}}, {1, 3, 6, 6}));  // fewer than any vector has lanes
}

// An addend may lie where the output will.
TEST(DirectConvolution, AddsInPlace) {
  const ConvolutionAttrs attrs{.num_filter = 32, .kernel = {3, 3}, .pad = {1, 1}, .no_bias = true};
  const Shape output = {2, 32, 9, 23};
  const KernelSpec spec = SpecOf(ConvolutionAddOp(), attrs, {{2, 16, 9, 23}, {32, 16, 3, 3}, output}, output, 2);
  const MaybeKernel kernel = DirectConvolution(spec, 2);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->inplace, (std::vector<InplacePair>{{2, 0}}));
  Kernel in_place = *kernel;
  in_place.bind = [bind = kernel->bind](const KernelArgs& args) -> Call {
    std::vector<void*> inputs(args.inputs.begin(), args.inputs.end());
    const std::vector<float> addend(static_cast<float*>(inputs[2]), static_cast<float*>(inputs[2]) + 2 * 32 * 9 * 23);
    float* const y = static_cast<float*>(inputs[2] = args.outputs[0]);
    return [addend, y, run = bind({.inputs = inputs, .outputs = args.outputs})] {
      std::ranges::copy(addend, y);
      run();
    };
  };
  EXPECT_EQ(RunOnNoise(in_place, spec), RunOnNoise(*kernel, spec));
}

TEST(DirectConvolution, DeclinesGroupsAndFewFilters) {
  const auto makes = [](int64_t filters, int64_t groups) {
    const ConvolutionAttrs attrs{.num_filter = filters, .kernel = {1, 1}, .groups = groups, .no_bias = true};
    return DirectConvolution(
               SpecOf(ConvolutionOp(), attrs, {{1, 4, 3, 3}, {filters, 4 / groups, 1, 1}}, {1, filters, 3, 3}, 1))
        .has_value();
  };
  EXPECT_TRUE(makes(20, 1));
  EXPECT_FALSE(makes(20, 2));
  EXPECT_FALSE(makes(3, 1));
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

// Places that are not there are multiplied by nothing, so infinities and NaN at the sides come where the reference has
// them, and nowhere else; and the same bits with any number of threads.
TEST(BFloat16GradWeight, SpecialValuesAtTheSidesAndAnyNumberOfThreads) {
  for (const int64_t stride : {1, 2}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{5, 7}, {5, 8}, {2, 8}, {1, 8}}) {
      const ConvolutionAttrs attrs{
          .num_filter = 16, .kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}, .no_bias = true};
      const int64_t rows = CeilDiv(height, stride), columns = CeilDiv(width, stride);
      const Shape data = {3, 32, height, width}, output = {3, 16, rows, columns};
      KernelSpec spec = SpecOf(ConvolutionGradWeightOp(), attrs, {output, data}, {16, 32, 3, 3}, 2);
      for (ValueType& type : spec.inputs) type.dtype = DType::kBFloat16;
      spec.outputs[0].dtype = DType::kBFloat16;
      const bool taken = BFloat16ConvolutionGradWeight(spec).has_value();
      EXPECT_EQ(taken,
                Allows(dnnl::cpu_isa::avx512_core_bf16) && !Allows(dnnl::cpu_isa::avx512_core_amx) && columns % 2 == 0);
      if (!taken) continue;  // oneDNN's multiplies by what stands for places that are not there
      const Symbol dw = Apply(ConvolutionGradWeightOp(), attrs, {Variable("dy"), Variable("x")}, "dw");
      for (const float special : {0.0f, INFINITY, -INFINITY, NAN}) {
        for (const bool in_data : {false, true}) {
          HostTensorMap inputs = {{"dy", Uniform(output).Cast(DType::kBFloat16)},
                                  {"x", Uniform(data).Cast(DType::kBFloat16)}};
          HostTensor& changed = inputs.at(in_data ? "x" : "dy");
          const int64_t last_row = changed.shape()[2] - 1, last = changed.shape()[3] - 1, row = last + 1;
          bfloat16* const values = changed.data<bfloat16>().data();
          const int64_t plane = row * (last_row + 1);
          for (const int64_t at :
               {int64_t{0}, plane + last, 2 * plane + last_row * row, 3 * plane + last_row * row + last}) {
            values[at] = bfloat16(special);
          }
          const auto run = [&](KernelPolicy policy, int threads) {
            return RunGraph(dw, inputs, {.policy = policy, .threads = threads}).outputs[0];
          };
          const HostTensor expected = run(KernelPolicy::kReference, 1), actual = run(KernelPolicy::kFast, 1);
          ExpectNear(actual.Cast(DType::kFloat64), expected.Cast(DType::kFloat64), 0.05,
                     fmt::format("stride {}, {} x {}, {} in {}", stride, height, width, special, in_data ? "x" : "dy"));
          for (const int threads : {2, 3}) {
            EXPECT_EQ(std::memcmp(run(KernelPolicy::kFast, threads).raw(), actual.raw(), actual.bytes()), 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery::cpu
