// Backend: everything the layers above need of one kind of device: memory, streams, copies, flat math. One backend a
// kind: engine/cpu, engine/sim, engine/cuda. Where a kind is left out of the build, its place is taken by a file that
// says so (engine/cuda/absent.cc); callers never ask at compile time.
//
// Thread safety: all methods may be called from any thread, those with a stream by the stream's worker.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device.h"
#include "engine/kernels/flat_kernels.h"
#include "engine/memory/arena.h"
#include "engine/stream.h"

namespace bindery {

class Backend {
 public:
  // Throws DeviceError, with the reason, if this build or machine has no such devices.
  static Backend& Of(DeviceKind kind);
  static Backend& Of(Device device);  // also checks the index

  virtual ~Backend() = default;

  // May the host read and write device memory through its address? Then the devices' streams are synchronous too.
  virtual bool host_addressable() const = 0;
  // Throws DeviceError if there is no device of this index.
  virtual void CheckIndex(Device device) const = 0;

  // Raw memory of a device, beneath Storage, which pools it. 64-byte aligned, not initialised; null when memory is
  // short. `bytes` > 0.
  virtual void* Allocate(Device device, int64_t bytes) = 0;
  virtual void Free(Device device, void* memory, int64_t bytes) noexcept = 0;
  // Host memory that the device's streams can copy from and to.
  virtual void* AllocateStaging(Device device, int64_t bytes) = 0;
  virtual void FreeStaging(Device device, void* memory, int64_t bytes) noexcept = 0;

  virtual std::shared_ptr<Arena> MakeArena(Device device, const std::shared_ptr<Engine>& engine, int64_t reserve) = 0;
  virtual std::unique_ptr<Stream> MakeStream(Device device, Lane lane) = 0;

  virtual const FlatKernels& flat() const = 0;

  // `bytes` bytes between two devices, one of which is of this kind, by `stream`, which belongs to either. Host memory
  // (a CPU device's) may be any; memory from AllocateStaging is copied without a detour. A synchronous stream returns
  // when it is done, provided that the other device's memory is at rest.
  virtual void CopyAcross(Stream& stream, Device from, const void* source, Device to, void* target, int64_t bytes) = 0;
};

// Backend::CopyAcross of whichever of the two kinds is not the CPU; flat().Copy within a device.
void CopyBetween(Stream& stream, Device from, const void* source, Device to, void* target, int64_t bytes);

inline bool HostAddressable(Device device) { return Backend::Of(device.kind).host_addressable(); }
// Can either device follow the other's addresses?
inline bool ShareMemory(Device a, Device b) { return a == b || (HostAddressable(a) && HostAddressable(b)); }

// The backends there are (backend.cc).
Backend& CpuBackend();
Backend& SimBackend();
Backend& CudaBackend();  // engine/cuda; absent.cc throws DeviceError

}  // namespace bindery
