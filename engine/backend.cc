#include "engine/backend.h"

#include "base/error.h"

namespace bindery {

Backend& Backend::Of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return CpuBackend();
    case DeviceKind::kSim: return SimBackend();
    case DeviceKind::kCuda: return CudaBackend();
  }
  Throw<DeviceError>("unknown kind of device {}", static_cast<int>(kind));
}

Backend& Backend::Of(Device device) {
  Backend& backend = Of(device.kind);
  if (device.index < 0) Throw<DeviceError>("device index must be >= 0, got {}", device.index);
  backend.CheckIndex(device);
  return backend;
}

void CopyBetween(Stream& stream, Device from, const void* source, Device to, void* target, int64_t bytes) {
  if (bytes == 0) return;
  Backend& a = Backend::Of(from.kind);
  if (ShareMemory(from, to)) return a.flat().Copy(stream, source, target, bytes);
  Backend& b = Backend::Of(to.kind);
  if (&a != &b && !a.host_addressable() && !b.host_addressable()) {
    Throw<DeviceError>("nothing copies from {} to {} but by the host", from, to);
  }
  (a.host_addressable() ? b : a).CopyAcross(stream, from, source, to, target, bytes);
}

}  // namespace bindery
