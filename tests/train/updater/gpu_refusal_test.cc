// A training step on GPUs, over the fake of their driver, whose data a kernel, a metric or somebody else refuses: it
// changes nothing, and neither does what was enqueued behind it.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda/recording.h"
#include "engine/sim/sim.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/metrics/metrics.h"
#include "train/metrics/step_measurement.h"
#include "train/metrics/training_metric.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

// Indices are computed in these networks: those that a batch brings, the host refuses before.
HostTensor Of(Shape shape, double first) {
  return Filled(shape, [=](int64_t i) { return first + static_cast<double>(i * 7 % 11) / 8; });
}

// What a kernel finds in a graph fails its own operation and what follows from it: parameters and states stay.
TEST(GpuRefusalTest, DataThatFailChangeNothing) {
  const Symbol words = Embedding(Abs(Variable("data")), {.input_dim = 5, .output_dim = 3}, "table");
  DataParallelExecutorGroup group(MakeLoss(FullyConnected(words, {.num_hidden = 2}, "fc"), {}, "loss"),
                                  {.devices = {Cuda(0)}, .data = {{"data", {4, 2}}}});
  group.SetParams({{"table_weight", Of({5, 3}, 0.5)}, {"fc_weight", Of({2, 6}, 0.5)}, {"fc_bias", Of({2}, 0)}}, {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)")});
  const auto update = [&](double word) {
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2}, word)}, .samples = 4};
    updater.Update(std::make_shared<const Batch>(batch));
  };
  const auto state = [&] {
    HostTensorMap params, aux;
    group.GetParams(&params, &aux);
    return std::pair(params, updater.State());
  };
  for (int step = 1; step <= 4; ++step) {
    update(step);
    updater.WaitFor(step);
  }
  const auto before = state();
  const int64_t launches = fake::GraphLaunches();
  update(6);
  EXPECT_NE(MessageOf<DataError>([&] { updater.WaitFor(5); }).find("\"table\": 6 is not in -5..4"), std::string::npos);
  EXPECT_GT(fake::GraphLaunches(), launches);
  EXPECT_EQ(state(), before);
}

// GPU 1 has no part in the update, and no gradient hears of an index that it refuses.
TEST(GpuRefusalTest, AGpuThatUpdatesNothingIsAsked) {
  const auto engine = MakeThreadedEngine();
  DataParallelExecutorGroup group(
      MakeLoss(Embedding(Abs(Variable("data")), {.input_dim = 5, .output_dim = 3}, "table"), {}, "loss"),
      {.devices = {Cuda(0), Cuda(1)}, .data = {{"data", {4, 2}}}, .engine = engine});
  group.SetParams({{"table_weight", Of({5, 3}, 0.5)}}, {});
  Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1, momentum=0.9)"), .kvstore = KVStoreType::kLocal});
  const auto update = [&](double last) {
    Batch batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2}, 1)}, .samples = 4};
    batch.data[0].Set(7, last);
    fake::HangKernel(1, 1);  // until all is enqueued
    updater.Update(std::make_shared<const Batch>(batch));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fake::Release(1);
  };
  const auto state = [&] {
    HostTensorMap params, aux;
    group.GetParams(&params, &aux);
    return std::pair(params, updater.State());
  };
  update(2);
  updater.WaitFor(1);
  const auto before = state();
  update(6);
  EXPECT_NE(MessageOf<DataError>([&] { updater.WaitFor(2); }).find("\"table\": 6 is not in -5..4"), std::string::npos);
  EXPECT_EQ(state(), before);
  updater.GoBack(2);
  update(2);
  updater.WaitFor(2);
  EXPECT_NE(state(), before);
}

