// What several processes train, in tests, as threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/thread_processes.h"
#include "train/data/array_iter.h"
#include "train/data/part_iter.h"
#include "train/trainer.h"

namespace bindery {

inline constexpr int64_t kSamples = 46;

inline HostTensor Drawn(const Shape& shape, uint64_t seed) {
  PhiloxStream stream(seed, "data");
  return Filled(shape, [&](int64_t) { return stream.Normal(); });
}

inline std::unique_ptr<DataIter> Data(ArrayIterOptions options = {.batch_size = 12, .shuffle = true, .seed = 3}) {
  const HostTensor data = Drawn({kSamples, 6}, 1);
  const auto label = [&](int64_t i) { return data.At(6 * i) > data.At(6 * i + 1) || data.At(6 * i) > 0; };
  return std::make_unique<ArrayIter>(data, Filled({kSamples}, label), options);
}
inline std::unique_ptr<DataIter> PartOfData(const ProcessesPtr& processes,
                                            ArrayIterOptions options = {.batch_size = 12, .shuffle = true, .seed = 3}) {
  return std::make_unique<PartIter>(Data(options), processes->rank(), processes->size());
}

inline Symbol Net(SoftmaxOutputAttrs loss = {}) {
  Symbol net = Relu(FullyConnected(Variable("data"), {.num_hidden = 8}, "fc1"), "relu");
  return SoftmaxOutput(FullyConnected(net, {.num_hidden = 2}, "fc2"), loss, "softmax");
}

inline std::vector<Device> Cpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Cpu(i));
  return devices;
}

inline TrainerOptions Options(const std::vector<Device>& devices, TrainerOptions options = {}) {
  options.devices = devices;
  if (options.optimizer == "sgd") options.optimizer = "sgd(lr=0.1, momentum=0.9, wd=0.01)";
  options.metrics = "accuracy,cross-entropy";
  options.threads_per_device = 1;
  options.engine = MakeThreadedEngine();
  return options;
}

inline TrainerOptions Of(const ProcessesPtr& processes, TrainerOptions options) {
  options.processes = processes;
  return options;
}

// Runs the net in so many processes, of one CPU each unless others are given, and in one process of as many devices.
inline void ExpectSameAsOneProcess(int count, const Symbol& net, const TrainerOptions& options, double tolerance,
                                   const std::vector<Device>& own = {Cpu(0)}) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) {
    for (const Device& device : own) all.push_back({device.kind, device.index + i});
  }
  Trainer one(net, Options(all, options));
  const std::unique_ptr<DataIter> data = Data(), test = Data({.batch_size = 12});
  const FitResult expected = one.Fit(*data, {.epochs = 3, .validation = test.get()});
  const Model model = one.ToModel();
  HostTensorMap first;
  ExpectProcesses(count, [&](const ProcessesPtr& processes) {
    Trainer trainer(net, Of(processes, Options(own, options)));
    const std::unique_ptr<DataIter> part = PartOfData(processes), tested = PartOfData(processes, {.batch_size = 12});
    const FitResult result = trainer.Fit(*part, {.epochs = 3, .validation = tested.get()});
    EXPECT_EQ(result.steps, expected.steps);
    EXPECT_EQ(trainer.updater()->loss_scale().scale, one.updater()->loss_scale().scale);
    const Model mine_now = trainer.ToModel();
    EXPECT_LE(MostDifferent(mine_now.params, model.params), tolerance);
    for (size_t i = 0; i < expected.train.size(); ++i) {
      EXPECT_NEAR(result.train[i].second, expected.train[i].second, 1e-5);
      EXPECT_NEAR(result.validation[i].second, expected.validation[i].second, 1e-5);
    }
    // All have the same bits.
    std::string mine = CheckpointToBytes({.model = {.params = mine_now.params, .aux = mine_now.aux}});
    const std::vector<std::string> all = processes->AllGather(mine);
    for (const std::string& other : all) EXPECT_TRUE(other == mine);
  });
}

}  // namespace bindery
