// The CPU's backend: host memory, and streams that do everything at once. Small pieces of memory come from malloc;
// large ones are pages of their own, on huge pages and touched at once, so that the step that first uses one meets no
// page fault.
#include "engine/backend.h"

#include <algorithm>
#include <cstdlib>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/host_flat_kernels.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;
// Under a limit of address space an arena takes this part of what is left: other arenas, parameters, threads need some.
constexpr int64_t kShareOfLimit = 4;
constexpr int64_t kPagesFrom = 64 << 10;  // Storage's size classes from here on are whole pages

class CpuArena final : public Arena {
 public:
  CpuArena(Device device, Engine* engine, int64_t bytes) : Arena(device, engine, bytes, kHugePageBytes) {
    base_ = ReservePages(bytes);
    if (!base_) Throw<DeviceError>("{}: the system refuses {} bytes of address space for an arena", device, bytes);
  }
  ~CpuArena() override { ReleasePages(base_, reserved()); }

 private:
  std::string Commit(int64_t begin, int64_t end, int threads) override {
    if (CommitPages(base_ + begin, end - begin, threads)) return "";
    return fmt::format("out of memory, the system has {} available", AvailableMemory());
  }
};

class CpuStream final : public Stream {
 public:
  using Stream::Stream;

  std::exception_ptr Begin(const std::string&, std::span<const FenceUse> uses) override {
    std::exception_ptr error;
    for (const FenceUse& use : uses) {
      use.fence->Wait();
      if (!error) error = InheritedError(*use.fence, use.inherits);
    }
    return error;
  }
  FencePtr End(std::shared_ptr<const void>, std::shared_ptr<const void>) override { return nullptr; }
  std::exception_ptr Synchronize() noexcept override { return nullptr; }
};

struct CpuHost {
  template <class F, class... Arguments>
  static void Run(Stream&, const F& f, const Arguments&... arguments) {
    f(arguments...);
  }
};

class Cpus final : public Backend {
 public:
  bool host_addressable() const override { return true; }
  void CheckIndex(Device) const override {}  // logical devices: as many as anybody likes

  void* Allocate(Device, int64_t bytes) override {
    if (bytes < kPagesFrom) return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    char* const pages = ReservePages(bytes);
    if (pages && !CommitPages(pages, bytes, 1)) {
      ReleasePages(pages, bytes);
      return nullptr;
    }
    return pages;
  }
  void Free(Device, void* memory, int64_t bytes) noexcept override {
    if (bytes < kPagesFrom) {
      std::free(memory);
    } else {
      ReleasePages(static_cast<char*>(memory), bytes);
    }
  }
  void* AllocateStaging(Device device, int64_t bytes) override { return Allocate(device, bytes); }
  void FreeStaging(Device device, void* memory, int64_t bytes) noexcept override { Free(device, memory, bytes); }

  std::shared_ptr<Arena> MakeArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) override {
    const int64_t most = std::min({reserve, MachineMemory(), AvailableAddressSpace() / kShareOfLimit});
    return std::make_shared<CpuArena>(device, engine.get(), RoundUp(most, kHugePageBytes));
  }
  std::unique_ptr<Stream> MakeStream(Device device, Lane lane) override {
    return std::make_unique<CpuStream>(device, lane);
  }
  const FlatKernels& flat() const override { return flat_; }
  void CopyAcross(Stream& stream, Device, const void* source, Device, void* target, int64_t bytes) override {
    flat_.Copy(stream, source, target, bytes);
  }

 private:
  const HostFlatKernels<CpuHost> flat_;
};

}  // namespace

Backend& CpuBackend() {
  static Backend& backend = *new Cpus;  // never destroyed: tensors may be static
  return backend;
}

}  // namespace bindery