// By hand: gradients that add up keep what one of their batches has refused, until they are applied or zeroed; what
// replaces them begins anew. The update may come before anything was loaded.
TEST(GpuRefusalTest, StepsByHand) {
  for (const GradReq request : {GradReq::kWrite, GradReq::kAdd}) {
    const auto engine = MakeThreadedEngine();
    DataParallelExecutorGroup group(
        MakeLoss(Embedding(Abs(Variable("data")), {.input_dim = 5, .output_dim = 3}, "table"), {}, "loss"),
        {.devices = {Cuda(0)}, .data = {{"data", {4, 2}}}, .grad_req = request, .engine = engine});
    group.SetParams({{"table_weight", Of({5, 3}, 0.5)}}, {});
    Updater updater(&group, {.optimizer = MakeOptimizer("sgd(lr=0.1)")});
    updater.Apply(4);
    updater.WaitFor(1);
    const auto batch_of = [](double word) {
      return std::make_shared<const Batch>(
          Batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2}, word)}, .samples = 4});
    };
    const auto run = [&](double word) { group.ForwardBackward(batch_of(word)); };
    updater.Update(batch_of(3));
    updater.WaitFor(2);
    if (request == GradReq::kAdd) group.ZeroGradients();
    const auto params = [&] {
      HostTensorMap values, aux;
      group.GetParams(&values, &aux);
      return values;
    };
    const HostTensorMap before = params();
    fake::HangKernel(0, 1);
    run(6);
    run(1);
    updater.Apply(4);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fake::Release(0);
    const std::string message = MessageOf<Error>([&] { updater.WaitFor(3); });
    if (request == GradReq::kAdd) {
      EXPECT_NE(message, "nothing was thrown");
      EXPECT_EQ(params(), before);
      updater.GoBack(3);
      group.ZeroGradients();
      run(1);
      updater.Apply(4);
      updater.WaitFor(3);
    }
    EXPECT_NE(params(), before);
    // What is predicted in between clears nothing away.
    const HostTensorMap then = params();
    fake::HangKernel(0, 1);
    const std::shared_ptr<const Batch> bad = batch_of(6);
    updater.Compute({&bad, 1}, {});
    group.Forward(batch_of(1), Mode::kPredict);
    updater.Apply(4);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fake::Release(0);
    EXPECT_NE(MessageOf<Error>([&] { updater.WaitFor(4); }), "nothing was thrown");
    EXPECT_EQ(params(), then);
  }
}

// How a step may fail that is enqueued with the one behind it, before either has begun.
struct Failure {
  std::string name;
  Symbol network;
  double good = 1, bad = 1;  // what all data are
  std::string message;       // of the bad ones
  bool by_gate = false;      // they are not bad, but somebody else says no
  std::string metric = {}, optimizer = "sgd(lr=0.1, momentum=0.9)";
};

std::vector<Failure> Failures() {
  const Symbol data = Variable("data"), w = Variable("w", {.shape = Shape{2}});
  const Symbol hidden = BatchNorm(FullyConnected(data, {.num_hidden = 3}, "fc"), {.fix_gamma = false}, "norm");
  const Symbol table = Embedding(Abs(data), {.input_dim = 5, .output_dim = 3}, "table");
  return {{.name = "gradient",
           .network = MakeLoss(hidden + Sum(data * w * 1e30), {.grad_scale = 1e5}, "loss"),
           .bad = 1e8,
           .message = "is not finite",
           .optimizer = "sgd(lr=1e-3, momentum=0.9, rescale=1e-9)"},
          {.name = "index",
           .network = MakeLoss(FullyConnected(table, {.num_hidden = 2}, "fc"), {}, "loss"),
           .bad = 6,
           .message = "6 is not in -5..4"},
          // No gradient hears of that: it is the number of times that a row was asked for.
          {.name = "index behind which nothing is trained",
           .network = MakeLoss(table, {}, "loss"),
           .bad = 6,
           .message = "6 is not in -5..4"},
          {.name = "output",
           .network = MakeLoss(hidden + BlockGrad(Sum(Exp(data))), {}, "loss"),
           .bad = 100,
           .message = "output \"loss_output\" is not finite",
           .metric = "loss"},
          {.name = "gate", .network = MakeLoss(hidden, {}, "loss"), .message = "not this one", .by_gate = true}};
}

