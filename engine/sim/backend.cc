#include "engine/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/host_flat_kernels.h"
#include "engine/memory/staging.h"
#include "engine/sim/device.h"
#include "engine/sim/sim.h"
#include "engine/sim/stream.h"

namespace bindery::sim {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kArenaRange = int64_t{1} << 30;

class SimArena final : public Arena {
 public:
  SimArena(Device device, Engine* engine, int64_t bytes)
      : Arena(device, engine, bytes, PageBytes()), mine_(DeviceOf(device)) {
    base_ = static_cast<char*>(mine_.memory.Reserve(bytes));
    if (!base_) Throw<DeviceError>("{}: no {} bytes of address space are left for an arena", device, bytes);
  }
  ~SimArena() override {
    mine_.memory.Uncommit(committed());
    mine_.memory.Unreserve(base_, reserved());
  }

 private:
  std::string Commit(int64_t begin, int64_t end, int) override {
    return mine_.faults.RefusesAllocation() || !mine_.memory.Commit(end - begin) ? "out of memory" : "";
  }

  SimulatedDevice& mine_;
};

struct SimHost {
  template <class F, class... Arguments>
  static void Run(Stream& stream, const F& f, const Arguments&... arguments) {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([f, ... seen = Seen(s, arguments)] { f(seen...); });
  }

 private:
  template <class T>
  static T* Seen(const SimStream& s, T* address) {
    return reinterpret_cast<T*>(s.View(address));
  }
  template <class T>
  static std::vector<T> Seen(const SimStream& s, std::span<const T> addresses) {
    std::vector<T> seen;
    for (T address : addresses) seen.push_back(Seen(s, address));
    return seen;
  }
  static DeviceUpdate Seen(const SimStream& s, DeviceUpdate update) {
    update.gradient = s.View(update.gradient);
    update.weight = s.View(update.weight);
    update.new_weight = s.View(update.new_weight);
    if (update.clip_factor) update.clip_factor = Seen(s, update.clip_factor);
    if (update.measured) update.measured = Seen(s, update.measured);
    if (update.squares) update.squares = Seen(s, update.squares);
    for (auto& slot : update.states) {
      for (void*& state : slot) state = s.View(state);
    }
    return update;
  }
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
  void* AllocateStaging(Device, int64_t bytes) override {
    void* const memory = std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
    if (memory) staging_.Add(memory, bytes);
    return memory;
  }
  void FreeStaging(Device, void* memory, int64_t) noexcept override {
    staging_.Remove(memory);
    std::free(memory);
  }

  std::shared_ptr<Arena> MakeArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) override {
    return std::make_shared<SimArena>(device, engine.get(), RoundUp(std::min(reserve, kArenaRange), PageBytes()));
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
      const std::shared_ptr<void> copy(std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment)), std::free);
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

  const HostFlatKernels<SimHost> flat_;
  StagingPieces staging_;
};

}  // namespace
}  // namespace bindery::sim

namespace bindery {

Backend& SimBackend() {
  static Backend& backend = *new sim::Sims;  // never destroyed: tensors may be static
  return backend;
}

}  // namespace bindery
