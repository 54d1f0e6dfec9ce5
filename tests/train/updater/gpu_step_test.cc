// A training step on GPUs, over the fake of their driver: how many launches it is, and that graphs change nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda/nccl_api.h"
#include "engine/cuda/recording.h"
#include "engine/sim/sim.h"
#include "kvstore/kvstore.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/nccl.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/metrics/metrics.h"
#include "train/metrics/step_measurement.h"
#include "train/metrics/training_metric.h"
#include "train/trainer.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

struct Outcome {
  std::vector<HostTensor> tensors;
  std::vector<int64_t> launches;  // of each step
  std::vector<double> metric;
};

constexpr int kSteps = 14;

HostTensor Of(Shape shape, double first) {
  return Filled(shape, [=](int64_t i) { return first + static_cast<double>(i * 7 % 11) / 8; });
}

// A normalisation that keeps states, dropout, and a loss scale that grows; the learning rate is another in each step,
// and in the middle batches are of another size.
Outcome Train(bool graphs, const std::vector<Device>& devices, bool measures = false,
              const std::string& optimizer = "adam(lr=0.1)", const std::string& average = "") {
  cuda::UseGraphs(graphs);
  Symbol x =
      Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 7}, "hidden"), {.fix_gamma = false}, "norm"));
  x = FullyConnected(Dropout(x, {.p = 0.5}, "dropout"), {.num_hidden = 5}, "last");
  const Symbol network = ScaleLosses(SoftmaxOutput(x, Variable("label"), {}, "softmax"));
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  DataParallelExecutorGroup group(
      network, {.devices = devices, .data = {{"data", {6, 4}}}, .labels = {{"label", {6}}}, .engine = engine});
  HostTensorMap params, aux;
  for (const StoredParameter& p : group.store().parameters()) (p.auxiliary ? aux : params)[p.name] = Of(p.shape, 0.25);
  group.SetParams(params, aux);
  Updater updater(&group, {.optimizer = MakeOptimizer(optimizer),
                           .schedule = ParseSchedule("factor(step=1, factor=0.9)", 0.1),
                           .loss_scale = ParseLossScaling("dynamic(start=8, interval=3)"),
                           .average = ParseAveraging(average)});
  TrainingMetric metric(MakeMetric("accuracy,cross-entropy"), network);
  StepMeasurement measurements[Updater::kInFlight];
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    sim::SetDelays(static_cast<uint64_t>(step), 50);
    const int64_t samples = step >= 6 && step < 10 ? 4 : 6;
    const Batch batch{.data = {Of({samples, 4}, step)},
                      .label = {Filled({samples}, [=](int64_t i) { return (i + step) % 5; })},
                      .samples = samples};
    const int64_t before = fake::GraphLaunches();
    const auto given = std::make_shared<const Batch>(batch);
    if (measures) {
      StepMeasurement& measurement = measurements[step % Updater::kInFlight];
      measurement.Begin();
      const Joining together = updater.Together();
      updater.Apply(updater.Compute({&given, 1}, [&](size_t) { updater.Measure(metric, &measurement); }));
    } else {
      updater.Update(given);
    }
    EXPECT_TRUE(updater.Finish(updater.step()));
    if (measures) measurements[step % Updater::kInFlight].MergeInto(&metric);
    engine->WaitAll();
    outcome.launches.push_back(fake::GraphLaunches() - before);
    outcome.tensors.push_back(group.Outputs()[0].ToHost());
  }
  HostTensorMap after_params, after_aux;
  group.GetParams(&after_params, &after_aux);
  for (const auto& map : {after_params, after_aux, updater.State()}) {
    for (const auto& [name, tensor] : map) outcome.tensors.push_back(tensor);
  }
  for (const double value : metric.total()) outcome.metric.push_back(value);
  sim::Reset();
  cuda::UseGraphs(true);
  for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
  return outcome;
}