// What has failed changes nothing, and neither does what was enqueued behind it, until it is forgiven: then all is as if
// neither had been.
TEST(GpuRefusalTest, NothingMovesBehindAStepThatFails) {
  struct State {
    HostTensorMap params, aux, optimizer;
    std::vector<double> metric;
    bool operator==(const State&) const = default;
  };
  const auto run = [](const Failure& failure, const Device& device, bool fails) {
    const std::shared_ptr<Engine> engine = MakeThreadedEngine();
    DataParallelExecutorGroup group(failure.network,
                                    {.devices = {device}, .data = {{"data", {4, 2}}}, .engine = engine});
    HostTensorMap params, aux;
    for (const StoredParameter& p : group.store().parameters()) (p.auxiliary ? aux : params)[p.name] = Of(p.shape, 0.5);
    if (params.contains("w")) params["w"] = HostTensor::Full(DType::kFloat32, {2}, 1e-30);
    group.SetParams(params, aux);
    Updater updater(&group, {.optimizer = MakeOptimizer(failure.optimizer)});
    std::unique_ptr<TrainingMetric> metric;
    if (!failure.metric.empty()) metric = std::make_unique<TrainingMetric>(MakeMetric(failure.metric), failure.network);
    StepMeasurement measurements[Updater::kInFlight];
    bool measures = metric != nullptr;
    const auto push = [&](double value, bool refused = false) {
      Batch batch{.data = {HostTensor::Full(DType::kFloat32, {4, 2}, value)}, .samples = 4};
      batch.data[0].Set(3, failure.good);
      const auto given = std::make_shared<const Batch>(std::move(batch));
      StepMeasurement& measurement = measurements[updater.step() % Updater::kInFlight];
      measurement.Begin();
      const Joining together = updater.Together();
      const int64_t samples = updater.Compute({&given, 1}, [&](size_t) {
        if (measures) updater.Measure(*metric, &measurement);
      });
      if (failure.by_gate) {
        engine->Push({.name = "gate", .device = Cpu(), .writes = {updater.gate()}, .run = [refused](const OpContext&) {
                        if (refused) throw DataError("not this one");
                      }});
      }
      updater.Apply(samples);
    };
    const auto settle = [&](int64_t step) {
      updater.WaitFor(step);
      if (measures) measurements[(step - 1) % Updater::kInFlight].MergeInto(metric.get());
    };
    const auto state = [&] {
      State now;
      group.GetParams(&now.params, &now.aux);
      now.optimizer = updater.State();
      if (metric) now.metric.assign(metric->total().begin(), metric->total().end());
      return now;
    };
    for (int64_t step = 1; step <= 6; ++step) {
      push(failure.good);
      settle(step);
    }
    if (fails) {
      const State before = state();
      if (device.kind == DeviceKind::kCuda) fake::HangKernel(device.index, 1);
      push(failure.bad, failure.by_gate);
      push(failure.good);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the workers have enqueued both
      if (device.kind == DeviceKind::kCuda) fake::Release(device.index);
      const std::string message = MessageOf<Error>([&] { updater.WaitFor(7); });
      EXPECT_NE(message.find(failure.message), std::string::npos) << message;
      EXPECT_EQ(MessageOf<Error>([&] { updater.WaitFor(8); }), message);
      EXPECT_EQ(state(), before);
      updater.GoBack(7);
      EXPECT_EQ(state(), before);
    }
    measures = false;  // no metric clears away what one has refused
    push(failure.good);
    settle(7);
    measures = metric != nullptr;
    for (int64_t step = 8; step <= 10; ++step) {
      push(failure.good);
      if (step > 8) settle(step - 1);
    }
    settle(10);
    State after = state();
    after.metric.push_back(static_cast<double>(updater.step()));
    return after;
  };
  for (const Failure& failure : Failures()) {
    for (const Device& device : {Cuda(0), Sim(0)}) {
      for (const bool graphs : {true, false}) {
        if (device.kind != DeviceKind::kCuda && !graphs) continue;
        SCOPED_TRACE(failure.name + " on " + ToString(device) + (graphs ? "" : ", one by one"));
        cuda::UseGraphs(graphs);
        sim::SetDelays(1, 100);
        EXPECT_EQ(run(failure, device, true), run(failure, device, false));
      }
    }
  }
  sim::Reset();
  cuda::UseGraphs(true);
  for (const std::string& violation : fake::TakeViolations()) ADD_FAILURE() << violation;
}

}  // namespace
}  // namespace bindery
