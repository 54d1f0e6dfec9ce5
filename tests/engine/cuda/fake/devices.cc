// The driver's functions that tell of devices and errors, and choose contexts.
#include <atomic>
#include <cstdio>

#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

constexpr size_t kTotalBytes = size_t{1} << 30;

CUresult Init(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult DriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }

CUresult GetErrorName(CUresult result, const char** text) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_DEVICE_UNAVAILABLE: *text = "CUDA_ERROR_DEVICE_UNAVAILABLE"; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult GetErrorString(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "it failed";
  return CUDA_SUCCESS;
}

CUresult DeviceGetCount(int* count) { return *count = kNumGpus, CUDA_SUCCESS; }
CUresult DeviceGet(CUdevice* device, int index) { return *device = index, CUDA_SUCCESS; }
CUresult DeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<size_t>(size), "fake GPU");
  return CUDA_SUCCESS;
}
std::atomic<int> lacking = 0;

CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: *value = attribute != lacking; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult DeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = kTotalBytes, CUDA_SUCCESS; }
CUresult DeviceCanAccessPeer(int* reaches, CUdevice a, CUdevice b) {
  if (a == b) return Refuse("cuDeviceCanAccessPeer", "of a device and itself", CUDA_ERROR_INVALID_DEVICE);
  *reaches = a != kLonelyGpu && b != kLonelyGpu;
  return CUDA_SUCCESS;
}

std::atomic<int> without_context = -1;  // GPU; once

CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (int gpu = device; without_context.compare_exchange_strong(gpu, -1)) return CUDA_ERROR_OUT_OF_MEMORY;
  *context = reinterpret_cast<CUcontext>(&GpuAt(device));
  return CUDA_SUCCESS;
}
CUresult CtxPushCurrent(CUcontext context) {
  if (Contexts().push(reinterpret_cast<FakeGpu*>(context))) return CUDA_SUCCESS;
  return Refuse("cuCtxPushCurrent", "too many", CUDA_ERROR_INVALID_VALUE);
}
CUresult CtxPopCurrent(CUcontext* context) {
  if (Contexts().empty()) return Refuse("cuCtxPopCurrent", "there is none", CUDA_ERROR_INVALID_CONTEXT);
  *context = reinterpret_cast<CUcontext>(Contexts().back());
  Contexts().pop();
  return CUDA_SUCCESS;
}
CUresult CtxGetStreamPriorityRange(int* least, int* greatest) {
  if (!Current("cuCtxGetStreamPriorityRange")) return CUDA_ERROR_INVALID_CONTEXT;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

}  // namespace

void FailContext(int gpu) { without_context = gpu; }
void Lack(CUdevice_attribute attribute) { lacking = attribute; }

int CurrentGpu() {
  if (Contexts().empty()) return -1;
  int gpu = 0;
  while (&GpuAt(gpu) != Contexts().back()) ++gpu;
  return gpu;
}

void FillDevices(RuntimeApi* api) {
  api->init = &Init;
  api->driver_get_version = &DriverGetVersion;
  api->get_error_name = &GetErrorName;
  api->get_error_string = &GetErrorString;
  api->device_get_count = &DeviceGetCount;
  api->device_get = &DeviceGet;
  api->device_get_name = &DeviceGetName;
  api->device_get_attribute = &DeviceGetAttribute;
  api->device_total_mem = &DeviceTotalMem;
  api->device_can_access_peer = &DeviceCanAccessPeer;
  api->device_primary_ctx_retain = &DevicePrimaryCtxRetain;
  api->ctx_push_current = &CtxPushCurrent;
  api->ctx_pop_current = &CtxPopCurrent;
  api->ctx_get_stream_priority_range = &CtxGetStreamPriorityRange;
}

}  // namespace bindery::cuda::fake
