// Whatever the order in which devices come to do their work, a training ends in the same bits.
#include <gtest/gtest.h>

#include "engine/sim/sim.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

Checkpoint Train(const std::vector<Device>& devices) {
  const HostTensor data = Sines({20, 5}), labels = ClassesInTurn(20, 3);
  ArrayIter train(data, labels, {.batch_size = 7, .shuffle = true, .seed = 5}), test(data, labels, {.batch_size = 9});
  Symbol x = Relu(BatchNorm(FullyConnected(Variable("data"), {.num_hidden = 4}, "fc1"), {.sync = true}, "bn1"));
  x = BatchNorm(FullyConnected(Dropout(x, {.p = 0.25}, "drop"), {.num_hidden = 3}, "fc2"), {}, "bn2");
  Trainer trainer(SoftmaxOutput(x, {}, "softmax"), {.devices = devices,
                                                    .optimizer = "sgd(lr=0.1, momentum=0.9, wd=1e-3)",
                                                    .metrics = "accuracy,cross-entropy",
                                                    .engine = MakeThreadedEngine()});
  const FitResult result = trainer.Fit(train, {.epochs = 2, .validation = &test});
  Checkpoint checkpoint = trainer.ToCheckpoint(&train);
  checkpoint.metric_totals.clear();
  for (const NamedValues* values : {&result.train, &result.validation}) {
    for (const auto& [name, value] : *values) checkpoint.metric_totals.push_back(value);
  }
  return checkpoint;
}

TEST(Delays, ATrainingEndsInTheSameBits) {
  const std::vector<std::vector<Device>> groups = {{Accelerator(0)},
                                                   {Accelerator(0), Accelerator(1), Accelerator(2)},
                                                   {Cpu(0), Accelerator(0)},
                                                   {Accelerator(0), Cpu(0), Cpu(1)}};
  for (const std::vector<Device>& devices : groups) {
    const Checkpoint expected = Train(devices);
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(fmt::format("{}, {} devices, seed {}", devices[0], devices.size(), seed));
      sim::SetDelays(seed, 100);
      const Checkpoint found = Train(devices);
      sim::Reset();
      EXPECT_EQ(found.model.params, expected.model.params);
      EXPECT_EQ(found.model.aux, expected.model.aux);
      EXPECT_EQ(found.optimizer_state, expected.optimizer_state);
      EXPECT_EQ(found.metric_totals, expected.metric_totals);
    }
  }
}

}  // namespace
}  // namespace bindery
