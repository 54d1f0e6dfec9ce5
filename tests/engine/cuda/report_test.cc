// What is told of GPUs, and of why there are none that can be used.
#include "engine/cuda/report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/cuda/gpu.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

TEST(CudaReportTest, SaysWhatAGpuLacks) {
  const auto message_without = [](CUdevice_attribute attribute) {
    fake::Lack(attribute);
    const std::vector<cuda::GpuFacts> all = cuda::FindGpus(fake::Api());
    fake::Lack(CUdevice_attribute{});
    return MessageOf<DeviceError>([&] { cuda::Gpu(fake::Api(), 2, all); });
  };
  EXPECT_NE(message_without(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
                .find("cuda:2 is not available: fake GPU has no writes of 64 bits by streams with this driver"),
            std::string::npos);
  EXPECT_NE(message_without(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED).find("has no pools of memory"),
            std::string::npos);
}

TEST(CudaReportTest, SaysWhichDriverIsNeeded) {
  cuda::RuntimeApi old = fake::Api();
  old.driver_get_version = [](int* version) { return *version = 11080, CUDA_SUCCESS; };
  const std::string message = MessageOf<DeviceError>([&] { cuda::FindGpus(old); });
  EXPECT_EQ(message.find("DeviceError: the NVIDIA driver is too old: it is for CUDA 11.8, one for CUDA 1"), 0u)
      << message;
  EXPECT_NE(message.find(" is needed"), std::string::npos) << message;
  old.device_get_count = [](int* count) { return *count = 0, CUDA_SUCCESS; };  // a newer one would find none, either
  EXPECT_EQ(MessageOf<DeviceError>([&] { cuda::FindGpus(old); }),
            "DeviceError: this machine has no GPU that CUDA can use");
}

TEST(CudaReportTest, TellsOfGpus) {
  const CudaReport report = ReportCuda();
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.driver, "13.0");
  ASSERT_EQ(report.gpus.size(), static_cast<size_t>(fake::kNumGpus));
  EXPECT_EQ(report.gpus[0].name, "fake GPU");
  EXPECT_EQ(report.gpus[0].bytes, 1 << 30);
  EXPECT_EQ(report.gpus[0].capability, "9.0");
  ASSERT_EQ(report.libraries.size(), 4u);
  for (const CudaReport::Library& library : report.libraries) {
    EXPECT_NE(library.version.empty(), library.problem.empty()) << library.name;
  }
}

TEST(CudaRuntimeTest, AMissingDriverIsNamed) {
  EXPECT_EQ(MessageOf<DeviceError>([] {
              cuda::OpenRuntime("no-such-library.so");
            }).find("DeviceError: no NVIDIA driver: no-such-library.so"),
            0u);
  EXPECT_NE(MessageOf<DeviceError>([] { cuda::OpenRuntime("libm.so.6"); }).find("libm.so.6 has no cuInit"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
