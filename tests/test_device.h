// The devices that a test runs on: CPUs, or simulated accelerators, or both in turn (cpu, sim, cpu ...). Which ones,
// the environment says, so that one test is three (bindery_tests, on_devices).
#pragma once

#include <cstdlib>
#include <string>

#include "base/device.h"
#include "engine/sim/sim.h"

namespace bindery {

inline const std::string& TestDevices() {
  static const std::string kind = [] {
    const char* const devices = std::getenv("BINDERY_TEST_DEVICES");
    const char* const seed = std::getenv("BINDERY_TEST_DELAYS");
    if (seed) sim::SetDelays(std::strtoull(seed, nullptr, 10), 200);
    return std::string(devices ? devices : "cpu");
  }();
  return kind;
}

inline Device TestDevice(int index = 0) {
  if (TestDevices() == "sim") return Sim(index);
  if (TestDevices() == "mixed") return index % 2 == 0 ? Cpu(index / 2) : Sim(index / 2);
  return Cpu(index);
}

inline bool OnCpusOnly() { return TestDevices() == "cpu"; }

}  // namespace bindery