// Which of few pieces of staging memory a step takes, and so whether its commands have come before, depends on how soon
// an earlier step's is let go: on a busy machine that may be late. So the launches must be as expected in one of a few
// trainings, and the values in all of them.
void ExpectGraphs(const Outcome& one_by_one, const std::function<Outcome()>& train_by_graphs,
                  const std::function<std::string(const std::vector<int64_t>& launches)>& problem_of) {
  EXPECT_EQ(one_by_one.launches, std::vector<int64_t>(kSteps, 0));
  std::string problem = "none was tried";
  for (int attempt = 0; attempt < 4 && !problem.empty(); ++attempt) {
    const Outcome graphs = train_by_graphs();
    EXPECT_EQ(one_by_one.tensors, graphs.tensors);
    EXPECT_EQ(one_by_one.metric, graphs.metric);
    problem = problem_of(graphs.launches);
  }
  EXPECT_EQ(problem, "");
}

// Empty, or which of the steps has another number of launches.
std::string NotSo(const std::vector<int64_t>& launches, const std::vector<size_t>& steps, int64_t expected) {
  for (const size_t step : steps) {
    if (launches[step] != expected) return fmt::format("step {} has {} launches", step, launches[step]);
  }
  return {};
}

const std::vector<size_t> kLaunched = {2, 3, 4, 5, 8, 9};  // steps of a shape that came twice before

// Norms and averages are the GPU's, too: as on CPUs, but for rounding.
TEST(GpuStepTest, ByNorms) {
  for (const char* optimizer : {"sgd(lr=0.1, momentum=0.9, clip_norm=0.05)", "lars(lr=0.1, eta=0.5, wd=0.01)",
                                "lamb(lr=0.01, wd=0.01, clip_norm=0.05)"}) {
    SCOPED_TRACE(optimizer);
    const auto train = [&](bool graphs, Device device) {
      return Train(graphs, {device}, false, optimizer, "ema(0.9)");
    };
    const Outcome one_by_one = train(false, Cuda(0)), on_cpu = train(true, Cpu());
    ExpectGraphs(
        one_by_one, [&] { return train(true, Cuda(0)); },
        [](const std::vector<int64_t>& launches) { return NotSo(launches, kLaunched, 1); });
    // Outputs of all steps: the gradient of what a normalisation takes away again is all rounding.
    for (size_t i = 0; i < kSteps; ++i) EXPECT_LT(MaxAbsDiff(one_by_one.tensors[i], on_cpu.tensors[i]), 1e-4) << i;
  }
}

TEST(GpuStepTest, OneGpu) {
  std::vector<HostTensor> without;
  for (const bool measures : {false, true}) {
    const Outcome one_by_one = Train(false, {Cuda(0)}, measures);
    ExpectGraphs(
        one_by_one, [&] { return Train(true, {Cuda(0)}, measures); },
        [](const std::vector<int64_t>& launches) {
          // All of it; and where the three pieces of staging memory have met both landing places, the batch's copies.
          const std::string problem = NotSo(launches, kLaunched, 1);
          return problem.empty() ? NotSo(launches, {10, 11, 12, 13}, 2) : problem;
        });
    if (measures) {
      EXPECT_EQ(without, one_by_one.tensors);
    }
    without = one_by_one.tensors;
  }
}

// Parts of the step are launched as graphs, and give the same.
void ExpectGraphsGiveTheSame(const std::vector<Device>& devices) {
  ExpectGraphs(
      Train(false, devices), [&] { return Train(true, devices); },
      [](const std::vector<int64_t>& launches) -> std::string {
        for (const size_t step : {4, 5, 9, 12, 13}) {
          if (launches[step] == 0) return fmt::format("step {} has no launch", step);
        }
        return {};
      });
}

TEST(GpuStepTest, OneGpuAndACpu) { ExpectGraphsGiveTheSame({Cuda(0), Cpu()}); }
TEST(GpuStepTest, TwoGpus) { ExpectGraphsGiveTheSame({Cuda(0), Cuda(1)}); }

