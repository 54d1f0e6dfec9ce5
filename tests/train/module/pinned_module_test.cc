// Modules that are pinned to devices, and take and give nests of arrays from anywhere.
#include <gtest/gtest.h>

#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

// ((a, nothing), (b, c)) -> (a * b + c, nothing)
Symbol Net() {
  const Symbol product = Variable("a") * Variable("b");
  return Tanh(FullyConnected(product + Variable("c"), {.num_hidden = 3}, "fc"), "out");
}

ModuleOptions Options(std::vector<Device> devices, std::optional<Device> output_device = {}) {
  return {
      .devices = std::move(devices),
      .inputs = ListOf(ListOf(DataDesc{"a", {6, 4}}, DataDesc{}), ListOf(DataDesc{"b", {6, 4}}, DataDesc{"c", {6, 4}})),
      .outputs = ListOf("out_output", ""),
      .output_device = output_device,
      .threads_per_device = 1};
}

TEST(PinnedModule, GradientsGoHomeEachToItsInput) {
  const HostTensor a = RandomTensor({6, 4}, 1), b = RandomTensor({6, 4}, 2), c = RandomTensor({6, 4}, 3);
  const HostTensor g = RandomTensor({6, 3}, 4);
  const auto engine = DefaultEngine();
  // One on the host, one whole on a device, one in pieces on two.
  const Array pieces({On(engine, TestDevice(2), c.Slice(0, 0, 1)), On(engine, TestDevice(1), c.Slice(0, 1, 6))}, 0);
  const Values inputs = ListOf(ListOf(a, Values()), ListOf(Array(On(engine, TestDevice(1), b)), pieces));
  ReplicatedModule single(Net(), Options({Cpu(0)}));
  const Values expected = single.Forward(ListOf(ListOf(a, Values()), ListOf(b, c)));
  const Values of_inputs = single.Backward(ListOf(g, Values()));
  for (const std::vector<Device>& devices : {std::vector<Device>{TestDevice(3)}, TestDeviceList(3)}) {
    ReplicatedModule pinned(Net(), Options(devices, TestDevice(1)));
    const Values outputs = pinned.Forward(inputs);
    ASSERT_EQ(outputs.Form(), "(_, _)");
    EXPECT_TRUE(outputs[1].leaf().empty());
    EXPECT_EQ(outputs[0].leaf().pieces().size(), 1u);
    EXPECT_EQ(outputs[0].leaf().device(), TestDevice(1));
    EXPECT_LT(MostDifferent(outputs, expected), 1e-6);
    const Values back = pinned.Backward(ListOf(On(engine, TestDevice(0), g), Values()));
    ASSERT_EQ(back.Form(), "((_, _), (_, _))");
    EXPECT_EQ(back[0][0].leaf().device(), Cpu(0));
    EXPECT_TRUE(back[0][1].leaf().empty());
    EXPECT_EQ(back[1][0].leaf().device(), TestDevice(1));
    EXPECT_EQ(back[1][1].leaf().device(), TestDevice(2));
    EXPECT_LT(MostDifferent(back, of_inputs), 1e-6);
    EXPECT_LT(MostDifferent(GradientsOf(pinned), GradientsOf(single)), 1e-5);
    for (const ParameterBuffer& buffer : pinned.buffers()) {
      for (size_t r = 0; r < devices.size(); ++r) EXPECT_EQ(buffer.values[r].device(), devices[r]);
    }
  }
}

TEST(PinnedModule, StaysSoAsACloneAndInAFile) {
  const Values inputs =
      ListOf(ListOf(RandomTensor({6, 4}, 1), Values()), ListOf(RandomTensor({6, 4}, 2), RandomTensor({6, 4}, 3)));
  ReplicatedModule pinned(Net(), Options({TestDevice(1)}, TestDevice(0)));
  const Values expected = pinned.Forward(inputs);
  ReplicatedModule clone = pinned.Clone();
  const std::string path = testing::TempDir() + "/pinned_" + TestDevices() + ".pb";
  pinned.Save(path);
  ReplicatedModule loaded = ReplicatedModule::Load(path);
  for (ReplicatedModule* each : {&clone, &loaded}) {
    EXPECT_EQ(each->devices(), std::vector<Device>{TestDevice(1)});
    const Values outputs = each->Forward(inputs);
    EXPECT_EQ(outputs[0].leaf().device(), TestDevice(0));
    EXPECT_EQ(MostDifferent(outputs, expected), 0);
  }
  // Not pinned any more, it leaves its outputs where they are made.
  pinned.SetDevices({TestDevice(2)});
  EXPECT_EQ(pinned.Forward(inputs)[0].leaf().device(), TestDevice(2));
}

}  // namespace
}  // namespace bindery
