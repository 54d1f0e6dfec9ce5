// Numbers in arrays on the host that are none of what the network takes: refused as a group refuses them.
#include <gtest/gtest.h>

#include "executor/sample_error.h"
#include "tests/test_device.h"
#include "tests/train/module/module_helpers.h"

namespace bindery {
namespace {

TEST(ModuleNumbers, AreLookedAtAsAGroupDoes) {
  ReplicatedModule net(Criterion(),
                       {.devices = TestDeviceList(2),
                        .inputs = ListOf(DataDesc{"scores", {4, 3}}, DataDesc{"label", {4}, DType::kInt32}),
                        .threads_per_device = 1});
  const HostTensor scores(DType::kFloat32, {4, 3});
  HostTensor labels(DType::kFloat32, {4});
  const auto forward = [&] { net.Forward(ListOf(scores, labels)).leaf().ToHost(); };
  forward();
  labels.Set(2, 3);
  const std::string said = MessageOf<SampleError>(forward);
  EXPECT_TRUE(said.starts_with("DataError: \"label\": 3 is not in 0..2, which CrossEntropy \"")) << said;
  EXPECT_TRUE(said.ends_with("\" takes (element 2, of sample 2 of the batch)")) << said;
  labels.Set(2, 1.5);
  EXPECT_EQ(MessageOf<SampleError>(forward),
            "DataError: \"label\": expected values of int32, got 1.5 (element 2, of sample 2 of the batch)");
  labels.Set(2, 2);
  forward();
}

}  // namespace
}  // namespace bindery
