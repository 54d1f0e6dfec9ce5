// The CPU's backend: host memory, and streams that do everything at once. Small pieces of memory come from malloc;
// large ones are pages of their own, on huge pages and touched at once, so that the step that first uses one meets no
// page fault.
#include "engine/backend.h"

#include <cstdlib>
#include <cstring>

#include "engine/cpu/arena.h"
#include "engine/cpu/pages.h"
#include "engine/kernels/flat.h"

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

class CpuFlatKernels final : public FlatKernels {
 public:
  void Fill(Stream&, DType dtype, void* out, int64_t n, double value) const override {
    flat::Fill(dtype, out, n, value);
  }
  void Copy(Stream&, const void* in, void* out, int64_t bytes) const override { flat::Copy(in, out, bytes); }
  void CopyFinite(Stream&, DType dtype, const void* in, void* out, int64_t n) const override {
    if (flat::AllFinite(dtype, in, n)) flat::Copy(in, out, n * SizeOf(dtype));
  }
  void CopyRows(Stream&, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows,
                int64_t bytes) const override {
    for (int64_t i = 0; i < rows; ++i) {
      flat::Copy(static_cast<const char*>(in) + i * in_stride, static_cast<char*>(out) + i * out_stride, bytes);
    }
  }
  void Cast(Stream&, DType from, const void* in, DType to, void* out, int64_t n) const override {
    flat::Cast(from, in, to, out, n);
  }
  void Sum(Stream&, DType dtype, std::span<const void* const> in, void* out, int64_t n) const override {
    flat::Sum(dtype, in, out, n);
  }
  void Add(Stream&, DType dtype, const void* in, void* out, int64_t n) const override { flat::Add(dtype, in, out, n); }
  void Scale(Stream&, DType dtype, void* out, int64_t n, double factor) const override {
    flat::Scale(dtype, out, n, factor);
  }
  bool HasUpdate(UpdateKernel) const override { return true; }
  void CheckFinite(Stream&, DType dtype, const void* in, int64_t n, int64_t place, int64_t first,
                   StepStatus* status) const override {
    flat::CheckFinite(dtype, in, n, place, first, status);
  }
  void Update(Stream&, const DeviceUpdate& update, const StepRates* rates, const int64_t* committed,
              StepStatuses statuses) const override {
    if (flat::AllGood(statuses)) flat::Update(update, *rates, *committed);
  }
  void Commit(Stream&, StepStatuses statuses, const void* in, void* out, int64_t bytes,
              int64_t* committed) const override {
    if (!flat::AllGood(statuses)) return;
    flat::Copy(in, out, bytes);
    if (committed) ++*committed;
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
  const CpuFlatKernels flat_;
};

}  // namespace

Backend& CpuBackend() {
  static Backend& backend = *new Cpus;  // never destroyed: tensors may be static
  return backend;
}

}  // namespace bindery
