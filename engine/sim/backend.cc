#include "engine/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/flat.h"
#include "engine/sim/device.h"
#include "engine/sim/sim.h"
#include "engine/sim/stream.h"
#include "engine/staging.h"

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
  void CopyFinite(Stream& stream, DType dtype, const void* in, void* out, int64_t n) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, from = s.View(in), to = s.View(out)] {
      if (flat::AllFinite(dtype, from, n)) flat::Copy(from, to, n * SizeOf(dtype));
    });
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
  bool HasUpdate(UpdateKernel) const override { return true; }
  void CheckFinite(Stream& stream, DType dtype, const void* in, int64_t n, int64_t place, int64_t first,
                   StepStatus* status) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue(
        [=, from = s.View(in), status = Seen(s, status)] { flat::CheckFinite(dtype, from, n, place, first, status); });
  }
  void Update(Stream& stream, const DeviceUpdate& update, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override {
    SimStream& s = SimStreamOf(stream);
    DeviceUpdate here = update;
    here.gradient = s.View(update.gradient);
    here.weight = s.View(update.weight);
    here.new_weight = s.View(update.new_weight);
    for (auto& slot : here.states) {
      for (void*& state : slot) state = s.View(state);
    }
    s.Enqueue([here, rates = Seen(s, rates), committed = Seen(s, committed), all = Seen(s, statuses)] {
      if (flat::AllGood(all)) flat::Update(here, *rates, *committed);
    });
  }
  void Commit(Stream& stream, StepStatuses statuses, const void* in, void* out, int64_t bytes,
              int64_t* committed) const override {
    SimStream& s = SimStreamOf(stream);
    s.Enqueue([=, all = Seen(s, statuses), from = s.View(in), to = s.View(out), count = Seen(s, committed)] {
      if (!flat::AllGood(all)) return;
      flat::Copy(from, to, bytes);
      if (count) ++*count;
    });
  }

 private:
  template <class T>
  static T* Seen(const SimStream& stream, T* address) {
    return reinterpret_cast<T*>(stream.View(address));
  }
  static std::vector<const StepStatus*> Seen(const SimStream& stream, StepStatuses statuses) {
    std::vector<const StepStatus*> all;
    for (const StepStatus* status : statuses) all.push_back(Seen(stream, status));
    return all;
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

  const SimFlatKernels flat_;
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
