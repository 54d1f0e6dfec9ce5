// One simulated device: its memory and its faults. Private to engine/sim and executor/kernels/sim.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/device.h"

namespace bindery::sim {

// Device memory: a range of addresses twice over the same pages, once inaccessible (what everybody sees) and once for
// kernels. Pages come into being when they are first written.
class Memory {
 public:
  explicit Memory(Device device);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // A device address, 64-byte aligned, zero if it was never used; null if there is no room or the limit is reached.
  void* Allocate(int64_t bytes);
  void Free(void* memory, int64_t bytes) noexcept;
  // Addresses without memory that counts: for an arena, which counts what it commits.
  void* Reserve(int64_t bytes);
  void Unreserve(void* memory, int64_t bytes) noexcept;
  bool Commit(int64_t bytes);  // false if the limit is reached
  void Uncommit(int64_t bytes) noexcept;

  // Where kernels find a device address. Throws DeviceError for one that is not this device's.
  char* View(const void* address) const;
  bool Holds(const void* address) const;
  void SetLimit(int64_t bytes);
  int64_t in_use() const;

 private:
  int64_t Take(int64_t bytes);  // an offset, or -1
  void GiveBack(int64_t offset, int64_t bytes) noexcept;

  const Device device_;
  int file_ = -1;
  int64_t range_ = 0;
  char* addresses_ = nullptr;
  char* view_ = nullptr;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  // offset -> bytes, never adjacent
  int64_t in_use_ = 0, limit_ = 0;
};

class Faults {
 public:
  explicit Faults(Device device) : device_(device) {}
  void FailAllocation(int64_t nth);
  void FailKernel(int64_t nth);
  void HangKernel(int64_t nth);
  void Release();
  void Lose();
  void Reset();
  int64_t kernels_run() const;

  bool RefusesAllocation();
  void BeforeKernel();  // counts; may hang; throws DeviceError

 private:
  const Device device_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  int64_t kernels_ = 0, fail_in_ = 0, hang_in_ = 0, fail_allocation_in_ = 0;
  uint64_t releases_ = 0;
  bool lost_ = false;
};

struct SimulatedDevice {
  explicit SimulatedDevice(Device device) : memory(device), faults(device) {}
  Memory memory;
  Faults faults;
};

// Made on first use, never destroyed. Throws DeviceError beyond kMaxDevices.
SimulatedDevice& DeviceOf(Device device);

// Microseconds that an operation waits, from the settings of SetDelays.
int NextDelay();

}  // namespace bindery::sim
