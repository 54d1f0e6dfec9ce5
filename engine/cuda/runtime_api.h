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

namespace bindery::cuda {

// Names and types are those of cuda.h, which calls the current version of a function by its plain name.
struct RuntimeApi {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuGetErrorString) get_error_string = nullptr;

  decltype(&::cuDeviceGetCount) device_get_count = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetName) device_get_name = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&::cuDeviceCanAccessPeer) device_can_access_peer = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&::cuCtxPushCurrent) ctx_push_current = nullptr;
  decltype(&::cuCtxPopCurrent) ctx_pop_current = nullptr;
  decltype(&::cuCtxGetStreamPriorityRange) ctx_get_stream_priority_range = nullptr;

  decltype(&::cuMemPoolCreate) mem_pool_create = nullptr;
  decltype(&::cuMemPoolSetAccess) mem_pool_set_access = nullptr;
  decltype(&::cuMemAllocFromPoolAsync) mem_alloc_from_pool_async = nullptr;
  decltype(&::cuMemFreeAsync) mem_free_async = nullptr;
  decltype(&::cuMemHostAlloc) mem_host_alloc = nullptr;
  decltype(&::cuMemFreeHost) mem_free_host = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;

  decltype(&::cuMemsetD8Async) memset_d8_async = nullptr;
  decltype(&::cuMemcpyHtoDAsync) memcpy_htod_async = nullptr;
  decltype(&::cuMemcpyDtoHAsync) memcpy_dtoh_async = nullptr;
  decltype(&::cuMemcpyDtoDAsync) memcpy_dtod_async = nullptr;
  decltype(&::cuMemcpyPeerAsync) memcpy_peer_async = nullptr;

  decltype(&::cuStreamCreateWithPriority) stream_create_with_priority = nullptr;
  decltype(&::cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&::cuStreamQuery) stream_query = nullptr;
  decltype(&::cuStreamWaitEvent) stream_wait_event = nullptr;
  decltype(&::cuStreamWriteValue64) stream_write_value64 = nullptr;
  decltype(&::cuStreamBeginCapture) stream_begin_capture = nullptr;
  decltype(&::cuStreamEndCapture) stream_end_capture = nullptr;
  decltype(&::cuGraphInstantiate) graph_instantiate = nullptr;
  decltype(&::cuGraphLaunch) graph_launch = nullptr;
  decltype(&::cuGraphDestroy) graph_destroy = nullptr;
  decltype(&::cuGraphExecDestroy) graph_exec_destroy = nullptr;
  decltype(&::cuEventCreate) event_create = nullptr;
  decltype(&::cuEventRecord) event_record = nullptr;

  decltype(&::cuModuleLoadData) module_load_data = nullptr;
  decltype(&::cuModuleGetFunction) module_get_function = nullptr;
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;
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
