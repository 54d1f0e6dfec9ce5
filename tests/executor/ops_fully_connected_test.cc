#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "symbol/ops.h"
#include "symbol/ops/fully_connected.h"
#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

TEST(Operators, FullyConnected) { CheckOperators(FullyConnectedCases()); }

constexpr int64_t kRows = 21, kOutputs = 37, kInputs = 301;
const Shape kWeight = {kOutputs, kInputs};

KernelSpec Predicting(int threads, bool is_open = true) {
  KernelSpec spec{
      .op = &FullyConnectedOp(),
      .attrs = FullyConnectedAttrs{.num_hidden = kOutputs, .activation = ActivationType::kRelu},
      .node_name = "node",
      .inputs = {{.shape = {kRows, kInputs}}, {.shape = kWeight}, {.shape = {kOutputs}}},
      .outputs = {{.shape = {kRows, kOutputs}}},
      .input_is_open = {false, is_open, false},
      .output_wishes = {std::nullopt},
      .output_used = {true},
      .mode = Mode::kPredict,
      .threads = threads,
  };
  spec.input_formats.resize(spec.inputs.size());
  return spec;
}

Format Panels() {
  Format format{.kind = Format::Kind::kStrided, .order = {0, 1}, .rank = 2, .num_blocks = 1};
  format.block_size[0] = static_cast<int16_t>(2 * cpu::BestLoops().lanes);
  return format;
}

std::vector<float> Compute(const KernelSpec& spec, KernelPolicy policy, std::vector<std::vector<float>> plain) {
  const Kernel kernel = MakeKernel(spec, policy);
  const Format& format = kernel.input_formats[1];
  std::vector<float> weight(static_cast<size_t>(StorageElements(format, kWeight)));
  for (int64_t i = 0; i < kWeight.Elements(); ++i) {
    const int64_t index[] = {i / kInputs, i % kInputs};
    weight[format.is_plain() ? i : ElementOffset(format, kWeight, index)] = plain[1][i];
  }
  std::vector<float> y(kRows * kOutputs, -7.0f), scratch(static_cast<size_t>(kernel.scratch_bytes) / sizeof(float) + 1);
  void* const inputs[] = {plain[0].data(), weight.data(), plain[2].data()};
  void* const output = y.data();
  const StepBlock step;
  const TeamScope team(kernel.threads);
  kernel.bind({.inputs = inputs, .outputs = {&output, 1}, .scratch = scratch.data(), .step = &step})();
  return y;
}

// Few weights that predictions may store as they like lie in panels, where that was measured to be faster; weights that
// lie so are taken, whatever they are for.
TEST(WeightsInPanels, AreForPredictions) {
  KernelSpec spec = Predicting(1);
  const bool is_measured = cpu::BestLoops().lanes == 8;
  EXPECT_EQ(MakeKernel(spec, KernelPolicy::kFast).implementation == "panels", is_measured);
  EXPECT_EQ(MakeKernel(spec, KernelPolicy::kFast).input_formats[1] == Panels(), is_measured);
  spec.mode = Mode::kTrain;
  EXPECT_NE(MakeKernel(spec, KernelPolicy::kFast).implementation, "panels");
  spec.input_is_open[1] = false;
  EXPECT_NE(MakeKernel(spec, KernelPolicy::kFast).implementation, "panels");
  spec.input_formats[1] = Panels();
  EXPECT_EQ(MakeKernel(spec, KernelPolicy::kFast).implementation, "panels");
}

// The same bits with any number of threads, what is not finite passed on as the reference does.
TEST(WeightsInPanels, GiveWhatTheReferenceGives) {
  std::vector<std::vector<float>> inputs;
  for (const ValueType& input : Predicting(1).inputs) {
    std::vector<float>& values = inputs.emplace_back(static_cast<size_t>(input.shape.Elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37f * static_cast<float>(i * i % 1013));
  }
  for (const bool is_finite : {true, false}) {
    if (!is_finite) {
      inputs[0][5] = NAN;
      inputs[0][2 * kInputs + 290] = INFINITY;
      inputs[1][290] = 0;
      inputs[1][8 * kInputs] = -INFINITY;
      inputs[2][kOutputs - 1] = NAN;
    }
    const std::vector<float> wanted = Compute(Predicting(1, false), KernelPolicy::kReference, inputs);
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 5}) {
      KernelSpec spec = Predicting(threads, false);
      spec.input_formats[1] = Panels();
      const std::vector<float> got = Compute(spec, KernelPolicy::kFast, inputs);
      if (threads == 1) first = got;
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(std::isnan(got[i]), std::isnan(wanted[i])) << i;
        if (std::isnan(wanted[i])) continue;
        ASSERT_EQ(got[i], first[i]) << threads << " threads: " << i;
        if (std::isinf(wanted[i])) {
          ASSERT_EQ(got[i], wanted[i]) << i;
        } else {
          ASSERT_NEAR(got[i], wanted[i], 1e-4) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery
