// Storage: device memory by the piece, pooled, counted and limited. For tensors that live long (parameters, gradients,
// inputs); the values of a running program live in an Arena.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device.h"

namespace bindery {

struct StorageStats {
  int64_t in_use = 0;  // bytes handed out (rounded sizes)
  int64_t pooled = 0;  // bytes kept for reuse
  int64_t peak_in_use = 0;
  int64_t allocations = 0;  // calls of Allocate
  int64_t pool_hits = 0;    // of these, served from the pool
};

// A piece of memory; given back to the pool with the last reference. 64-byte aligned; not initialised.
class Chunk {
 public:
  virtual ~Chunk() = default;
  virtual void* data() const = 0;     // a device address, or one of the host's for staging memory
  virtual int64_t bytes() const = 0;  // as requested
  virtual Device device() const = 0;
};

// Thread safe. Chunks may outlive the Storage object.
class Storage {
 public:
  virtual ~Storage() = default;
  // Zero bytes is allowed. Throws DeviceError (device, bytes asked, in use, limit) when the limit or the machine's
  // memory is exceeded; pooled memory is released first. The storage stays usable afterwards.
  virtual std::shared_ptr<Chunk> Allocate(Device device, int64_t bytes) = 0;
  // Host memory that the device's streams can copy from and to, aligned as Allocate's; on a CPU, any. Not counted in
  // Stats, without a limit. Throws DeviceError when there is none.
  virtual std::shared_ptr<Chunk> AllocateStaging(Device device, int64_t bytes) = 0;
  virtual StorageStats Stats(Device device) const = 0;
  virtual void SetLimit(Device device, int64_t bytes) = 0;  // of in_use + pooled; 0 = no limit
  virtual void ReleasePool() = 0;                           // gives unused memory back to the system
};

std::shared_ptr<Storage> MakeStorage();
// The storage of all tensors and buffers; lives as long as the process.
const std::shared_ptr<Storage>& DefaultStorage();

}  // namespace bindery