// What GPUs exchange comes by NCCL or by copies, to the same bits.
TEST(GpuStepTest, ByNcclOrByCopies) {
  for (const std::vector<Device>& devices : std::vector<std::vector<Device>>{
           {Cuda(0), Cuda(1)}, {Cuda(2), Cuda(0), Cuda(1)}, {Cuda(1), Cpu(), Cuda(0)}, {Cuda(0), Cuda(1), Cuda(0)}}) {
    const int64_t before = fake::CountNccl().groups;
    const Outcome by_nccl = Train(true, devices);
    const int64_t groups = fake::CountNccl().groups;
    EXPECT_GE(groups - before, 14);
    cuda::UseNccl(nullptr);
    EXPECT_EQ(Train(true, devices).tensors, by_nccl.tensors);
    EXPECT_EQ(fake::CountNccl().groups, groups);
    cuda::UseNccl(fake::Nccl());
  }
}

// The same of what a store sums, and gives to all.
TEST(GpuStepTest, StoresByNcclOrByCopies) {
  const auto push_and_pull = [](const std::vector<Device>& devices) {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    const std::unique_ptr<KVStore> store = KVStore::Create(KVStoreType::kDevice, engine);
    std::vector<Tensor> values, out;
    for (size_t d = 0; d < devices.size(); ++d) {
      values.emplace_back(engine, devices[d], DType::kFloat32, Shape{30})
          .CopyFrom(Of({30}, 0.1 * static_cast<double>(d)));
      out.emplace_back(engine, devices[d], DType::kFloat32, Shape{30});
    }
    store->Init(int64_t{1}, values[0]);
    std::vector<HostTensor> results;
    for (int round = 0; round < 3; ++round) {
      store->PushPull(int64_t{1}, values, out);
      for (const Tensor& tensor : out) results.push_back(tensor.ToHost());
      values[0].CopyFrom(out[0]);
    }
    return results;
  };
  for (const std::vector<Device>& devices :
       std::vector<std::vector<Device>>{{Cuda(0), Cuda(1)}, {Cuda(1), Cuda(0), Cuda(2)}, {Cuda(1), Cpu(), Cuda(0)}}) {
    const int64_t before = fake::CountNccl().groups;
    const std::vector<HostTensor> by_nccl = push_and_pull(devices);
    EXPECT_GE(fake::CountNccl().groups - before, 3);
    cuda::UseNccl(nullptr);
    EXPECT_EQ(push_and_pull(devices), by_nccl);
    cuda::UseNccl(fake::Nccl());
  }
}

// What hangs or fails of a store's names the key, and the store goes on.
TEST(GpuStepTest, AStoreNamesTheKeyThatNcclFailed) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine({.hang_milliseconds = 500});
  const std::unique_ptr<KVStore> store = KVStore::Create(KVStoreType::kDevice, engine);
  std::vector<Tensor> values, out;
  for (const Device& device : {Cuda(0), Cuda(1)}) {
    values.emplace_back(engine, device, DType::kFloat32, Shape{30}).CopyFrom(Of({30}, 0.5));
    out.emplace_back(engine, device, DType::kFloat32, Shape{30});
  }
  for (const int64_t key : {2, 3}) store->Init(key, values[0]);
  const auto push_and_pull = [&] {
    for (const int64_t key : {2, 3}) store->PushPull(key, values, out);
    return out[1].ToHost();
  };
  const HostTensor expected = push_and_pull();
  for (const auto& [fault, said] : {std::pair(fake::NcclFault::kHangs, "push key 3 by NCCL\" hung for "),
                                    std::pair(fake::NcclFault::kEndsAndFails, "remote process exited")}) {
    fake::BreakNccl(fault, /*skipped=*/1);
    const std::string message = MessageOf<DeviceError>([&] { push_and_pull(); });
    EXPECT_NE(message.find("operation \"push key 3 by NCCL\" failed: NCCL on cuda:0, cuda:1: "), std::string::npos)
        << message;
    EXPECT_NE(message.find(said), std::string::npos) << message;
    engine->Recover();
    EXPECT_EQ(push_and_pull(), expected);
  }
}

