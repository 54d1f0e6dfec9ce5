// A warm training step asks a GPU's driver for no memory and does not wait for the GPU: over the fake.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda/nccl_api.h"
#include "engine/cuda/report.h"
#include "engine/memory/storage.h"
#include "engine/sim/sim.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/nccl.h"
#include "tests/host_tensors.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

constexpr int kWarm = 20, kSteps = 20;

// Of a trainer's steps once they are warm, together.
CudaCounts OfWarmStepsOnce(const std::vector<Device>& devices, TrainerOptions options) {
  Symbol x = Convolution(Variable("data"), {.num_filter = 2, .kernel = {3, 3}}, "conv");
  x = Flatten(Relu(BatchNorm(x, {.fix_gamma = false}, "norm")));
  x = FullyConnected(Dropout(x, {.p = 0.5}, "dropout"), {.num_hidden = 3}, "fc");
  constexpr int64_t kSamples = 6 * (kWarm + kSteps);
  ArrayIter batches(Filled({kSamples, 1, 4, 4}, [](int64_t i) { return static_cast<double>(i * 7 % 11) / 8; }),
                    ClassesInTurn(kSamples, 3), {.batch_size = 6});
  options.devices = devices;
  options.engine = MakeThreadedEngine();
  Trainer trainer(SoftmaxOutput(x, {}, "softmax"), options);
  CudaCounts warm, of_steps;
  trainer.Fit(batches, {.epochs = 1, .on_batch = [&](const BatchReport& report) {
                          if (report.step == kWarm) warm = CountCuda();
                          if (report.step == kWarm + kSteps - 2)
                            of_steps = CountCuda() - warm;  // none of what ends a run
                        }});
  return of_steps;
}

// Which of few pieces of staging memory a step takes depends on how soon an earlier step's is let go. On a machine that is
// busy with something else the last of them may come into use after the warm steps, and is then allocated and captured
// once: only what happens each time counts.
CudaCounts OfWarmSteps(const std::vector<Device>& devices, const TrainerOptions& options) {
  CudaCounts counts;
  for (int attempt = 0; attempt < 4; ++attempt) {
    counts = OfWarmStepsOnce(devices, options);
    if (counts.captures == 0 && counts.allocations == 0) break;
  }
  return counts;
}

// One operation of the host hears what became of a step, and one merges its metric: of each GPU.
TEST(GpuCounts, AWarmStep) {
  for (const std::vector<Device>& devices :
       std::vector<std::vector<Device>>{{Cuda(0)}, {Cuda(0), Cuda(1)}, {Cuda(0), Cpu(0)}}) {
    for (const TrainerOptions& options : std::vector<TrainerOptions>{
             {.optimizer = "sgd(lr=0.01, momentum=0.9)"},
             {.optimizer = "adam(lr=0.01, clip_norm=1)", .loss_scale = "dynamic(start=64)", .average = "ema(0.9)"},
             {.optimizer = "sgd(lr=0.01)", .precision = "bfloat16"}}) {
      for (const bool by_nccl : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} devices, NCCL {}", options.optimizer, devices.size(), by_nccl));
        cuda::UseNccl(by_nccl ? fake::Nccl() : nullptr);
        sim::SetDelays(1, 50);
        const CudaCounts counts = OfWarmSteps(devices, options);
        EXPECT_EQ(counts.allocations, 0);
        EXPECT_EQ(counts.synchronizations, 0);
        if (devices.back().kind == DeviceKind::kCuda) {  // a CPU waits for what it is to sum
          EXPECT_LE(counts.waits, 2 * kSteps * static_cast<int64_t>(devices.size()));
        }
        EXPECT_EQ(counts.waits_of_callers, 0);
        // Graphs are made of what came twice, and launched from then on: of the batch's copies, and of the step. (Of
        // several devices it depends on when each comes to wait for others what is joined.)
        if (devices.size() == 1) {
          EXPECT_EQ(counts.captures, 0);
          EXPECT_LE(counts.graph_launches, 2 * kSteps);
          EXPECT_GE(counts.graph_launches, kSteps - 2);
        }
      }
    }
  }
  cuda::UseNccl(fake::Nccl());
  sim::Reset();
}

TEST(GpuCounts, Count) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  const Tensor first(engine, Cuda(0), DType::kFloat32, {1});  // with the streams
  DefaultStorage()->ReleasePool();
  CudaCounts before = CountCuda();
  const Tensor tensor(engine, Cuda(0), DType::kFloat32, {100'000});
  EXPECT_EQ((CountCuda() - before).allocations, 1);
  EXPECT_EQ((CountCuda() - before).synchronizations, 1);
  tensor.Wait();
  const auto while_it_works = [&](const std::function<void()>& wait) {
    before = CountCuda();
    fake::HangKernel(0, 1);
    tensor.Fill(1);
    std::thread release([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      fake::Release(0);
    });
    wait();
    release.join();
    return CountCuda() - before;
  };
  const CudaCounts by_caller = while_it_works([&] { tensor.Wait(); });
  EXPECT_EQ(by_caller.waits_of_callers, 1);
  EXPECT_EQ(by_caller.waits, 0);
  const CudaCounts by_operation = while_it_works([&] {
    const VarPtr read = engine->NewVar();
    engine->Push(
        {.name = "read", .device = Cpu(), .reads = {tensor.var()}, .writes = {read}, .run = [](const OpContext&) {}});
    engine->Wait(read);
  });
  EXPECT_EQ(by_operation.waits_of_callers, 0);
  EXPECT_EQ(by_operation.waits, 1);
  const std::shared_ptr<Chunk> pinned = DefaultStorage()->AllocateStaging(Cuda(0), 100'000);
  EXPECT_EQ((CountCuda() - before).allocations, 1);
}

}  // namespace
}  // namespace bindery
