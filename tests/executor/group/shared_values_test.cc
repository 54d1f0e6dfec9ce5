// The values of parameters on devices that share memory: held once, by each device's name.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "engine/backend.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

// Whoever writes what one device reads writes what all read that share its memory: a tensor, by several names. Gradients
// and states are each device's own.
TEST(SharedValues, AreHeldOnceInEachMemory) {
  const Symbol net = SoftmaxOutput(
      FullyConnected(BatchNorm(Variable("data"), {.fix_gamma = false}, "bn"), {.num_hidden = 3}, "fc"), {}, "softmax");
  // The last one is a device once more.
  const std::vector<Device> devices = {TestDevice(0), TestDevice(1), TestDevice(2), TestDevice(1)};
  DataParallelExecutorGroup group(net,
                                  {.devices = devices, .data = {{"data", {8, 4}}}, .labels = {{"softmax_label", {8}}}});
  InitialiseEqually({&group}, 1);
  group.ForwardBackward(std::make_shared<const Batch>(RandomBatch(8, 4, 3, 2)));
  HostTensorMap params, checked, aux;
  group.GetParams(&params, &aux);
  group.GetParams(&checked, nullptr, ReplicaMerge::kCheck);
  EXPECT_EQ(checked, params);
  const ParameterStore& store = group.store();
  size_t memories = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    bool is_first = true;
    for (size_t j = 0; j < i; ++j) {
      const bool together = ShareMemory(devices[i], devices[j]);
      is_first &= !together;
      for (const ReplicatedParam& p : group.params()) {
        EXPECT_EQ(p.values[i].address() == p.values[j].address(), together) << p.name;
        EXPECT_EQ(p.values[i].var() == p.values[j].var(), together) << p.name;
        EXPECT_NE(p.grads[i].var(), p.grads[j].var()) << p.name;
      }
    }
    memories += is_first;
    EXPECT_EQ(group.memory(static_cast<int>(i)).parameters > 0, is_first);
    for (const ReplicatedParam& p : group.params()) EXPECT_EQ(p.values[i].device(), devices[i]) << p.name;
  }
  EXPECT_EQ(EachOnce(group.params()[0].values).size(), memories);
  EXPECT_EQ(memories, OnCpusOnly()               ? 1u
                      : TestDevices() == "cuda"  ? std::min<size_t>(NumTestGpus(), 3)
                      : TestDevices() == "mixed" ? 2u
                                                 : 3u);
  const StoredParameter &bias = *store.Find("fc_bias"), &mean = *store.Find("bn_running_mean");
  store.Value(bias, 1).Fill(7);
  store.Value(mean, 1).Fill(7);
  for (int d = 0; d < 4; ++d) {
    const bool together = ShareMemory(devices[static_cast<size_t>(d)], devices[1]);
    EXPECT_EQ(store.Get(bias, d).At(0) == 7, together) << d;
    EXPECT_EQ(store.Get(mean, d).At(0) == 7, d == 1) << d;
  }
  // Written as a whole by any of its names, what had failed is whole again.
  const Tensor& whole = store.blocks()[static_cast<size_t>(bias.block)].values[3];
  group.engine()->Push({.name = "break", .device = devices[3], .writes = {whole.var()}, .run = [](const OpContext&) {
                          throw NumericError("broken on purpose");
                        }});
  EXPECT_THROW(store.Get(bias, 1), NumericError);
  whole.Fill(2);
  EXPECT_EQ(store.Get(bias, 1).At(0), 2);
}

}  // namespace
}  // namespace bindery
