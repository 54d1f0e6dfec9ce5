// The optimizer's state lies with the devices that update it: a checkpoint gathers it, and any other devices go on from
// there.
#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/test_device.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

using Devices = std::vector<Device>;

Symbol Net() {
  const Symbol x = Tanh(FullyConnected(Variable("data"), {.num_hidden = 37}, "fc1"));
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc2"), {}, "softmax");
}

ArrayIter Data() {
  return ArrayIter(Sines({24, 5}), ClassesInTurn(24, 3), {.batch_size = 8, .shuffle = true, .seed = 5});
}

// Trains an epoch of three steps on each of these in turn, by checkpoints.
Checkpoint Train(const std::vector<Devices>& epochs, const std::string& optimizer) {
  Checkpoint checkpoint;
  for (size_t i = 0; i < epochs.size(); ++i) {
    ArrayIter data = Data();
    Trainer trainer(Net(), {.devices = epochs[i], .optimizer = optimizer, .threads_per_device = 1});
    if (i > 0) trainer.Restore(checkpoint, &data);
    trainer.Fit(data, {.epochs = static_cast<int64_t>(i) + 1});
    checkpoint = trainer.ToCheckpoint(&data);
    // What was set is what is read, whichever devices have it.
    trainer.Restore(checkpoint, &data);
    EXPECT_EQ(trainer.ToCheckpoint(&data).optimizer_state, checkpoint.optimizer_state);
  }
  return checkpoint;
}

TEST(CheckpointDevices, AnyDevicesGoOnFromAnyOthers) {
  const Devices one = {Cpu(0)}, two = {Cpu(0), Cpu(1)}, sim = {Accelerator(0)}, sims = {Accelerator(0), Accelerator(1)},
                three = {Accelerator(0), Accelerator(1), Accelerator(2)}, mixed = {Cpu(0), Accelerator(0)},
                more = {Accelerator(0), Cpu(0), Accelerator(1), Cpu(1)};
  for (const char* optimizer : {"sgd(lr=0.1, momentum=0.9)", "adam(lr=0.01)"}) {
    const Checkpoint straight = Train({one, one, one}, optimizer);
    EXPECT_EQ(straight.step, 9);
    for (const std::vector<Devices>& epochs : std::vector<std::vector<Devices>>{
             {one, two, sim}, {sims, three, two}, {three, mixed, sims}, {mixed, more, one}, {more, sim, three}}) {
      const Checkpoint other = Train(epochs, optimizer);
      EXPECT_LT(MostDifferent(straight.model.params, other.model.params), 1e-5) << optimizer;
      EXPECT_LT(MostDifferent(straight.optimizer_state, other.optimizer_state), 1e-5) << optimizer;
    }
  }
}

TEST(CheckpointDevices, TheSameDevicesEndInTheSameBits) {
  for (const Devices& devices : std::vector<Devices>{
           {Accelerator(0)}, {Accelerator(0), Accelerator(1)}, {Cpu(0), Accelerator(0), Accelerator(1)}}) {
    ArrayIter data = Data();
    Trainer straight(Net(), {.devices = devices, .optimizer = "adam(lr=0.01)", .threads_per_device = 1});
    straight.Fit(data, {.epochs = 3});
    const Checkpoint other = Train({devices, devices, devices}, "adam(lr=0.01)");
    EXPECT_EQ(straight.ToModel().params, other.model.params);
    EXPECT_EQ(straight.ToCheckpoint(&data).optimizer_state, other.optimizer_state);
  }
}

// A device and the host do the same: one device, and where the device is simulated, no sums in another order.
TEST(CheckpointDevices, AnUpdateOnADeviceIsThatOfTheHost) {
  const auto train = [](const Device& device) {
    ArrayIter data = Data();
    Trainer trainer(Net(), {.devices = {device},
                            .optimizer = "nag(lr=0.1, momentum=0.9, wd=0.01, clip_gradient=0.5)",
                            .threads_per_device = 1,
                            .policy = KernelPolicy::kReference});
    trainer.Fit(data, {.epochs = 2});
    return trainer.ToCheckpoint(&data);
  };
  const Checkpoint host = train(Cpu(0)), device = train(Accelerator(0));
  const double apart = Accelerator(0).kind == DeviceKind::kSim ? 0 : 1e-6;
  EXPECT_LE(MostDifferent(host.model.params, device.model.params), apart);
  EXPECT_LE(MostDifferent(host.optimizer_state, device.optimizer_state), apart);
}

}  // namespace
}  // namespace bindery
