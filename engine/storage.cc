// Pieces are rounded up to size classes, eight per power of two, and a freed piece waits in its class's list for the
// next request of that class. Small pieces come from malloc; large ones are pages of their own, on huge pages and
// touched at once, so that the step that first uses one meets no page fault.
#include "engine/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/pages.h"

namespace bindery {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPagesFrom = 64 << 10;  // classes from here on are whole pages
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr int64_t kMaxStep = kHugePageBytes;  // large pieces waste at most one huge page

int64_t ClassOf(int64_t bytes) {
  const int64_t wanted = std::max(bytes, kAlignment);
  const int64_t eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(wanted - 1))) / 8;
  return RoundUp(wanted, std::clamp(eighth, kAlignment, kMaxStep));
}

// `bytes` is a size class. Null when memory is short.
void* NewPiece(int64_t bytes) {
  if (bytes < kPagesFrom) return std::aligned_alloc(kAlignment, bytes);
  char* const pages = ReservePages(bytes);
  if (pages && !CommitPages(pages, bytes, 1)) {
    ReleasePages(pages, bytes);
    return nullptr;
  }
  return pages;
}

void DeletePiece(void* piece, int64_t bytes) {
  if (bytes < kPagesFrom) {
    std::free(piece);
  } else {
    ReleasePages(static_cast<char*>(piece), bytes);
  }
}

// What a Storage and its chunks share. A free piece holds the address of the next one of its class in its first bytes.
class Pools {
 public:
  void* Allocate(Device device, int64_t bytes) {
    const int64_t size = ClassOf(bytes);
    std::unique_lock lock(mutex_);
    Pool& pool = pools_[device];
    void*& free = pool.free[size];  // made now, so that giving the piece back needs no memory
    if (free) {
      void* const piece = free;
      free = *static_cast<void**>(piece);
      pool.stats.pooled -= size;
      ++pool.stats.pool_hits;
      CountOut(pool.stats, size);
      return piece;
    }
    if (pool.limit > 0 && pool.stats.in_use + pool.stats.pooled + size > pool.limit) {
      Drop(pool);
      if (pool.stats.in_use + size > pool.limit) {
        Throw<DeviceError>("{}: cannot allocate {} bytes: {} in use, limit {}", device, bytes, pool.stats.in_use,
                           pool.limit);
      }
    }
    pool.stats.in_use += size;  // taken from the limit while the lock is off
    lock.unlock();
    void* piece = NewPiece(size);
    if (!piece) {
      ReleaseAll();
      piece = NewPiece(size);
    }
    lock.lock();
    pool.stats.in_use -= size;
    if (!piece) {
      Throw<DeviceError>("{}: cannot allocate {} bytes: out of memory; {} in use, the system has {} available", device,
                         bytes, pool.stats.in_use, AvailableMemory());
    }
    CountOut(pool.stats, size);
    return piece;
  }

  void GiveBack(Device device, void* piece, int64_t bytes) noexcept {
    const int64_t size = ClassOf(bytes);
    const std::lock_guard lock(mutex_);
    Pool& pool = pools_.find(device)->second;
    pool.stats.in_use -= size;
    if (closed_) {
      DeletePiece(piece, size);
      return;
    }
    void*& free = pool.free.find(size)->second;
    *static_cast<void**>(piece) = free;
    free = piece;
    pool.stats.pooled += size;
  }

  StorageStats Stats(Device device) const {
    const std::lock_guard lock(mutex_);
    const auto pool = pools_.find(device);
    return pool == pools_.end() ? StorageStats() : pool->second.stats;
  }

  void SetLimit(Device device, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    pools_[device].limit = bytes;
  }

  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    for (auto& [device, pool] : pools_) Drop(pool);
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [device, pool] : pools_) Drop(pool);
  }

 private:
  struct Pool {
    std::map<int64_t, void*> free;
    StorageStats stats;
    int64_t limit = 0;
  };

  static void CountOut(StorageStats& stats, int64_t size) {
    ++stats.allocations;
    stats.in_use += size;
    stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  }

  static void Drop(Pool& pool) {
    for (auto& [size, first] : pool.free) {
      while (first) DeletePiece(std::exchange(first, *static_cast<void**>(first)), size);
    }
    pool.stats.pooled = 0;
  }

  mutable std::mutex mutex_;
  std::map<Device, Pool> pools_;
  bool closed_ = false;
};

class PooledChunk final : public Chunk {
 public:
  PooledChunk(std::shared_ptr<Pools> pools, Device device, int64_t bytes)
      : pools_(std::move(pools)), device_(device), bytes_(bytes), data_(pools_->Allocate(device, bytes)) {}
  ~PooledChunk() override { pools_->GiveBack(device_, data_, bytes_); }
  PooledChunk(const PooledChunk&) = delete;
  PooledChunk& operator=(const PooledChunk&) = delete;

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  Device device() const override { return device_; }

 private:
  const std::shared_ptr<Pools> pools_;
  const Device device_;
  const int64_t bytes_;
  void* const data_;
};

class PooledStorage final : public Storage {
 public:
  ~PooledStorage() override { pools_->Close(); }

  std::shared_ptr<Chunk> Allocate(Device device, int64_t bytes) override {
    CheckDevice(device);
    if (bytes < 0) Throw("{}: cannot allocate {} bytes", device, bytes);
    if (bytes > kMaxBytes) Throw<DeviceError>("{}: cannot allocate {} bytes: more than any machine has", device, bytes);
    return std::make_shared<PooledChunk>(pools_, device, bytes);
  }
  StorageStats Stats(Device device) const override { return pools_->Stats(device); }
  void SetLimit(Device device, int64_t bytes) override {
    CheckDevice(device);
    if (bytes < 0) Throw("{}: the limit of a storage must be >= 0, got {}", device, bytes);
    pools_->SetLimit(device, bytes);
  }
  void ReleasePool() override { pools_->ReleaseAll(); }

 private:
  static void CheckDevice(Device device) {
    if (device.kind != DeviceKind::kCpu || device.index < 0) {
      Throw<DeviceError>("{}: this build has no memory for this device", device);
    }
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
