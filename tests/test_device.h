// The devices that a test runs on: CPUs, or simulated accelerators, or both in turn (cpu, sim, cpu ...), or GPUs over a
// fake of their driver. Which ones, the environment says, so that one test is three or four (bindery_tests, on_devices,
// on_cuda).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/device.h"
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

inline Device TestDevice(int index = 0) {
  if (TestDevices() == "sim") return Sim(index);
  if (TestDevices() == "cuda") return Cuda(index);
  if (TestDevices() == "mixed") return index % 2 == 0 ? Cpu(index / 2) : Sim(index / 2);
  return Cpu(index);
}

inline bool OnCpusOnly() { return TestDevices() == "cpu"; }

}  // namespace bindery
