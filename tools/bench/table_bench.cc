#include "tools/bench/table_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/philox.h"
#include "symbol/ops.h"
#include "tools/bench/allocations.h"
#include "train/updater/updater.h"

namespace bindery::bench {
namespace {

using Clock = std::chrono::steady_clock;

BatchPtr DrawBatch(const TableBenchOptions& o) {
  auto batch = std::make_shared<Batch>();
  PhiloxStream random(1, "table");
  HostTensor& indices = batch->data.emplace_back(DType::kInt64, Shape{o.indices});
  std::span<int64_t> drawn = indices.data<int64_t>();
  for (size_t i = 0; i < drawn.size(); ++i) {
    drawn[i] = i % 10 == 9 ? drawn[i - 9] : static_cast<int64_t>(random.Below(static_cast<uint64_t>(o.rows)));
  }
  HostTensor& target = batch->label.emplace_back(DType::kFloat32, Shape{o.indices, o.width});
  for (float& v : target.data<float>()) v = random.Uniform(-1, 1);
  batch->samples = o.indices;
  return batch;
}

}  // namespace

TableBenchResult RunTableBench(const TableBenchOptions& o, bool by_rows) {
  const Symbol found =
      Embedding(Variable("data"), {.input_dim = o.rows, .output_dim = o.width, .sparse_grad = by_rows}, "table");
  DataParallelExecutorGroup group(LinearRegressionOutput(found, Variable("label"), {}, "out"),
                                  {.devices = o.devices,
                                   .data = {{.name = "data", .shape = {o.indices}, .dtype = DType::kInt64}},
                                   .labels = {{.name = "label", .shape = {o.indices, o.width}}},
                                   .sparse_gradients = by_rows,
                                   .threads_per_device = o.threads});
  Updater updater(&group, {.optimizer = std::shared_ptr<const Optimizer>(MakeOptimizer(o.optimizer))});
  const BatchPtr batch = DrawBatch(o);
  const auto step = [&] {
    updater.Update(batch);
    updater.WaitFor(updater.step());
  };
  for (int i = 0; i < o.warmup; ++i) step();
  std::vector<double> times;
  times.reserve(static_cast<size_t>(o.steps));
  const int64_t before = CountAllocations().ours;
  SetCounting(true);
  for (int i = 0; i < o.steps; ++i) {
    const Clock::time_point start = Clock::now();
    step();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  SetCounting(false);
  const int64_t allocations = CountAllocations().ours - before;
  std::ranges::sort(times);
  return {.min_ms = times[0],
          .median_ms = times[times.size() / 2],
          .allocations_ours = static_cast<double>(allocations) / o.steps};
}

}  // namespace bindery::bench
