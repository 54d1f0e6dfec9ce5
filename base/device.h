// Device: where a tensor lives and an operation runs. cpu:0, cpu:1 ... are logical devices over the same memory, each
// with a worker thread of its own. sim:0, sim:1 ... are simulated accelerators, for tests and debugging: slow, with
// memory that the host cannot address and work that happens later (engine/sim/sim.h).
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

enum class DeviceKind : unsigned char { kCpu = 0, kCuda = 1, kSim = 2 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;
};

inline Device Cpu(int index = 0) { return {DeviceKind::kCpu, index}; }
inline Device Cuda(int index = 0) { return {DeviceKind::kCuda, index}; }
inline Device Sim(int index = 0) { return {DeviceKind::kSim, index}; }

std::string ToString(DeviceKind kind);      // "cpu"
std::string ToString(Device device);        // "cpu:0"
Device ParseDevice(std::string_view text);  // "cpu", "cpu:1"; throws DeviceError with the form expected
std::vector<Device> ParseDevices(std::string_view comma_list);  // "cpu:0,cpu:1"
inline std::string format_as(Device device) { return ToString(device); }

}  // namespace bindery
