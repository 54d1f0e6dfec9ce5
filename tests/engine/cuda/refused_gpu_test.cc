// A GPU that cannot be made: in a process of its own, for it stays so.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/memory/storage.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

// It is tried once, whatever is asked of it later, since what a try leaves in the driver would grow with each; the others
// are not concerned.
TEST(CudaRefusedGpuTest, GivesTheSameErrorEachTime) {
  const auto storage = MakeStorage();
  const auto allocate = [&](int gpu) { return MessageOf<DeviceError>([&] { storage->Allocate(Cuda(gpu), 64); }); };
  fake::FailContext(1);
  const std::string first = allocate(1);
  EXPECT_EQ(first.find("DeviceError: cuda:1: cuDevicePrimaryCtxRetain: "), 0u) << first;
  EXPECT_EQ(allocate(0), "nothing was thrown");
  // The driver would give one now.
  EXPECT_EQ(allocate(1), first);
  EXPECT_EQ(MessageOf<DeviceError>([] { Backend::Of(Cuda(1)).CheckIndex(Cuda(1)); }), first);
  EXPECT_EQ(MessageOf<DeviceError>([] { Backend::Of(Cuda(1)).MakeStream(Cuda(1), Lane::kCompute); }), first);
  EXPECT_TRUE(fake::TakeViolations().empty());
}

}  // namespace
}  // namespace bindery
