// CUDA's functions that are used: libcuda's, found when the first device is asked for, so that programs link no CUDA
// library, start as fast as without and run where no driver is. A table of typed pointers, which tests fill with
// functions of their own.
//
// Only the driver's interface: what the toolkit's own library would add, its kernels and its hidden state, is not
// needed.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/cuda/library.h"

namespace bindery::cuda {

// Types are those of cuda.h, which calls the current version of a function by its plain name; the library calls it by
// one that tells the version.
struct RuntimeApi {
  LibraryFunctions find = {};  // default: all are null
  decltype(&::cuInit) init = find("cuInit");
  decltype(&::cuDriverGetVersion) driver_get_version = find("cuDriverGetVersion");
  decltype(&::cuGetErrorName) get_error_name = find("cuGetErrorName");
  decltype(&::cuGetErrorString) get_error_string = find("cuGetErrorString");

  decltype(&::cuDeviceGetCount) device_get_count = find("cuDeviceGetCount");
  decltype(&::cuDeviceGet) device_get = find("cuDeviceGet");
  decltype(&::cuDeviceGetName) device_get_name = find("cuDeviceGetName");
  decltype(&::cuDeviceGetAttribute) device_get_attribute = find("cuDeviceGetAttribute");
  decltype(&::cuDeviceTotalMem) device_total_mem = find("cuDeviceTotalMem_v2");
  decltype(&::cuDeviceCanAccessPeer) device_can_access_peer = find("cuDeviceCanAccessPeer");
  decltype(&::cuDevicePrimaryCtxRetain) device_primary_ctx_retain = find("cuDevicePrimaryCtxRetain");
  decltype(&::cuCtxPushCurrent) ctx_push_current = find("cuCtxPushCurrent_v2");
  decltype(&::cuCtxPopCurrent) ctx_pop_current = find("cuCtxPopCurrent_v2");
  decltype(&::cuCtxGetStreamPriorityRange) ctx_get_stream_priority_range = find("cuCtxGetStreamPriorityRange");

  decltype(&::cuMemPoolCreate) mem_pool_create = find("cuMemPoolCreate");
  decltype(&::cuMemPoolSetAccess) mem_pool_set_access = find("cuMemPoolSetAccess");
  decltype(&::cuMemAllocFromPoolAsync) mem_alloc_from_pool_async = find("cuMemAllocFromPoolAsync");
  decltype(&::cuMemFreeAsync) mem_free_async = find("cuMemFreeAsync");
  decltype(&::cuMemHostAlloc) mem_host_alloc = find("cuMemHostAlloc");
  decltype(&::cuMemFreeHost) mem_free_host = find("cuMemFreeHost");
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = find("cuMemGetAllocationGranularity");
  decltype(&::cuMemAddressReserve) mem_address_reserve = find("cuMemAddressReserve");
  decltype(&::cuMemAddressFree) mem_address_free = find("cuMemAddressFree");
  decltype(&::cuMemCreate) mem_create = find("cuMemCreate");
  decltype(&::cuMemRelease) mem_release = find("cuMemRelease");
  decltype(&::cuMemMap) mem_map = find("cuMemMap");
  decltype(&::cuMemUnmap) mem_unmap = find("cuMemUnmap");
  decltype(&::cuMemSetAccess) mem_set_access = find("cuMemSetAccess");

  decltype(&::cuMemsetD8Async) memset_d8_async = find("cuMemsetD8Async");
  decltype(&::cuMemcpyHtoDAsync) memcpy_htod_async = find("cuMemcpyHtoDAsync_v2");
  decltype(&::cuMemcpyDtoHAsync) memcpy_dtoh_async = find("cuMemcpyDtoHAsync_v2");
  decltype(&::cuMemcpyDtoDAsync) memcpy_dtod_async = find("cuMemcpyDtoDAsync_v2");
  decltype(&::cuMemcpyPeerAsync) memcpy_peer_async = find("cuMemcpyPeerAsync");

  decltype(&::cuStreamCreateWithPriority) stream_create_with_priority = find("cuStreamCreateWithPriority");
  decltype(&::cuStreamSynchronize) stream_synchronize = find("cuStreamSynchronize");
  decltype(&::cuStreamQuery) stream_query = find("cuStreamQuery");
  decltype(&::cuStreamWaitEvent) stream_wait_event = find("cuStreamWaitEvent");
  decltype(&::cuStreamWriteValue64) stream_write_value64 = find("cuStreamWriteValue64_v2");
  decltype(&::cuStreamBeginCapture) stream_begin_capture = find("cuStreamBeginCapture_v2");
  decltype(&::cuStreamEndCapture) stream_end_capture = find("cuStreamEndCapture");
  decltype(&::cuGraphInstantiate) graph_instantiate = find("cuGraphInstantiateWithFlags");
  decltype(&::cuGraphLaunch) graph_launch = find("cuGraphLaunch");
  decltype(&::cuGraphDestroy) graph_destroy = find("cuGraphDestroy");
  decltype(&::cuGraphExecDestroy) graph_exec_destroy = find("cuGraphExecDestroy");
  decltype(&::cuEventCreate) event_create = find("cuEventCreate");
  decltype(&::cuEventRecord) event_record = find("cuEventRecord");

  decltype(&::cuModuleLoadData) module_load_data = find("cuModuleLoadData");
  decltype(&::cuModuleGetFunction) module_get_function = find("cuModuleGetFunction");
  decltype(&::cuLaunchKernel) launch_kernel = find("cuLaunchKernel");
};

// Opens a driver library, libcuda.so.1 or another of its kind. Throws DeviceError with the loader's reason, or naming
// the function that it lacks.
RuntimeApi OpenRuntime(const std::string& library);

// Of CudaCounts (report.h). Calls are counted in the table that devices use.
struct Counters {
  std::atomic<int64_t> allocations = 0, synchronizations = 0, waits = 0, waits_of_callers = 0, captures = 0,
                       graph_launches = 0;
};
Counters& TheCounters();

// What all devices use from now on, in place of libcuda's: for tests, before the first device is asked for.
void UseRuntime(const RuntimeApi& api);
const RuntimeApi& Runtime();  // UseRuntime's, or libcuda's, opened by the first call; throws as OpenRuntime does

// "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"
std::string TextOf(const RuntimeApi& api, CUresult result);
// Throws DeviceError "WHO: CALL: text" unless the result is success.
void CheckCall(const RuntimeApi& api, CUresult result, const std::string& who, const char* call);

}  // namespace bindery::cuda
