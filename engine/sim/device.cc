#include "engine/sim/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"
#include "engine/sim/sim.h"

namespace bindery::sim {
namespace {

constexpr int64_t kLargestRange = int64_t{128} << 30;
constexpr int64_t kSmallestRange = int64_t{64} << 20;
constexpr int64_t kAddressAlignment = 64;
constexpr int64_t kPunchFrom = 256 << 10;  // freed pieces from here on go back to the system

}  // namespace

Memory::Memory(Device device) : device_(device) {
  file_ = memfd_create("bindery simulated device", MFD_CLOEXEC);
  if (file_ < 0) Throw<DeviceError>("{}: the system refuses memory for a simulated device", device);
  // As much address space as the limits of the process allow.
  for (range_ = kLargestRange; range_ >= kSmallestRange; range_ /= 2) {
    void* const addresses = mmap(nullptr, range_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) continue;
    void* const view = ftruncate(file_, range_) != 0
                           ? MAP_FAILED
                           : mmap(nullptr, range_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (view != MAP_FAILED) {
      addresses_ = static_cast<char*>(addresses);
      view_ = static_cast<char*>(view);
      free_[0] = range_;
      return;
    }
    munmap(addresses, range_);
  }
  close(file_);
  Throw<DeviceError>("{}: the system refuses address space for a simulated device", device);
}

Memory::~Memory() {
  munmap(addresses_, range_);
  munmap(view_, range_);
  close(file_);
}

int64_t Memory::Take(int64_t bytes) {
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    const auto [offset, size] = *piece;
    if (size < bytes) continue;
    free_.erase(piece);
    if (size > bytes) free_[offset + bytes] = size - bytes;
    return offset;
  }
  return -1;
}

void Memory::GiveBack(int64_t offset, int64_t bytes) noexcept {
  const int64_t page = PageBytes(), first = RoundUp(offset, page), last = (offset + bytes) / page * page;
  if (bytes >= kPunchFrom) fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, last - first);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

void* Memory::Allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = RoundUp(bytes, kAddressAlignment);
  if (limit_ > 0 && in_use_ + bytes > limit_) return nullptr;
  const int64_t offset = Take(bytes);
  if (offset < 0) return nullptr;
  in_use_ += bytes;
  return addresses_ + offset;
}

void Memory::Free(void* memory, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  bytes = RoundUp(bytes, kAddressAlignment);
  in_use_ -= bytes;
  GiveBack(static_cast<char*>(memory) - addresses_, bytes);
}

void* Memory::Reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t offset = Take(RoundUp(bytes, PageBytes()));
  return offset < 0 ? nullptr : addresses_ + offset;
}

void Memory::Unreserve(void* memory, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  GiveBack(static_cast<char*>(memory) - addresses_, RoundUp(bytes, PageBytes()));
}

bool Memory::Commit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (limit_ > 0 && in_use_ + bytes > limit_) return false;
  in_use_ += bytes;
  return true;
}

void Memory::Uncommit(int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

bool Memory::Holds(const void* address) const { return address >= addresses_ && address < addresses_ + range_; }

char* Memory::View(const void* address) const {
  if (!address) return nullptr;
  if (!Holds(address)) Throw<DeviceError>("{}: the address {} is not one of this device's", device_, address);
  return view_ + (static_cast<const char*>(address) - addresses_);
}

void Memory::SetLimit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

int64_t Memory::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

void Faults::FailAllocation(int64_t nth) {
  const std::lock_guard lock(mutex_);
  fail_allocation_in_ = nth;
}
void Faults::FailKernel(int64_t nth) {
  const std::lock_guard lock(mutex_);
  fail_in_ = nth;
}
void Faults::HangKernel(int64_t nth) {
  const std::lock_guard lock(mutex_);
  hang_in_ = nth;
}
void Faults::Release() {
  const std::lock_guard lock(mutex_);
  hang_in_ = 0;
  ++releases_;
  released_.notify_all();
}
void Faults::Lose() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
}
void Faults::Reset() {
  Release();
  const std::lock_guard lock(mutex_);
  kernels_ = fail_in_ = fail_allocation_in_ = 0;
  lost_ = false;
}
int64_t Faults::kernels_run() const {
  const std::lock_guard lock(mutex_);
  return kernels_;
}

bool Faults::RefusesAllocation() {
  const std::lock_guard lock(mutex_);
  return lost_ || (fail_allocation_in_ > 0 && --fail_allocation_in_ == 0);
}

void Faults::BeforeKernel() {
  std::unique_lock lock(mutex_);
  ++kernels_;
  if (hang_in_ > 0 && --hang_in_ == 0) {
    const uint64_t now = releases_;
    released_.wait(lock, [&] { return releases_ != now; });
  }
  if (lost_) Throw<DeviceError>("{} is lost", device_);
  if (fail_in_ > 0 && --fail_in_ == 0) Throw<DeviceError>("{}: a kernel failed, as was asked for", device_);
}

namespace {

struct Delays {
  std::mutex mutex;
  std::mt19937_64 random;
  int max_microseconds = 0;
};
Delays& TheDelays() {
  static Delays& delays = *new Delays;
  return delays;
}

struct Devices {
  std::mutex mutex;
  std::array<std::unique_ptr<SimulatedDevice>, kMaxDevices> devices;
};
Devices& TheDevices() {
  static Devices& devices = *new Devices;  // never destroyed: tensors may be static
  return devices;
}

}  // namespace

SimulatedDevice& DeviceOf(Device device) {
  if (device.kind != DeviceKind::kSim || device.index < 0 || device.index >= kMaxDevices) {
    Throw<DeviceError>("{}: simulated devices are sim:0 to sim:{}", device, kMaxDevices - 1);
  }
  Devices& all = TheDevices();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<SimulatedDevice>& mine = all.devices[static_cast<size_t>(device.index)];
  if (!mine) mine = std::make_unique<SimulatedDevice>(device);
  return *mine;
}

int NextDelay() {
  Delays& delays = TheDelays();
  const std::lock_guard lock(delays.mutex);
  if (delays.max_microseconds == 0) return 0;
  return std::uniform_int_distribution<int>(0, delays.max_microseconds)(delays.random);
}

void SetDelays(uint64_t seed, int max_delay_microseconds) {
  Delays& delays = TheDelays();
  const std::lock_guard lock(delays.mutex);
  delays.random.seed(seed);
  delays.max_microseconds = max_delay_microseconds;
}

void SetMemoryLimit(Device device, int64_t bytes) { DeviceOf(device).memory.SetLimit(bytes); }
int64_t MemoryInUse(Device device) { return DeviceOf(device).memory.in_use(); }
void FailAllocation(Device device, int64_t nth) { DeviceOf(device).faults.FailAllocation(nth); }
void FailKernel(Device device, int64_t nth) { DeviceOf(device).faults.FailKernel(nth); }
void HangKernel(Device device, int64_t nth) { DeviceOf(device).faults.HangKernel(nth); }
void Release(Device device) { DeviceOf(device).faults.Release(); }
void Lose(Device device) { DeviceOf(device).faults.Lose(); }
int64_t KernelsRun(Device device) { return DeviceOf(device).faults.kernels_run(); }

void Reset() {
  SetDelays(0, 0);
  Devices& all = TheDevices();
  const std::lock_guard lock(all.mutex);
  for (const auto& device : all.devices) {
    if (!device) continue;
    device->faults.Reset();
    device->memory.SetLimit(0);
  }
}

}  // namespace bindery::sim
