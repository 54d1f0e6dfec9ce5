// The kernels of updates on GPUs, over the fake of the driver: which there are, and how often they are launched.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/backend.h"
#include "engine/kernels/update.h"
#include "engine/tensor.h"
#include "tests/engine/cuda/fake/fake.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

TEST(CudaUpdateTest, HasTheBuiltInRules) {
  const FlatKernels& flat = Backend::Of(DeviceKind::kCuda).flat();
  const MeasureKernel users = [](DType, const UpdateArgs&, const UpdateArrays&) { return UpdateSquares(); };
  for (const UpdateRule& rule : UpdateRules()) {
    EXPECT_TRUE(flat.HasUpdate(rule.kernel, rule.measure)) << rule.name;
    EXPECT_TRUE(!rule.without_first || flat.HasUpdate(rule.without_first)) << rule.name;
    EXPECT_FALSE(flat.HasUpdate(rule.kernel, users)) << rule.name;
  }
  EXPECT_FALSE(flat.HasUpdate([](DType, const UpdateArgs&, const UpdateArrays&) {}));  // a user's
}

TEST(CudaUpdateTest, ManyArraysAreFewLaunches) {
  constexpr int64_t kArrays = 24, kElements = 1000, kMeasured = 3 * kArrays;  // sums, and what is measured
  const std::shared_ptr<Engine> engine = MakeInlineEngine();
  const Tensor memory(engine, Cuda(0), DType::kFloat64, {kMeasured + 2 * kArrays * kElements});
  double* const at = static_cast<double*>(memory.address());
  const UpdateRule& lars = *std::ranges::find(UpdateRules(), "lars", &UpdateRule::name);
  const double settings[] = {0.9, 0.001, 0};
  std::vector<PlacedElements> arrays;
  std::vector<DeviceUpdate> updates;
  for (int64_t a = 0; a < kArrays; ++a) {
    double* const array = at + kMeasured + 2 * a * kElements;
    arrays.push_back({array, kElements, a, 0});
    updates.push_back({.kernel = lars.kernel,
                       .measure = lars.measure,
                       .dtype = DType::kFloat64,
                       .args = {.settings = settings},
                       .gradient = array,
                       .weight = array + kElements,
                       .new_weight = array + kElements,
                       .num_states = 1,
                       .elements = kElements,
                       .measured = reinterpret_cast<UpdateSquares*>(at) + a});
    for (auto& slot : updates.back().states) slot[0] = array;
  }
  const Tensor rates(engine, Cuda(0), DType::kUInt8, {sizeof(StepRates)});
  const Tensor tally(engine, Cuda(0), DType::kUInt8, {sizeof(StepTally)});
  auto* const status = &static_cast<StepTally*>(tally.address())->status;
  const StepStatus* const statuses[] = {status};
  const auto* const now = static_cast<const StepRates*>(rates.address());
  const int64_t* const committed = &static_cast<StepTally*>(tally.address())->committed;
  const auto launches = [&](const std::function<void(const FlatKernels&, Stream&)>& work) {
    const int64_t before = fake::KernelLaunches();
    engine->Push(
        {.name = "work",
         .device = Cuda(0),
         .updates = {memory.var(), rates.var(), tally.var()},
         .run = [&](const OpContext& context) { work(Backend::Of(DeviceKind::kCuda).flat(), context.stream); }});
    engine->WaitAll();
    return fake::KernelLaunches() - before;
  };
  EXPECT_EQ(launches([&](auto& flat, Stream& s) { flat.CheckFinite(s, DType::kFloat64, arrays, status); }), 2);
  EXPECT_EQ(launches([&](auto& flat, Stream& s) { flat.SumOfSquares(s, DType::kFloat64, arrays, at); }), 2);
  EXPECT_EQ(launches([&](auto& flat, Stream& s) { flat.Measure(s, updates, now, committed); }), 2);
  EXPECT_EQ(launches([&](auto& flat, Stream& s) { flat.Update(s, updates, now, committed, statuses); }), 1);
}

}  // namespace
}  // namespace bindery
