// The CPU's backend: host memory, and streams that do everything at once. Small pieces of memory come from malloc;
// large ones are pages of their own, on huge pages and touched at once, so that the step that first uses one meets no
// page fault.
#include "engine/backend.h"

#include <cstdlib>

#include "engine/cpu/arena.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/host_flat_kernels.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPagesFrom = 64 << 10;  // Storage's size classes from here on are whole pages

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
    return MakeCpuArena(device, engine, reserve);
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
