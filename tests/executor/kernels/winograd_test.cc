// Winograd's convolutions, by themselves.
#include "executor/kernels/cpu/convolution/winograd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "executor/kernels/cpu/layout.h"
#include "symbol/ops.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/kernels/run_kernel.h"

namespace bindery {
namespace {

struct WinogradCase {
  Shape data;
  int64_t filters;
  std::vector<int64_t> pad;
  bool blocked;
  ActivationType activation = ActivationType::kNone;
};
const std::vector<WinogradCase>& WinogradCases() {
  static const std::vector<WinogradCase> kCases = {
      {{2, 16, 8, 8}, 16, {1, 1}, true},   {{1, 16, 5, 7}, 48, {1, 1}, true, ActivationType::kRelu},
      {{3, 48, 13, 3}, 16, {0, 0}, true},  {{2, 32, 1, 1}, 32, {1, 1}, true},
      {{2, 16, 9, 14}, 32, {2, 2}, true},  {{1, 16, 6, 11}, 16, {0, 2}, true, ActivationType::kTanh},
      {{2, 16, 7, 10}, 32, {1, 1}, false}, {{4, 64, 31, 29}, 80, {1, 1}, true},
      {{2, 16, 12, 3}, 16, {5, 4}, true}};
  return kCases;
}

Format BlocksOr(bool blocked) { return blocked ? cpu::ChannelBlocked(4, cpu::SimdBlock()) : Format::ChannelsLast(4); }

KernelSpec Forward(const WinogradCase& c, bool has_bias, bool adds, int threads) {
  const ConvolutionAttrs attrs{
      .num_filter = c.filters, .kernel = {3, 3}, .pad = c.pad, .no_bias = !has_bias, .activation = c.activation};
  const Shape weight = {c.filters, c.data[1], 3, 3};
  const Shape output = {c.data[0], c.filters, c.data[2] + 2 * c.pad[0] - 2, c.data[3] + 2 * c.pad[1] - 2};
  KernelSpec spec{.op = adds ? &ConvolutionAddOp() : &ConvolutionOp(),
                  .attrs = attrs,
                  .inputs = {FloatOf(c.data), FloatOf(weight)},
                  .outputs = {FloatOf(output)},
                  .input_formats = {BlocksOr(c.blocked), Format::Plain()},
                  .input_is_open = {false, true},
                  .output_wishes = {std::nullopt},
                  .output_used = {true},
                  .threads = threads};
  for (const Shape& more : {has_bias ? Shape{c.filters} : Shape(), adds ? output : Shape()}) {
    if (more.rank() == 0) continue;
    spec.inputs.push_back(FloatOf(more));
    spec.input_formats.push_back(Format::Plain());
    spec.input_is_open.push_back(false);
  }
  return spec;
}
KernelSpec GradData(const WinogradCase& c, int threads) {
  KernelSpec spec = Forward(c, false, false, threads);
  spec.op = &ConvolutionGradDataOp();
  ConvolutionGradDataAttrs attrs;
  attrs.kernel = {3, 3};
  attrs.pad = c.pad;
  attrs.num_filter = c.filters;
  attrs.no_bias = true;
  attrs.extents = {c.data[2], c.data[3]};
  spec.attrs = attrs;
  std::swap(spec.inputs[0], spec.outputs[0]);
  spec.input_is_open[1] = false;
  return spec;
}

// The reference's, and the same bits with any number of threads.
template <class Spec, class Make>
void ExpectReference(const Spec& spec_of, const Make& make) {
  const KernelSpec spec = spec_of(1);
  const std::vector<float> expected = RunOnNoise(MakeKernel(spec, KernelPolicy::kReference), spec);
  float most = 0;
  for (const float y : expected) most = std::max(most, std::abs(y));
  for (const cpu::WinogradTiles tiles : {cpu::WinogradTiles::k2x2, cpu::WinogradTiles::k4x4}) {
    const MaybeKernel kernel = make(spec, tiles);
    ASSERT_TRUE(kernel);
    const std::vector<float> actual = RunOnNoise(*kernel, spec);
    const float tolerance = (tiles == cpu::WinogradTiles::k2x2 ? 4e-6f : 4e-5f) * std::max(most, 1.0f);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << kernel->implementation << " element " << i;
    }
    for (const int threads : {2, 5}) EXPECT_EQ(RunOnNoise(*make(spec_of(threads), tiles), spec_of(threads)), actual);
  }
}

TEST(Winograd, ConvolvesAsTheReference) {
  for (const WinogradCase& c : WinogradCases()) {
    SCOPED_TRACE(fmt::format("{} {}, {} around", c.data, c.filters, Shape(c.pad)));
    for (const bool has_bias : {false, true}) {
      for (const bool adds : {false, true}) {
        const int addend = adds ? 2 + (has_bias ? 1 : 0) : -1;
        ExpectReference([&](int threads) { return Forward(c, has_bias, adds, threads); },
                        [&](const KernelSpec& spec, cpu::WinogradTiles tiles) {
                          return cpu::WinogradConvolution(spec, addend, tiles);
                        });
      }
    }
  }
}

TEST(Winograd, MakesTheGradientOfDataAsTheReference) {
  for (const WinogradCase& c : WinogradCases()) {
    if (c.activation != ActivationType::kNone) continue;
    SCOPED_TRACE(fmt::format("{} {}, {} around", c.data, c.filters, Shape(c.pad)));
    ExpectReference([&](int threads) { return GradData(c, threads); }, cpu::WinogradConvolutionGradData);
  }
}

// Weights that are kept are transformed once, to the same bits.
TEST(Winograd, TakesTransformedWeights) {
  for (const WinogradCase& c : WinogradCases()) {
    for (const auto tiles : {cpu::WinogradTiles::k2x2, cpu::WinogradTiles::k4x4}) {
      KernelSpec spec = Forward(c, true, false, 2);
      const MaybeKernel each_time = cpu::WinogradConvolution(spec, -1, tiles);
      ASSERT_TRUE(each_time);
      const std::vector<float> expected = RunOnNoise(*each_time, spec);
      spec.input_is_kept = {false, true, true};
      // As they are, and in the blocks that training has laid them out in.
      for (const Format& weight : {Format::Plain(), each_time->input_formats[1]}) {
        spec.input_formats[1] = weight;
        spec.input_is_open[1] = weight.is_plain();
        const MaybeKernel once = cpu::WinogradConvolution(spec, -1, tiles);
        ASSERT_TRUE(once);
        EXPECT_EQ(once->input_formats[1].kind, Format::Kind::kOpaque);
        EXPECT_LT(once->scratch_bytes, each_time->scratch_bytes);
        EXPECT_EQ(RunOnNoise(*once, spec), expected) << fmt::format("{} {}", c.data, weight);
      }
    }
  }
}

TEST(Winograd, DeclinesWhatItCannotDo) {
  const auto makes = [](const ConvolutionAttrs& attrs, int64_t channels, DType dtype = DType::kFloat32) {
    KernelSpec spec = Forward({{2, 16, 8, 8}, 16, {1, 1}, true}, false, false, 1);
    spec.attrs = attrs;
    spec.inputs[0].shape = {2, channels, 8, 8};
    spec.inputs[1].shape = {16, channels / attrs.groups, attrs.kernel[0], attrs.kernel[1]};
    spec.outputs[0].shape = {2, 16, ConvolutionWindows(attrs, spec.inputs[0].shape)[0].output,
                             ConvolutionWindows(attrs, spec.inputs[0].shape)[1].output};
    for (ValueType* value : {&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]}) value->dtype = dtype;
    return cpu::WinogradConvolution(spec, -1, cpu::WinogradTiles::k2x2).has_value();
  };
  const ConvolutionAttrs can{.num_filter = 16, .kernel = {3, 3}, .no_bias = true};
  EXPECT_TRUE(makes(can, 16));
  EXPECT_FALSE(makes(can, 3));
  EXPECT_FALSE(makes(can, 16, DType::kFloat64));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 5}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .stride = {2, 1}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .dilate = {1, 2}, .no_bias = true}, 16));
  EXPECT_FALSE(makes({.num_filter = 16, .kernel = {3, 3}, .groups = 2, .no_bias = true}, 32));
}

}  // namespace
}  // namespace bindery