// The parameters of a step whose exchange fails are those of the step before, or known to be lost: where the commit was
// enqueued behind it, it ran, on whatever was in place of the new ones.
TEST(GpuStepTest, AFailureOfNccl) {
  const Symbol network = MakeLoss(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "loss");
  for (int skipped = 0; skipped < 3; ++skipped) {  // sums of gradients, statuses, new parameters
    for (const bool behind : {false, true}) {
      const std::shared_ptr<Engine> engine = MakeThreadedEngine();
      DataParallelExecutorGroup group(network,
                                      {.devices = {Cuda(0), Cuda(1)}, .data = {{"data", {4, 2}}}, .engine = engine});
      group.SetParams({{"fc_weight", Of({3, 2}, 0.5)}, {"fc_bias", Of({3}, 0)}}, {});
      Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
      const auto batch = std::make_shared<const Batch>(Batch{.data = {Of({4, 2}, 1)}, .samples = 4});
      const auto parameters = [&] {
        HostTensorMap params, aux;
        group.GetParams(&params, &aux);
        return params;
      };
      updater.Update(batch);
      updater.WaitFor(1);
      engine->WaitAll();
      const HostTensorMap before = parameters();
      if (behind) fake::HangKernel(0, 1);
      fake::BreakNccl(behind ? fake::NcclFault::kFails : fake::NcclFault::kEndsAndFails, skipped);
      updater.Update(batch);
      if (behind) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the workers have enqueued all of it
        fake::Release(0);
      }
      const std::string message = MessageOf<DeviceError>([&] {
        updater.WaitFor(2);
        engine->WaitAll();
      });
      EXPECT_NE(message.find(" by NCCL\" failed: NCCL on cuda:0, cuda:1: remote process exited"), std::string::npos)
          << message;
      bool lost = false;
      try {
        EXPECT_EQ(parameters(), before) << skipped;
      } catch (const DeviceError&) {
        lost = true;
      }
      // The commit itself was behind, and ran.
      EXPECT_TRUE(lost || !behind || skipped < 2);
    }
  }
}

// A trainer goes on after an exchange that hung: from the last step that was committed, or, where parameters are lost,
// from a checkpoint.
TEST(GpuStepTest, AHangOfNccl) {
  const Symbol network = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax");
  HostTensor labels(DType::kFloat32, {24});
  for (int64_t i = 0; i < 24; ++i) labels.Set(i, static_cast<double>(i % 3));
  struct Run {
    ArrayIter data;
    Trainer trainer;
    void Fit(const std::function<void(const BatchReport&)>& on_batch = {}) {
      trainer.Fit(data, {.epochs = 1, .on_batch = on_batch});
    }
  };
  const auto begin = [&](int limit) {
    return Run{ArrayIter(Of({24, 2}, 0.5), labels, {.batch_size = 4}),
               Trainer(network, {.devices = {Cuda(0), Cuda(1)},
                                 .optimizer = "sgd(lr=0.1, momentum=0.9)",
                                 .engine = MakeThreadedEngine({.hang_milliseconds = limit})})};
  };
  std::vector<HostTensorMap> good(1);  // after each step
  {
    Run run = begin(0);
    run.Fit([&](const BatchReport&) { good.push_back(run.trainer.ToModel().params); });
  }
  const std::regex named(
      "^DeviceError: operation \"(sum of gradients of fc_weight and 1 more|statuses|new parameters fc_weight and 1 "
      "more)"
      " by NCCL\" failed: NCCL on cuda:0, cuda:1: aborted, as operation \".* by NCCL\" hung for [0-9.]+ s, since 20");
  for (const int skipped : {0, 1, 2, 4}) {
    SCOPED_TRACE(skipped);
    Run run = begin(500);
    Checkpoint checkpoint;
    const std::string message = MessageOf<DeviceError>([&] {
      run.Fit([&](const BatchReport& report) {
        if (report.step != 2) return;
        checkpoint = run.trainer.ToCheckpoint(&run.data);
        fake::BreakNccl(fake::NcclFault::kHangs, skipped);
      });
    });
    EXPECT_TRUE(std::regex_search(message, named)) << message;
    try {
      EXPECT_EQ(run.trainer.ToModel().params, good[static_cast<size_t>(run.trainer.updater()->step())]);
      run.Fit();  // without the failed batch
    } catch (const DeviceError& error) {
      EXPECT_TRUE(std::regex_search(error.what(), named)) << error.what();
    }
    run.trainer.Restore(checkpoint, &run.data);
    run.Fit();
    EXPECT_EQ(run.trainer.ToModel().params, good.back());
  }
}

}  // namespace
}  // namespace bindery
