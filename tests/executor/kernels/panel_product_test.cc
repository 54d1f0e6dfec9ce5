// Products with weights in panels, by themselves.
#include "executor/kernels/cpu/panel_product.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "symbol/ops/fully_connected.h"
#include "tests/executor/kernels/run_kernel.h"

namespace bindery {
namespace {

using cpu::MultiplyPanels, cpu::PanelProduct;

KernelSpec SpecOf(const PanelProduct& p, int threads) {
  KernelSpec spec{.op = &FullyConnectedOp(),
                  .attrs = FullyConnectedAttrs{.num_hidden = p.n, .no_bias = p.bias < 0, .activation = p.activation},
                  .inputs = {FloatOf({p.m, p.k}), FloatOf({p.n, p.k})},
                  .outputs = {FloatOf({p.m, p.n})},
                  .input_formats = {Format::Plain(), Format::Plain()},
                  .input_is_open = {false, false},
                  .output_wishes = {std::nullopt},
                  .output_used = {true},
                  .threads = threads};
  if (p.bias < 0) return spec;
  spec.inputs.push_back(FloatOf({p.n}));
  spec.input_formats.push_back(Format::Plain());
  spec.input_is_open.push_back(false);
  return spec;
}

std::vector<float> Multiply(const PanelProduct& p, int threads) {
  const KernelSpec spec = SpecOf(p, threads);
  return RunOnNoise(*MultiplyPanels(spec, p), spec);
}

// More rows and a greater depth than stay in the caches, and whole and broken panels, of few columns for all threads.
const std::vector<PanelProduct>& Products() {
  static const std::vector<PanelProduct> kProducts = {
      {64, 10, 784, 2},  {7, 33, 300, 2, ActivationType::kRelu},  {200, 48, 513}, {400, 100, 256, 2}, {2, 16, 8},
      {13, 5, 700},      {61, 1, 1, 2, ActivationType::kTanh},    {1, 70, 90, 2}, {193, 31, 257, 2},  {96, 640, 40},
      {390, 4, 1030, 2}, {35, 130, 520, 2, ActivationType::kRelu}};
  return kProducts;
}

TEST(PanelProduct, MultipliesAsTheReferenceWithAnyNumberOfThreads) {
  for (const PanelProduct& p : Products()) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", p.m, p.n, p.k));
    const KernelSpec spec = SpecOf(p, 1);
    const std::vector<float> expected = RunOnNoise(MakeKernel(spec, KernelPolicy::kReference), spec);
    const std::vector<float> actual = Multiply(p, 1);
    float most = 1;
    for (const float y : expected) most = std::max(most, std::abs(y));
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-6F * most) << "element " << i;
    for (const int threads : {2, 3, 5}) EXPECT_EQ(Multiply(p, threads), actual) << threads << " threads";
  }
}

// A sample's result does not depend on those beside it.
TEST(PanelProduct, ComputesARowAlikeAmongAnyNumber) {
  for (PanelProduct p : Products()) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", p.m, p.n, p.k));
    const std::vector<float> all = Multiply(p, 2);
    for (const int64_t rows : {100, 5, 1}) {
      p.m = std::min(p.m, rows);
      const std::vector<float> some = Multiply(p, 2);
      EXPECT_TRUE(std::ranges::equal(some, std::vector<float>(all.begin(), all.begin() + std::ssize(some))));
    }
  }
}

TEST(PanelProduct, DeclinesOtherTypes) {
  const PanelProduct p{.m = 4, .n = 5, .k = 6};
  KernelSpec spec = SpecOf(p, 1);
  EXPECT_EQ(MultiplyPanels(spec, p)->input_formats[1], cpu::PanelFormat());
  for (ValueType* value : {&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]}) value->dtype = DType::kFloat64;
  EXPECT_FALSE(MultiplyPanels(spec, p));
}

}  // namespace
}  // namespace bindery
