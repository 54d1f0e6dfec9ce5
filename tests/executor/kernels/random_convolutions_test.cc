// Convolutions of random geometry, the same in every run. Kernels are chosen by shapes, and some of a library's are wrong
// at a few of them alone (executor/kernels/cpu/dnnl_faults.h), which nobody finds who writes cases by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/fusions.h"
#include "tests/executor/check_operator.h"

namespace bindery {
namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int64_t From(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_()) % (high - low + 1); }
  bool Percent(int64_t odds) { return From(1, 100) <= odds; }
  int64_t OneOf(const std::vector<int64_t>& numbers) {
    return numbers[static_cast<size_t>(From(0, std::ssize(numbers) - 1))];
  }
  std::vector<int64_t> Several(int64_t count, int64_t low, int64_t high) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    for (int64_t& number : numbers) number = From(low, high);
    return numbers;
  }

 private:
  std::mt19937 random_;
};

// Few samples of large images, or more of small ones; channels that fill blocks, that do not, and groups of them.
std::optional<OperatorCase> Draw(uint32_t seed) {
  Dice dice(seed);
  const int64_t space = dice.Percent(65) ? 2 : dice.Percent(30) ? 1 : 3;
  ConvolutionAttrs attrs;
  int64_t channels = dice.OneOf({1, 3, 4, 7, 8, 16, 17, 20, 24, 32, 33, 48, 64});
  attrs.num_filter = dice.OneOf({1, 2, 5, 8, 15, 16, 17, 21, 24, 32, 50});
  if (dice.Percent(20)) {
    attrs.groups = dice.OneOf({2, 3, 4, 16, 17});
    channels = attrs.groups * dice.OneOf({1, 1, 4, 8});
    attrs.num_filter = attrs.groups * dice.OneOf({1, 1, 2, 8});
  }
  attrs.kernel = dice.Percent(15) ? dice.Several(space, 1, 1) : dice.Several(space, 1, 4);
  if (dice.Percent(50)) attrs.stride = dice.Several(space, 1, 3);
  if (dice.Percent(70)) attrs.pad = dice.Several(dice.Percent(30) ? 2 * space : space, 0, 3);
  if (dice.Percent(30)) attrs.dilate = dice.Several(space, 1, 3);
  attrs.no_bias = dice.Percent(40);
  const int64_t samples = dice.Percent(80) ? dice.From(1, 3) : dice.From(5, 20);
  const int64_t most = space == 1 ? 200 : space == 3 ? 7 : samples > 3 ? 9 : 34;
  Shape data{samples, channels};
  for (int64_t axis = 0; axis < space; ++axis) data = data.Insert(data.rank(), dice.From(1, most));
  Shape weight{attrs.num_filter, channels / attrs.groups}, output{samples, attrs.num_filter};
  for (const int64_t extent : attrs.kernel) weight = weight.Insert(weight.rank(), extent);
  try {
    for (const Window& w : ConvolutionWindows(attrs, data)) output = output.Insert(output.rank(), w.output);
  } catch (const ShapeError&) {  // no window fits
    return std::nullopt;
  }

  OperatorCase c{.name = fmt::format("{}: {}, {} filters of {}, groups {}, stride {}, pad {}, dilate {}", seed, data,
                                     attrs.num_filter, weight, attrs.groups, fmt::join(attrs.stride, " "),
                                     fmt::join(attrs.pad, " "), fmt::join(attrs.dilate, " ")),
                 .symbol = Convolution(Variable("x"), attrs, "conv"),
                 .inputs = {{"x", Uniform(data)}, {"conv_weight", Uniform(weight, -0.5, 0.5)}},
                 .batch_axes = {{"x", 0}},
                 // The longest sum is a gradient's: over all outputs, or over windows and filters.
                 .terms = static_cast<double>(weight.Elements() + output.Elements() / attrs.num_filter),
                 .tolerance = 2,
                 .magnitude = 1,
                 .large = true};
  if (!attrs.no_bias) c.inputs["conv_bias"] = Uniform({attrs.num_filter}, 1, 2);
  if (!dice.Percent(20)) return c;
  std::vector<Symbol> inputs = {Variable("x"), Variable("conv_weight")};
  if (!attrs.no_bias) inputs.push_back(Variable("conv_bias"));
  inputs.push_back(Variable("addend"));
  c.symbol = Apply(ConvolutionAddOp(), attrs, inputs, "conv");
  c.inputs["addend"] = Uniform(output);
  c.wrt.emplace();
  c.test_dtypes = {DType::kFloat32};
  return c;
}

class RandomConvolutions : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomConvolutions, AreAsTheReferenceHasThem) {
  constexpr uint32_t kCases = 100;
  int checked = 0;
  for (uint32_t seed = GetParam() * kCases; seed < (GetParam() + 1) * kCases; ++seed) {
    if (const std::optional<OperatorCase> drawn = Draw(seed)) {
      CheckOperator(*drawn);
      ++checked;
    }
  }
  EXPECT_GT(checked, 60);
}

INSTANTIATE_TEST_SUITE_P(Hundreds, RandomConvolutions, testing::Range(0u, 4u));

}  // namespace
}  // namespace bindery
