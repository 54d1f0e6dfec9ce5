// Pieces are rounded up to size classes, eight per power of two, and a freed piece waits in its class's list for the
// next request of that class. The lists are in host memory; the pieces come from the device's backend.
#include "engine/memory/storage.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/cpu/pages.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr int64_t kMaxStep = kHugePageBytes;  // large pieces waste at most one huge page

int64_t ClassOf(int64_t bytes) {
  const int64_t wanted = std::max(bytes, kAlignment);
  const int64_t eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(wanted - 1))) / 8;
  return RoundUp(wanted, std::clamp(eighth, kAlignment, kMaxStep));
}

// Device memory, or host memory that the device's streams can reach; each kind has its own pools.
enum class MemoryKind : uint8_t { kDevice, kStaging };

struct Place {
  Device device;
  MemoryKind kind = MemoryKind::kDevice;
  auto operator<=>(const Place&) const = default;
};

// `bytes` is a size class. Null when memory is short.
void* NewPiece(const Place& place, int64_t bytes) {
  Backend& backend = Backend::Of(place.device.kind);
  return place.kind == MemoryKind::kDevice ? backend.Allocate(place.device, bytes)
                                           : backend.AllocateStaging(place.device, bytes);
}

void DeletePiece(const Place& place, void* piece, int64_t bytes) {
  Backend& backend = Backend::Of(place.device.kind);
  place.kind == MemoryKind::kDevice ? backend.Free(place.device, piece, bytes)
                                    : backend.FreeStaging(place.device, piece, bytes);
}

// What a Storage and its chunks share.
class Pools {
 public:
  void* Allocate(const Place& place, int64_t bytes) {
    const int64_t size = ClassOf(bytes);
    std::unique_lock lock(mutex_);
    Pool& pool = pools_[place];
    Class& pieces = pool.classes[size];
    if (!pieces.free.empty()) {
      void* const piece = pieces.free.back();
      pieces.free.pop_back();
      pool.stats.pooled -= size;
      ++pool.stats.pool_hits;
      CountOut(pool.stats, size);
      return piece;
    }
    if (pool.limit > 0 && pool.stats.in_use + pool.stats.pooled + size > pool.limit) {
      Drop(place, pool);
      if (pool.stats.in_use + size > pool.limit) {
        Throw<DeviceError>("{}: cannot allocate {} bytes: {} in use, limit {}", place.device, bytes, pool.stats.in_use,
                           pool.limit);
      }
    }
    pieces.free.reserve(static_cast<size_t>(pieces.total) + 1);  // now, so that giving it back needs no memory
    ++pieces.total;
    pool.stats.in_use += size;  // taken from the limit while the lock is off
    lock.unlock();
    void* piece = nullptr;
    std::exception_ptr error;
    try {
      piece = NewPiece(place, size);
      if (!piece) {
        ReleaseAll();
        piece = NewPiece(place, size);
      }
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    pool.stats.in_use -= size;
    if (!piece) {
      --pieces.total;
      if (error) std::rethrow_exception(error);
      const bool of_host = place.kind == MemoryKind::kStaging || HostAddressable(place.device);
      Throw<DeviceError>("{}: cannot allocate {} bytes: out of memory; {} in use by tensors{}", place.device, bytes,
                         pool.stats.in_use,
                         of_host ? fmt::format(", the system has {} available", AvailableMemory()) : "");
    }
    CountOut(pool.stats, size);
    return piece;
  }

  void GiveBack(const Place& place, void* piece, int64_t bytes) noexcept {
    const int64_t size = ClassOf(bytes);
    const std::lock_guard lock(mutex_);
    Pool& pool = pools_.find(place)->second;
    Class& pieces = pool.classes.find(size)->second;
    pool.stats.in_use -= size;
    if (closed_) {
      --pieces.total;
      DeletePiece(place, piece, size);
      return;
    }
    pieces.free.push_back(piece);
    pool.stats.pooled += size;
  }

  StorageStats Stats(Device device) const {
    const std::lock_guard lock(mutex_);
    const auto pool = pools_.find({device, MemoryKind::kDevice});
    return pool == pools_.end() ? StorageStats() : pool->second.stats;
  }

  void SetLimit(Device device, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    pools_[{device, MemoryKind::kDevice}].limit = bytes;
  }

  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    for (auto& [place, pool] : pools_) Drop(place, pool);
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [place, pool] : pools_) Drop(place, pool);
  }

 private:
  struct Class {  // pieces of one size
    std::vector<void*> free = {};
    int64_t total = 0;  // in use or free
  };
  struct Pool {
    std::map<int64_t, Class> classes;
    StorageStats stats;
    int64_t limit = 0;
  };

  static void CountOut(StorageStats& stats, int64_t size) {
    ++stats.allocations;
    stats.in_use += size;
    stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  }

  static void Drop(const Place& place, Pool& pool) {
    for (auto& [size, pieces] : pool.classes) {
      for (void* piece : pieces.free) DeletePiece(place, piece, size);
      pieces.total -= static_cast<int64_t>(pieces.free.size());
      pieces.free.clear();
    }
    pool.stats.pooled = 0;
  }

  mutable std::mutex mutex_;
  std::map<Place, Pool> pools_;
  bool closed_ = false;
};

class PooledChunk final : public Chunk {
 public:
  PooledChunk(std::shared_ptr<Pools> pools, const Place& place, int64_t bytes)
      : pools_(std::move(pools)), place_(place), bytes_(bytes), data_(pools_->Allocate(place, bytes)) {}
  ~PooledChunk() override { pools_->GiveBack(place_, data_, bytes_); }
  PooledChunk(const PooledChunk&) = delete;
  PooledChunk& operator=(const PooledChunk&) = delete;

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  Device device() const override { return place_.device; }

 private:
  const std::shared_ptr<Pools> pools_;
  const Place place_;
  const int64_t bytes_;
  void* const data_;
};

class PooledStorage final : public Storage {
 public:
  ~PooledStorage() override { pools_->Close(); }

  std::shared_ptr<Chunk> Allocate(Device device, int64_t bytes) override {
    return New({device, MemoryKind::kDevice}, bytes);
  }
  std::shared_ptr<Chunk> AllocateStaging(Device device, int64_t bytes) override {
    return New({device, MemoryKind::kStaging}, bytes);
  }
  StorageStats Stats(Device device) const override { return pools_->Stats(device); }
  void SetLimit(Device device, int64_t bytes) override {
    Backend::Of(device);
    if (bytes < 0) Throw("{}: the limit of a storage must be >= 0, got {}", device, bytes);
    pools_->SetLimit(device, bytes);
  }
  void ReleasePool() override { pools_->ReleaseAll(); }

 private:
  std::shared_ptr<Chunk> New(const Place& place, int64_t bytes) {
    Backend::Of(place.device);
    if (bytes < 0) Throw("{}: cannot allocate {} bytes", place.device, bytes);
    if (bytes > kMaxBytes) {
      Throw<DeviceError>("{}: cannot allocate {} bytes: more than any machine has", place.device, bytes);
    }
    return std::make_shared<PooledChunk>(pools_, place, bytes);
  }

  const std::shared_ptr<Pools> pools_ = std::make_shared<Pools>();
};

}  // namespace

std::shared_ptr<Storage> MakeStorage() { return std::make_shared<PooledStorage>(); }

const std::shared_ptr<Storage>& DefaultStorage() {
  static const auto& storage = *new std::shared_ptr<Storage>(MakeStorage());  // never destroyed: tensors may be static
  return storage;
}

}  // namespace bindery
