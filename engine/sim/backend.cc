#include "engine/backend.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/flat.h"
#include "engine/sim/device.h"
#include "engine/sim/sim.h"
#include "engine/sim/stream.h"

namespace bindery::sim {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kArenaRange = int64_t{1} << 30;

class SimArena final : public Arena {
 public:
  SimArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve)
      : device_(device), memory_(DeviceOf(device).memory), var_(engine->NewVar()),
        reserved_(RoundUp(std::min(reserve, kArenaRange), PageBytes())) {
    base_ = static_cast<char*>(memory_.Reserve(reserved_));
    if (!base_) Throw<DeviceError>("{}: no {} bytes of address space are left for an arena", device_, reserved_);
  }
  ~SimArena() override {
    memory_.Uncommit(committed_);
    memory_.Unreserve(base_, reserved_);
  }

  void Grow(int64_t bytes, int) override {
    if (bytes <= committed_) return;
    const int64_t target = RoundUp(bytes, PageBytes());
    if (limit_ > 0 && bytes > limit_) Fail(bytes, fmt::format("its limit is {}", limit_));
    if (target > reserved_) Fail(bytes, fmt::format("its address space ends at {}", reserved_));
    if (DeviceOf(device_).faults.RefusesAllocation() || !memory_.Commit(target - committed_)) {
      Fail(bytes, "out of memory");
    }
    committed_ = target;
  }
  char* base() const override { return base_; }
  int64_t committed() const override { return committed_; }
  void SetLimit(int64_t bytes) override {
    if (bytes < 0) Throw("{}: the limit of an arena must be >= 0, got {}", device_, bytes);
    limit_ = bytes;
  }
  Device device() const override { return device_; }
  const VarPtr& var() const override { return var_; }

 private:
  [[noreturn]] void Fail(int64_t bytes, const std::string& reason) const {
    Throw<DeviceError>("{}: cannot grow the arena from {} to {} bytes: {}", device_, committed_, bytes, reason);
  }

  const Device device_;
  Memory& memory_;
  const VarPtr var_;
  const int64_t reserved_;
  char* base_ = nullptr;
  int64_t committed_ = 0, limit_ = 0;
};

class SimFlatKernels final : public FlatKernels {
 public:
  void Fill(Stream& stream, DType dtype, void* out, int64_t n, double value) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, to = s.View(out)] { flat::Fill(dtype, to, n, value); });
  }
  void Copy(Stream& stream, const void* in, void* out, int64_t bytes) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, from = s.View(in), to = s.View(out)] { flat::Copy(from, to, bytes); });
  }
  void CopyRows(Stream& stream, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                int64_t bytes) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, from = s.View(in), to = s.View(out)] {
      for (int64_t i = 0; i < rows; ++i) flat::Copy(from + i * in_stride, to + i * out_stride, bytes);
    });
  }
  void Cast(Stream& stream, DType from, const void* in, DType to, void* out, int64_t n) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, source = s.View(in), target = s.View(out)] { flat::Cast(from, source, to, target, n); });
  }
  void Sum(Stream& stream, DType dtype, std::span<const void* const> in, void* out, int64_t n) const override {
    SimStream& s = SimStreamOf(stream);
    std::vector<const void*> sources;
    for (const void* source : in) sources.push_back(s.View(source));
    s.Enqueue([=, sources = std::move(sources), to = s.View(out)] { flat::Sum(dtype, sources, to, n); });
  }
  void Add(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, from = s.View(in), to = s.View(out)] { flat::Add(dtype, from, to, n); });
  }
  void Scale(Stream& stream, DType dtype, void* out, int64_t n, double factor) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, to = s.View(out)] { flat::Scale(dtype, to, n, factor); });
  }
};

// Host memory that the devices may copy from and to.
class Staging {
 public:
  void* Allocate(int64_t bytes) {
    void* const memory = std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
    if (!memory) return nullptr;
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<char*>(memory)] = bytes;
    return memory;
  }
  void Free(void* memory) noexcept {
    {
      const std::lock_guard lock(mutex_);
      pieces_.erase(static_cast<char*>(memory));
    }
    std::free(memory);
  }
  bool Holds(const void* memory, int64_t bytes) const {
    const char* const begin = static_cast<const char*>(memory);
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(const_cast<char*>(begin));
    if (piece == pieces_.begin()) return false;
    --piece;
    return begin + bytes <= piece->first + piece->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<char*, int64_t> pieces_;
};

class Sims final : public Backend {
 public:
  bool host_addressable() const override { return false; }
  void CheckIndex(Device device) const override { DeviceOf(device); }

  void* Allocate(Device device, int64_t bytes) override {
    SimulatedDevice& mine = DeviceOf(device);
    return mine.faults.RefusesAllocation() ? nullptr : mine.memory.Allocate(bytes);
  }
  void Free(Device device, void* memory, int64_t bytes) noexcept override {
    DeviceOf(device).memory.Free(memory, bytes);
  }
  void* AllocateStaging(Device, int64_t bytes) override { return staging_.Allocate(bytes); }
  void FreeStaging(Device, void* memory, int64_t) noexcept override { staging_.Free(memory); }

  std::shared_ptr<Arena> MakeArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) override {
    return std::make_shared<SimArena>(device, engine, reserve);
  }
  std::unique_ptr<Stream> MakeStream(Device device, Lane lane) override {
    return std::make_unique<SimStream>(device, lane);
  }
  const FlatKernels& flat() const override { return flat_; }

  void CopyAcross(Stream& stream, Device from, const void* source, Device to, void* target, int64_t bytes) override {
    const char* in = ViewOf(from, source);
    char* out = ViewOf(to, target);
    if (HostAddressable(stream.device())) {  // the device's work is over: whoever asks has waited for it
      DeviceOf(from.kind == DeviceKind::kSim ? from : to).faults.BeforeKernel();
      std::memcpy(out, in, static_cast<size_t>(bytes));
      return;
    }
    SimStream& s = SimStreamOf(stream);
    if (from.kind == DeviceKind::kCpu && !staging_.Holds(source, bytes)) {
      // Read now, while the operation has the source to itself.
      const std::shared_ptr<void> copy(staging_.Allocate(bytes), [this](void* p) { staging_.Free(p); });
      if (!copy) Throw<DeviceError>("{}: no memory for a copy of {} bytes", stream.device(), bytes);
      std::memcpy(copy.get(), in, static_cast<size_t>(bytes));
      s.Enqueue([=] { std::memcpy(out, copy.get(), static_cast<size_t>(bytes)); });
      return;
    }
    if (to.kind == DeviceKind::kCpu && !staging_.Holds(target, bytes)) {
      Throw<DeviceError>("{}: a stream copies to staging memory of the host only", stream.device());
    }
    s.Enqueue([=] { std::memcpy(out, in, static_cast<size_t>(bytes)); });
  }

 private:
  static char* ViewOf(Device device, const void* address) {
    return device.kind == DeviceKind::kSim ? DeviceOf(device).memory.View(address)
                                           : static_cast<char*>(const_cast<void*>(address));
  }

  const SimFlatKernels flat_;
  Staging staging_;
};

}  // namespace
}  // namespace bindery::sim

namespace bindery {

Backend& SimBackend() {
  static Backend& backend = *new sim::Sims;  // never destroyed: tensors may be static
  return backend;
}

}  // namespace bindery
