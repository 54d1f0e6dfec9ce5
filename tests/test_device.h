// The devices that a test runs on: CPUs, or simulated accelerators, or both in turn (cpu, sim, cpu ...), or GPUs, also
// over a fake of their driver. Which ones, the environment says (BINDERY_TEST_DEVICES), so that one test is four
// (bindery_tests). Where there are fewer GPUs than a test asks for, each is several devices; BINDERY_TEST_GPUS lets it
// use so many at most.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/device.h"
#include "engine/cuda/report.h"
#include "engine/sim/sim.h"

namespace bindery {

inline const std::string& TestDevices() {
  static const std::string kind = [] {
    const char* const devices = std::getenv("BINDERY_TEST_DEVICES");
    return std::string(devices ? devices : "cpu");
  }();
  return kind;
}

// Random delays, with another seed in each repetition of a program (--gtest_repeat).
class TestDelays : public testing::Environment {
 public:
  void SetUp() override { sim::SetDelays(++seed_, 200); }

 private:
  uint64_t seed_ = 0;
};
inline testing::Environment* const kTestDelays =
    std::getenv("BINDERY_TEST_DELAYS") ? testing::AddGlobalTestEnvironment(new TestDelays) : nullptr;

inline int NumTestGpus() {
  static const int count = [] {
    const int most = std::max(static_cast<int>(ReportCuda().gpus.size()), 1);
    const char* const few = std::getenv("BINDERY_TEST_GPUS");
    return few ? std::clamp(std::atoi(few), 1, most) : most;
  }();
  return count;
}

inline Device TestDevice(int index = 0) {
  if (TestDevices() == "sim") return Sim(index);
  if (TestDevices() == "cuda") return Cuda(index % NumTestGpus());
  if (TestDevices() == "mixed") return index % 2 == 0 ? Cpu(index / 2) : Sim(index / 2);
  return Cpu(index);
}

// The first of them.
inline std::vector<Device> TestDeviceList(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(TestDevice(i));
  return devices;
}

// For tests that choose between CPUs and accelerators themselves: a simulated one, or a GPU where those are tested.
inline Device Accelerator(int index = 0) { return TestDevices() == "cuda" ? TestDevice(index) : Sim(index); }

// The same, but that no two of them share memory.
inline Device ApartDevice(int index = 0) {
  if (TestDevices() == "cuda" && index < NumTestGpus()) return Cuda(index);
  return index == 0 && TestDevices() != "sim" ? Cpu() : Sim(index);
}

inline bool OnCpusOnly() { return TestDevices() == "cpu"; }

}  // namespace bindery
