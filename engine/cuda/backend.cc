// The backend of GPUs: memory from pools of the driver's, streams of their own for each lane, copies by pinned memory.
#include "engine/backend.h"

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cuda/flat_kernels.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/stream.h"
#include "engine/memory/staging.h"
#include "engine/memory/storage.h"

namespace bindery::cuda {
namespace {

std::vector<GpuFacts> FindAll() {
  try {
    return FindGpus(Runtime());
  } catch (const DeviceError& error) {
    Throw<DeviceError>("device cuda is not available: {}", error.message());
  }
}

class Cudas final : public Backend {
 public:
  Cudas() : facts_(FindAll()), gpus_(facts_.size()) {}

  bool host_addressable() const override { return false; }
  void CheckIndex(Device device) const override { GpuOf(device); }

  void* Allocate(Device device, int64_t bytes) override { return GpuOf(device).Allocate(bytes); }
  void Free(Device device, void* memory, int64_t) noexcept override { GpuOf(device).Free(memory); }
  void* AllocateStaging(Device device, int64_t bytes) override {
    void* const memory = GpuOf(device).AllocateHost(bytes);
    if (memory) staging_.Add(memory, bytes);
    return memory;
  }
  void FreeStaging(Device device, void* memory, int64_t) noexcept override {
    staging_.Remove(memory);
    GpuOf(device).FreeHost(memory);
  }

  std::shared_ptr<Arena> MakeArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) override {
    return MakeCudaArena(GpuOf(device), engine, reserve);
  }
  std::unique_ptr<Stream> MakeStream(Device device, Lane lane) override {
    return std::make_unique<CudaStream>(GpuOf(device), lane);
  }
  const FlatKernels& flat() const override { return CudaFlat(); }

  void CopyAcross(Stream& stream, Device from, const void* source, Device to, void* target, int64_t bytes) override {
    const auto size = static_cast<size_t>(bytes);
    if (HostAddressable(stream.device())) return CopyNow(from, source, to, target, bytes);
    CudaStream& s = CudaStreamOf(stream);
    CopyCommand copy{.from = source, .to = target, .bytes = size};
    if (from.kind == to.kind) {
      copy.kind = CopyKind::kBetween;
      copy.from_context = GpuOf(from).context();
      copy.to_context = GpuOf(to).context();
    } else if (to.kind == DeviceKind::kCuda) {
      if (!staging_.Holds(source, bytes)) {  // read now, while the operation has the source to itself
        const std::shared_ptr<Chunk> staged = DefaultStorage()->AllocateStaging(to, bytes);
        std::memcpy(staged->data(), source, size);
        copy.from = staged->data();
        s.Keep(staged);
      }
      copy.kind = CopyKind::kToDevice;
    } else {
      if (!staging_.Holds(target, bytes)) {
        Throw<DeviceError>("{}: a stream copies to staging memory of the host only", stream.device());
      }
      copy.kind = CopyKind::kToHost;
    }
    s.Copy(copy);
  }

  std::vector<Gpu*> InUse() const {
    const std::lock_guard lock(mutex_);
    std::vector<Gpu*> used;
    for (const auto& [mine, error] : gpus_) {
      if (mine) used.push_back(mine.get());
    }
    return used;
  }

 private:
  Gpu& GpuOf(Device device) const {
    if (device.index >= static_cast<int>(facts_.size())) {
      Throw<DeviceError>("{} is not available: the GPUs of this machine are cuda:0 to cuda:{}", device,
                         facts_.size() - 1);
    }
    const std::lock_guard lock(mutex_);
    auto& [mine, error] = gpus_[static_cast<size_t>(device.index)];
    if (error) std::rethrow_exception(error);
    if (!mine) {
      try {
        mine = std::make_unique<Gpu>(Runtime(), device.index, facts_);
      } catch (...) {  // made once: what a try leaves behind in the driver would grow with each
        error = std::current_exception();
        throw;
      }
    }
    return *mine;
  }

  // For a worker of the host: the GPU's work is over, whoever asks has waited for it.
  void CopyNow(Device from, const void* source, Device to, void* target, int64_t bytes) {
    const bool to_host = from.kind == DeviceKind::kCuda;
    const Device device = to_host ? from : to;
    void* const host = to_host ? target : const_cast<void*>(source);
    std::shared_ptr<Chunk> staged;
    if (!staging_.Holds(host, bytes)) staged = DefaultStorage()->AllocateStaging(device, bytes);
    void* const pinned = staged ? staged->data() : host;
    if (staged && !to_host) std::memcpy(pinned, source, static_cast<size_t>(bytes));
    GpuOf(device).CopyNow(to_host ? source : pinned, to_host ? pinned : target, bytes, to_host);
    if (staged && to_host) std::memcpy(target, pinned, static_cast<size_t>(bytes));
  }

  const std::vector<GpuFacts> facts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<std::unique_ptr<Gpu>, std::exception_ptr>> gpus_;  // those that are used, or why not
  StagingPieces staging_;
};

Cudas& All() {
  static Cudas& all = *new Cudas;  // never destroyed: tensors may be static
  return all;
}

}  // namespace

std::vector<Gpu*> GpusInUse() { return All().InUse(); }

}  // namespace bindery::cuda

namespace bindery {

Backend& CudaBackend() { return cuda::All(); }

}  // namespace bindery
